"""What experiments with several judges share: one budget, one plan, and a folder each."""

import pkgutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import combinations
from typing import Any, Protocol, TypeVar

from elo_exp.api.costs import Budget
from elo_exp.data.rubrics import Rubric
from elo_exp.errors import SettingError, UserError
from elo_exp.experiments.judged import Study
from elo_exp.judges import (
    ApiJudge,
    Judge,
    NoJudge,
    qualified_judge_name,
    roles_by_dimension,
)
from elo_exp.pipeline import Plan
from elo_exp.report.sentences import opening_line as words


class _HasJudge(Protocol):
    judge: Judge


T = TypeVar("T", bound=_HasJudge)


def share_budget(judges: Mapping[str, Judge], cap: float) -> None:
    """Have judges pay from one budget, of cap dollars. Raises UserError for one that cannot be asked beside others."""
    budget = Budget(cap)
    for name, judge in judges.items():
        if isinstance(judge, NoJudge):
            raise SettingError(
                f"judges.{name}: found {type(judge).__name__}. Expected judges that are chosen: 'judge=[one,other]'."
            )
        if not isinstance(judge, ApiJudge):
            continue
        if not isinstance(judge, ApiJudge):
            raise SettingError(
                f"judges.{name}: {type(judge).__name__} has a cap of its own. Expected a subclass of ApiJudge: "
                "several judges share one cap."
            )
        if judge.budget_usd != cap:
            raise SettingError(
                f"judges.{name}.budget_usd: found {judge.budget_usd:g}. Several judges share one cap: set "
                "judging.budget_usd."
            )
        judge.name_settings(f"judges.{name}", "judging.budget_usd")
        judge.budget = budget


def list_recorded_judges(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of each of several judges whose verdicts one repeats, by name; {} of any other judge.

    settings  of a judge; what is wrong with them is said where it is built
    """
    with suppress(UserError, ModuleNotFoundError, AttributeError, ValueError, OSError):
        split_judges = getattr(pkgutil.resolve_name(settings["_target_"]), "each", None)
        settings_by_judge: dict[str, dict[str, Any]] = (
            split_judges(settings) if split_judges else {}
        )
        return settings_by_judge
    return {}


def list_unique_judge_names(judges: Mapping[str, Judge]) -> dict[str, str]:
    """Return by name how files call each judge: as its model; where two have one model, by its name, too."""
    n_judges = Counter(judge.model for judge in judges.values())
    return {
        name: judge.model
        if n_judges[judge.model] == 1
        else qualified_judge_name(judge.model, name)
        for name, judge in judges.items()
    }


def make_single_judge_experiment(
    kind: type[T], experiment: Any, judge: Judge, **extra: Any
) -> T:
    """Return the experiment of one judge: of this kind, with the settings and parts of `experiment`.

    extra  fields that `experiment` does not have
    """
    make: Callable[..., T] = kind
    values = {
        setting.name: getattr(experiment, setting.name)
        for setting in fields(kind)  # type: ignore[arg-type]
        if setting.name not in ("judge", *extra)
    }
    return make(**values, judge=judge, **extra)


def require_distinct_judges(
    judges: Mapping[str, Judge], plans: Sequence[Plan]
) -> list[Plan]:
    """Return the plan of each judge. Raises UserError for two that give the same replies: one taste, counted twice."""
    plan_by_judge = dict(zip(judges, plans, strict=True))
    for (name_a, plan_a), (name_b, plan_b) in combinations(plan_by_judge.items(), 2):
        is_same = plan_a.keys and {*plan_a.keys} == {*plan_b.keys}
        if is_same and _is_known(judges[name_a]):
            raise SettingError(
                f"judges: {name_a} and {name_b} are one judge, whose replies are the same by its model and settings. "
                f"Leave one out, or set what differs: judges.{name_b}.SETTING=VALUE."
            )
    return [*plans]


def _is_known(judge: Judge) -> bool:
    """Whether a judge can be told from others, which one without its model here cannot."""
    try:
        judge.cache_key()
    except UserError:
        return False
    return True


def describe_opening(
    judges: Mapping[str, Judge],
    rubrics: Sequence[Rubric],
    study: Study | None,
    cap: float,
) -> str:
    """Say what is judged, by whom, as what, and what it may cost."""
    is_paid = any(isinstance(judge, ApiJudge) for judge in judges.values())
    judge_roles = [
        roles_by_dimension(judge, rubrics).values() for judge in judges.values()
    ]
    return words.describe_judging(
        [rubric.dimension for rubric in rubrics],
        f"each of {', '.join(judges)}",
        [role for group in judge_roles for role in group],
        study=study.name if study else None,
        cap=cap if is_paid else None,
    )
