"""Whether the labelled answers of a set are a random sample of it, by the judge's scores of all.

Estimates take labels to be a random sample, or one whose chances are known. Under that assumption
the labelled answers, each weighted by 1 / chance, have the scores of all answers. If chances are equal
and prompts have one answer each, the tests of Mann and Whitney and of Kolmogorov and Smirnov compare
the labelled answers with the others. Else a sum by prompts does: for any function h of the score with
mean zero over the set, the sum over its answers of (labelled / chance - 1) h has mean zero. Two
functions are tried: the rank of the score, which finds that high or low scores were chosen, and its
distance from the middle rank, which finds that scores in the middle or at both ends were. Scores that
are equal share a rank, and all answers to a prompt are one observation, as they may be labelled
together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from elo_exp.arrays import Array, Index, Mask
from elo_exp.oracle.data import Dataset, Rows
from elo_exp.oracle.evidence import estimate_degrees_of_freedom
from elo_exp.records import Record

# States of a check
CHECK_STATES = PASSED, FAILED, CANNOT_TELL, NOT_DONE = (
    "passed",
    "failed",
    "cannot tell",
    "not done",
)
# If p is smaller, the labels are taken to be no random sample
MAX_P_VALUE_OF_SELECTION = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSample(Record):
    """Whether the labels of one set of answers are a random sample of it.

    policy     whose answers these are
    source     logged, fresh or probe
    status     passed: scores do not differ, or all is labelled; failed: they do, p < .001; cannot tell:
               all scores are equal; not done: no label
    p_value    the smaller one of two tests, None where none was made
    is_weighted  whether labels count by 1 / their chance
    """

    policy: str
    source: str
    status: str
    n_labelled: int
    n: int
    p_value: float | None = None
    is_weighted: bool = False


def check_label_sample(rows: Rows, *, policy: str, source: str) -> LabelSample:
    """Compare the judge's scores of the labelled answers of a set with the scores of the whole set."""
    labelled = rows.is_labelled
    sample = LabelSample(
        policy=policy,
        source=source,
        status=NOT_DONE,
        n_labelled=int(labelled.sum()),
        n=len(rows),
        is_weighted=rows.has_chances,
    )
    if labelled.all():
        return replace(sample, status=PASSED) if len(rows) else sample
    if not sample.n_labelled:
        return sample
    p_value = compute_selection_p_value(rows.score, labelled, rows.prompt, rows.chance)
    if p_value is None:
        return replace(sample, status=CANNOT_TELL)
    status = FAILED if p_value < MAX_P_VALUE_OF_SELECTION else PASSED
    return replace(sample, status=status, p_value=p_value)


def compute_selection_p_value(
    score: Array, labelled: Mask, prompt: Index, chance: Array
) -> float | None:
    """Return the p value of the hypothesis that answers were labelled with these chances, independent of the score.

    score, labelled, prompt  (r,) of all answers of a set
    chance  (r,) of being labelled; NaN where it is not known, but the same for all
    Returns the smaller of the two p values; None if all scores are equal.
    """
    if np.isnan(chance).all() and len(np.unique(prompt)) == len(prompt):
        return _compute_two_sample_p_value(score[labelled], score[~labelled])
    distinct, index, count = np.unique(score, return_inverse=True, return_counts=True)
    if len(distinct) < 2:
        return None
    rank = (np.cumsum(count) - (count - 1) / 2.0)[index]
    from_middle = np.abs(rank - rank.mean())
    label_chance = np.where(np.isnan(chance), labelled.mean(), chance)
    excess = labelled / label_chance - 1.0
    p_values = [1.0]
    for value in (rank, from_middle):
        shares = excess * (value - value.mean())
        prompt_sums = np.bincount(prompt, shares).astype(float)
        total, squares = abs(float(prompt_sums.sum())), prompt_sums**2
        if total > 0:
            error = math.sqrt(float(squares.sum()))
            df = estimate_degrees_of_freedom(squares)
            p_values.append(2.0 * float(stdtr(df, -total / error)))
    return min(p_values)


def _compute_two_sample_p_value(labelled: Array, unlabelled: Array) -> float | None:
    from scipy.stats import ks_2samp, mannwhitneyu

    all_scores = np.concatenate([labelled, unlabelled])
    if all_scores.min() == all_scores.max():
        return None
    return min(
        float(mannwhitneyu(labelled, unlabelled).pvalue),
        float(ks_2samp(labelled, unlabelled, method="asymp").pvalue),
    )


def check_label_samples(data: Dataset) -> list[LabelSample]:
    """Check the logged answers, the draws of each policy and the probes."""
    samples = []
    if data.logging_policy is not None:
        logged = check_label_sample(
            data.logged_rows, policy=data.logging_policy, source="logged"
        )
        samples.append(logged)
    for policy, rows in data.fresh_draws.items():
        samples.append(check_label_sample(rows, policy=policy, source="fresh"))
    for policy, rows in data.probe_draws.items():
        samples.append(_check_probe(rows, data.fresh_draws.get(policy), policy))
    return [sample for sample in samples if sample.n_labelled]


def _check_probe(probe: Rows, fresh: Rows | None, policy: str) -> LabelSample:
    """Compare a probe with the draws on prompts that it leaves out, or with all draws if it has every prompt."""
    probe = probe[probe.is_labelled]
    if fresh is None or not len(probe):
        return check_label_sample(probe, policy=policy, source="probe")
    is_compared = ~np.isin(fresh.prompt, probe.prompt)
    if not is_compared.any() and len(probe) < len(fresh):
        is_compared = ~is_compared
    compared_draws = fresh[is_compared].without_labels
    return check_label_sample(
        Rows.join([probe, compared_draws]), policy=policy, source="probe"
    )
