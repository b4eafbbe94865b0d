"""Battles with model_a, model_b and winner: of our own runs, of LMArena, of any table.

huggingface.co/datasets/lmarena-ai/arena-human-preference-140k names sessions, and -100k has conversations alone.
"""

from elo_exp.data.battle_texts import find_conversations
from elo_exp.data.formats import Format
from elo_exp.data.table_files import Source

_SESSION_COLUMN = "evaluation_session_id"
_REQUIRED = ("model_a", "model_b", "winner")


def _refuse_sessions(_: Source, keys: set[str]) -> list[str]:
    """Return a fault if votes belong to sessions, which is a format of its own."""
    return [f"has {_SESSION_COLUMN}"] if _SESSION_COLUMN in keys else []


FLAT = Format(name="battles", required=_REQUIRED)
# If the command names the column of shares
SHARES = Format(
    name="battles by shares",
    required=("model_a", "model_b"),
    fields=lambda _: {},
    assumption="the share of model_a decides who wins",
)
FORMATS = (
    FLAT,
    Format(
        name="elo_exp",
        required=(*_REQUIRED, "verdict_ab", "verdict_ba"),
        columns={"score": "score"},
    ),
    Format(
        name="lmarena",
        required=(*_REQUIRED, _SESSION_COLUMN),
        columns={"question_id": _SESSION_COLUMN},
        answers=find_conversations,
        is_votes=True,
    ),
    Format(
        name="lmarena_conversations",
        required=(*_REQUIRED, "conversation_a", "conversation_b"),
        find_faults=_refuse_sessions,
        is_votes=True,
    ),
)
