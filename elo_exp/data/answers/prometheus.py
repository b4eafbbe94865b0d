"""Prometheus: responses to instructions, scored or not (see data.formats.prometheus)."""

from collections.abc import Iterator
from pathlib import Path

from elo_exp.data import field_names, table_files
from elo_exp.data.answers import (
    Answer,
    Format,
    convert_row_errors,
    parse_name,
    parse_reference,
    require_text,
    short_cells,
)
from elo_exp.data.formats import prometheus
from elo_exp.data.table_files import Row

_RESPONSE_COLUMNS = ("orig_response", "response")
_REFERENCE_COLUMNS = ("orig_reference_answer", "reference_answer")


def answers(path: Path) -> Iterator[Answer]:
    """Yield the response of each instance or row, with the instruction as the prompt."""
    for location, row in prometheus.read_instances(path):
        with convert_row_errors(location, "Prometheus"):
            yield _read_answer(row, location)


def _read_answer(row: Row, location: str) -> Answer:
    response = next(row[name] for name in _RESPONSE_COLUMNS if name in row)
    text = table_files.to_text(response)
    instruction = field_names.first_value(row, prometheus.INSTRUCTION_COLUMNS)
    entrant = field_names.first_value(row, prometheus.ENTRANT_COLUMNS)
    reference = field_names.first_value(row, _REFERENCE_COLUMNS)
    return Answer(
        location=location,
        id=parse_name(row.get("id"), "id"),
        prompt=require_text(instruction, "the instruction"),
        text=None if text is None else require_text(response, "the response"),
        entrant=parse_name(entrant, "the model"),
        reference=parse_reference(reference),
        source=parse_name(row.get("capability"), "capability"),
        columns=short_cells(row),
    )


def _find_lack_of_object(keys: set[str]) -> str:
    return ", ".join(prometheus.find_faults_of_object(Path(), keys))


FORMATS = (
    Format(
        name="BiGGen-Bench",
        shapes=("object",),
        answers=answers,
        find_lack=_find_lack_of_object,
    ),
    Format(
        name="BiGGen-Bench's table",
        required=("id", "capability", "task", "response", "input"),
        answers=answers,
    ),
    Format(
        name="Prometheus",
        required=("instruction", "response", "feedback"),
        answers=answers,
    ),
    Format(
        name="Prometheus",
        required=("orig_instruction", "orig_response"),
        answers=answers,
    ),
)
