"""What the oracle experiment concludes of a policy, and how far its data can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elo_exp.records import Record

STATUSES = ("report", "caution", "refuse")  # the better first


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEstimate(Record):
    """What one estimator says of one policy's mean oracle label; no numbers where it is refused."""

    policy: str
    estimator: str
    value: float | None = None
    std_error: float | None = None  # over prompts, with what the finite number of labels adds
    ci_low: float | None = None  # 95 %, within [0, 1]
    ci_high: float | None = None
    n: int = 0  # rows that it rests on: logged ones, or fresh draws for `direct`
    ess: float | None = (
        None  # effective number of logged rows, of the weights that it used; None without weights
    )
    status: str = "report"  # one of STATUSES
    reason: str = ""  # why not to report it
    std_error_labels: float | None = (
        None  # the labels' part of std_error: what more of them would shrink
    )
    n_labels: int = 0
    degrees_of_freedom: float | None = None
    ci_clipped: bool = False  # the interval reached beyond [0, 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightDiagnostics(Record):
    """The importance weights of one policy, exp(target log-probability - logging log-probability), as they are."""

    policy: str
    n: int  # rows with both log-probabilities
    n_failed: int  # rows without one
    n_zero_logprob: int  # rows whose target log-probability is exactly 0
    n_exactly_one: int
    n_extreme: int  # outside [1/5, 5]
    mean_weight: float | None = None  # should be about 1; None where it is too large for a number
    max_abs_log_ratio: float | None = None  # nats
    ess: float | None = None  # rows: (sum w)^2 / sum w^2
    max_share: float | None = None  # of the largest weight in all of them
    top_share: float | None = None  # of the largest 5 %
    coefficient_of_variation: float | None = None
    share_near_zero: float | None = None  # below 1e-10
    tail_index: float | None = None  # Hill; None where the tail is flat or unknown
    hellinger: float | None = None  # E sqrt(w): overlap of the two policies' responses
    target_coverage: float | None = (
        None  # share of logged rows as typical for the target as 90 % of its own
    )
    ess_calibrated: float | None = None  # rows, of the weights calibrated on the judge's score


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOverlap(Record):
    """How the judge's scores of a policy compare with those that the labels cover."""

    policy: str
    affinity: float  # A_B, sum over 20 bins of sqrt(p q): 1 for equal distributions
    source: str  # fresh: its own draws; weights: the logged scores, weighted
    out_of_range: float  # share of its scores outside those of the labelled rows
    saturation: float  # share of its calibrated scores within 5 % of an end of their range
    card: str  # ok, caution, refuse: the boundary card of the two


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportAudit(Record):
    """Whether the calibration, learnt from the logging policy, is right on average for this one."""

    policy: str
    source: str  # probe: labels of its own responses; weights: of the logged ones, weighted; none
    status: str  # pass, fail, inconclusive, not_graded (too few labels), not_checked (none)
    n: int = 0  # labels
    residual: float | None = None  # mean of label - calibrated score
    std_error: float | None = None
    half_width: float | None = None  # of its 95 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelBudget(Record):
    """How many oracle labels an interval of so many points takes, everything else staying as it is."""

    policy: str
    estimator: str
    n_labels: int
    half_width: float  # of the 95 % interval, now
    half_width_at_best: float  # with labels without end: what only more prompts can shrink
    labels_for: Mapping[str, int | None] = field(
        default_factory=dict
    )  # by half width; None: out of reach
