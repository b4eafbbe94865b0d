"""Judge a tournament with planned looks in waves, each up to the next look."""

from collections.abc import Callable

from elo_exp.analysis.sequential_tests import (
    Comparisons,
    Key,
    Wave,
    comparison_key,
    plan_next_wave,
)
from elo_exp.data.battles import battles_from_judgments
from elo_exp.ratings import RatingMethod
from elo_exp.records import Battle, Judgment


def judge_in_waves(
    comparisons: Comparisons,
    judge: Callable[[Comparisons], dict[str, list[Judgment]]],
    *,
    method: RatingMethod,
    looks: int,
    drop: bool,
) -> tuple[Wave, dict[str, list[Judgment]]]:
    """Judge what each look lacks until the design has ended.

    judge  asks for the comparisons of a wave
    Returns the last wave, and the judgments by dimension.
    """
    battles_by_key: dict[str, dict[Key, Battle | None]] = {
        name: {} for name in comparisons
    }
    judgments: dict[str, list[Judgment]] = {name: [] for name in comparisons}
    while True:
        wave = plan_next_wave(
            comparisons, battles_by_key, method, n_looks=looks, drop=drop
        )
        if not any(wave.to_judge.values()):
            return wave, judgments
        for dimension, wave_judgments in judge(wave.to_judge).items():
            judgments[dimension] += wave_judgments
            battles_by_key[dimension] |= dict.fromkeys(
                map(comparison_key, wave.to_judge[dimension])
            )
            for judgment in wave_judgments:
                for battle in battles_from_judgments([judgment]):
                    battles_by_key[dimension][comparison_key(judgment)] = battle
