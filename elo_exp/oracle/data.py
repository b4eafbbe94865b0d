"""Draws, logged answers and labels: read from files, validated, and arranged as columns.

Fresh draws are the policies' own answers. A judge has scored all answers, an oracle has labelled
some. A logging policy may have answered prompts, too; `target_logps` holds the log-probabilities of
the same tokens under other policies.

Letters: n logged rows, r fresh draws of a policy, g prompts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import logging
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, AliasChoices, Field

from elo_exp import files
from elo_exp.arrays import Array, Index, Mask
from elo_exp.data import bank
from elo_exp.data.column_roles import NO_COLUMNS, Columns
from elo_exp.data.field_names import entrant_stem
from elo_exp.errors import EvidenceError, FileError, SettingError, format_value
from elo_exp.oracle import answer_tables
from elo_exp.oracle.answer_tables import LocatedRows
from elo_exp.records import MAX_LOGPROB_NATS, Prompt, Record, make_fingerprint
from elo_exp.types import Natural, NonNegative, Number, PositiveShare

logger = logging.getLogger(__name__)

N_PROMPT_FOLDS = 5
# Two in each fold
MIN_CALIBRATION_LABELS = 10
# The covariate log(1 + characters)
LENGTH_COVARIATE = "response_length"
_ROW_HINTS = (
    "A log-probability is the sum over the tokens in nats (target_logps: one for each policy).",
    "Write null for a label or a log-probability that is not known. Covariates are numbers in every row.",
)

RealNumber = Annotated[Number, Field(allow_inf_nan=False)]
FiniteNonNegative = Annotated[NonNegative, Field(allow_inf_nan=False)]
Logprob = Annotated[
    float,
    Field(
        strict=True,
        le=MAX_LOGPROB_NATS,
        allow_inf_nan=False,
        description="be a number of 0 or less",
    ),
    AfterValidator(lambda value: min(value, 0.0)),
]


class NotEstimableError(Exception):
    """Raised if an estimator lacks data for this policy; the message names the missing data."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The declared range of scores and labels; results are in its units."""

    low: float = 0.0
    high: float = 1.0

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def decimals(self) -> int:
        """Digits after the point that a hundredth of the scale takes."""
        return max(0, 2 - math.floor(math.log10(self.width)))

    def clip(self, *values: float) -> list[float]:
        """Return values, clipped to the scale."""
        return [min(max(value, self.low), self.high) for value in values]

    def check(self, location: str, value: float | None) -> None:
        """Raise FileError for a value off the scale."""
        if value is not None and not self.low <= value <= self.high:
            raise FileError(
                f"{location} must be from {self.low:g} to {self.high:g}; got {value:g}. Set another scale, for example:",
                "  'oracle.scale=[0,10]'",
            )


UNIT_SCALE = Scale()


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshDraw(Record):
    """One answer of a target policy; None for an unknown value."""

    prompt_id: str
    policy: str
    cluster: str | None = None
    prompt_text: str | None = None
    judge_score: RealNumber
    draw_idx: Natural = 0
    judge_score_variance: FiniteNonNegative | None = None
    oracle_label: RealNumber | None = None
    response_chars: FiniteNonNegative | None = None
    label_chance: PositiveShare | None = None
    covariates: Mapping[str, RealNumber] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSample(FreshDraw):
    """One answer of the logging policy. Log-probabilities are sums over its tokens, in nats."""

    total_logprob: Annotated[
        Logprob | None,
        Field(validation_alias=AliasChoices("total_logprob", "base_policy_logprob")),
    ]
    target_logps: Annotated[
        Mapping[str, Logprob | None],
        Field(
            min_length=1,
            validation_alias=AliasChoices("target_logps", "target_policy_logprobs"),
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth(Record):
    """The mean oracle label of a policy, estimated from labels on many of its own answers."""

    mean: RealNumber
    n: int | None = None
    std_error: Annotated[
        FiniteNonNegative | None,
        Field(validation_alias=AliasChoices("std_error", "se")),
    ] = None


@files.report_read_errors
def read_truth(path: Path, scale: Scale = UNIT_SCALE) -> dict[str, Truth]:
    """Read a JSON object {policy: {mean, n, std_error}}, the last two optional; also se.

    Warns of those without a standard error, which are taken to be exact.
    """
    hint = 'Write {"policy": {"mean": 0.7, "std_error": 0.01}}.'
    kind, content = dict[str, Truth], files.read_json(path)
    truths: dict[str, Truth] = files.validate(kind, content, path, hint)
    for policy, truth in truths.items():
        scale.check(f"{path}: {policy}", truth.mean)
    exact = [policy for policy, truth in truths.items() if truth.std_error is None]
    if exact:
        logger.warning(
            "warning: %s: no std_error of %s, so its true value is taken to be exact",
            path,
            ", ".join(exact),
        )
    return truths


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Answers as columns, one entry per answer; NaN for an unknown value."""

    prompt: Index  # number of the prompt or of its cluster, 0 .. g - 1
    question: Index  # number of the prompt itself
    fold: Index
    score: Array  # the judge's
    variance: Array  # of the score
    label: Array  # the oracle's
    chars: Array  # length of the response
    chance: Array  # of having been given a label; NaN: the same for all
    covariates: Array  # (n, c) that the label may depend on beside the score

    def __len__(self) -> int:
        return len(self.prompt)

    def __getitem__(self, index: Mask | Index | slice) -> Rows:
        return Rows(**{name: getattr(self, name)[index] for name in _COLUMNS})

    @cached_property
    def is_labelled(self) -> Mask:
        return ~np.isnan(self.label)

    @cached_property
    def prompt_weights(self) -> Array:
        """Equal for all prompts, and within a prompt for all its rows. Sum to one."""
        n_rows = np.bincount(self.question)
        return np.asarray(1.0 / n_rows[self.question] / np.count_nonzero(n_rows))

    @cached_property
    def without_labels(self) -> Rows:
        return dataclasses.replace(self, label=np.full(len(self), np.nan))

    @property
    def has_chances(self) -> bool:
        """Whether it is known by which chances its answers were labelled."""
        return bool(len(self) and not np.isnan(self.chance).any())

    @cached_property
    def label_weights(self) -> Array:
        """1 / the chance of a label; one where chances are not known, but the same for all."""
        return np.asarray(1.0 / np.where(np.isnan(self.chance), 1.0, self.chance))

    @staticmethod
    def join(parts: Sequence[Rows]) -> Rows:
        columns = {name: [getattr(rows, name) for rows in parts] for name in _COLUMNS}
        return Rows(
            **{name: np.concatenate(arrays) for name, arrays in columns.items()}
        )


_COLUMNS = [column.name for column in dataclasses.fields(Rows)]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Logged answers with their log-probabilities, and fresh draws by policy.

    Without a logging policy there are no logged answers, and draws alone are labelled.
    """

    logging_policy: str | None
    policies: tuple[str, ...]  # target policies to be estimated
    scale: Scale = UNIT_SCALE
    covariates: tuple[str, ...] = ()  # names of the columns of `Rows.covariates`
    prompts: tuple[str, ...]  # ids of prompts or of their clusters, by number
    logged_rows: Rows
    logging_logprob: Array  # (n,) nats
    target_logprob: Mapping[str, Array]  # policy -> (n,) nats
    fresh_draws: Mapping[str, Rows] = field(default_factory=dict)
    # labelled draws for the audit alone
    probe_draws: Mapping[str, Rows] = field(default_factory=dict)

    @property
    def label_sources(self) -> list[str]:
        """Policies whose labels fit the calibration, the logging policy first."""
        logging_policies = [self.logging_policy] if self.logging_policy else []
        return [
            *logging_policies,
            *(p for p, rows in self.fresh_draws.items() if rows.is_labelled.any()),
        ]

    @cached_property
    def pooled_rows(self) -> Rows:
        """All answers of sets that have labels: the logged ones, and draws of a policy."""
        labelled_draws = [
            rows for rows in self.fresh_draws.values() if rows.is_labelled.any()
        ]
        return Rows.join([self.logged_rows, *labelled_draws])

    def log_ratio(self, policy: str) -> Array:
        """(n,) target minus logging log-probability in nats; NaN if either is unknown."""
        return self.target_logprob.get(policy, np.nan) - self.logging_logprob


@files.report_read_errors
def read_dataset(
    logged: str | Path | None = None,
    *,
    fresh_dir: str | Path | None = None,
    probe_dir: str | Path | None = None,
    labels: str | Path | None = None,
    columns: Columns = NO_COLUMNS,
    policies: Sequence[str] | None = None,
    scale: Scale = UNIT_SCALE,
    covariates: Sequence[str] = (),
    seed: int,
    with_clusters: bool = True,
) -> Dataset:
    """Read logged answers, if there are any, and draws.

    fresh_dir, probe_dir  a folder of `<policy>.jsonl`, or one file, whose rows name their policy unless all are of one
    labels    a file of people's labels of the answers in fresh_dir
    columns   the column of each role, in the files that have it
    policies  those to be estimated; None for all that have log-probabilities, without logged
              answers for all with draws
    scale     of scores and labels
    covariates  numeric columns that enter the calibration, or response_length
    seed      of the folds, which are by a hash of the prompt's id, so that a prompt's fold does not depend
              on the other prompts
    with_clusters  whether prompts of one text, or of one `cluster` in the rows, are one observation
    Raises FileError naming file, line, field and remedy, and for a policy without a file of fresh
    draws; EvidenceError for too few labels, and for files that have no prompt in common.
    """
    read_answers = partial(_read_answers, scale=scale, covariates=covariates)
    rows: list[LoggedSample] = []
    if logged is not None:
        rows = read_answers(_read_lines(Path(logged), columns), LoggedSample)
    logprob_policies = dict.fromkeys(
        policy for row in rows for policy in row.target_logps
    )
    fresh_lines = _read_draws(fresh_dir, columns, labels)
    probe_lines = _read_draws(probe_dir, columns)
    target_policies = list(dict.fromkeys(policies or logprob_policies or fresh_lines))
    for policy in target_policies:
        files.check_choice(
            "oracle.policies", policy, {**logprob_policies, **fresh_lines}
        )
        if fresh_dir is not None and policy not in fresh_lines:
            remaining = ",".join(
                name for name in target_policies if name in fresh_lines
            )
            raise FileError(
                f"{fresh_dir} has no draws of {policy}, only of {', '.join(fresh_lines) or 'nobody'}. "
                f"Add {policy}.jsonl, or leave the policy out:",
                f"  'oracle.policies=[{remaining}]'",
            )
    fresh, probe = (
        {
            policy: read_answers(lines, FreshDraw, policy)
            for policy, lines in lines_by_policy.items()
            if policy in target_policies or not rows  # all draws may have labels
        }
        for lines_by_policy in (fresh_lines, probe_lines)
    )
    all_answers = [*itertools.chain(rows, *fresh.values(), *probe.values())]
    cluster_of = _find_clusters(all_answers) if with_clusters else {}
    prompt_numbers: dict[str, int] = {}
    question_numbers: dict[str, int] = {}
    for row in all_answers:
        question_numbers.setdefault(row.prompt_id, len(question_numbers))
        prompt_numbers.setdefault(
            cluster_of.get(row.prompt_id, row.prompt_id), len(prompt_numbers)
        )
    folds = np.array([assign_fold(prompt, seed=seed) for prompt in prompt_numbers])

    def make_rows(answers: Sequence[FreshDraw]) -> Rows:
        names = [row.prompt_id for row in answers]
        numbers = [prompt_numbers[cluster_of.get(name, name)] for name in names]
        prompt = np.array(numbers, dtype=np.intp)
        covariate_values = [list(row.covariates.values()) for row in answers]
        return Rows(
            prompt=prompt,
            question=np.array(
                [question_numbers[name] for name in names], dtype=np.intp
            ),
            fold=folds[prompt],
            score=_make_column(row.judge_score for row in answers),
            variance=_make_column(row.judge_score_variance for row in answers),
            label=_make_column(row.oracle_label for row in answers),
            chars=_make_column(row.response_chars for row in answers),
            chance=_make_column(row.label_chance for row in answers),
            covariates=np.array(covariate_values, float).reshape(
                len(prompt), len(covariates)
            ),
        )

    data = Dataset(
        logging_policy=rows[0].policy if rows else None,
        policies=tuple(target_policies),
        scale=scale,
        covariates=tuple(covariates),
        prompts=tuple(prompt_numbers),
        logged_rows=make_rows(rows),
        logging_logprob=_make_column(row.total_logprob for row in rows),
        target_logprob={
            policy: _make_column(row.target_logps.get(policy) for row in rows)
            for policy in logprob_policies
        },
        fresh_draws={policy: make_rows(answers) for policy, answers in fresh.items()},
        probe_draws={policy: make_rows(answers) for policy, answers in probe.items()},
    )
    _check_dataset(data)
    return data


def _find_clusters(answers: Sequence[FreshDraw]) -> dict[str, str]:
    """Return the cluster of each prompt that has one, by prompt_id: by its name, or by its text."""
    cluster_by_prompt, prompts = dict[str, str](), dict[str, Prompt]()
    for row in answers:
        name, text = row.prompt_id, row.prompt_text
        if row.cluster is not None:
            cluster = f"cluster {row.cluster}"
            if cluster_by_prompt.setdefault(name, cluster) != cluster:
                raise FileError(
                    f"Prompt {format_value(name)} must be in one cluster in all files; got "
                    f"{format_value(cluster_by_prompt[name][8:])} and {format_value(row.cluster)}."
                )
        if text and name not in prompts:
            prompts[name] = Prompt(prompt_id=name, text=text, source="", subject="")
    return bank.merge_clusters(list(prompts.values()), cluster_by_prompt)


def change_answers(data: Dataset, change: Callable[[Rows], Rows]) -> Dataset:
    """Change all answers, logged ones, draws and probes."""
    return dataclasses.replace(
        data,
        logged_rows=change(data.logged_rows),
        fresh_draws={policy: change(rows) for policy, rows in data.fresh_draws.items()},
        probe_draws={policy: change(rows) for policy, rows in data.probe_draws.items()},
    )


def sample_prompts(
    data: Dataset, n: int | None, label_share: float, rng: np.random.Generator
) -> Dataset:
    """Draw n prompts without replacement, or all, and show a random share of the logged labels.

    With one seed, a larger sample includes the smaller.
    """
    is_kept = np.zeros(len(data.prompts), dtype=bool)
    is_kept[rng.permutation(len(data.prompts))[:n]] = True
    number = is_kept.cumsum() - 1

    def keep_rows(rows: Rows) -> Rows:
        sampled_rows = rows[is_kept[rows.prompt]]
        return dataclasses.replace(sampled_rows, prompt=number[sampled_rows.prompt])

    subset, is_logged_kept = (
        change_answers(data, keep_rows),
        is_kept[data.logged_rows.prompt],
    )
    label, labelled = (
        subset.logged_rows.label.copy(),
        np.flatnonzero(subset.logged_rows.is_labelled),
    )
    order = rng.permutation(len(labelled))
    label[labelled[order >= round(label_share * len(order))]] = np.nan
    return dataclasses.replace(
        subset,
        prompts=tuple(itertools.compress(data.prompts, is_kept)),
        logged_rows=dataclasses.replace(subset.logged_rows, label=label),
        logging_logprob=data.logging_logprob[is_logged_kept],
        target_logprob={
            p: logps[is_logged_kept] for p, logps in data.target_logprob.items()
        },
    )


def split_truth_from_labels(data: Dataset) -> tuple[Dataset, dict[str, Truth]]:
    """Take the mean label of each policy's draws, equal by prompt, for its true value.

    The labels, of the draws or the probe, enter no estimate then: the data are returned without
    them. Raises EvidenceError where a draw has none.
    """
    truth = {}
    for policy in data.policies:
        draws = data.fresh_draws.get(policy, data.logged_rows[:0])
        answers = (draws, data.probe_draws.get(policy, draws))
        labelled = max((rows[rows.is_labelled] for rows in answers), key=len)
        if not len(draws) or len(labelled) < len(draws):
            raise EvidenceError(
                f"A truth made from labels needs a label for each draw; {len(draws) - len(labelled):,} of "
                f"{len(draws):,} draws of {policy} "
                "have no oracle_label. Collect them with:",
                "  oracle.label_fraction=1 oracle.validation_fraction=1",
            )
        mean = float(labelled.prompt_weights @ labelled.label)
        truth[policy] = Truth(mean=mean, n=len(labelled), std_error=0.0)
    draws_without_labels = {
        policy: dataclasses.replace(rows, label=np.full(len(rows), np.nan))
        for policy, rows in data.fresh_draws.items()
    }
    return dataclasses.replace(
        data, fresh_draws=draws_without_labels, probe_draws={}
    ), truth


def _read_lines(path: Path, columns: Columns) -> LocatedRows:
    location = None
    for location, row in answer_tables.read_judged_answers(path, columns):
        yield location, row
    if location is None:
        raise FileError.bad_file(
            path, "is empty (0 bytes)", "It must hold one answer in each line."
        )


def _read_draws(
    source: str | Path | None, columns: Columns, labels: str | Path | None = None
) -> dict[str, LocatedRows]:
    """Group rows by policy, from one file that names it in every row or in none, or from a folder, sorted;
    if a policy has several files there, from the file with the shortest name."""
    lines_by_policy: dict[str, Any] = {}
    if source is None:
        return lines_by_policy
    if (folder := Path(source)).is_dir():
        for path in sorted(folder.glob("*.jsonl*"), reverse=True):
            if name := re.fullmatch(r"(.+?)(_responses)?\.jsonl(\.gz)?", path.name):
                lines_by_policy[name[1]] = _read_lines(path, columns)
        return dict(sorted(lines_by_policy.items()))
    lines = list(_read_lines(folder, columns))
    is_of_one = not any(row.get("policy") for _, row in lines)
    for location, row in lines:
        if is_of_one:
            row["policy"] = entrant_stem(folder)
        if not row.get("policy"):
            raise FileError.bad_file(
                location, "has no policy", "Each row must name one."
            )
    if labels is not None:
        lines = list(answer_tables.add_labels(lines, Path(labels), columns))
    for location, row in lines:
        lines_by_policy.setdefault(str(row["policy"]), []).append((location, row))
    return lines_by_policy


def _read_answers(
    lines: LocatedRows,
    kind: type[FreshDraw],
    policy: str | None = None,
    *,
    scale: Scale,
    covariates: Sequence[str],
) -> list[Any]:
    """Read the answers of one policy, by default that of the first row."""
    samples = []
    locations: dict[tuple[str, int], str] = {}
    for location, row in lines:
        row_policy = str(row.get("policy") or policy or "base")
        policy = policy or row_policy
        if row_policy != policy:
            raise FileError.bad_file(
                location,
                f"has the policy {format_value(row_policy)} in a file of {policy}",
                "Move the line to the file of its policy.",
            )
        values = {**row, "prompt_id": _read_prompt_id(location, row), "policy": policy}
        text, cluster = row.get("prompt"), row.get("cluster")
        values["prompt_text"] = text if isinstance(text, str) else None
        values["cluster"] = None if cluster is None else str(cluster)
        if row.get("response_chars") is None and isinstance(row.get("response"), str):
            values["response_chars"] = len(row["response"])
        covariate_values, chars = (
            {**row, LENGTH_COVARIATE: None},
            values.get("response_chars"),
        )
        if isinstance(chars, int | float) and 0 <= chars <= sys.float_info.max:
            covariate_values[LENGTH_COVARIATE] = math.log1p(chars)
        values["covariates"] = {name: covariate_values.get(name) for name in covariates}
        sample = files.validate(kind, values, location, *_ROW_HINTS)
        scale.check(f"{location}: judge_score", sample.judge_score)
        scale.check(f"{location}: oracle_label", sample.oracle_label)
        key = (sample.prompt_id, sample.draw_idx)
        if (first_location := locations.setdefault(key, location)) != location:
            raise FileError.bad_file(
                location,
                f"repeats prompt {format_value(key[0])}, draw_idx {key[1]} of {first_location}",
                "Remove one of them, or number several answers to one prompt with draw_idx.",
            )
        samples.append(sample)
    _check_chances(samples, locations)
    return samples


def _check_chances(
    samples: Sequence[FreshDraw], locations: Mapping[tuple[str, int], str]
) -> None:
    """Raise FileError if only some answers of a set have a label_chance."""
    without_chance = [sample for sample in samples if sample.label_chance is None]
    if without_chance and len(without_chance) < len(samples):
        location = locations[without_chance[0].prompt_id, without_chance[0].draw_idx]
        raise FileError.bad_file(
            location,
            f"has no label_chance, and {len(samples) - len(without_chance):,} other answers of "
            f"{without_chance[0].policy} have one",
            "Give each answer of a policy one, labelled or not.",
        )


def _read_prompt_id(location: str, row: Mapping[str, Any]) -> str:
    metadata = row.get("metadata")
    fallback = metadata.get("prompt_id") if isinstance(metadata, Mapping) else None
    prompt_id = row.get("prompt_id", fallback)
    if prompt_id not in (None, ""):
        return str(prompt_id)
    if isinstance(row.get("prompt"), str):
        return make_fingerprint(row["prompt"])
    raise FileError.bad_file(
        location, "has neither prompt_id nor prompt", "Each row needs one of them."
    )


def assign_fold(prompt_id: str, *, seed: int) -> int:
    """The fold of a prompt, from 0, as cje-eval assigns it."""
    digest = hashlib.blake2b(
        f"{prompt_id}-{seed}-{N_PROMPT_FOLDS}".encode(), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big") % N_PROMPT_FOLDS


def _make_column(values: Iterable[float | None]) -> Array:
    return np.array([*values], dtype=float)  # None becomes NaN


def _check_dataset(data: Dataset) -> None:
    labelled = np.unique(data.pooled_rows.prompt[data.pooled_rows.is_labelled])
    if len(labelled) < MIN_CALIBRATION_LABELS:
        raise EvidenceError(
            f"A calibration needs labels on at least {MIN_CALIBRATION_LABELS} prompts; "
            f"oracle.{'logged' if data.logging_policy else 'fresh_dir'} has an oracle_label on {len(labelled)}. "
            "Label more, at random."
        )
    for policy in data.policies:
        if (
            policy not in data.fresh_draws
            and not np.isfinite(data.log_ratio(policy)).any()
        ):
            raise SettingError(
                f"oracle.policies must have log-probabilities or fresh draws; {policy} has neither. Leave it out, or set:",
                "  oracle.fresh_dir=DIR",
            )
    for policy, draws in data.fresh_draws.items() if data.logging_policy else ():
        if not np.isin(draws.prompt, data.logged_rows.prompt).any():
            ours = data.prompts[data.logged_rows.prompt[0]]
            theirs = data.prompts[draws.prompt[0]]
            raise FileError(
                f"The draws of {policy} (oracle.fresh_dir) and the logged answers have no prompt_id in common. "
                "Use the same names in both files.",
                f"  Examples: {format_value(theirs)} and {format_value(ours)}",
            )
