"""Standings of battles, as an experiment concludes them, for the tests of what is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from elo_exp.analysis import judge_bias
from elo_exp.analysis.standings import Standings, rate
from elo_exp.data.battles import Battles
from elo_exp.ratings import RatingMethod
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.records import Battle
from tests.data import by_dimension, shipped
from tests.simulation import Tournament

BRADLEY_TERRY = BradleyTerry(
    initial_rating=1400.0, orders="both", interval="sandwich", n_bootstraps=2, seed=0
)


def standings(
    battles: Mapping[str, Sequence[Battle]],
    *,
    n_perms: int = 20,
    ratings: Mapping[str, RatingMethod] = MappingProxyType(
        {"bradley_terry": BRADLEY_TERRY}
    ),
    **elo: Any,
) -> Standings:
    """Rated by Elo as it ships, without an interval, and by other methods."""
    by_elo = shipped("elo", "default", **{"n_perms": n_perms, "n_bootstraps": 0, **elo})
    columns = by_dimension(battles)
    models = sorted({model for some in columns.values() for model in some.models})
    return rate(columns, elo=by_elo, ratings=ratings, models=models)


def tournament(
    n_models: int = 4, n_prompts: int = 60, *, seed: int = 5, **columns: Any
) -> list[Battle]:
    """Every pair of a, b, c, ... in both orders, the first the best."""
    ratings = tuple(np.linspace(100.0, 0.0, n_models).tolist())
    return Tournament(ratings=ratings).battles(
        n_prompts, np.random.default_rng(seed), **columns
    )


def of_lengths(battles: Battles, lengths: Mapping[tuple[str, str], int]) -> Battles:
    """Answers of so many characters, by prompt and model, without markdown."""

    def counts(prompt: str | None, model: str) -> tuple[int, ...] | None:
        n = lengths.get((prompt or "", model))
        return None if n is None else (n, 0, 0, 0)

    rows = [
        dataclasses.replace(
            b,
            style_a=counts(b.question_id, b.model_a),
            style_b=counts(b.question_id, b.model_b),
        )
        for b in battles.rows()
    ]
    return Battles.from_rows(rows)


def with_lengths(found: Standings, lengths: Mapping[tuple[str, str], int]) -> Standings:
    """What a tournament adds: the characters of each response, by prompt and model."""
    diagnoses = {}
    for dimension, battles in found.battles.items():
        control = judge_bias.length_control(
            of_lengths(battles, lengths), dimension=dimension, initial_rating=1400.0
        )
        diagnoses[dimension] = {
            **found.diagnoses[dimension],
            "length": control,
        }
    return dataclasses.replace(found, diagnoses=diagnoses)
