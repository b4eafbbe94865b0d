"""Mistakes in the settings of an oracle experiment that can be known before anything is asked."""

from collections.abc import Iterable, Sequence
from typing import Any

from elo_exp.errors import SettingError
from elo_exp.experiments.oracle_analysis import OracleSettings
from elo_exp.files import check_choice
from elo_exp.judges import ApiJudge, Judge
from elo_exp.oracle import cje
from elo_exp.oracle.data import LENGTH_COVARIATE
from elo_exp.oracle.grid import GridSettings

# These have no meaning for recorded answers
COLLECTION_SETTINGS = (
    "oracle.prompts",
    "oracle.logging_policy",
    "oracle.validation_fraction",
    "oracle.budget_usd",
    "oracle.check_nats",
    "oracle.check_answers",
)
# These apply to answers to collect and to recorded answers
_SAMPLING_SETTINGS = ("oracle.n_prompts", "oracle.label_fraction")


def check_compat(
    compat: str | None, settings: OracleSettings, estimators: Iterable[str]
) -> None:
    """Raise SettingError for settings that another library's analysis does not have."""
    if compat is None:
        return
    for name in estimators:
        check_choice("compat: estimator", name, cje.FORMULAS)
    required: dict[str, Any] = {"seed": cje.FOLDS_SEED}
    required |= {"scale": [0, 1], "covariates": [], "by_variance": False}
    for name, value in required.items():
        if (current := getattr(settings, name)) != value:
            raise SettingError(
                f"oracle.{name}: found {current}. compat=cje-0.3 requires {value}, as in that "
                "library."
            )
    if settings.grid:
        raise SettingError(
            "compat: refuses nothing, so that it has no grid. Leave it out."
        )


def check_truth(
    settings: OracleSettings,
    grid: GridSettings,
    overrides: Sequence[str],
    *,
    has_entrants: bool,
    needs_labels: bool,
) -> None:
    """Check what a truth made from labels needs, and that the grid has its own settings. Raises SettingError."""
    share = min(settings.label_fraction, settings.validation_fraction)
    if needs_labels and has_entrants and share < 1:
        raise SettingError(
            "oracle.label_fraction: found less than all answers labelled, from which no "
            "truth can be made. Set oracle.label_fraction=1 oracle.validation_fraction=1."
        )
    if not settings.grid:
        words = "is about a grid, which oracle.grid=true makes"
        refuse_settings(["grid."], overrides, words)
        return
    if "two_stage" in grid.calibrations and not settings.covariates:
        raise SettingError(
            "grid.calibrations: two_stage needs a column beside the score. Set "
            "oracle.covariates=[response_length]."
        )
    words = (
        "the grid draws prompts and labels itself, by grid.sizes and grid.label_shares"
    )
    refuse_settings(
        ("oracle.truth", *(() if has_entrants else _SAMPLING_SETTINGS)),
        overrides,
        words,
    )


def refuse_recorded_settings(settings: OracleSettings) -> None:
    """Raise SettingError for settings of recorded answers where answers are collected."""
    for name, is_set in {
        "probe_dir": settings.probe_dir,
        "scale": settings.scale != [0, 1],
        "covariates": {*settings.covariates} - {LENGTH_COVARIATE},
    }.items():
        if is_set:
            raise SettingError(
                f"oracle.{name}: is about recorded answers; collected ones have scores in "
                f"[0, 1] and {LENGTH_COVARIATE}. Leave it out, or name a file: oracle.fresh_dir=FILE."
            )


def refuse_unused(overrides: Sequence[str], raters: Iterable[Judge]) -> None:
    """Raise SettingError for settings and judges that simulated policies have no use for."""
    other_settings = (
        "oracle.truth",
        "judge",
        "oracle_judge",
        "scoring",
        "shard",
    )
    unused = list_overridden(
        (*COLLECTION_SETTINGS, *_SAMPLING_SETTINGS, *other_settings), overrides
    )
    unused += [rater.model for rater in raters if isinstance(rater, ApiJudge)]
    if unused:
        raise SettingError(
            f"entrant: none is chosen, and simulated policies have no use for {unused[0]}. "
            "Name your policies: 'entrant=[base,other]'. To try it on models of random "
            "weights: 'entrant=[tiny_base,tiny_clone]'."
        )


def refuse_weak_oracle(judge: Judge, oracle: Judge, *, is_same_rubric: bool) -> None:
    """Raise SettingError for an oracle that is the judge itself, or no better."""
    keys = [(rater.model, rater.cache_key()) for rater in (judge, oracle)]
    if keys[0] == keys[1] and is_same_rubric:
        raise SettingError(
            "judge@oracle_judge: is the judge itself, and every label would be its score. "
            "Choose another, or show it more: scoring@oracle_scoring=reference."
        )
    if isinstance(judge, ApiJudge) and oracle.model == "lexical":
        raise SettingError(
            f"judge@oracle_judge: found lexical, which only compares words, as the oracle for "
            f"{judge.model}. Choose a better judge than that: judge@oracle_judge=opus."
        )


def list_overridden(names: Iterable[str], overrides: Sequence[str]) -> list[str]:
    """List the settings of a command that begin with one of these names."""
    keys = [word.lstrip("+").partition("=")[0] for word in overrides]
    return [key for key in keys if key.startswith(tuple(names))]


def refuse_settings(
    names: Iterable[str], overrides: Sequence[str], reason: str
) -> None:
    """Raise SettingError if a command sets something that has no meaning here."""
    for key in list_overridden(names, overrides):
        raise SettingError(f"{key}: {reason}. Leave it out.")
