"""Answers as files, by the command: what is said, planned, judged and stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elo_exp.data.answers import read_answers
from elo_exp.data.bank import load_bank
from elo_exp.files import read_jsonl, write_jsonl, write_whole
from tests.answer_files import BY_ID, MADE, Asked, asked, bank, made, write_log
from tests.commands import attempt, run
from tests.data import BANK, shared_data, write_table

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


def test_entrants_that_look_alike_are_warned_of_before_anything_is_judged(two):
    given = "answers={gpt-4: old.csv, GPT\u20114: new.jsonl}"
    ran = judge(given, "plan=true", folder=two)
    said = "the entrants 'gpt-4', 'GPT\u20114' look alike and are taken for different"
    assert f"warning: {said} ones." in ran.err


def test_two_files_of_answers_are_judged(two):
    ran = judge("answers=[old.csv,new.jsonl]", folder=two)
    assert ran.code == 0, ran.err
    assert lines(ran)[:3] == [
        "old.csv: plain rows: 23 answers of old",
        "new.jsonl: plain rows: 24 answers of new",
        "prompts: 23 of 24 answered by both entrants (old lacks 1), 0 with a reference answer",
    ]
    manifest = ran.read("manifest.json")
    assert manifest["entrants"] == ["old", "new"]
    assert (manifest["selected_prompt_count"], manifest["bank_size"]) == (23, 24)
    assert [row["format"] for row in manifest["answers"]] == ["plain rows"] * 2
    assert set(manifest["input_hashes"]) >= {"entrant old", "entrant new"}
    page = ran.page.text
    assert "old.csv read as plain rows: 23 of old." in page
    assert "23 of the 24 in the prompt file" in page
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


@pytest.mark.parametrize(
    "names", [[*MADE][:3], pytest.param([*MADE], marks=pytest.mark.slow)]
)
def test_the_same_answers_in_another_format_share_every_verdict(tmp_path, names):
    """No format pays again: 0 new verdicts, of all eight."""
    prompts = bank(tmp_path)
    for n, name in enumerate(names):
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


@pytest.mark.system
def test_answers_as_recorded_answers_share_keys_with_a_run_of_ours(tmp_path):
    """What a run has written is read again under its study: not a verdict is new."""
    first = run("figures=false", "elo.n_perms=5", "tracker=local", folder=tmp_path)
    words = (f"answers={first.run_dir}/responses", "study=medical")
    again = judge(*words, f"prompts.bank_path={BANK}", folder=tmp_path)
    assert again.code == 0, again.err
    usage = again.read("manifest.json")["usage"]
    assert usage["verdicts_stored"] == usage["verdicts_distinct"] > 0


@pytest.mark.system
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
    ran = judge(words, "prompts.n=99", folder=two)
    assert (ran.code, lines(ran)[-1]) == (
        2,
        "elo_exp: prompts.n must be at most 24, the number of prompts; got 99.",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("answers=old.csv",),
         "A comparison needs at least two sets of answers; old.csv holds one. "
         "Add a second file:\n  python -m elo_exp old.csv FILE"),
        (("answers=[old.csv,nope.csv]",), "File not found: nope.csv (in "),
        (("answers=[old.csv,new.jsonl]", "stratum=subject"), 'stratum must be source or null for answer files, whose '
         'prompts have no other columns; got "subject".'),
        (("answers=[old.csv,new.jsonl]", "recorded_dir=x"),
         "recorded_dir and answers cannot be combined; got recorded_dir=x."),
        (("answers=[old.csv,new.jsonl]", "+mode.strata.medqa=2"), "mode.strata asks for 2 prompts of source"),
        (("entrant=[claude,base_olmo]",), "study=own has no prompts of its own. Give"),
        (("answers=[old.csv,new.jsonl]", "experiment=oracle", "~stratum"),
         "experiment=oracle reads answers that are scored already"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_writes_nothing(two, words, said):
    own = [word for word in OWN if "oracle" not in str(words) or "figures" in word]
    given = words if "~stratum" not in words else words[:-1]
    ran = attempt(*own, *given, folder=two)
    assert ran.code == 2, ran.out
    assert f"\nelo_exp: {said}" in f"\n{ran.err}"
    assert not [path for path in two.glob("outputs/*") if path.name != "cache"]


def test_answers_meet_an_entrant_that_a_word_names(two):
    """On the prompts of the file, which the other answers."""
    prompts = bank(two)
    words = ("answers=old.csv", "entrant=[probe_reference]")
    ran = judge(*words, f"prompts.bank_path={prompts}", folder=two)
    assert ran.code == 0, ran.err
    assert ran.read("manifest.json")["entrants"] == ["old", "probe_reference"]
    assert ran.read("manifest.json")["selected_prompt_count"] == 23


# The gate


GATE = ("experiment=gate", *STUDY)


@pytest.mark.system
@pytest.mark.parametrize("baseline", ["old.csv", "old/answers.json"])
def test_a_gate_compares_two_files(two, baseline):
    """What the baseline answered is the bank; that it lacks a prompt is said."""
    made(two, "alpaca_eval's outputs", "Old", "old", n=23)
    words = (f"gate.baseline={baseline}", "answers=new.jsonl")
    planned = attempt(*GATE, *words, "judge=sonnet", "plan=true", folder=two)
    assert (planned.code, planned.err.splitlines()[-1]) == (
        0,
        "prompts: 23 of 24 answered by both entrants (baseline lacks 1), 0 with a reference answer",
    )
    assert "a candidate as good as the baseline passes" in planned.out
    ran = attempt(*GATE, *words, folder=two)
    assert ran.code in (0, 1, 3), ran.err
    found = ran.read("gate.json")
    assert found["candidate"] == "new"
    assert found["dimensions"][0]["n_prompts"] == 23


@pytest.mark.system
def test_a_gate_counts_what_the_candidate_lacks_and_the_baseline_has(two):
    words = ("gate.baseline=new.jsonl", "answers=old.csv")
    refused = attempt(*GATE, *words, folder=two)
    assert refused.code == 2
    assert "1 of 48 responses are missing (old 1)" in refused.err
    ran = attempt(*GATE, *words, "allow_missing=true", folder=two)
    (row,) = ran.read("gate.json")["dimensions"]
    assert (row["n_prompts"], row["n_invalid"]) == (24, 1)


def test_a_blank_answer_of_the_baseline_is_unknown(two):
    """It may have been better than the candidate's: leaving it out would narrow the bounds."""
    rows = [row for _, row in read_jsonl(two / "new.jsonl")]
    (column,) = {"response", "answer", "output"} & rows[0].keys()
    rows[1:4] = [{**row, column: None} for row in rows[1:4]]
    write_jsonl(two / "blank.jsonl", rows)
    words = ("gate.baseline=blank.jsonl", "answers=old.csv")
    ran = attempt(*GATE, *words, "allow_missing=true", folder=two)
    (row,) = ran.read("gate.json")["dimensions"]
    assert (row["n_prompts"], row["n_lost"], row["n_invalid"]) == (24, 1, 4)


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
         "experiment=gate needs one candidate besides the baseline; got old, new."),
        (("gate.baseline=old.csv", "answers=[{name:baseline,file:new.jsonl}]"),
         "The candidate cannot be called baseline"),
        (("gate.baseline=nope.csv", "answers=new.jsonl"), "File not found: nope.csv (in "),
    ],
)  # fmt: skip
def test_a_gate_that_cannot_compare_says_why(two, words, said):
    ran = attempt(*GATE, *words, folder=two)
    assert ran.code == 2
    assert f"\nelo_exp: {said}" in f"\n{ran.err}"


# Published files


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files as others publish them, and such as stand beside them."""
    folder, answers = tmp_path_factory.mktemp("published"), shared_data("answers")
    for name in ("alpaca_eval", "mt_bench", "arena_hard"):
        (folder / name).symlink_to(answers / name)
    bench = (answers / "mt_bench/gpt-4.jsonl").read_text(encoding="utf-8")
    other = bench.replace('"model_id": "gpt-4"', '"model_id": "other"')
    write_whole(folder / "bench/other.jsonl", other)
    (folder / "a.eval").symlink_to(shared_data("formats/inspect_scored.eval"))
    _, rows = read_answers(folder / "a.eval")
    log = MADE["inspect_ai log"](
        [Asked(str(row.id), str(row.prompt), "No", row.reference) for row in rows],
        "org/other",
    )
    write_log(folder / "b.eval", log)
    v2 = [Asked(f"v{i}", f"Of version 2: {i}?", "So.") for i in range(750)]
    write_jsonl(folder / "v2.0/o3.jsonl", MADE["arena_hard's answers"](v2, "o3"))
    for model in ("m1", "m2"):
        samples = MADE["lm_eval"](asked(model), model)
        write_jsonl(folder / model / "samples_gsm8k_T.jsonl", samples)
    batch = MADE["OpenAI batch output"](asked("Batch"), "gpt-5-mini-2026")
    batch[3] |= {"response": None, "error": {"code": "batch_expired"}}
    write_jsonl(folder / "batch_output.jsonl", batch)
    made(folder, "FastChat's answers", "Other", "other")
    bank(folder)
    return folder


ALPACA = "alpaca_eval/{}/model_outputs.json.gz"
HARD = "arena_hard/v0.1/gpt-4-0314.jsonl.gz"


@pytest.mark.system
@pytest.mark.parametrize(
    ("words", "said", "n_queries"),
    [
        ((f"answers=[{ALPACA.format('phi-2')},{ALPACA.format('alpaca-7b')}]",),
         [f"{ALPACA.format('phi-2')}: alpaca_eval's outputs: 803 answers of phi-2",
          f"{ALPACA.format('alpaca-7b')}: alpaca_eval's outputs: 805 answers of alpaca-7b",
          "prompts: 803 of 805 answered by both entrants (phi-2 lacks 2), 0 with a reference answer"], 1606),
        ((f"answers=[{ALPACA.format('NullModel')},{ALPACA.format('alpaca-7b')}]",),
         [f"{ALPACA.format('NullModel')}: alpaca_eval's outputs: 805 answers of example; call it otherwise: "
          "'answers={NAME:FILE,...}'"], 1610),
        ((f'answers=[{{name:"null",file:{ALPACA.format("NullModel")}}},'
          f"{{name:davinci,file:{ALPACA.format('text_davinci_003')}}}]",),
         [f"{ALPACA.format('NullModel')}: alpaca_eval's outputs: 805 answers of null",
          f"{ALPACA.format('text_davinci_003')}: alpaca_eval's outputs: 805 answers of davinci; 2 empty"], 1610),
        ((f"answers=[{HARD},arena_hard/v0.1/gpt-3.5-turbo-0125.jsonl.gz]",),
         [f"{HARD}: arena_hard's answers: 500 answers of gpt-4-0314"], 1000),
        ((f"answers=[{HARD},v2.0/o3.jsonl]",),
         ["elo_exp: No prompt is answered by all entrants (gpt-4-0314 has 500, o3 has 750, none shared). "
          "Are these answers to the same prompts?"], 0),
        (("answers=[mt_bench/gpt-4.jsonl,bench/other.jsonl]",),
         ["elo_exp: The files of answers hold no prompts. Add the questions that they answer:"], 0),
        (("answers=[mt_bench/gpt-4.jsonl,bench/other.jsonl]", "prompts.bank_path=mt_bench/question.jsonl",
          "judging.allow_equal=true"),
         ["mt_bench/gpt-4.jsonl: FastChat's answers: 30 answers of gpt-4"], 60),
        (("answers=[a.eval,b.eval]",),
         ["a.eval: inspect_ai log: 10 answers of openai/gpt-4o-mini; call it otherwise: "
          "'answers={NAME:FILE,...}'"], 20),
        (("answers=[m1/samples_gsm8k_T.jsonl,m2/samples_gsm8k_T.jsonl]",),
         ["m1/samples_gsm8k_T.jsonl: lm_eval: 24 answers of m1"], 48),
        (("answers=[batch_output.jsonl,other/answers.json]", "prompts.bank_path=bank.jsonl"),
         ["batch_output.jsonl: OpenAI batch output: 23 answers of gpt-5-mini-2026; 1 failed; call it otherwise: "
          "'answers={NAME:FILE,...}'"], 46),
    ],
)  # fmt: skip
def test_published_files_are_planned(published, words, said, n_queries):
    ran = attempt(*STUDY, *words, "judge=haiku", "plan=true", folder=published)
    assert lines(ran)[: len(said)] == said
    assert ran.code == (0 if n_queries else 2)
    if n_queries:
        assert f" {n_queries:,} " in ran.out
    else:
        assert ran.err.startswith("elo_exp: ")


def test_a_log_is_rated_by_its_scores_unless_a_judge_is_named(published):
    ran = attempt(
        *("experiment=rate", "battles=[a.eval,b.eval]", "tracker=local"),
        *("allow_missing=true", "figures=false"),
        folder=published,
    )
    assert any(
        line.startswith("a.eval: read as inspect_ai: 10 scores used")
        and line.endswith("judge=sonnet would judge its answers")
        for line in lines(ran)
    ), ran.err


@pytest.mark.system
def test_answers_to_an_arenas_prompts_are_placed(tmp_path):
    """They are found by the text of the prompt."""
    rows = [
        {"question": p.text, "response": p.gold_answer}
        for p in load_bank(BANK)
        if p.gold_answer
    ]
    write_jsonl(tmp_path / "mine.jsonl", rows)
    ran = attempt(
        *("experiment=arena", "answers=mine.jsonl", "tracker=local", "figures=false"),
        *("arena.n_battles=40", "arena.n_calibration=20", "plan=true"),
        folder=tmp_path,
    )
    assert ran.code == 0, ran.err
    assert lines(ran)[0] == f"mine.jsonl: plain rows: {len(rows)} answers of mine"
