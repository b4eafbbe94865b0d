"""How the states of a conclusion are shown: one row a state, with all words of it, for each kind of conclusion."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, kw_only=True)
class StateRow:
    """How a state is shown on a card.

    state  one of the states of its kind of conclusion
    chip   the label
    tone   the colour
    """

    state: str
    chip: str
    tone: str


Row = TypeVar("Row", bound=StateRow)


def index_by_state(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the row of each state."""
    return {row.state: row for row in rows}
