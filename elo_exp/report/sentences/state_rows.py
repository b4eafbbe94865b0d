"""The words for the states of a conclusion: one row per state, for each kind of conclusion."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, kw_only=True)
class WordedState:
    """A state with its words.

    state  one of the states of its kind of conclusion
    """

    state: str


@dataclass(frozen=True, kw_only=True)
class StateRow(WordedState):
    """How a state is shown on a card.

    chip   the label
    tone   the colour
    """

    chip: str
    tone: str


Row = TypeVar("Row", bound=WordedState)


def index_by_state(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the row of each state."""
    return {row.state: row for row in rows}
