"""Entrants that need no model: probes of known quality, and recorded responses."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from elo_exp.data import bank
from elo_exp.entrants.probe import GradedProbe, ProbeEntrant
from elo_exp.entrants.recorded import RecordedEntrant
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl, write_whole
from elo_exp.records import Prompt, Response
from tests.data import BANK, PROBES, prompt, shipped

BLEEDING = prompt(gold_answer="Firm pressure on the wound.")
BURN = prompt(2, gold_answer="Running water.")
HEDGE = prompt(
    3,
    subject="cardiology",
    expected_behavior="hedge",
    tags=("statins", "primary-prevention", "age", "cost"),
)
PROMPTS = [BLEEDING, HEDGE, BURN]


@pytest.fixture(scope="module")
def small_bank(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bank") / "bank.jsonl"
    return write_jsonl(path, [one.to_dict() for one in PROMPTS])


def probe(path: Path, style: str) -> ProbeEntrant:
    """A probe without lapses."""
    styles = dict.fromkeys(("entrant_id", "style", "lapse_style"), style)
    return ProbeEntrant(**styles, lapse_rate=0.0, bank_path=str(path))


def answers(entrant: Any, *prompts: Prompt) -> list[str]:
    return [response.response_text for response in entrant.generate(prompts)]


# Probes: styles


@pytest.mark.parametrize(
    ("style", "start", "claim"),
    [
        ("reference", "Firm", "Firm pressure on the wound."),
        ("partial", "Firm", "Firm pressure on."),
        ("hedged", "It is hard to be certain", "Firm pressure on the wound."),
        ("swapped", "Certainly.", "Running water."),  # the next gold answer
    ],
)
def test_a_prompt_with_a_gold_answer_is_answered_from_it(
    small_bank, style, start, claim
):
    """The last prompt swaps with the first."""
    (answer,) = answers(probe(small_bank, style), BLEEDING)
    assert answer.startswith(start)
    assert claim in answer
    (last,) = answers(probe(small_bank, "swapped"), BURN)
    assert last == "Certainly. Firm pressure on the wound."


@pytest.mark.parametrize(
    ("style", "shown"),
    [
        ("reference", "answer hedge abstain"),  # as expected
        ("hedged", "hedge hedge hedge"),
        ("partial", "hedge answer hedge"),  # one step off
        ("swapped", "abstain abstain answer"),  # as far off as can be
    ],
)
def test_a_prompt_without_a_gold_answer_is_answered_with_a_behavior(
    small_bank, style, shown
):
    """Where an answer, a hedge and an abstention are expected."""
    openings = {"answer": "Yes, this is", "hedge": "It depends:", "abstain": "I cannot"}
    for expected, behavior in zip(openings, shown.split(), strict=True):
        asked = dataclasses.replace(HEDGE, expected_behavior=expected)
        (answer,) = answers(probe(small_bank, style), asked)
        assert answer.startswith(openings[behavior])


def test_a_behavior_names_the_first_tags_or_the_subject(small_bank):
    reference = probe(small_bank, "reference")
    (tagged,) = answers(reference, HEDGE)
    assert "statins, primary prevention, age." in tagged
    assert "cost" not in tagged
    (untagged,) = answers(reference, dataclasses.replace(HEDGE, tags=()))
    assert "turns on cardiology." in untagged


# Probes: lapses


def lapses(entrant: ProbeEntrant) -> set[str]:
    made = entrant.generate(bank.load_bank(BANK))
    return {r.prompt_id for r in made if r.diagnostics["style"] == entrant.lapse_style}


def test_the_shipped_probes_lapse_on_about_their_share_but_not_together():
    """.15 of 143 prompts, drawn by hash: within two and a half standard errors (.03)."""
    probes = [shipped("entrant", name, entrant_id=name) for name in PROBES]
    assert {entrant.lapse_rate for entrant in probes} == {0.15}
    lapsed = [lapses(entrant) for entrant in probes]
    assert [len(prompts) / 143 for prompts in lapsed] == pytest.approx(
        [0.15] * 4, abs=0.075
    )
    assert not set.intersection(*lapsed)


def test_a_graded_probe_gives_the_first_words_of_the_reference(small_bank):
    def graded(**changes: Any) -> GradedProbe:
        given = {"style": "reference", "keep": 0.6, "lapse_rate": 0.0} | changes
        given |= {"entrant_id": "newcomer", "bank_path": str(small_bank)}
        return GradedProbe(lapse_style="swapped", **given)

    asked = dataclasses.replace(BLEEDING, gold_answer=None)  # as an arena has it
    assert answers(graded(), asked) == ["Firm pressure on."]
    assert answers(graded(keep=0.0), asked) == ["Firm."]
    assert answers(graded(keep=1.0, lapse_rate=1.0), asked) == ["Running water."]
    (hedged,) = answers(graded(style="hedged"), asked)
    assert " might perhaps be the following: Firm pressure on. " in hedged
    with pytest.raises(
        UserError,
        match="Prompt p3 has no reference in .*, and entrant.newcomer answers",
    ):
        answers(graded(), HEDGE)


# Recorded responses

ROW = {"entrant_id": "ann", "prompt_id": "p1", "response_text": "Firm pressure."}


def recorded(
    path: Path, *rows: dict[str, Any], entrant_id: str = "ann"
) -> RecordedEntrant:
    return RecordedEntrant(entrant_id=entrant_id, path=str(write_jsonl(path, rows)))


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "responses.jsonl"


def refused(path: Path, *rows: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        recorded(path, *rows).cache_key(BLEEDING)
    return str(error.value)


def test_recorded_responses_are_returned_and_unknown_keys_ignored(file):
    fields = {"p_correct": 0.75, "diagnostics": {"seed": 7}}
    empty = {**ROW, "prompt_id": "p2", "response_text": ""}
    entrant = recorded(file, {**ROW, **fields, "loader": "vanilla_hf"}, empty)
    found = list(entrant.generate([BLEEDING, HEDGE, BURN]))
    assert found == [Response(**ROW, **fields), Response(**empty)]


def test_the_responses_of_a_run_can_be_read_back(tmp_path):
    prompts = bank.load_bank(BANK)
    made = list(shipped("entrant", "probe_hedged", entrant_id="ann").generate(prompts))
    rows = (row.to_dict() for row in made)
    write_jsonl(tmp_path / "responses_ann.jsonl", rows)
    again = RecordedEntrant(entrant_id="ann", path=str(tmp_path))
    assert list(again.generate(prompts)) == made


def test_an_entrants_rows_are_taken_from_a_file_with_several(file):
    rows = [ROW, {**ROW, "entrant_id": "bob", "response_text": "A prayer."}]
    assert answers(recorded(file, *rows), BLEEDING) == ["Firm pressure."]
    assert answers(recorded(file, *rows, entrant_id="bob"), BLEEDING) == ["A prayer."]
    rows[0] = {**ROW, "entrant_id": "zoe"}
    assert (
        refused(file, *rows)
        == f"{file} holds no answer of ann. It holds answers of bob, zoe."
    )


def test_a_file_of_one_entrant_may_give_it_any_name(file):
    (response,) = recorded(file, ROW, entrant_id="my_name_for_ann").generate([BLEEDING])
    assert response.entrant_id == "my_name_for_ann"
    unnamed = {key: value for key, value in ROW.items() if key != "entrant_id"}
    assert answers(recorded(file, unnamed), BLEEDING) == ["Firm pressure."]


def test_only_equal_responses_to_one_prompt_may_be_there_twice(file):
    twice = {**ROW, "timestamp": "2026-04-25T00:00:00Z"}
    assert answers(recorded(file, ROW, twice), BLEEDING) == ["Firm pressure."]
    message = (
        f"{file}:2 holds a second, different answer to p1. Keep one of them, or number them by "
        "draw_idx: 0, 1, ..."
    )
    assert refused(file, ROW, {**ROW, "response_text": "A prayer."}) == message


def test_a_row_of_another_shape_is_refused(file):
    for name, wrong in (("prompt_id", None), ("prompt_id", 1), ("response_text", None)):
        value = "null" if wrong is None else wrong
        message = f"{file}:2: {name} must be text; got {value}."
        assert refused(file, ROW, {**ROW, name: wrong}) == message


def test_what_is_no_number_in_json_is_refused(file):
    """Python's json reads and writes such."""
    row = json.dumps(ROW)[:-1]
    write_whole(file, f'{row}, "diagnostics": {{"logprobs": [-0.5, -Infinity]}}}}\n')
    message = "jsonl:1 holds NaN or Infinity, which JSON does not have"
    with pytest.raises(UserError, match=message):
        RecordedEntrant(entrant_id="ann", path=str(file)).cache_key(BLEEDING)
