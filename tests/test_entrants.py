"""Entrants that need no model: probes of known quality, and responses that were made elsewhere."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from elo_exp.data import bank
from elo_exp.entrants.probe import ProbeEntrant
from elo_exp.entrants.recorded import RecordedEntrant
from elo_exp.files import write_jsonl, write_whole
from elo_exp.records import Prompt, Response, UserError, fingerprint
from tests.data import BANK, PROBES, shipped

BLEEDING = Prompt(
    prompt_id="p1",
    text="What stops bleeding?",
    source="medqa",
    subject="er",
    gold_answer="Firm pressure on the wound.",
)
BURN = Prompt(
    prompt_id="p2",
    text="What cools a burn?",
    source="medqa",
    subject="er",
    gold_answer="Running water.",
)
HEDGE = Prompt(
    prompt_id="p3",
    text="Should I take a statin?",
    source="curated",
    subject="cardiology",
    expected_behavior="hedge",
    tags=("statins", "primary-prevention", "age", "cost"),
)
PROMPTS = [BLEEDING, HEDGE, BURN]


@pytest.fixture(scope="module")
def small_bank(tmp_path_factory) -> Path:
    return write_jsonl(
        tmp_path_factory.mktemp("bank") / "bank.jsonl", [prompt.to_dict() for prompt in PROMPTS]
    )


def probe(path: Path, style: str, **changes: Any) -> ProbeEntrant:
    """A probe that does not lapse, but for `changes`."""
    settings = {
        "entrant_id": style,
        "style": style,
        "lapse_style": style,
        "lapse_rate": 0.0,
        "bank_path": str(path),
    }
    return ProbeEntrant(**{**settings, **changes})


def answers(entrant: Any, *prompts: Prompt) -> list[str]:
    return [response.response_text for response in entrant.generate(prompts)]


# Probes: what each style says


@pytest.mark.parametrize(
    ("style", "answer"),
    [
        ("reference", "Firm pressure on the wound."),
        ("partial", "Firm pressure on."),
        ("swapped", "Certainly. Running water."),
    ],
)
def test_a_prompt_with_a_gold_answer_is_answered_from_it(small_bank, style, answer):
    assert answers(probe(small_bank, style), BLEEDING) == [answer]


def test_hedging_keeps_the_claims_and_buries_them(small_bank):
    (answer,) = answers(probe(small_bank, "hedged"), BLEEDING)
    assert "Firm pressure on the wound." in answer
    assert answer.startswith("It is hard to be certain")


def test_the_swapped_answer_is_the_next_prompts_and_the_last_takes_the_first(small_bank):
    """The curated prompt between them has no gold answer to give."""
    assert answers(probe(small_bank, "swapped"), *PROMPTS)[::2] == [
        "Certainly. Running water.",
        "Certainly. Firm pressure on the wound.",
    ]


BEHAVES = {
    "Yes, this is settled.": "answer",
    "It depends:": "hedge",
    "I cannot answer this": "abstain",
}


@pytest.mark.parametrize(
    ("style", "expected", "shown"),
    [
        ("reference", "answer", "answer"),
        ("reference", "hedge", "hedge"),
        ("reference", "abstain", "abstain"),
        ("hedged", "answer", "hedge"),
        ("hedged", "hedge", "hedge"),
        ("hedged", "abstain", "hedge"),
        ("partial", "answer", "hedge"),
        ("partial", "hedge", "answer"),
        ("partial", "abstain", "hedge"),
        ("swapped", "answer", "abstain"),
        ("swapped", "hedge", "abstain"),
        ("swapped", "abstain", "answer"),
    ],
)
def test_a_prompt_without_one_is_answered_with_a_behavior(small_bank, style, expected, shown):
    """reference as expected, hedged always hedging, partial one step off, swapped as far off as can be."""
    (answer,) = answers(
        probe(small_bank, style), dataclasses.replace(HEDGE, expected_behavior=expected)
    )
    assert [behavior for opening, behavior in BEHAVES.items() if answer.startswith(opening)] == [
        shown
    ]


def test_a_behavior_is_about_the_first_tags_or_the_subject(small_bank):
    reference = probe(small_bank, "reference")
    (tagged,) = answers(reference, HEDGE)
    assert "statins, primary prevention, age." in tagged
    assert "cost" not in tagged
    (untagged,) = answers(reference, dataclasses.replace(HEDGE, tags=()))
    assert "turns on cardiology." in untagged


# Probes: lapses


def test_without_lapses_every_answer_is_in_style_and_with_nothing_else_none_is():
    prompts = bank.load(BANK)
    for rate, style in ((0.0, "reference"), (1.0, "swapped")):
        entrant = probe(BANK, "reference", lapse_style="swapped", lapse_rate=rate)
        assert {r.diagnostics["style"] for r in entrant.generate(prompts)} == {style}


@pytest.mark.parametrize("name", PROBES)
def test_the_shipped_probes_lapse_on_about_their_share_of_the_bank(name):
    """0.15 of 143 prompts, drawn by hash: within two and a half standard deviations (0.03)."""
    entrant = shipped("entrant", name, entrant_id=name)
    prompts = bank.load(BANK)
    lapses = [r for r in entrant.generate(prompts) if r.diagnostics["style"] == entrant.lapse_style]
    assert entrant.lapse_rate == 0.15
    assert len(lapses) / len(prompts) == pytest.approx(0.15, abs=0.075)


def test_a_lower_rate_lapses_on_some_of_the_same_prompts():
    prompts = bank.load(BANK)

    def lapses(rate: float) -> set[str]:
        entrant = probe(BANK, "reference", lapse_style="swapped", lapse_rate=rate)
        return {
            r.prompt_id for r in entrant.generate(prompts) if r.diagnostics["style"] == "swapped"
        }

    assert lapses(0.1) < lapses(0.3) < lapses(0.6)


def test_the_four_probes_do_not_lapse_together():
    prompts = bank.load(BANK)
    lapses = []
    for name in PROBES:
        entrant = shipped("entrant", name, entrant_id=name)
        lapses.append(
            {
                r.prompt_id
                for r in entrant.generate(prompts)
                if r.diagnostics["style"] != entrant.style
            }
        )
    assert not set.intersection(*lapses)


# Probes: as entrants


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_gives_the_same_answers_every_time_and_on_every_machine(name):
    prompts = bank.load(BANK)
    once, again = (answers(shipped("entrant", name, entrant_id=name), *prompts) for _ in range(2))
    assert once == again


def test_which_prompts_a_probe_lapses_on_never_changes(small_bank):
    """The draw is a hash of style and prompt_id, not of this process: fixed here, so that stored answers stay found."""
    entrant = probe(small_bank, "reference", lapse_style="swapped", lapse_rate=0.5)
    prompts = [dataclasses.replace(BLEEDING, prompt_id=f"p{n}") for n in range(10)]
    styles = [r.diagnostics["style"] for r in entrant.generate(prompts)]
    assert [n for n, style in enumerate(styles) if style == "swapped"] == [2, 7, 9]


def test_an_answer_says_who_gave_it_to_what(small_bank):
    (response,) = probe(small_bank, "reference", entrant_id="best").generate([BURN])
    assert (response.entrant_id, response.prompt_id, response.finish_reason) == (
        "best",
        "p2",
        "stop",
    )
    assert response.timestamp.endswith("Z")


def test_an_answer_is_named_by_all_that_could_change_it(small_bank):
    entrant = probe(small_bank, "reference")
    assert fingerprint(entrant.cache_key(BLEEDING)) == fingerprint(
        probe(small_bank, "reference").cache_key(BLEEDING)
    )
    edited = dataclasses.replace(BLEEDING, gold_answer="A tourniquet.")
    assert fingerprint(entrant.cache_key(edited)) != fingerprint(entrant.cache_key(BLEEDING))
    assert fingerprint(probe(small_bank, "partial").cache_key(BLEEDING)) != fingerprint(
        entrant.cache_key(BLEEDING)
    )


# Recorded responses

ROW = {"entrant_id": "ann", "prompt_id": "p1", "response_text": "Firm pressure."}


def recorded(path: Path, *rows: dict[str, Any], entrant_id: str = "ann") -> RecordedEntrant:
    return RecordedEntrant(entrant_id=entrant_id, path=str(write_jsonl(path, rows)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "responses.jsonl"


def refused(path: Path, *rows: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        recorded(path, *rows).check()
    assert str(error.value).startswith(str(path))
    return str(error.value)


def test_recorded_responses_are_given_back_and_unknown_keys_ignored(file):
    entrant = recorded(
        file, {**ROW, "p_correct": 0.75, "diagnostics": {"seed": 7}, "loader": "vanilla_hf"}
    )
    assert list(entrant.generate([BLEEDING])) == [
        Response(
            entrant_id="ann",
            prompt_id="p1",
            response_text="Firm pressure.",
            p_correct=0.75,
            diagnostics={"seed": 7},
        )
    ]


def test_a_prompt_without_a_recorded_response_is_not_answered(file):
    assert answers(recorded(file, ROW), BURN, BLEEDING) == ["Firm pressure."]


def test_an_empty_response_is_a_response(file):
    assert answers(recorded(file, {**ROW, "response_text": ""}), BLEEDING) == [""]


def test_the_responses_of_a_run_can_be_read_back(tmp_path):
    """Whatever an entrant made, the file that a run writes of it answers in its place."""
    prompts = bank.load(BANK)
    made = list(shipped("entrant", "probe_hedged", entrant_id="probe_hedged").generate(prompts))
    write_jsonl(
        tmp_path / "responses_probe_hedged.jsonl", (response.to_dict() for response in made)
    )
    again = RecordedEntrant(entrant_id="probe_hedged", path=str(tmp_path))
    assert list(again.generate(prompts)) == made


def test_of_a_file_with_several_entrants_ones_own_rows_are_taken(file):
    rows = [ROW, {**ROW, "entrant_id": "bob", "response_text": "A prayer."}]
    assert answers(recorded(file, *rows), BLEEDING) == ["Firm pressure."]
    assert answers(recorded(file, *rows, entrant_id="bob"), BLEEDING) == ["A prayer."]


def test_a_file_of_one_entrant_may_call_it_anything(file):
    (response,) = recorded(file, ROW, entrant_id="my_name_for_ann").generate([BLEEDING])
    assert response.entrant_id == "my_name_for_ann"
    unnamed = {key: value for key, value in ROW.items() if key != "entrant_id"}
    assert answers(recorded(file, unnamed), BLEEDING) == ["Firm pressure."]


def test_an_entrant_that_is_not_among_several_is_refused(file):
    words = refused(file, {**ROW, "entrant_id": "bob"}, {**ROW, "entrant_id": "zoe"})
    assert words == f"{file}: has no response of 'ann' (found bob, zoe)."


def test_the_same_response_twice_is_one_response(file):
    assert answers(recorded(file, ROW, {**ROW, "timestamp": "2026-04-25T00:00:00Z"}), BLEEDING) == [
        "Firm pressure."
    ]


def test_two_different_responses_to_one_prompt_are_refused(file):
    words = refused(file, ROW, {**ROW, "response_text": "A prayer."})
    assert words == f"{file}:2: a second, different response to 'p1'. Keep one of them."


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (
            {"entrant_id": "ann", "response_text": "Yes."},
            ":2: found None as 'prompt_id'. Expected a text.",
        ),
        ({**ROW, "response_text": None}, ":2: found None as 'response_text'. Expected a text."),
        ({**ROW, "prompt_id": 1}, ":2: found 1 as 'prompt_id'. Expected a text."),
    ],
    ids=["no prompt", "no response", "a number"],
)
def test_a_bad_row_is_named(file, bad, words):
    assert refused(file, ROW, bad) == f"{file}{words}"


@pytest.mark.parametrize(
    "field",
    ['"p_correct": NaN', '"p_correct": 1e999', '"diagnostics": {"logprobs": [-0.5, -Infinity]}'],
)
def test_what_is_no_number_in_json_is_refused_where_it_stands(file, field):
    """Python's json writes such, and reads it."""
    other = {**ROW, "prompt_id": "p2"}
    write_whole(file, f"{json.dumps(ROW)}\n{json.dumps(other)[:-1]}, {field}}}\n")
    with pytest.raises(UserError) as refusal:
        RecordedEntrant(entrant_id="ann", path=str(file)).check()
    assert (
        str(refusal.value)
        == f"{file}:2: holds NaN or Infinity, which JSON has not. Write null, or leave it out."
    )


def test_a_folder_without_the_entrants_file_is_refused(tmp_path):
    with pytest.raises(
        UserError, match=r"responses_ann\.jsonl: cannot be read \(No such file or directory\)"
    ):
        RecordedEntrant(entrant_id="ann", path=str(tmp_path)).check()


def test_an_edited_response_has_another_name_in_the_store(file):
    before = fingerprint(recorded(file, ROW).cache_key(BLEEDING))
    assert fingerprint(recorded(file, ROW).cache_key(BLEEDING)) == before
    assert (
        fingerprint(recorded(file, {**ROW, "response_text": "Press."}).cache_key(BLEEDING))
        != before
    )
    assert fingerprint(recorded(file, ROW).cache_key(BURN)) != before
