"""ragas: the samples of one application, scored or not (see data.formats.ragas)."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from elo_exp.data import field_names, table_files
from elo_exp.data.answers import (
    Answer,
    Format,
    MalformedError,
    convert_row_errors,
    parse_name,
    parse_reference,
    require_text,
    short_cells,
)
from elo_exp.data.formats.ragas import QUESTION_COLUMNS
from elo_exp.errors import format_value

_ANSWER_COLUMNS = ("response", "answer")
_REFERENCE_COLUMNS = ("reference", "ground_truth", "ground_truths")


def answers(path: Path) -> Iterator[Answer]:
    """Yield the response of each sample. A question that occurs again is a draw of it."""
    n_occurrences = Counter[tuple[str | None, str]]()
    for location, row in table_files.read_rows(path):
        with convert_row_errors(location, "ragas"):
            question = next(row[name] for name in QUESTION_COLUMNS if name in row)
            if not isinstance(question, str):
                raise MalformedError(
                    f"user_input must be a text; got {format_value(question)}. Write conversations as rows of messages "
                    "(docs/conversations.md)."
                )
            response = next(row[name] for name in _ANSWER_COLUMNS if name in row)
            references = (row.get(name) for name in _REFERENCE_COLUMNS)
            text = table_files.to_text(response)
            entrant = parse_name(
                field_names.first_value(row, field_names.ENTRANT), "the model"
            )
            yield Answer(
                location=location,
                id=parse_name(field_names.first_value(row, field_names.ID), "the id"),
                prompt=question,
                text=None if text is None else require_text(response, "response"),
                reference=parse_reference(next(filter(None, references), None)),
                source=parse_name(row.get("synthesizer_name"), "synthesizer_name"),
                entrant=entrant,
                draw_idx=n_occurrences[entrant, question],
                columns=short_cells(row),
            )
            n_occurrences[entrant, question] += 1


FORMATS = (
    Format(name="ragas", required=("user_input", "response"), answers=answers),
    Format(name="ragas", required=("question", "answer", "contexts"), answers=answers),
)
