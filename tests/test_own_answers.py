"""Answers as files, by the command: what is said, planned, judged and stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elo_exp.files import write_jsonl
from tests.answer_files import BY_ID, MADE, asked, bank, made
from tests.commands import attempt, run
from tests.data import BANK, write_table

STUDY = ("study=own", "mode=own", "judge=lexical", "tracker=local")
OWN = (*STUDY, "figures=false", "elo.n_perms=5")


def judge(*words: str, folder: Path, **how: Any) -> Any:
    return attempt(*OWN, *words, folder=folder, **how)


def lines(ran: Any) -> list[str]:
    return str(ran.err).splitlines()


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with old.csv, which lacks a prompt, and new.jsonl."""
    old = [{"question": one.prompt, "answer": one.answer} for one in asked("Old")[1:]]
    write_table(tmp_path / "old.csv", old)
    new = [{"prompt": one.prompt, "response": one.answer} for one in asked("New")]
    write_jsonl(tmp_path / "new.jsonl", new)
    return tmp_path


def test_two_files_of_answers_are_judged(two):
    ran = judge("answers=[old.csv,new.jsonl]", folder=two)
    assert ran.code == 0, ran.err
    assert lines(ran)[:3] == [
        "old.csv: plain rows: 23 answers of old",
        "new.jsonl: plain rows: 24 answers of new",
        "prompts: 24, answered by all 2: 23 (old lacks 1); 0 with a reference",
    ]
    manifest = ran.read("manifest.json")
    assert manifest["entrants"] == ["old", "new"]
    assert manifest["selected_prompt_count"] == manifest["bank_size"] == 23
    assert [row["format"] for row in manifest["answers"]] == ["plain rows"] * 2
    assert set(manifest["input_hashes"]) >= {"entrant old", "entrant new"}
    answered = ran.rows("responses/responses_old.jsonl")
    assert {row["response_text"] for row in answered} == {
        one.answer for one in asked("Old")[1:]
    }


def test_what_runs_plans_and_says_the_same_first(two):
    words = ("answers=[old.csv,new.jsonl]", "judge=sonnet", "plan=true")
    ran = judge(*words, folder=two)
    assert ran.code == 0, ran.err
    assert lines(ran)[0] == "old.csv: plain rows: 23 answers of old"
    assert "46" in ran.out
    assert not list(two.glob("outputs/own*"))


def test_names_are_values_never_words(two):
    """A model called null, or as a path is."""
    given = [
        {"name": "null", "file": "old.csv"},
        {"name": "org/m 1.5", "file": "new.jsonl"},
    ]
    ran = judge(f"answers={as_hydra(given)}", folder=two)
    assert ran.code == 0, ran.err
    assert ran.read("manifest.json")["entrants"] == ["null", "org/m 1.5"]
    names = {path.name for path in (ran.run_dir / "responses").iterdir()}
    assert names == {"responses_null.jsonl", "responses_org%2Fm 1.5.jsonl"}
    assert ran.page.text


def as_hydra(items: list[dict[str, str]]) -> str:
    """A list of mappings as a word of the command."""
    texts = [
        "{" + ",".join(f"{k}:{json.dumps(v)}" for k, v in item.items()) + "}"
        for item in items
    ]
    return f"[{','.join(texts)}]"


def test_the_same_answers_in_another_format_share_every_verdict(tmp_path):
    """No format pays again: 0 new verdicts, of all eight."""
    prompts = bank(tmp_path)
    for n, name in enumerate(MADE):
        files = [
            made(tmp_path / f"{n}", name, says, model)
            for says, model in (("Old", "old"), ("New", "new"))
        ]
        words = f"answers=[{','.join(str(path) for path in files)}]"
        ran = judge(words, f"prompts.bank_path={prompts}", folder=tmp_path)
        assert ran.code == 0, ran.err
        usage = ran.read("manifest.json")["usage"]
        expected = {"verdicts_wanted": 48, "verdicts_stored": 0 if n == 0 else 48}
        assert {key: usage[key] for key in expected} == expected, name
    assert BY_ID  # they need the bank


def test_answers_as_recorded_answers_share_keys_with_a_run_of_ours(tmp_path):
    """What a run has written is read again under its study: not a verdict is new."""
    first = run("figures=false", "elo.n_perms=5", "tracker=local", folder=tmp_path)
    words = (f"answers={first.run_dir}/responses", "study=medical")
    again = judge(*words, f"prompts.bank_path={BANK}", folder=tmp_path)
    assert again.code == 0, again.err
    usage = again.read("manifest.json")["usage"]
    assert usage["verdicts_stored"] == usage["verdicts_distinct"] > 0


def test_prompts_n_draws_by_hash_so_that_more_later_pay_for_the_new_ones_only(two):
    words = "answers=[old.csv,new.jsonl]"
    few = judge(words, "prompts.n=5", folder=two)
    more = judge(words, "prompts.n=9", folder=two)
    chosen = [
        {row["prompt_id"] for row in ran.rows("responses/responses_old.jsonl")}
        for ran in (few, more)
    ]
    assert [len(ids) for ids in chosen] == [5, 9]
    assert chosen[0] < chosen[1]
    assert more.read("manifest.json")["usage"]["verdicts_stored"] == 10
    ran = judge(words, "prompts.n=24", folder=two)
    assert (ran.code, lines(ran)[-1]) == (
        2,
        "elo_exp: prompts.n: found 24. Expected at most 23, as many as there are.",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("answers=old.csv",),
         "answers: one entrant (old). Give a second file, or answers of several models in one file."),
        (("answers=[old.csv,nope.csv]",), "nope.csv: cannot be read (No such file or directory)."),
        (("answers=[old.csv,new.jsonl]", "stratum=subject"), "stratum: found 'subject'. Of the prompts of"),
        (("answers=[old.csv,new.jsonl]", "recorded_dir=x"), "recorded_dir: found x, and answers besides."),
        (("answers=[old.csv,new.jsonl]", "+mode.strata.medqa=2"), "mode.strata: found 2 prompts of source"),
        (("entrant=[claude,base_olmo]",), "prompts.bank_path: study own has no prompts of its own. Give a bank"),
        (("answers=[old.csv,new.jsonl]", "experiment=oracle", "~stratum"), "answers: experiment=oracle does not"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_writes_nothing(two, words, said):
    own = [word for word in OWN if "oracle" not in str(words) or "figures" in word]
    given = words if "~stratum" not in words else words[:-1]
    ran = attempt(*own, *given, folder=two)
    assert ran.code == 2, ran.out
    assert lines(ran)[-1].startswith(f"elo_exp: {said}"), ran.err
    assert not [path for path in two.glob("outputs/*") if path.name != "cache"]


def test_answers_meet_an_entrant_that_a_word_names(two):
    """On the prompts of the file, which the other answers."""
    prompts = bank(two)
    words = ("answers=old.csv", "entrant=[probe_reference]")
    ran = judge(*words, f"prompts.bank_path={prompts}", folder=two)
    assert ran.code == 0, ran.err
    assert ran.read("manifest.json")["entrants"] == ["old", "probe_reference"]
    assert ran.read("manifest.json")["bank_size"] == 23


# The gate


GATE = ("experiment=gate", *STUDY)


@pytest.mark.parametrize("baseline", ["old.csv", "old/answers.json"])
def test_a_gate_compares_two_files(two, baseline):
    """What the baseline answered is the bank; that it lacks a prompt is said."""
    made(two, "alpaca_eval's outputs", "Old", "old", n=23)
    words = (f"gate.baseline={baseline}", "answers=new.jsonl")
    planned = attempt(*GATE, *words, "judge=sonnet", "plan=true", folder=two)
    assert (planned.code, planned.err.splitlines()[-1]) == (
        0,
        "prompts: 24, answered by all 2: 23 (baseline lacks 1); 0 with a reference",
    )
    assert "P(pass | equal)" in planned.out
    ran = attempt(*GATE, *words, folder=two)
    assert ran.code in (0, 1, 3), ran.err
    found = ran.read("gate.json")
    assert found["candidate"] == "new"
    assert found["dimensions"][0]["n_prompts"] == 23


def test_a_gate_counts_what_the_candidate_lacks_and_the_baseline_has(two):
    words = ("gate.baseline=new.jsonl", "answers=old.csv")
    refused = attempt(*GATE, *words, folder=two)
    assert refused.code == 2
    assert "1 of 48 responses are missing (old 1)" in refused.err
    ran = attempt(*GATE, *words, "allow_missing=true", folder=two)
    (row,) = ran.read("gate.json")["dimensions"]
    assert (row["n_prompts"], row["n_invalid"]) == (24, 1)


def test_a_candidate_of_another_kind_answers_the_prompts_of_the_baselines_file(two):
    prompts = bank(two)
    words = ("gate.baseline=old.csv", f"prompts.bank_path={prompts}")
    ran = attempt(*GATE, *words, "entrant=[probe_reference]", folder=two)
    assert ran.code in (0, 1, 3), ran.err
    assert ran.read("gate.json")["candidate"] == "probe_reference"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gate.baseline=old.csv", "answers=[old.csv,new.jsonl]"),
         "entrant: found old, new, baseline. Expected one candidate beside the baseline"),
        (("gate.baseline=old.csv", "answers=[{name:baseline,file:new.jsonl}]"),
         "entrant: found a candidate called baseline"),
        (("gate.baseline=nope.csv", "answers=new.jsonl"), "nope.csv: cannot be read"),
    ],
)  # fmt: skip
def test_a_gate_that_cannot_compare_says_why(two, words, said):
    ran = attempt(*GATE, *words, folder=two)
    assert ran.code == 2
    assert ran.err.splitlines()[-1].startswith(f"elo_exp: {said}"), ran.err
