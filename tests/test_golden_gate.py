"""The page and the console of a gate and of an audit, as they were last agreed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from elo_exp.files import write_jsonl
from elo_exp.paths import HOME
from tests import golden
from tests.anthropic_server import AnthropicServer
from tests.commands import Ran, attempt, run
from tests.gates import BROKEN, judged_by, unread_of_nonsense, write_broken

LOCAL = ("tracker=local", "figures=false")
TWO = (*LOCAL, "+mode.strata.medqa=30", "rubric=[factuality,calibration]")
ONE = (*LOCAL, "+mode.strata.medqa=30", "rubric=[factuality]")
LAPSING = ("entrant=probe_hedged", "entrant.probe_hedged.lapse_rate=0.2")
BASELINE = "gate.baseline=four/responses/responses_probe_hedged.jsonl"


def same(name: str, ran: Ran, folder: Path, port: str = "PORT") -> None:
    """Compare the page and the console, which has gate.md, with their golden files."""
    text, _, _ = ran.out.partition("\nfiles ")
    golden.same(f"{name}.txt", text)
    page = (ran.run_dir / "report.html").read_text(encoding="utf-8")
    golden.same(
        f"{name}.html", page.replace(str(folder), "FOLDER").replace(port, "PORT")
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tournament of all probes, whose answers are baselines, and an audit of its judge."""
    folder = tmp_path_factory.mktemp("gates")
    run(*TWO, "elo.n_perms=2", "hydra.run.dir=four", folder=folder)
    run(*LOCAL, "experiment=audit", "audit.n_prompts=3", folder=folder)
    return folder


GATES: dict[str, tuple[str, ...]] = {
    "pass": (*ONE, "entrant=probe_reference", "gate.margin_elo=60"),
    "no_result": (*TWO, "entrant=probe_reference", "judge.position_effect=1"),
    "blind": (*TWO, "entrant=probe_reference"),
    "fail": (*TWO, "entrant=probe_swapped"),
    "fail_one": (*ONE, "entrant=probe_swapped"),
    "few": (*ONE, "entrant=probe_swapped", "judging.limit_pairs=10"),
    "one_order": (*TWO, *LAPSING, "judging.orders=one", "gate.margin=0.01"),
    "same": (*TWO, "entrant=probe_hedged"),
}


@pytest.fixture(scope="module")
def gates(folder: Path) -> dict[str, Ran]:
    """All gates in their order: the later ones find answers and verdicts of the earlier ones."""
    return {
        name: attempt("experiment=gate", *given, BASELINE, folder=folder)
        for name, given in GATES.items()
    }


@pytest.mark.parametrize("name", GATES)
def test_a_gate(name: str, gates: dict[str, Ran], folder: Path):
    same(f"gate_{name}", gates[name], folder)


@pytest.mark.usefixtures("gates")
def test_a_gate_whose_candidate_breaks_the_judge(folder: Path):
    baseline = folder / "four/responses/responses_probe_hedged.jsonl"
    write_broken(baseline, folder / "broken.jsonl", n_broken=10)
    with AnthropicServer(verdicts=unread_of_nonsense) as server:
        ran = attempt(
            "experiment=gate",
            *ONE,
            *BROKEN,
            *judged_by(server),
            BASELINE,
            folder=folder,
            ANTHROPIC_API_KEY=server.key,
        )
        port = server.url.rpartition(":")[2]
    same("gate_broken", ran, folder, port)


def test_an_audit(folder: Path):
    rubric = (HOME / "rubrics/factuality.md").read_text(encoding="utf-8")
    (folder / "mine.md").write_text(f"{rubric}\nIn other words.\n", encoding="utf-8")
    pair = {"prompt": "Why?", "reference": "Since it rains.", "author_a": "lexical-2"}
    write_jsonl(folder / "gold.jsonl", [
        {**pair, "response_a": f"It rains {n}.", "response_b": "No.", "label": label}
        for n, label in enumerate(["a", "a", "b", "tie"])
    ])  # fmt: skip
    given = (
        *LOCAL, "experiment=audit", "rubric=[factuality,calibration]", "audit.n_prompts=8",
        "judge.position_effect=1", "audit.paraphrases={factuality: [mine.md]}", "audit.gold=gold.jsonl",
        "audit.families={lexical: ours, lexical-2: ours}",
    )  # fmt: skip
    same("audit", run(*given, folder=folder), folder)
    plan = run(*given, "plan=true", folder=folder)
    golden.same("audit_plan.txt", plan.out)


def test_an_audit_of_several_judges(tmp_path: Path):
    pair = {"prompt": "Why?", "reference": "Since it rains.", "response_b": "No."}
    write_jsonl(tmp_path / "rain.jsonl", [
        {**pair, "response_a": f"It rains {n}.", "label": label}
        for n, label in enumerate(["a", "a", "b", "tie"])
    ])  # fmt: skip
    ran = run(
        *LOCAL,
        "experiment=audit",
        "judge=[fair:lexical,first:lexical]",
        "judges.first.position_effect=1",
        "rubric=[factuality,calibration]",
        "audit.n_prompts=8",
        "audit.gold=rain.jsonl",
        folder=tmp_path,
    )
    same("audits", ran, tmp_path)


def test_an_audit_of_a_judge_without_a_fault(folder: Path):
    ran = run(
        *LOCAL, "experiment=audit", "probe=[ladder,twin,verbosity]", folder=folder
    )
    same("audit_ok", ran, folder)
