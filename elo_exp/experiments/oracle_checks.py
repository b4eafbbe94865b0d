"""Checks of the settings of an oracle experiment, before any call."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp.data import column_roles
from elo_exp.data.column_roles import Columns
from elo_exp.errors import SettingError, format_value
from elo_exp.experiments.oracle_analysis import OracleSettings
from elo_exp.files import check_choice
from elo_exp.judges import ApiJudge, Judge
from elo_exp.oracle import answer_tables, cje
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


def check_inputs(answers: object, estimators: Collection[str]) -> None:
    """Raise SettingError for answer files, which the oracle does not read, and for no estimator."""
    if answers:
        raise SettingError(
            "experiment=oracle reads answers that are scored already, and no other answer files. To have a judge score "
            "these answers, leave out experiment=oracle and add:",
            "  scoring=score judge=sonnet",
            "For answers with scores, give one of these (docs/oracle.md):",
            "  oracle.logged=FILE",
            "  oracle.fresh_dir=FILE",
        )
    if not estimators:
        raise SettingError.no_value(
            "estimator",
            needed_for="experiment=oracle",
            value="at least one estimator",
            example="'estimator=[direct]'",
        )


def check_columns(columns: Columns, settings: Mapping[str, Any]) -> None:
    """Raise SettingError for columns of no file or without effect, and FileError for a column that no file has."""
    column_roles.refuse_unused_roles(columns, answer_tables.COLUMNS, "oracle")
    names = ("logged", "fresh_dir", "probe_dir", "labels")
    paths = [Path(settings[name]) for name in names if settings[name]]
    if columns and not paths:
        raise SettingError(
            f"columns.{next(iter(columns))} names a column of scored answers, and no file of them is given. Add:",
            "  oracle.fresh_dir=FILE",
        )
    paths = [
        path
        for folder in paths
        for path in (sorted(folder.glob("*.jsonl*")) if folder.is_dir() else [folder])
    ]
    column_roles.refuse_absent_columns(paths, columns)


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
            raise SettingError.bad_value(
                f"oracle.{name}",
                current,
                f"be {format_value(value)} with compat=cje-0.3",
            )
    if settings.grid:
        raise SettingError(
            "compat cannot be combined with oracle.grid=true, as it never refuses an estimate. Leave one of them out."
        )


def check_truth(
    settings: OracleSettings,
    grid: GridSettings,
    overrides: Sequence[str],
    *,
    has_entrants: bool,
    needs_labels: bool,
) -> None:
    """Raise SettingError if a truth from labels lacks labels, or a setting of the grid does not apply."""
    share = min(settings.label_fraction, settings.validation_fraction)
    if needs_labels and has_entrants and share < 1:
        raise SettingError(
            "A truth made from labels needs a label for each answer, and not all are to be labelled. Set:",
            "  oracle.label_fraction=1 oracle.validation_fraction=1",
        )
    if not settings.grid:
        words = "it applies to a grid, which oracle.grid=true makes"
        refuse_settings(["grid."], overrides, words)
        return
    if "two_stage" in grid.calibrations and not settings.covariates:
        raise SettingError(
            "grid.calibrations=two_stage needs a covariate besides the score. Set, for example:",
            "  'oracle.covariates=[response_length]'",
        )
    words = "the grid samples prompts and labels by grid.sizes and grid.label_shares"
    refuse_settings(
        ("oracle.truth", *(() if has_entrants else _SAMPLING_SETTINGS)),
        overrides,
        words,
    )


def refuse_recorded_settings(settings: OracleSettings) -> None:
    """Raise SettingError for settings of recorded answers if answers are collected."""
    for name, is_set in {
        "probe_dir": settings.probe_dir,
        "labels": settings.labels,
        "scale": settings.scale != [0, 1],
        "covariates": {*settings.covariates} - {LENGTH_COVARIATE},
    }.items():
        if is_set:
            raise SettingError(
                f"oracle.{name} applies to recorded answers. Generated answers have scores from 0 to 1 and "
                f"{LENGTH_COVARIATE}. "
                "Leave it out, or set oracle.fresh_dir=FILE."
            )


def refuse_unused(overrides: Sequence[str], raters: Iterable[Judge]) -> None:
    """Raise SettingError for settings and judges that have no effect on simulated policies."""
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
            f"Without entrants the policies are simulated, and {unused[0]} has no effect on them. Choose the policies:",
            "  'entrant=[hf:ORG/BASE,hf:ORG/OTHER]'",
            "  'entrant=[tiny_base,tiny_clone]'   models with random weights, to try it",
        )


def refuse_weak_oracle(judge: Judge, oracle: Judge, *, is_same_rubric: bool) -> None:
    """Raise SettingError for an oracle that is the judge itself, or not better than the judge."""
    keys = [(rater.model, rater.cache_key()) for rater in (judge, oracle)]
    if keys[0] == keys[1] and is_same_rubric:
        raise SettingError(
            "judge@oracle_judge is the judge itself, so each label would equal its score. Choose another judge, or "
            "show it more:",
            "  scoring@oracle_scoring=reference",
        )
    if isinstance(judge, ApiJudge) and oracle.model == "lexical":
        raise SettingError(
            f"judge@oracle_judge must be better than the judge {judge.model}; got lexical, which only compares words. "
            f"For example:",
            "  judge@oracle_judge=opus",
        )


def list_overridden(names: Iterable[str], overrides: Sequence[str]) -> list[str]:
    """Return the settings of a command that begin with one of these names."""
    keys = [word.lstrip("+").partition("=")[0] for word in overrides]
    return [key for key in keys if key.startswith(tuple(names))]


def refuse_settings(
    names: Iterable[str], overrides: Sequence[str], reason: str
) -> None:
    """Raise SettingError if a command has a setting without effect here."""
    for key in list_overridden(names, overrides):
        raise SettingError(f"{key} has no effect here: {reason}. Leave it out.")
