"""Which judges are chosen: what each would cost, one budget for several, and what the console calls them."""

import pkgutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any

from elo_exp.api.costs import Budget
from elo_exp.data.rubrics import Instructions
from elo_exp.errors import SettingError, UserError
from elo_exp.experiments import ONLY_JUDGE
from elo_exp.experiments.settings import Study
from elo_exp.judges import (
    ApiJudge,
    Judge,
    NoJudge,
    qualified_judge_name,
    roles_by_dimension,
)
from elo_exp.pipeline import Plan
from elo_exp.report.sentences import opening_line
from elo_exp.report.sentences.check_sentences import list_judge_choices


def collect_judges(
    judge: Judge | None, judges: Mapping[str, Judge], cap: float
) -> dict[str, Judge]:
    """Return the judges of an experiment by name; several pay from one budget, of cap dollars.

    judge   the word judge=NAME has chosen one; None: it has not
    judges  the word judge=[NAME,NAME] has chosen several
    """
    if judge is not None:
        return {ONLY_JUDGE: judge}
    if not judges:
        raise SettingError("judge is not set. Choose a judge, for example judge=opus.")
    if [*judges] != [ONLY_JUDGE]:
        share_budget(judges, cap)
    return dict(judges)


def share_budget(judges: Mapping[str, Judge], cap: float) -> None:
    """Have judges pay from one budget, of cap dollars. Raises SettingError for one that cannot be asked beside others."""
    budget = Budget(cap)
    for name, judge in judges.items():
        if isinstance(judge, NoJudge):
            raise SettingError(
                "Each of several judges must be chosen; one of them is not set. For example:",
                "  'judge=[opus,gpt]'",
            )
        if not isinstance(judge, ApiJudge):
            continue
        if judge.budget_usd != cap:
            raise SettingError.bad_value(
                f"judges.{name}.budget_usd",
                judge.budget_usd,
                "be left out, as several judges share one budget, which judging.budget_usd sets (US dollars)",
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


def require_distinct_judges(
    judges: Mapping[str, Judge], plans: Sequence[Plan]
) -> list[Plan]:
    """Return the plan of each judge. Raises SettingError for two that give the same replies: one taste, counted twice."""
    plan_by_judge = dict(zip(judges, plans, strict=True))
    for (name_a, plan_a), (name_b, plan_b) in combinations(plan_by_judge.items(), 2):
        is_same = plan_a.keys and {*plan_a.keys} == {*plan_b.keys}
        if is_same and _is_known(judges[name_a]):
            raise SettingError(
                f"{name_a} and {name_b} are the same judge, with one model and the same settings. Leave one out, or "
                f"make them differ:",
                f"  judges.{name_b}.SETTING=VALUE",
            )
    return [*plans]


def _is_known(judge: Judge) -> bool:
    """Whether a judge can be told from others, which one without its model here cannot."""
    try:
        judge.cache_key()
    except UserError:
        return False
    return True


def require_judge(
    judge: Judge, plans: Callable[[Sequence[Judge]], Sequence[Plan]]
) -> None:
    """Raise SettingError where no judge is chosen, with what each that is offered would cost.

    plans  of the judges that are offered
    """
    if not isinstance(judge, NoJudge):
        return
    priced = dict(zip(judge.offers, plans([*judge.offers.values()]), strict=True))
    rows = next((plan.rows for plan in priced.values()), ())
    raise SettingError(
        *list_judge_choices(
            sum(row.queries for row in rows),
            list(dict.fromkeys(row.dimension for row in rows)),
            {name: plan.dollars for name, plan in priced.items()},
            {
                name: str(getattr(offered_judge, "key_variable", None) or "")
                for name, offered_judge in judge.offers.items()
            },
        )
    )


def describe_opening(
    judges: Mapping[str, Judge],
    rubrics: Sequence[Instructions],
    study: Study | None,
    cap: float,
) -> str:
    """Say what is judged, by whom, as what, and what it may cost.

    cap  in dollars, of several judges; one judge has its own
    """
    judge_roles = [
        roles_by_dimension(judge, rubrics).values() for judge in judges.values()
    ]
    if len(judges) > 1:
        names = f"each of {', '.join(judges)}"
        is_paid = any(isinstance(judge, ApiJudge) for judge in judges.values())
        shown_cap = cap if is_paid else None
    else:
        (judge,) = judges.values()
        names, shown_cap = judge.model, _find_cap(judge)
    return opening_line.describe_judging(
        [rubric.dimension for rubric in rubrics],
        names,
        [role for roles in judge_roles for role in roles],
        study=study.name if study else None,
        cap=shown_cap,
    )


def _find_cap(judge: Judge) -> float | None:
    """Return the cap of a judge in dollars; None for one that costs nothing."""
    if not isinstance(judge, ApiJudge):
        return None
    prices = judge.prices_of(judge.model)
    is_free = prices is not None and not (prices.input or prices.output)
    return None if is_free else judge.budget.cap
