"""Every notebook runs from its first cell to its last on a run folder, and shows figures and tables; of what a run does
not have it says so."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode, v4

from elo_exp import HOME
from elo_exp.files import write_jsonl
from tests.commands import DRAWN, run
from tests.oracle_demo import small

NOTEBOOKS = sorted(path.stem for path in (HOME / "notebooks").glob("*.py"))
SMALL = (
    "tracker=local",
    "judge.position_effect=0.2",
    "judging.limit_pairs=120",
    "elo.n_perms=50",
)
ESTIMATORS = "estimator=[ips,snips,dr_cpo,direct]"
LACKING = {
    "leaderboard of winless": (
        "3 entrants, 12 prompts, judge lexical",
        "| base_olmo | 1400 | - | - | - |",
        "| security_only | winless | - | - | - |",
        "| factuality | base_olmo | full_poe | 0 | - | - | - |",
        "| factuality | 12 | - | - |",
        "no figure `power`",
    ),
    "leaderboard of undrawn": ("no figure `ratings`", "no figure `pairwise_winrates`"),
    "leaderboard of no judge": (
        "5 recorded battles; this run asked no judge",
        "| c | winless | - | - | - |",
    ),
    "judge_audit of winless": (
        "no figure `predicted_and_observed`",
        "| factuality | - | 0% |",
    ),
    "judge_audit of undrawn": ("no figure `length_effect`", "| factuality | 36 | 0% |"),
    "judge_audit of no judge": (
        "This run asked no judge: it has battles, but neither verdicts nor responses.",
        "| facts | - | - |",
    ),
    "order_sensitivity of winless": ("| factuality | base_olmo | 0.36 | - |",),
    "order_sensitivity of undrawn": (
        "no figure `permutation_traces`",
        "no figure `k_sensitivity`",
    ),
    "order_sensitivity of no judge": (
        "tone has no Elo: there was no match to play.",
        "| facts | 16.0 | a > b > c |",
    ),
    "oracle of recorded": (
        "40 logged answers of tiny_base, 20 of them labelled",
        "This run read recorded answers: neither they nor their counts are in its folder.",
        "no figure `calibration`",
        "| tiny_clone | ips | - | - | refuse |",
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The runs that a notebook is for, by its name."""
    folder = tmp_path_factory.mktemp("whole")
    policies = small("tiny_base", "tiny_clone", "tiny_unhelpful")
    few = ("oracle.n_prompts=40", ESTIMATORS, "tracker=local")
    oracle = run("experiment=oracle", *few, *policies, folder=folder).run_dir
    tournament = run(*SMALL, folder=folder).run_dir
    return {name: oracle if name == "oracle" else tournament for name in NOTEBOOKS}


@pytest.fixture(scope="module")
def lacking(
    whole: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Small runs that have less than the demo's.

    winless    two entrants never differ, and win every battle against the third: their intervals are not known either
    undrawn    the same without figures
    no judge   battles from elsewhere; in the dimension `tone` Elo has nothing to play
    recorded   the oracle's answers analysed again, without figures
    """
    folder = tmp_path_factory.mktemp("lacking")
    answers = {f"p{n}": f"Sleep {n} hours, in the dark." for n in range(12)}
    asked = {"source": "own", "subject": "sleep", "text": "How long?"}
    write_jsonl(
        folder / "bank.jsonl",
        [{"prompt_id": p, "gold_answer": a, **asked} for p, a in answers.items()],
    )
    for name, poor in (
        ("base_olmo", None),
        ("full_poe", None),
        ("security_only", "No."),
    ):
        responses = [
            {"prompt_id": p, "response_text": poor or answer}
            for p, answer in answers.items()
        ]
        write_jsonl(folder / f"responses_{name}.jsonl", responses)
    rows = (
        "a,b,model_a,facts",
        "a,b,model_b,facts",
        "a,c,model_a,facts",
        "b,c,model_a,facts",
        "a,b,tie,tone",
    )
    (folder / "battles.csv").write_text(
        "\n".join(["model_a,model_b,winner,dimension", *rows]), encoding="utf-8"
    )
    chosen = (
        "entrant=[base_olmo,full_poe,security_only]",
        "recorded_dir=.",
        "prompts.bank_path=bank.jsonl",
        *DRAWN,
    )
    oracle = whole["oracle"]
    files = (
        f"oracle.logged={oracle}/logged.jsonl",
        f"oracle.fresh_dir={oracle}/fresh",
        ESTIMATORS,
    )
    battles = (
        "battles=battles.csv",
        "battles_columns.dimension=dimension",
        "elo.n_perms=20",
    )
    given = {
        "winless": chosen,
        "undrawn": (*chosen, "figures=false"),
        "no judge": ("experiment=rate", *battles, "tracker=local", "figures=false"),
        "recorded": ("experiment=oracle", *files, "tracker=local", "figures=false"),
    }
    return {
        kind: run(*arguments, folder=folder).run_dir
        for kind, arguments in given.items()
    }


@pytest.fixture(scope="module")
def shown(
    whole: dict[str, Path],
    lacking: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, list[NotebookNode]]:
    """The outputs by notebook, and by notebook and run that lacks something.

    All in one kernel, as one takes long to start.
    """
    runs = whole | {case: lacking[case.split(" of ")[1]] for case in LACKING}
    cells = {}
    for case, run_dir in runs.items():
        source = HOME / "notebooks" / f"{case.split(' of ')[0]}.py"
        begin = f"%reset -f\nimport os\nos.environ['ELO_EXP_RUN'] = {str(run_dir)!r}"
        cells[case] = [v4.new_code_cell(begin), *jupytext.read(source).cells]
    every = v4.new_notebook(cells=[cell for some in cells.values() for cell in some])
    folder = str(tmp_path_factory.mktemp("kernel"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("HOME", folder)
        monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        resources = {"metadata": {"path": folder}}
        how = {"timeout": 60, "allow_errors": True, "resources": resources}
        NotebookClient(every, **how).execute()
    return {
        case: [out for cell in some for out in cell.get("outputs", [])]
        for case, some in cells.items()
    }


def complain(outputs: list[NotebookNode]) -> bool:
    return any(
        output.output_type == "error" or output.get("name") == "stderr"
        for output in outputs
    )


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_figures_and_tables(
    name: str, shown: dict[str, list[NotebookNode]]
):
    assert not complain(shown[name])
    kinds = [kind for output in shown[name] for kind in output.get("data", {})]
    assert kinds.count("image/png") >= 3
    assert kinds.count("text/markdown") >= 3
    assert f"`{name}.py`" in (HOME / "notebooks/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", LACKING)
def test_what_a_run_does_not_have_is_said(
    case: str, shown: dict[str, list[NotebookNode]]
):
    assert not complain(shown[case])
    text = "\n".join(
        output.get("text") or output.data.get("text/markdown", "")
        for output in shown[case]
    )
    assert [words for words in LACKING[case] if words not in text] == []
    assert not re.search(r"\b(None|nan)\b", text)
