"""Battles with model_a, model_b and winner: of our own runs, of LMArena in 2025, of any table."""

from elo_exp.data.formats import Format

_REQUIRED = ("model_a", "model_b", "winner")

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
        required=(*_REQUIRED, "evaluation_session_id"),
        columns={"question_id": "evaluation_session_id"},
        is_votes=True,
    ),
)
