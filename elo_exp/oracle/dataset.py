"""The answers of an oracle experiment as columns: what every estimator is given.

Letters: n logged rows, r fresh draws of a policy, g prompts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from elo_exp.oracle.logged import FreshDraw, LoggedSample
from elo_exp.records import UserError
from elo_exp.statistics.likelihood import Array, Index, Mask

MIN_LABELS = 10  # two in each of five folds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Answers, one entry each; NaN for what is not known."""

    prompt: Index  # number of the prompt, 0 .. g - 1
    fold: Index
    score: Array  # the judge's, in [0, 1]
    variance: Array  # of the score
    label: Array  # the oracle's, in [0, 1]
    chars: Array  # length of the response

    def __len__(self) -> int:
        return len(self.prompt)

    def __getitem__(self, chosen: Mask) -> Rows:
        return Rows(
            prompt=self.prompt[chosen],
            fold=self.fold[chosen],
            score=self.score[chosen],
            variance=self.variance[chosen],
            label=self.label[chosen],
            chars=self.chars[chosen],
        )

    @property
    def labelled(self) -> Mask:
        return ~np.isnan(self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Logged answers with their log-probabilities, and fresh draws, by policy."""

    logging_policy: str
    policies: tuple[str, ...]  # those to be estimated
    prompts: tuple[str, ...]  # prompt ids by number
    n_folds: int
    logged: Rows
    logging_logprob: Array  # (n,) nats
    target_logprob: Mapping[str, Array]  # policy -> (n,) nats
    fresh: Mapping[str, Rows] = field(default_factory=dict)
    probe: Mapping[str, Rows] = field(
        default_factory=dict
    )  # labelled draws that only check the calibration

    @property
    def n_labels(self) -> int:
        return int(self.logged.labelled.sum())


def dataset(
    logged: Sequence[LoggedSample],
    *,
    fresh: Mapping[str, Sequence[FreshDraw]],
    probe: Mapping[str, Sequence[FreshDraw]],
    policies: Sequence[str] | None,
    n_folds: int,
    seed: int,
) -> Dataset:
    """The answers as columns. Raises UserError where there are too few labels, or no prompt in common.

    policies  those to be estimated; None for all that have log-probabilities
    n_folds   of the prompts, by a hash of the prompt's id, so that a prompt is in one fold whatever else there is
    """
    with_logprobs = list(
        dict.fromkeys(policy for sample in logged for policy in sample.target_logps)
    )
    chosen = tuple(with_logprobs if policies is None else policies)
    answers: list[LoggedSample | FreshDraw] = [*logged]
    for draws in (*fresh.values(), *probe.values()):
        answers += draws
    number = {prompt: i for i, prompt in enumerate(dict.fromkeys(a.prompt_id for a in answers))}
    folds = np.array([fold(prompt, n_folds=n_folds, seed=seed) for prompt in number], dtype=np.intp)
    found = Dataset(
        logging_policy=logged[0].policy,
        policies=chosen,
        prompts=tuple(number),
        n_folds=n_folds,
        logged=_rows(logged, number, folds),
        logging_logprob=_column([s.total_logprob for s in logged]),
        target_logprob={p: _column([s.target_logps.get(p) for s in logged]) for p in with_logprobs},
        fresh={policy: _rows(draws, number, folds) for policy, draws in fresh.items()},
        probe={policy: _rows(draws, number, folds) for policy, draws in probe.items()},
    )
    _check(found)
    return found


def fold(prompt_id: str, *, n_folds: int, seed: int) -> int:
    """The fold of a prompt, from 0."""
    digest = hashlib.blake2b(f"{prompt_id}-{seed}-{n_folds}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % n_folds


def _rows(
    answers: Sequence[LoggedSample | FreshDraw], number: Mapping[str, int], folds: Index
) -> Rows:
    prompt = np.array([number[a.prompt_id] for a in answers], dtype=np.intp)
    return Rows(
        prompt=prompt,
        fold=folds[prompt],
        score=_column([a.judge_score for a in answers]),
        variance=_column([a.judge_score_variance for a in answers]),
        label=_column([a.oracle_label for a in answers]),
        chars=_column([a.response_chars for a in answers]),
    )


def _column(values: Sequence[float | None]) -> Array:
    return np.array([math.nan if value is None else value for value in values], dtype=float)


def _check(found: Dataset) -> None:
    n_labelled = len(np.unique(found.logged.prompt[found.logged.labelled]))
    if n_labelled < MIN_LABELS:
        raise UserError(
            f"oracle.logged: answers to {n_labelled or 'no'} prompts have an oracle_label. Expected {MIN_LABELS} or "
            "more: label a random slice of the logged answers, a number in [0, 1] each."
        )
    for policy in found.policies:
        logprob = found.target_logprob.get(policy, np.full(len(found.logged), np.nan))
        if policy not in found.fresh and not np.isfinite(logprob - found.logging_logprob).any():
            raise UserError(
                f"oracle.policies: {policy!r} has neither a log-probability in any row nor fresh draws. Leave it out, "
                "or give its draws with oracle.fresh_dir=DIR."
            )
    logged = set(found.logged.prompt.tolist())
    for policy, draws in found.fresh.items():
        if not logged & set(draws.prompt.tolist()):
            raise UserError(
                f"oracle.fresh_dir: the draws of {policy!r} share no prompt_id with the logged answers (for example "
                f"{found.prompts[draws.prompt[0]]!r} and {found.prompts[found.logged.prompt[0]]!r}). Give the same "
                "prompts the same ids."
            )
