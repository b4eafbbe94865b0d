"""What the variance of comparisons is made of, prompts, draws and the judge, and what more of each would buy."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from elo_exp.analysis.win_rates import pairs_that_met, sort_sides_by_name
from elo_exp.arrays import Array
from elo_exp.data.battles import SCORES, Battles
from elo_exp.records import Record

_MIN_SHARE_ABOVE_NOISE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance(Record):
    """The components of the variance of a pair's outcomes (1, 1/2, 0), the mean over pairs; None: cannot be told.

    prompts  between prompts, of what any number of draws and queries would say
    draws    between the draws of a prompt
    judge    between two queries about the same answers
    within   of a draw: draws, and judge over the orders; with one order all that can be told of the two
    n        prompts
    k        draws of each
    orders   in which a draw is judged, 1 or 2
    """

    prompts: float | None
    draws: float | None
    judge: float | None
    within: float | None
    n: int
    k: int
    orders: int

    def of_mean(self, n: int, k: int) -> float | None:
        """Return the variance of the mean over n prompts of k draws each; None where it cannot be told.

        (prompts + within / k) / n
        """
        if self.prompts is None or self.within is None:
            return None
        return (max(self.prompts, 0.0) + max(self.within, 0.0) / k) / n

    @property
    def shares(self) -> dict[str, float | None]:
        """The shares of the variance of one draw; None where one cannot be told, 0 where it is below it.

        Draws and judge are one share, `within`, where one order was judged.
        """
        parts = {"prompts": self.prompts, "within": self.within}
        if self.draws is not None and self.judge is not None:
            judge = self.judge / self.orders
            parts = {"prompts": self.prompts, "draws": self.draws, "judge": judge}
        components = {
            name: part if part is None else max(part, 0.0)
            for name, part in parts.items()
        }
        total = sum(part or 0.0 for part in components.values())
        is_whole = None not in components.values() and total > 0.0
        return {
            name: part / total if is_whole and part is not None else None
            for name, part in components.items()
        }

    @property
    def is_noise(self) -> dict[str, bool]:
        """Whether a share is below a tenth, and so cannot be distinguished from zero."""
        return {
            name: share is not None and share < _MIN_SHARE_ABOVE_NOISE
            for name, share in self.shares.items()
        }

    @property
    def floor(self) -> float | None:
        """The share of an error that is left however many draws there are of these prompts."""
        current_variance = self.of_mean(self.n, self.k)
        if not current_variance or self.prompts is None:
            return None
        return math.sqrt(max(self.prompts, 0.0) / self.n / current_variance)


def split_variance(outcomes: Array) -> Variance:
    """Split the variance of a pair's outcomes into prompts, draws and the judge.

    With y the outcome of prompt p, draw i and order o, m its mean over the orders, in two orders

        J = var(y_1 - y_2) / 2,   D = mean_p var_i(m) - J / 2,   P = var_p(mean_i m) - (D + J / 2) / k

    by the method of moments for a nested design [1]_; a preference for what is shown first shifts all
    differences alike and takes no part. In one order D and J stay together, with one draw P and D. An
    estimate may be negative, where the component is small.

    Parameters
    ----------
    outcomes : Array, shape (n, k, orders)
        Of one pair, in [0, 1]: n prompts with k draws each, in one order or two.

    Returns
    -------
    Variance
        None for what cannot be told.

    References
    ----------
    .. [1] S. R. Searle, G. Casella and C. E. McCulloch (1992), "Variance Components", Wiley, chapter 3.

    Examples
    --------
    Two prompts, of one both draws are won and of the other one, each in both orders alike: the judge
    does not vary, draws do on the second.

    >>> outcomes = np.array([[[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]]])
    >>> components = split_variance(outcomes)
    >>> components.prompts, components.draws, components.judge
    (0.0, 0.25, 0.0)
    """
    n, k, orders = outcomes.shape
    judge = draws = prompts = within = None
    if orders == 2 and n * k > 1:
        judge = float(np.var(outcomes[..., 0] - outcomes[..., 1], ddof=1)) / 2.0
    m = outcomes.mean(axis=2)
    if k > 1 and n:
        within = float(np.var(m, axis=1, ddof=1).mean())
        draws = None if judge is None else within - judge / 2.0
        if n > 1:
            prompts = float(np.var(m.mean(axis=1), ddof=1)) - within / k
    return Variance(
        prompts=prompts,
        draws=draws,
        judge=judge,
        within=within,
        n=n,
        k=k,
        orders=orders,
    )


def estimate_variance(battles: Battles) -> Variance | None:
    """Split the variance of battles on several draws, the mean over the pairs.

    Of each pair the prompts with all draws, in both orders or all in one. Equal answers, about which the
    judge was asked once for both orders, are a tie in each.

    Parameters
    ----------
    battles : Battles
        Of one dimension.

    Returns
    -------
    Variance or None
        None where no pair has several draws of two prompts. `n` counts the prompts of the pair with the
        fewest.
    """
    named_battles = sort_sides_by_name(
        battles.select(battles.question < len(battles.questions))
    )
    if (
        not len(named_battles)
        or named_battles.draw_a is None
        or named_battles.count is not None
    ):
        return None
    draw_a, draw_b = named_battles.draws()
    draw = np.maximum(draw_a, draw_b)
    k = int(draw.max()) + 1
    ab, ba = named_battles.verdict_ab >= 0, named_battles.verdict_ba >= 0
    orders = 2 if (ab & ba).all() else 1
    y = named_battles.scores()[:, None]
    if orders == 2:
        y = np.stack(
            [SCORES[named_battles.verdict_ab], SCORES[named_battles.verdict_ba]], axis=1
        )
    y[named_battles.equal_answers] = 0.5
    _, _, pair = pairs_that_met(named_battles.model_a, named_battles.model_b)
    components = []
    for number in range(int(pair.max()) + 1):
        rows = np.flatnonzero(pair == number)
        outcomes = np.full((len(named_battles.questions), k, orders), np.nan)
        outcomes[named_battles.question[rows], draw[rows]] = y[rows]
        complete_outcomes = outcomes[np.isfinite(outcomes).all(axis=(1, 2))]
        if len(complete_outcomes) > 1 and k > 1:
            components.append(split_variance(complete_outcomes))
    return _average(components) if components else None


def _average(components: list[Variance]) -> Variance:
    def mean(name: str) -> Any:
        values = [getattr(component, name) for component in components]
        return None if None in values else float(np.mean(values))

    return Variance(
        prompts=mean("prompts"),
        draws=mean("draws"),
        judge=mean("judge"),
        within=mean("within"),
        n=min(component.n for component in components),
        k=components[0].k,
        orders=components[0].orders,
    )
