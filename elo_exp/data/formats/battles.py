"""Battles with model_a, model_b and winner: of our own runs, of LMArena, of anybody's table."""

from __future__ import annotations

from elo_exp.data.formats import TABLES, BattlesFormat

FLAT = BattlesFormat(
    name="battles", shapes=TABLES, required=("model_a", "model_b", "winner")
)
OWN = BattlesFormat(
    name="elo_exp",
    shapes=TABLES,
    required=("model_a", "model_b", "winner", "verdict_ab", "verdict_ba"),
    columns={"score": "score"},
    unique=True,
)
FORMATS = (FLAT, OWN)
