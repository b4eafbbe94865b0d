"""Which comparisons a tournament with planned looks judges next, and what each look has resolved.

The prompts of a dimension are judged in a seeded order. At each look the difference of every two
entrants is tested at a boundary by alpha spending, with Holm's correction over all pairs and
dimensions that are open, again until nothing new is resolved (Maurer and Bretz 2013).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import scipy

from elo_exp.analysis.comparisons import ALPHA, Difference, differences
from elo_exp.analysis.complete_separation import rate_with_unbeaten
from elo_exp.analysis.dimension_fit import DimensionFit
from elo_exp.analysis.goodness_of_fit import transitivity
from elo_exp.data.battles import Battles
from elo_exp.ratings import RatingMethod
from elo_exp.records import (
    FIXED_SEED,
    Battle,
    Comparison,
    Judgment,
    Record,
    make_fingerprint,
)

# A look with fewer prompts joins the next look
MIN_PROMPTS_PER_LOOK = 20
MIN_P_VALUE_OF_FIT = (
    0.10  # a p value of the test of fit, below which nothing is left out
)
# For a misfit that the test of fit does not see
_RESERVED_SHARE_OF_ALPHA = 0.2
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)
_MAX_BOUNDARY_Z = 9.0

Pair = frozenset[str]
Key = tuple[str, Pair, int]  # a prompt, two entrants, and the draw of theirs
Comparisons = Mapping[str, Sequence[Comparison]]  # by dimension


def family_wise_alpha(*, drop: bool) -> float:
    """Return the level of all tests together.

    Parameters
    ----------
    drop : bool
        Whether resolved pairs are left out.

    Returns
    -------
    float
        Below .05 where they are, so that an undetected misfit does not take the error beyond it.
    """
    return ALPHA * (1.0 - _RESERVED_SHARE_OF_ALPHA) if drop else ALPHA


def comparison_key(comparison: Comparison | Judgment) -> Key:
    """Return what tells a comparison, and its judgment, from others of its dimension.

    Parameters
    ----------
    comparison : Comparison or Judgment
        On a prompt, of two entrants.

    Returns
    -------
    Key
        The prompt's id, both entrants in no order, and which draw of theirs.
    """
    draw = max(comparison.draw_a, comparison.draw_b)
    return (
        comparison.prompt_id,
        frozenset((comparison.entrant_a, comparison.entrant_b)),
        draw,
    )


def plan_looks(n_prompts: int, n_looks: int) -> list[int]:
    """Return how many prompts are judged at each look.

    Parameters
    ----------
    n_prompts : int
        Of the dimension.
    n_looks : int
        Planned.

    Returns
    -------
    list of int
        Ascending, the last one n_prompts; a look with fewer than 20 joins the next.

    Examples
    --------
    >>> plan_looks(143, 3), plan_looks(30, 3)
    ([48, 95, 143], [20, 30])
    """
    ends = {round(n_prompts * look / n_looks) for look in range(1, n_looks + 1)}
    return sorted(n for n in ends if n >= MIN_PROMPTS_PER_LOOK or n == n_prompts)


def prompt_order(strata: Mapping[str, str]) -> list[str]:
    """Order prompts by a hash within their stratum, so that all strata advance in proportion.

    Parameters
    ----------
    strata : mapping of str to str
        The stratum of each prompt, by its id.

    Returns
    -------
    list of str
        Ids; they do not depend on the order in which they are given.
    """
    order = sorted(strata, key=lambda prompt: make_fingerprint([FIXED_SEED, prompt]))
    share: dict[str, float] = {}
    for stratum in set(strata.values()):
        members = [prompt for prompt in order if strata[prompt] == stratum]
        share |= {prompt: (i + 0.5) / len(members) for i, prompt in enumerate(members)}
    return sorted(order, key=share.__getitem__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution(Difference):
    """A difference where its pair was resolved, or at the last look: median-unbiased, with the
    interval of stage-wise ordering.

    Of a one-sided pair the bound of that look. It holds whenever testing stops: whoever took every
    point at a later look had done so at an earlier one, where the bound is lower.
    """

    look: int
    n_prompts: int  # on which the pair was judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Record):
    """What one planned look at a dimension has resolved.

    look        its number, from 1
    n_prompts   that were judged
    boundary    of the test statistic
    n_resolved  pairs that have an answer, of this look or an earlier one
    n_judged    comparisons so far, of the `n_planned`
    is_whole    whether no pair is left out
    """

    dimension: str
    look: int
    n_prompts: int
    boundary: float
    n_resolved: int
    n_judged: int
    n_planned: int
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What to judge next.

    wanted    not judged yet; nothing once the design has ended
    asked     judged, and wanted
    resolved  the differences of all pairs that could be tested
    looks     those of each dimension
    """

    to_judge: Comparisons
    judged: Comparisons
    resolutions: Sequence[Resolution]
    looks: Sequence[Look]


def plan_next_wave(
    comparisons: Comparisons,
    known_battles: Mapping[str, Mapping[Key, Battle | None]],
    method: RatingMethod,
    *,
    n_looks: int,
    drop: bool,
) -> Wave:
    """Replay the looks, and return what the first of them lacks.

    A function of plan and verdicts alone: verdicts that are not due yet change nothing.

    Parameters
    ----------
    comparisons : mapping of str to sequence of Comparison
        All that is planned, by dimension.
    known_battles : mapping of str to mapping of Key to Battle or None
        By dimension, what was asked; None: the verdict is invalid, or lost for good.
    method : RatingMethod
        Whose differences are tested.
    n_looks : int
        Planned.
    drop : bool
        A resolved pair is judged on no further prompts, as long as Bradley-Terry fits; at the first
        misfit the verdicts left out are wanted, and no pair is left out any more. Without dropping, a
        dimension ends when all of its pairs are resolved.

    Returns
    -------
    Wave
        With nothing wanted once the design has ended.

    References
    ----------
    .. [1] W. Maurer and F. Bretz (2013), "Multiple testing in group sequential trials using graphical
       approaches", Statistics in Biopharmaceutical Research 5(4), 311-320.
    """
    states = {
        name: _DimensionState(
            planned, known_battles[name], n_looks, keeps_all_pairs=not drop
        )
        for name, planned in comparisons.items()
    }
    alpha = family_wise_alpha(drop=drop)
    for n_left in range(n_looks, 0, -1):
        due = {
            name: state
            for name, state in states.items()
            if state.open_pairs and n_left <= len(state.looks)
        }
        for state in due.values():
            state.advance(state.looks[-n_left])
        if any(state.list_wanted() for state in due.values()):
            break
        boards = rate_with_unbeaten(method, {n: s.battles() for n, s in due.items()})
        for difference in differences(boards):
            state, pair = (
                due[difference.dimension],
                frozenset((difference.higher, difference.lower)),
            )
            if pair in state.open_pairs and difference.p_value is not None:
                z = -float(scipy.special.ndtri(difference.p_value / 2))
                state.pair_tests.setdefault(pair, []).append(
                    (len(state.past_looks), z, difference)
                )
        n_open = sum(len(state.open_pairs) for state in states.values())
        while n_open and (
            n_new := sum(state.resolve(alpha / n_open) for state in due.values())
        ):
            n_open -= n_new
        for name, state in due.items():
            state.close_look(name)
    return Wave(
        to_judge={name: state.list_wanted() for name, state in states.items()},
        judged={name: state.list_asked() for name, state in states.items()},
        resolutions=[
            resolution
            for state in states.values()
            for resolution in state.list_resolved()
        ],
        looks=[look for state in states.values() for look in state.past_looks],
    )


@dataclass(eq=False)
class _DimensionState:
    """How far one dimension has come."""

    comparisons: Sequence[Comparison]
    known_battles: Mapping[Key, Battle | None]
    n_looks: int
    keeps_all_pairs: bool  # no pair is left out
    boundary: float = 0.0  # of the look
    past_looks: list[Look] = field(default_factory=list)
    # of each pair: the looks, from 0, at which it was tested while open, with Z and the test
    pair_tests: dict[Pair, list[tuple[int, float, Difference]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        order = prompt_order({c.prompt_id: c.source for c in self.comparisons})
        self.index = {prompt: number for number, prompt in enumerate(order)}
        self.looks = plan_looks(len(order), self.n_looks)
        self.times = tuple(n / len(order) for n in self.looks)
        # the prompts on which each pair is judged, and the pairs that are not resolved
        self.n_prompts_of_pair = {comparison_key(c)[1]: 0 for c in self.comparisons}
        self.open_pairs = set(self.n_prompts_of_pair)

    def list_asked(self) -> list[Comparison]:
        return [
            c
            for c in self.comparisons
            if self.index[c.prompt_id] < self.n_prompts_of_pair[comparison_key(c)[1]]
        ]

    def list_wanted(self) -> list[Comparison]:
        return [
            c for c in self.list_asked() if comparison_key(c) not in self.known_battles
        ]

    def battles(self) -> Battles:
        rows = [
            row
            for c in self.list_asked()
            if (row := self.known_battles[comparison_key(c)])
        ]
        return Battles.from_rows(rows)

    def advance(self, n_prompts: int) -> None:
        """Go on to a look; where Bradley-Terry does not fit, with all pairs."""
        pairs = self.n_prompts_of_pair if self.keeps_all_pairs else self.open_pairs
        self.n_prompts_of_pair |= dict.fromkeys(pairs, n_prompts)
        if not self.keeps_all_pairs and not self.list_wanted():
            fitted = DimensionFit.of(self.battles())
            p = transitivity(fitted, dimension="")[0].p_value
            if p is not None and p < MIN_P_VALUE_OF_FIT:
                self.keeps_all_pairs = True
                self.advance(n_prompts)

    def resolve(self, alpha: float) -> int:
        """Resolve the open pairs beyond the boundary, and count them."""
        k = len(self.past_looks)
        self.boundary = boundaries(alpha, self.times)[k]
        new_pairs = {
            pair
            for pair, tests in self.pair_tests.items()
            if pair in self.open_pairs
            and tests[-1][0] == k
            and tests[-1][1] > self.boundary
        }
        self.open_pairs -= new_pairs
        return len(new_pairs)

    def close_look(self, dimension: str) -> None:
        self.past_looks.append(
            Look(
                dimension=dimension,
                look=len(self.past_looks) + 1,
                n_prompts=self.looks[len(self.past_looks)],
                boundary=self.boundary,
                n_resolved=len(self.n_prompts_of_pair) - len(self.open_pairs),
                n_judged=len(self.list_asked()),
                n_planned=len(self.comparisons),
                is_whole=self.keeps_all_pairs,
            )
        )

    def list_resolved(self) -> Iterator[Resolution]:
        bounds = [look.boundary for look in self.past_looks]
        for pair, tests in self.pair_tests.items():
            k, _, test = tests[-1]
            middle, low, high = None, test.ci_low, None
            if test.difference is not None and test.std_error:
                z, unit = test.difference / test.std_error, math.sqrt(self.times[k])
                # A pair does not stop for its Z at looks at which it has none.
                looks = [
                    look
                    for look, _, earlier_test in tests
                    if not earlier_test.one_sided
                ]
                drifts = estimate_stagewise(
                    [self.times[look] for look in looks],
                    [bounds[look] for look in looks[:-1]],
                    z,
                )
                middle, low, high = (unit * test.std_error * drift for drift in drifts)
            yield Resolution(
                dimension=test.dimension,
                higher=test.higher,
                lower=test.lower,
                difference=middle,
                std_error=test.std_error,
                ci_low=low,
                ci_high=high,
                significant=pair not in self.open_pairs,
                one_sided=test.one_sided,
                look=k + 1,
                n_prompts=(test.one_sided and test.n_prompts)
                or self.n_prompts_of_pair[pair],
            )


# Boundaries by alpha spending, and what may be said after stopping at one


def _stopping_probabilities(
    times: Sequence[float], bounds: Sequence[float], drift: float = 0.0
) -> Iterator[tuple[float, float]]:
    """Yield the probabilities of stopping at each look with a bound: above it, and below."""
    points, weight, previous_time = np.zeros(1), np.ones(1), 0.0
    for t, bound in zip(times, bounds, strict=False):
        mean, scale = points + drift * (t - previous_time), math.sqrt(t - previous_time)
        end = bound * math.sqrt(t)
        above = weight @ scipy.special.ndtr((mean - end) / scale)
        yield float(above), float(weight @ scipy.special.ndtr((-end - mean) / scale))
        points = end * _NODES
        density = np.exp(-(((points[:, None] - mean) / scale) ** 2) / 2) @ weight
        weight = end * _WEIGHTS * density / (scale * math.sqrt(2 * math.pi))
        previous_time = t


def alpha_spent(alpha: float, t: float) -> float:
    """Return the error spent by a time, 4 - 4 Phi(z(1 - alpha / 4) / sqrt(t)).

    It is like that of O'Brien and Fleming's boundary on either side [1]_.

    Parameters
    ----------
    alpha : float
        Two-sided level, spent at t = 1.
    t : float
        In (0, 1]: the share of the plan.

    Returns
    -------
    float
        At most alpha.

    References
    ----------
    .. [1] K. K. G. Lan and D. L. DeMets (1983), "Discrete sequential boundaries for clinical trials",
       Biometrika 70(3), 659-663.

    Examples
    --------
    >>> round(alpha_spent(0.05, 0.5), 4), round(alpha_spent(0.05, 1.0), 4)
    (0.0031, 0.05)
    """
    return float(
        4.0 * scipy.special.ndtr(scipy.special.ndtri(alpha / 4) / math.sqrt(t))
    )


@cache
def boundaries(alpha: float, times: tuple[float, ...]) -> tuple[float, ...]:
    """Return the two-sided boundary of each look; the last spends what is left of the error.

    Parameters
    ----------
    alpha : float
        Two-sided level of the test.
    times : tuple of float
        Of the looks, ascending, shares of the plan.

    Returns
    -------
    tuple of float
        In standard errors, 9 at most.

    Examples
    --------
    >>> [round(bound, 2) for bound in boundaries(0.05, (0.5, 1.0))]
    [2.96, 1.97]
    """
    from scipy.optimize import brentq

    bounds: list[float] = []
    for t in times:
        error = alpha if t == times[-1] else alpha_spent(alpha, t)

        def excess(bound: float, error: float = error) -> float:
            return (
                sum(map(sum, _stopping_probabilities(times, [*bounds, bound]))) - error
            )

        bounds.append(
            _MAX_BOUNDARY_Z
            if excess(_MAX_BOUNDARY_Z) >= 0
            else brentq(excess, 0.0, _MAX_BOUNDARY_Z)
        )
    return tuple(bounds)


def estimate_stagewise(
    times: Sequence[float], bounds: Sequence[float], z: float
) -> tuple[float, float, float]:
    """Return the drift's median-unbiased estimate and the ends of its 95% interval.

    By stage-wise ordering: the earlier an upper boundary is crossed the more extreme, and at one
    look the larger Z [1]_.

    Parameters
    ----------
    times : sequence of float
        Of the looks up to the one at which testing stopped, shares of the plan.
    bounds : sequence of float
        Of those before it, in standard errors.
    z : float
        Z at the look at which testing stopped.

    Returns
    -------
    middle, low, high : float
        The drift is the mean of Z at the end of the plan.

    References
    ----------
    .. [1] A. A. Tsiatis, G. L. Rosner and C. R. Mehta (1984), "Exact confidence intervals following a
       group sequential test", Biometrics 40(3), 797-803.
    """
    from scipy.optimize import brentq

    def more_extreme(drift: float, p: float) -> float:
        return (
            sum(
                above
                for above, _ in _stopping_probabilities(times, [*bounds, z], drift)
            )
            - p
        )

    naive, width = z / math.sqrt(times[-1]), _MAX_BOUNDARY_Z / math.sqrt(times[-1])
    # However large, Z may be far from what one that did not stop before makes of it.
    lowest, highest = min(naive, 0.0) - width, max(naive, 0.0) + width
    middle, low, high = (
        brentq(more_extreme, lowest, highest, args=(p,)) for p in (0.5, 0.025, 0.975)
    )
    return middle, low, high


def expected_share(
    times: Sequence[float], bounds: Sequence[float], drift: float
) -> tuple[float, float]:
    """Return how much of a plan is judged on average, and its power.

    Parameters
    ----------
    times : sequence of float
        Of the looks, ascending, shares of the plan.
    bounds : sequence of float
        Of each look, in standard errors.
    drift : float
        The mean of Z at the end of the plan.

    Returns
    -------
    share, power : float
        In [0, 1].
    """
    share = power = previous_time = 0.0
    for t, probabilities in zip(
        times, _stopping_probabilities(times, bounds, drift), strict=True
    ):
        share += (t - previous_time) * (1.0 - power)
        power, previous_time = power + sum(probabilities), t
    return share, power
