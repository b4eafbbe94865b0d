"""Pairs of answers whose better one is known: a file of our own columns, LLMBar's or JudgeBench's."""

from dataclasses import dataclass
from pathlib import Path

from elo_exp.data import table_files
from elo_exp.data.field_names import fold_spaces
from elo_exp.errors import FileError
from elo_exp.files import check_choice, report_read_errors
from elo_exp.records import Record, make_fingerprint

# Columns of LLMBar and JudgeBench -> our names
_FOREIGN_COLUMNS = {
    **{"input": "prompt", "output_1": "response_a", "output_2": "response_b"},
    **{"question": "prompt", "response_A": "response_a", "response_B": "response_b"},
    "source": "subset",
}
_LABELS = {"1": "a", "2": "b", "A>B": "a", "B>A": "b", "A=B": "tie"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldPair(Record):
    """Two answers and which is better.

    pair_id  of the texts; equal in files that hold the same pair
    label    a, b or tie
    cluster  what its prompt has in common with others; None: its text alone
    """

    pair_id: str
    prompt: str
    response_a: str
    response_b: str
    label: str
    subset: str | None = None
    author_a: str | None = None
    author_b: str | None = None
    reference: str | None = None
    cluster: str | None = None

    @property
    def unit(self) -> str:
        """The unit of observation: pairs of one cluster or, without one, of one prompt."""
        if self.cluster is not None:
            return f"cluster {self.cluster}"
        return f"prompt {fold_spaces(self.prompt)}"


@report_read_errors
def read_pairs(path: Path) -> list[GoldPair]:
    """Read the pairs of a table; equal ones count once. Raises FileError for a row that is none."""
    pairs = {}
    for location, row in table_files.read_rows(path):
        names = sorted(
            row, key=_FOREIGN_COLUMNS.__contains__, reverse=True
        )  # ours hold
        cells = {
            _FOREIGN_COLUMNS.get(name, name): table_files.to_text(row[name])
            for name in names
        }
        texts = [cells.get(name) for name in ("prompt", "response_a", "response_b")]
        if None in texts:
            raise FileError.bad_file(
                location,
                "has no prompt, or not two responses",
                "It needs prompt, response_a, response_b and label (a, b or tie), or columns of LLMBar or JudgeBench.",
            )
        label = str(cells.get("label"))
        label = check_choice(
            f"{location}: label", _LABELS.get(label, label), ("a", "b", "tie")
        )
        key = make_fingerprint(texts)[:16]
        pairs[key] = GoldPair.from_dict({**cells, "label": label, "pair_id": key})
    if not pairs:
        raise FileError(f"{path} holds no pairs.")
    return list(pairs.values())
