"""prompts/build_bank.py: multiple-choice questions become a bank of open ones."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elo_exp.data import bank
from elo_exp.files import write_json, write_jsonl
from prompts.build_bank import LeftOutError, check_options, main, open_question
from tests.data import write_table

Row = dict[str, Any]
OUT = Path("out.jsonl")
CURATED = {"prompt_id": "c1", "source": "curated", "subject": "s", "text": "Safe?"}
DRUGS = (
    "digoxin",
    "lithium",
    "warfarin",
    "heparin",
    "amiodarone",
    "phenytoin",
    "gentamicin",
    "methotrexate",
)
RESIDUE = r"(?i)of the following|the following|of these|of the above|\bexcept\b|option|\b[A-D]\)"


def medmcqa(
    question: str = "Which of the following ions does furosemide waste?", **changes: Any
) -> Row:
    """A row with the fields of MedMCQA. Its right option is opb."""
    options = {"opa": "Lead", "opb": "Potassium", "opc": "Zinc", "opd": "Cobalt"}
    rest = {
        "cop": 1,
        "choice_type": "single",
        "subject_name": "Pharmacology",
        "topic_name": None,
    }
    return {"id": "x", "question": question, **options, **rest, **changes}


def medqa(
    question: str = "He is hoarse. Which of the following nerves is injured?",
    **changes: Any,
) -> Row:
    """A row with the fields of MedQA. Its right option is C."""
    options = {
        "A": "Facial",
        "B": "Hypoglossal",
        "C": "Recurrent laryngeal",
        "D": "Phrenic",
    }
    rest = {"answer": "Recurrent laryngeal", "answer_idx": "C", "meta_info": "step2&3"}
    return {"question": question, "options": options, **rest, **changes}


def pool() -> tuple[list[Row], list[Row]]:
    """Of each data set eight questions that can be asked openly, and three that cannot."""
    short = [
        medmcqa(f"Antidote for poisoning with {drug}", topic_name="Anti-dotes & more")
        for drug in DRUGS
    ]
    short += [
        medmcqa("All are side effects of digoxin except"),
        medmcqa("True about heparin?"),
        medmcqa("Lithium"),
    ]
    cases = [
        medqa(
            f"A man takes {drug}.\nK+   5.9 mEq/L\nWhich of the following is the most likely cause?"
        )
        for drug in DRUGS
    ]
    cases += [
        medqa("Which of the following is true?"),
        medqa("An ECG is shown. What is it?"),
        medqa(
            answer_idx="D",
            answer="Phrenic",
            options={"D": "Phrenic", "A": "None of the above"},
        ),
    ]
    return short, cases


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the script on files of the given rows, for two prompts of each data set; the exit code."""
    monkeypatch.chdir(tmp_path)
    write_jsonl(Path("curated.jsonl"), [CURATED])

    def run(
        *more: str, short: list[Row] | None = None, cases: list[Row] | None = None
    ) -> int:
        write_jsonl(Path("medmcqa.jsonl"), pool()[0] if short is None else short)
        write_jsonl(Path("medqa.jsonl"), pool()[1] if cases is None else cases)
        drawn = ("--n-medmcqa=2", "--n-medqa=2", "--curated=curated.jsonl")
        read = ("--medmcqa=medmcqa.jsonl", "--medqa=medqa.jsonl")
        return main([f"--out={OUT}", *drawn, *read, *more])

    return run


# One question


@pytest.mark.parametrize(
    ("stem", "question"),
    [
        ("Which of the following is the most likely diagnosis?", "What is the most likely diagnosis?"),
        ("He faints. Which one of the following are the best next steps?", "He faints. What are the best next steps?"),
        ("Which of the following best explains the fever?", "What best explains the fever?"),
        ("Which of the following enzymes is deficient?", "Which enzyme is deficient?"),
        ("Beside rest, which of the following therapies should he have?", "Beside rest, which therapy should he have?"),
        ("A smear is most likely to show which of the following?", "A smear is most likely to show what?"),
        ("Heinz bodies are seen in:", "Heinz bodies are seen in what?"),
        ("The stapedius is supplied by the -", "The stapedius is supplied by what?"),
        ("Drug of choice for status epilepticus", "What is the drug of choice for status epilepticus?"),
        ("What is the dose of adrenaline in anaphylaxis:", "What is the dose of adrenaline in anaphylaxis?"),
        ("Seen when pH falls is", "Seen when pH falls is what?"),
        ("In shock, which drug is given first ?", "In shock, which drug is given first?"),
        ("K+ 5.9 mEq/L\nWhich of the following is the cause?", "K+ 5.9 mEq/L\nWhat is the cause?"),
        ("She eats the following day. What now?", "She eats the following day. What now?"),
    ],
)  # fmt: skip
def test_a_stem_becomes_a_question_that_stands_alone(stem, question):
    assert open_question(stem) == question


@pytest.mark.parametrize(
    ("stem", "reason"),
    [
        ("Which of the following is true about heparin?", "needs its options"),
        ("Which of the following nerves or vessels is cut?", "needs its options"),
        ("All are causes of clubbing except:", "needs its options"),
        ("Which drug should not be given?", "needs its options"),
        ("Least common site of endometriosis is", "needs its options"),
        ("The ____ nerve supplies the deltoid", "needs its options"),
        ("Consider: 1. fever 2. rash 3. cough. What is it?", "needs its options"),
        ("An X-ray is shown. What is the most likely diagnosis?", "shows a picture"),
        ("Identify the structure marked by the arrow", "shows a picture"),
        ("Vitamin K", "has no form of a question"),
        ("Is warfarin safe in pregnancy?", "has no form of a question"),
    ],
)
def test_a_stem_that_cannot_stand_alone_is_left_out(stem, reason):
    with pytest.raises(LeftOutError, match=reason):
        open_question(stem)


@pytest.mark.parametrize(
    "gold",
    [
        "",
        "All of the above",
        "None",
        "Both",
        "A and C",
        "B",
        "1, 2 and 4",
        "True",
        "Yes.",
    ],
)
def test_an_answer_that_says_nothing_by_itself_is_left_out(gold):
    with pytest.raises(LeftOutError, match="an answer that needs the options"):
        check_options(["Lead", gold], gold)


@pytest.mark.parametrize(
    "gold",
    ["All-trans retinoic acid", "No further work-up", "15%", "Vitamins B and D", "4"],
)
def test_an_answer_that_only_looks_like_it_is_kept(gold):
    check_options(["Lead", gold], gold)


def test_a_question_with_an_option_on_the_others_is_left_out():
    with pytest.raises(LeftOutError, match="an option on the other options"):
        check_options(["Lead", "Zinc", "Any of these"], "Lead")


# The bank


def test_the_bank_holds_what_was_asked_for_and_loads(build, capsys):
    """Each prompt is named by its row, and no trace of multiple choice is left."""
    assert build("--n-medmcqa=8") == 0
    prompts = bank.load_bank(OUT)
    sources = Counter(prompt.source for prompt in prompts)
    assert sources == {"medmcqa_open": 8, "medqa": 2, "curated": 1}
    assert not [p.text for p in prompts if re.search(RESIDUE, p.text)]
    for i, (drug, short) in enumerate(zip(DRUGS, prompts, strict=False), start=1):
        assert short.prompt_id == f"medmcqa-{i:06d}"
        assert short.text == f"What is the antidote for poisoning with {drug}?"
        assert (short.gold_answer, short.subject) == ("Potassium", "pharmacology")
        assert short.tags == ("medmcqa", "anti-dotes-more")
    case, curated = prompts[8], prompts[-1]
    text = r"A man takes \w+\.\nK\+ 5\.9 mEq/L\nWhat is the most likely cause\?"
    assert re.fullmatch(text, case.text)
    assert (case.gold_answer, case.subject) == ("Recurrent laryngeal", "usmle step2&3")
    assert (curated.prompt_id, curated.gold_answer) == ("c1", None)
    out = capsys.readouterr().out
    counts = (
        "8 of 8 usable questions, from 11 rows; left out: 2 needs its options, 1 has"
    )
    assert f"medmcqa: {counts} no form" in out
    assert "out.jsonl: 8 medmcqa_open, 2 medqa, 1 curated" in out


def test_the_seed_alone_decides_what_is_drawn(build):
    drawn = []
    for seed in (1, 1, 2, 3, 4):
        build(f"--seed={seed}")
        drawn.append(OUT.read_bytes())
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_a_question_asked_twice_counts_once(build, capsys):
    twice = [medmcqa("Antidote for opioids"), medmcqa("ANTIDOTE for opioids?")]
    assert build(short=[*twice, *pool()[0][:1]]) == 0
    said = "2 of 2 usable questions, from 3 rows; left out: 1 is asked twice"
    assert said in capsys.readouterr().out


def test_json_and_parquet_files_give_the_same_bank(build):
    build()
    expected = bank.load_bank(OUT)
    short, cases = pool()
    write_json(Path("medmcqa.json"), short)
    letters = dict.fromkeys(
        "ABCD"
    )  # columns of a parquet file are the same in each row
    rows = [{**row, "options": {**letters, **row["options"]}} for row in cases]
    write_table(Path("medqa.parquet"), rows)
    assert build("--medmcqa=medmcqa.json", "--medqa=medqa.parquet") == 0
    assert bank.load_bank(OUT) == expected


def test_a_name_that_is_no_file_is_loaded_from_the_hub(build, capsys, monkeypatch):
    """One line where the hub is out of reach, or its library is not installed."""
    asked = []

    def load_dataset(name: str, *, split: str) -> list[Row]:
        if split == "test":
            raise ConnectionError("no\nnetwork")
        asked.append((name, split))
        return pool()[0]

    hub = SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", hub)
    assert build("--medmcqa=openlifescienceai/medmcqa") == 0
    assert asked == [("openlifescienceai/medmcqa", "validation")]
    OUT.unlink()
    for library, said in (
        (hub, "'test' cannot be loaded (no network)."),
        (None, "pip install"),
    ):
        monkeypatch.setitem(sys.modules, "datasets", library)
        capsys.readouterr()
        assert build("--medqa=GBaker/MedQA-USMLE-4-options") == 2
        assert said in refused(capsys)


# Refusals


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a refusal, which leaves no bank behind."""
    assert not OUT.exists()
    [line] = capsys.readouterr().err.splitlines()
    return line.removeprefix("build_bank.py: ")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "Why?"}, "medmcqa.jsonl:1: the row has no 'opa'. Expected a text; the row has text."),
        (medmcqa(question=" "), "medmcqa.jsonl:1: the row has ' ' as 'question'. Expected a text;"),
        (medqa(options=None), "medqa.jsonl:1: 'options' is None. Expected texts by letter."),
        (medqa(answer="Vagus"), "medqa.jsonl:1: 'answer' is 'Vagus', but option C is"),
    ],
)  # fmt: skip
def test_a_row_without_usable_fields_is_refused(build, capsys, row, message):
    kind = "cases" if message.startswith("medqa") else "short"
    assert build(**{kind: [row]}) == 2
    assert refused(capsys).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--n-medmcqa=9", "medmcqa.jsonl: --n-medmcqa asks for 9 prompts, 8 of its 11 rows can be"),
        ("--medqa=nowhere.jsonl", "File not found: nowhere.jsonl (in "),
        ("--medqa=curated.txt", "curated.txt: is no data set. Expected a file ending in .jsonl,"),
        ("--medqa=bad.json", "bad.json: found no list of objects. Name a file with one object a"),
        ("--curated=medqa.jsonl", "medqa.jsonl: holds no prompt of source 'curated'."),
        ("--curated=nothing.jsonl", "nothing.jsonl:1 has no prompt. Give it a column called prompt, question,"),
        ("--curated=plain.jsonl", "plain.jsonl: holds no prompt of source 'curated'."),
        ("--out=curated.jsonl", "curated.jsonl: is the bank whose curated prompts are copied."),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(build, capsys, given, message):
    Path("bad.json").write_text('{"question": "Why?"}', encoding="utf-8")
    write_jsonl(Path("plain.jsonl"), [{**CURATED, "source": "medqa"}])
    write_jsonl(Path("nothing.jsonl"), [{"x": 1}])
    assert build(given) == 2
    assert refused(capsys).startswith(message)
