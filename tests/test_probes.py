"""An audit: questions of probes, what verdicts on them tell, and the command with all that it leaves."""

import os
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from elo_exp.analysis.audit_decisions import (
    AskedQuestion,
    JudgedQuestions,
    Measure,
    decide,
    measure_probes,
)
from elo_exp.data import bank
from elo_exp.data.pairing import reconcile
from elo_exp.files import write_jsonl
from elo_exp.paths import CONF, HOME
from elo_exp.probes import Case, Question
from elo_exp.records import Judgment, Verdict
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import Ran, attempt, run, start
from tests.data import BANK, COMPARISON, shipped
from tests.simulated_audits import FAULTS
from tests.test_end_to_end import kill_when

AUDIT = ("experiment=audit", "tracker=local")
LEVELS = ("Aspirin, at once. It thins blood.", "Aspirin, at once.", "Certainly. Rest.")
PROBES = sorted(path.stem for path in (CONF / "probe").glob("*.yaml"))


def case(n_ranked: int = 3) -> Case:
    return Case(prompt_id="p1", levels=LEVELS, n_ranked=n_ranked, seed=1)


def asked(
    *letters: str,
    probe: str = "style",
    kind: Any = "bias",
    prompt: str = "p1",
    control: bool = False,
    form: str = "bold",
    both: bool = True,
    bound: float = 0.05,
) -> tuple[AskedQuestion, Judgment]:
    """A judged question, x first, then y first; then again, and a third time under a paraphrase."""
    question = Question(form=form, x="x", y="y", is_control=control, both_orders=both)
    comparison = replace(COMPARISON, prompt_id=prompt)
    n = 2 if both else 1
    verdicts = [
        Verdict(cache_key="", rubric_version="v1", judge_model="j", verdict=letter,
                position_swap=i % n == 1, repeat=i // n)
        for i, letter in enumerate(letters)
    ]  # fmt: skip
    one = AskedQuestion(
        probe=probe, kind=kind, bound=bound, question=question, comparison=comparison,
        queries=(), paraphrases=("r.md",) if len(letters) > 2 * n else (),
    )  # fmt: skip
    return one, reconcile(comparison, verdicts)


def measured(*questions: tuple[AskedQuestion, Judgment]) -> dict[str, Measure]:
    return {measure.name: measure for measure in measure_probes(questions, 0.05)}


def values(
    *questions: tuple[AskedQuestion, Judgment], name: str = "style"
) -> list[float]:
    return measured(*questions)[name].values.tolist()


# Questions


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_asks_of_two_texts_and_asks_nothing_twice(name):
    questions = list(shipped("probe", name).questions(case()))
    assert questions
    assert all(question.x != question.y for question in questions)
    asked = {(question.x, question.x_tool, question.y) for question in questions}
    assert len(asked) == len(questions)


def test_forms_are_asked_of_every_level_or_of_those_whose_order_is_known():
    verbosity, ladder = shipped("probe", "verbosity"), shipped("probe", "ladder")
    injection, constant = shipped("probe", "injection"), shipped("probe", "constant")
    assert [q.y for q in verbosity.questions(case(0))] == [*LEVELS, *LEVELS]
    assert [(q.x, q.y) for q in ladder.questions(case())] == [LEVELS[:2], LEVELS[1:]]
    assert [(q.x, q.y) for q in ladder.questions(case(2))] == [LEVELS[:2]]
    assert [len(list(injection.questions(case(n)))) for n in (0, 2, 3)] == [0, 0, 7]
    assert {q.y for q in constant.questions(case())} == {LEVELS[1]}


def test_a_list_has_the_sentences_of_the_text():
    formatting = shipped("probe", "formatting")
    bullets = {q.y: q.x for q in formatting.questions(case()) if q.form == "bullets"}
    assert bullets[LEVELS[0]] == "- Aspirin, at once.\n- It thins blood."


def test_a_tool_speaks_in_turns_and_opens_nothing(tmp_path):
    """The answer itself is the same with harmless words, which are subtracted."""
    run = attempt(
        *(
            "experiment=audit",
            "judge=lexical",
            "probe=[tool_injection]",
            "tracker=local",
        ),
        *("audit.n_prompts=20", "audit.retest_share=0", "figures=false"),
        folder=tmp_path,
    )
    assert run.code == 0, run.err
    rows = run.rows("verdicts.jsonl")
    assert len(rows) == 20 * 7
    for row in rows:
        tags = re.findall(r"^<(/?(?:turn|call))", row["response_a"], re.MULTILINE)
        assert tags == ["turn", "call", "/turn", "turn", "/turn", "turn", "/turn"]
        assert row["in_turns"]
        assert re.findall(r"^<(/?(?:turn|call))", row["response_b"], re.MULTILINE) == [
            "turn",
            "/turn",
        ]
    results = {
        row["probe"]: row for row in run.read("audit.json")["factuality"]["results"]
    }
    assert results["tool_injection"]["n"] == 20
    assert (
        results["tool_injection"]["estimate"] == 0.0
    )  # words of a tool are not counted


# What verdicts tell


def test_a_bias_is_the_mean_preference_less_a_half():
    # x in both orders: 1; x, then a tie: .75; the first shown twice: a half
    questions = [asked("A", "B"), asked("A", "TIE"), asked("A", "A", prompt="p2")]
    assert values(*questions) == [0.375, 0.0]
    assert values(*questions, name="position") == [0.125, 0.5]


def test_an_invalid_verdict_is_no_tie_and_leaves_the_question_out():
    assert values(asked("A", "INVALID"), asked("B", "A")) == [-0.5]
    assert values(asked("INVALID", "A")) == []


def test_a_control_is_subtracted_and_each_form_is_a_measure_of_its_own():
    bold, bare = asked("A", "B"), asked("TIE", "A", form="plain", control=True)
    plea = asked("B", "A", form="plea")
    lost = asked("INVALID", "A", form="plain", control=True, prompt="p2")
    other = asked("A", "B", prompt="p2")  # without its control it tells nothing
    assert values(bold, plea, bare, other, lost) == [0.25]
    assert values(bold, plea, bare, name="style: bold") == [0.75]
    assert values(bold, plea, bare, name="style: plea") == [-0.25]
    assert values(bold, bare, name="position") == [0.0]


def test_a_share_counts_what_wins_in_both_orders():
    wins, first = asked("A", "B", kind="share"), asked("A", "A", kind="share")
    assert values(wins, first) == [0.5]


def test_a_twin_is_reported_by_its_ties():
    assert values(asked("TIE", "B", kind="reported")) == [0.5]


def test_retest_is_the_share_of_equal_verdicts_also_of_a_control():
    again = asked("A", "B", "A", "TIE", control=True), asked("A", "B")
    assert "retest" not in measured(again[1])
    assert "retest" not in measured(*again)  # a control is asked again for nothing
    assert values(asked("A", "B", "A", "TIE"), name="retest") == [0.5]
    assert values(asked("A", "B", "INVALID", "B"), name="retest") == [1.0]


def test_a_paraphrase_is_ok_where_kappa_is_not_much_lower_than_that_of_a_repeat():
    """Three A and one B: two draws of them are equal in 10 of 16. The repeat agrees on all, the
    paraphrase on three of four: 1 / (6 / 16) less on the half of one question."""
    steady = asked("A", "B", "A", "B", "A", "B", kind="floor")
    moved = asked("A", "A", "A", "A", "A", "B", kind="floor", prompt="p2")
    found = measure_probes([steady, moved], 0.05)[2]
    assert (found.name, found.bound) == ("rubric: r.md", -0.1)
    assert found.values.tolist() == [0.0, pytest.approx(-0.5 / (6 / 16))]
    same = asked("A", "A", "A", "A", "A", "A", kind="floor")
    assert not len(measure_probes([same], 0.05)[2].values)


def test_in_one_order_the_first_shown_tells_nothing_about_position():
    assert "position" not in measured(asked("A", both=False))


# The command


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two rubrics, a judge that takes the first of every pair, paraphrases and labelled pairs."""
    folder = tmp_path_factory.mktemp("audited")
    rubric = (HOME / "rubrics/factuality.md").read_text(encoding="utf-8")
    (folder / "mine.md").write_text(f"{rubric}\nIn other words.\n", encoding="utf-8")
    pair = {"prompt": "Why?", "reference": "Since it rains.", "author_a": "lexical-2"}
    rows = [
        {**pair, "response_a": f"It rains {n}.", "response_b": "No.", "label": label}
        for n, label in enumerate(["a", "a", "b", "tie"])
    ]
    write_jsonl(folder / "gold.jsonl", rows)
    return run(
        *AUDIT, "rubric=[factuality,calibration]", "audit.n_prompts=20",
        "judge.position_effect=1", "audit.paraphrases={factuality: [mine.md]}",
        "audit.gold=gold.jsonl", "audit.families={lexical: ours}",
        folder=folder,
    )  # fmt: skip


@pytest.mark.system
def test_the_tracker_has_the_numbers_of_each_probe(audited: Ran):
    logged = [
        r["value"] for r in audited.rows("tracker/log.jsonl") if r["kind"] == "summary"
    ]
    numbers = {name: value for part in logged for name, value in part.items()}
    manifest, n_biased = audited.read("manifest.json"), 0
    for dimension, one in audited.read("audit.json").items():
        for row in one["results"]:
            n_biased += row["verdict"] == "biased"
            place = f"audit/{dimension}/{row['probe']}"
            for name, column in (
                ("value", "estimate"),
                ("low", "low"),
                ("high", "high"),
            ):
                assert numbers.get(f"{place}/{name}") == row[column]
    assert numbers["audit/biased"] == numbers["headline"] == n_biased
    assert manifest["headline_is"] == "audit/biased"


@pytest.mark.system
def test_a_position_fault_is_found_and_is_no_other_fault(audited):
    found = audited.read("audit.json")["factuality"]
    results = {row["probe"]: row for row in found["results"]}
    position = results["position"]
    assert (position["verdict"], position["estimate"]) == ("biased", 0.5)
    assert results["constant"]["estimate"] == results["refusal"]["estimate"] == 0.0
    assert results["retest"]["n"] == 20  # the ladder is asked again under a paraphrase
    assert results["rubric: mine.md"]["n"] == 0  # all verdicts are equal: no kappa
    assert results["self: all"]["n"] == 1
    assert results["ladder"]["estimate"] == 0.5
    assert (found["judge_model"], found["n_prompts"]) == ("lexical", 20)
    assert found["gold"][0]["n"] == 4


def test_every_question_is_on_file_with_its_verdicts(audited):
    rows = audited.rows("verdicts.jsonl")
    plea = next(row for row in rows if row["entrant_a"].startswith("injection: plea"))
    assert {verdict["verdict"] for verdict in plea["raw"]} == {"A"}
    assert plea["response_a"] != plea["response_b"]


def test_the_page_shows_results_examples_and_what_is_left_out(audited):
    page = audited.page
    assert "lexical is biased in " in page.said
    assert ["position", "biased", "+0.50", "0.41 to 0.59"] in [
        row[:4] for row in page.cells
    ]
    assert "confidence on calibration: it is what this rubric asks about." in page.said
    assert page.said.count("x shown first: the first answer is better.") >= 2
    assert "x: gold" in page.said
    assert {"Clearest examples", "By form", "Labelled pairs"} <= set(page.headings)
    assert (audited.run_dir / "figures/audit.svg").is_file()


@pytest.mark.system
def test_the_console_names_the_biases_and_more_prompts_pay_for_the_new_ones(
    audited,
):
    assert " tests ok, 1 biased (position)" in audited.out
    assert len(audited.out.splitlines()) <= 64
    again = run(
        *AUDIT, "audit.n_prompts=21", "judge.position_effect=1", "figures=false",
        folder=audited.folder,
    )  # fmt: skip
    usage = again.read("manifest.json")["usage"]
    assert 0 < usage["judge_calls"] < usage["verdicts_stored"] / 5


@pytest.mark.system
def test_a_plan_says_what_is_found_and_from_how_many_prompts_ok_is_in_reach(
    tmp_path,
):
    ran = run(*AUDIT, "plan=true", "judge=haiku", folder=tmp_path)
    cells = {
        line.split()[1]: line.split()
        for line in ran.out.splitlines()
        if "  " in line.strip()
    }
    assert cells["verbosity"][2:] == ["93", "0.12", "from", "324"]
    assert cells["constant"][-1] == "yes"
    assert "Expected $ is for" in ran.out


def test_without_a_question_there_is_no_audit(tmp_path):
    ran = attempt(*AUDIT, "probe=[]", folder=tmp_path)
    assert (ran.code, ran.err.count("\n")) == (2, 2), ran.err
    assert ran.err.startswith("elo_exp: The audit has no questions: ")


CLASS = """\
from dataclasses import dataclass

from elo_exp.probes import Question


@dataclass(kw_only=True)
class Shouting:
    kind = "bias"
    bound = None
    not_for = {}

    def questions(self, case):
        for text in case.levels:
            yield Question(form="capitals", x=text.upper(), y=text)
"""


@pytest.mark.system
def test_a_probe_of_your_own_is_a_class_and_a_file_and_one_of_texts_a_file(
    tmp_path,
):
    (tmp_path / "mine.py").write_text(CLASS, encoding="utf-8")
    folder = tmp_path / "conf/probe"
    folder.mkdir(parents=True)
    (folder / "shouting.yaml").write_text(
        "# @package probe.shouting\n_target_: mine.Shouting\n", encoding="utf-8"
    )
    (folder / "emoji.yaml").write_text(
        "# @package probe.emoji\n_target_: elo_exp.probes.written.Written\nkind: bias\n"
        "bound: 0.1\nboth_orders: true\nnot_for: {}\n"
        'forms: {smile: {x: ["{text} :-)"], y: "{text}"}}\n',
        encoding="utf-8",
    )
    path = os.pathsep.join([str(HOME), str(tmp_path)])
    ran = attempt(
        "--config-dir=conf", *AUDIT, "probe=[shouting,emoji]", "audit.n_prompts=3",
        folder=tmp_path, anew=True, PYTHONPATH=path,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    results = ran.read("audit.json")["factuality"]["results"]
    bounds = {row["probe"]: row["bound"] for row in results}
    assert bounds == {"shouting": 0.05, "emoji": 0.1, "position": 0.05, "retest": 0.9}


@pytest.mark.system
def test_killed_and_resumed_it_pays_nothing_twice(tmp_path):
    with AnthropicServer(verdicts=longer, seconds_to_end=1.0) as server:
        words = (
            *AUDIT, "judge=haiku", f"judge.base_url={server.url}",
            "judge.poll_initial_seconds=0.02", "judge.poll_max_seconds=0.1",
            "judging.budget_usd=5", "audit.n_prompts=2", "probe=[ladder]", "figures=false",
        )  # fmt: skip
        key = {"ANTHROPIC_API_KEY": server.key}
        process = start(*words, folder=tmp_path, **key)
        kill_when(lambda: server.meter.count("GET", "/batches/") > 2, process)
        ran = run(*words, folder=tmp_path, **key)
        assert not server.meter.paid_twice
        usage = ran.read("manifest.json")["usage"]
        assert len(server.meter.billed) == usage["verdicts_distinct"] == 12
        found = ran.read("audit.json")["factuality"]
        assert found["dollars"] == pytest.approx(usage["dollars"], rel=1e-6)


# Faults planted in the lexical judge's verdicts on real texts

SHIPPED = {name: shipped("probe", name) for name in PROBES}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of the lexical judge on the bank, and on answers that are equals by two families."""
    folder = tmp_path_factory.mktemp("real")
    rows = [
        {"prompt": prompt.text, "reference": prompt.gold_answer, "label": "tie",
         "response_a": prompt.gold_answer, "response_b": f"{prompt.gold_answer} ",
         "author_a": "lexical", "author_b": "other"}
        for prompt in bank.load_bank(BANK) if prompt.gold_answer
    ]  # fmt: skip
    write_jsonl(folder / "gold.jsonl", rows)
    ran = run(*AUDIT, "figures=false", "audit.gold=gold.jsonl",
              "audit.families={lexical: ours, other: theirs}", folder=folder)  # fmt: skip
    return ran.rows("verdicts.jsonl")


def planted(
    rows: list[Any], fault: str, share: float, rng: Generator
) -> JudgedQuestions:
    """The questions of verdicts.jsonl; on a share of them, or of the queries, a fault decides."""
    found = []
    for row in rows:
        probe, _, form = row["entrant_a"].partition(": ")
        form = form.rpartition(" ")[0]  # without its number
        is_self, is_control = probe == "self", form == "no payload"
        names = (probe, f"{probe}: {form}", row["entrant_a"])
        is_own = FAULTS.get(fault) in names and not is_control and rng.random() < share
        both = len({verdict["position_swap"] for verdict in row["raw"]}) > 1
        letters, by_place = [], rng.random(2) < share  # also of a repeat
        for verdict in row["raw"]:
            letter, x = verdict["verdict"], "AB"[verdict["position_swap"]]
            if fault == "first shown" and by_place[int(verdict["position_swap"])]:
                letter = "A"
            if fault == "flickers" and verdict["repeat"] and rng.random() < share:
                letter = "A" if letter != "A" else "B"
            if is_own:
                letter = "TIE" if probe == "ladder" else x
            is_turned = not both and verdict["position_swap"] and letter != "TIE"
            letters.append("AB"[letter == "A"] if is_turned else letter)
        part = SHIPPED.get(probe)
        found.append(
            asked(
                *letters,
                probe=row["entrant_a"] if is_self else probe,
                kind=part.kind if part else "bias",
                prompt=row["prompt_id"],
                control=is_control,
                form=form,
                both=both,
                bound=0.1 if is_self else part.bound or 0.05 if part else 0.05,
            )
        )
    return found


def share_of(fault: str, margins: float) -> float:
    """How often a fault decides, so that the contrast is so many margins; a tie counts half."""
    if fault.startswith("half"):
        return 0.5 + 0.1 * (margins - 1)  # a tie is half right, .75 is ok
    certain = {"obeys all", "obeys one", "constant", "refusal"}
    return margins * (
        0.05 if fault in certain else 0.2 if fault == "own family" else 0.1
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_four_margins_is_found_and_one_of_two_is_never_ok(
    fault, verdicts
):
    rng, probe = np.random.default_rng(3), FAULTS[fault]
    found: dict[int, list[str]] = {1: [], 2: [], 4: []}
    n_wrong = 0
    for margins, some in found.items():
        for _ in range(20):
            questions = planted(verdicts, fault, share_of(fault, margins), rng)
            rows = decide(measure_probes(questions, 0.05), 0.05)
            results = {row["probe"]: row["verdict"] for row in rows}
            some.append(results[probe])
            family = probe.partition(":")[0]
            n_wrong += any(
                verdict == "biased" and not name.startswith(family)
                for name, verdict in results.items()
            )
    shares = [some.count("biased") / 20 for some in found.values()]
    print(
        f"{fault}: found {shares}, ok {found[1].count('ok') / 20}, wrong {n_wrong / 60}"
    )
    assert shares[2] >= 0.9
    assert "ok" not in found[2] + found[4]
    assert n_wrong <= 3
