"""The chance that a gate passes an equal candidate, before any verdict exists."""

import math
from collections.abc import Sequence

from elo_exp.analysis.noninferiority import pass_probability, prompts_to_pass
from elo_exp.analysis.power import assumed_sigma
from elo_exp.pipeline import Plan
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS

# Share of tied verdicts in the simulations behind the planner, which draw shares together
_SIMULATED_TIE_RATE = 0.2
# How far the points of the two orders differ in these simulations: the mean, and the mean square
_ORDER_DISAGREEMENT, _SQUARED_ORDER_DISAGREEMENT = 0.343, 0.264


def estimate_pass_chance(
    plan: Plan,
    groups: Sequence[str],
    *,
    margin: float,
    alpha: float,
    both_orders: float,
) -> tuple[float, int | None]:
    """Return the chance that an equal candidate passes, and the number of prompts for 80%.

    groups       cluster of each prompt
    both_orders  share of comparisons judged in both orders; if it is 0, nothing can pass
    """
    if not both_orders:
        return 0.0, None
    sigma = assumed_sigma(2, both_orders=both_orders)
    disagreement_variance = (
        _SQUARED_ORDER_DISAGREEMENT / both_orders - _ORDER_DISAGREEMENT**2
    )
    sd = math.hypot(
        sigma * (1.0 - _SIMULATED_TIE_RATE) / (4.0 * POINTS_PER_LOG_ODDS),
        margin * math.sqrt(disagreement_variance),
    )
    remaining_margin = margin * (1.0 - _ORDER_DISAGREEMENT)
    floor = min(0.0, 0.5 - margin / both_orders)
    n_needed = prompts_to_pass(sd, remaining_margin, alpha, floor)
    n_groups = len(set(groups))
    chance = math.prod(
        pass_probability(
            row.n_prompts * n_groups // len(groups), sd, remaining_margin, alpha, floor
        )
        for row in plan.rows
        if not row.is_control
    )
    return chance, n_needed
