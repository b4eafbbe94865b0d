"""Logged answers, fresh draws and labels: read from files, validated, and arranged as columns.

A logging policy has answered prompts; `target_logps` holds the log-probabilities of the same tokens under other
policies. Fresh draws are the other policies' own answers. A judge has scored all answers, an oracle has labelled some.

Letters: n logged rows, r fresh draws of a policy, g prompts.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from elo_exp import files
from elo_exp.arrays import Array, Index, Mask
from elo_exp.records import MAX_LOGPROB, Record, UserError, fingerprint
from elo_exp.types import Natural, NonNegative, Share

MIN_LABELS = 10  # two in each of five folds
LATER_NAMES = {
    "base_policy_logprob": "total_logprob",
    "target_policy_logprobs": "target_logps",
}
_ENDINGS = (".jsonl", "_responses.jsonl", ".jsonl.gz", "_responses.jsonl.gz")
_HINTS = {
    "judge_score": "Divide a score on a scale from 0 to 10 by 10.",
    "oracle_label": "Divide a label on a scale from 0 to 10 by 10; use null for no label.",
    "total_logprob": "Give the sum of the tokens' log p in nats, or null where it is not known.",
    "target_logps": "Give {policy: sum of the tokens' log p in nats, or null where it is not known}.",
}

Finite = Annotated[NonNegative, Field(allow_inf_nan=False)]
Logprob = Annotated[
    float,
    Field(strict=True, le=MAX_LOGPROB, allow_inf_nan=False),
    AfterValidator(lambda value: min(value, 0.0)),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshDraw(Record):
    """One answer of a target policy; None where a value is not known."""

    prompt_id: str
    policy: str
    judge_score: Share
    draw_idx: Natural = 0
    judge_score_variance: Finite | None = None
    oracle_label: Share | None = None
    response_chars: Finite | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSample(FreshDraw):
    """One answer of the logging policy. Log-probabilities are sums over its tokens, in nats."""

    total_logprob: Logprob | None
    target_logps: Annotated[Mapping[str, Logprob | None], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth(Record):
    """The mean oracle label of a policy, estimated from labels on many of its own answers."""

    mean: Share
    n: int | None = None
    std_error: float | None = None


Sample = TypeVar("Sample", FreshDraw, LoggedSample)


def read_truth(path: Path) -> dict[str, Truth]:
    """Read a JSON object {policy: {mean, n, std_error}}, the last two optional."""
    with files.open_text(path) as file:
        try:
            return TypeAdapter(dict[str, Truth]).validate_json(file.read())
        except ValidationError as error:
            found = _first_error(error, {})
            raise UserError(
                f'{path}: {found}. Expected {{"policy": {{"mean": 0.7}}}}.'
            ) from None


def read_logged(path: Path) -> list[LoggedSample]:
    """Read the logged answers of a JSON lines file.

    Raises UserError naming file, line, field and remedy.
    """
    rows = _with_one_kind_of_names(files.read_jsonl(path))
    samples = _validated(rows, TypeAdapter(LoggedSample), default_policy="base")
    for place, sample in samples.items():
        first = next(iter(samples.values()))
        if sample.policy != first.policy:
            raise UserError(
                f"{place}: policy is {sample.policy!r}, above it was {first.policy!r}. Expected "
                "the answers of one logging policy; move the others to the folder of fresh draws."
            )
    if not samples:
        raise UserError(f"{path}: is empty. Expected one logged answer a line.")
    return list(samples.values())


def read_draws(folder: Path, policy: str) -> list[FreshDraw] | None:
    """Read one policy's file in a folder of draws; None where it has no file there."""
    paths = [path for end in _ENDINGS if (path := folder / f"{policy}{end}").is_file()]
    if not paths:
        return None
    draws = _validated(
        files.read_jsonl(paths[0]), TypeAdapter(FreshDraw), default_policy=policy
    )
    for place, draw in draws.items():
        if draw.policy != policy:
            raise UserError(
                f"{place}: policy is {draw.policy!r} in the file of {policy!r}. Move the line."
            )
    if not draws:
        raise UserError(
            f"{paths[0]}: is empty. Expected one answer of {policy!r} a line."
        )
    return list(draws.values())


def policies_with_draws(folder: Path) -> list[str]:
    """Names of the policies that have a file in a folder of draws, sorted."""
    names = (path.name.removesuffix(".gz") for path in folder.glob("*.jsonl*"))
    return sorted(
        {name.removesuffix(".jsonl").removesuffix("_responses") for name in names}
    )


def _with_one_kind_of_names(
    rows: Iterable[tuple[str, dict[str, Any]]],
) -> Iterable[tuple[str, dict[str, Any]]]:
    """Rename LATER_NAMES; a file keeps to one kind of names, so that no column is half empty."""
    first_use: dict[str, tuple[str, str]] = {}
    for place, row in rows:
        for name in row:
            ours = LATER_NAMES.get(name, name)
            used, where = first_use.setdefault(ours, (name, place))
            if used != name:
                raise UserError(
                    f"{place}: has {name!r}, and {where} has {used!r}. Keep to one of the two names."
                )
        yield place, {LATER_NAMES.get(name, name): value for name, value in row.items()}


def _validated(
    rows: Iterable[tuple[str, dict[str, Any]]],
    adapter: TypeAdapter[Sample],
    *,
    default_policy: str,
) -> dict[str, Sample]:
    """The samples by their place in the file. Raises UserError for an invalid or repeated row."""
    samples: dict[str, Sample] = {}
    seen: dict[tuple[str, int], str] = {}
    for place, row in rows:
        values = {**row, "prompt_id": _prompt_id(place, row)}
        values["policy"] = str(row.get("policy") or default_policy)
        if row.get("response_chars") is None and isinstance(row.get("response"), str):
            values["response_chars"] = len(row["response"])
        try:
            sample = adapter.validate_python(values)
        except ValidationError as error:
            raise UserError(f"{place}: {_first_error(error, row)}") from None
        key = (sample.prompt_id, sample.draw_idx)
        if (first := seen.setdefault(key, place)) != place:
            raise UserError(
                f"{place}: repeats prompt {key[0]!r}, draw_idx {key[1]} of {first}. Remove one of "
                "the two, or number several answers to one prompt with draw_idx."
            )
        samples[place] = sample
    return samples


def _prompt_id(place: str, row: Mapping[str, Any]) -> str:
    metadata = row.get("metadata")
    fallback = metadata.get("prompt_id") if isinstance(metadata, Mapping) else None
    prompt_id = row.get("prompt_id", fallback)
    if prompt_id not in (None, ""):
        return str(prompt_id)
    if isinstance(row.get("prompt"), str):
        return fingerprint(row["prompt"])
    raise UserError(f"{place}: has neither prompt_id nor prompt. Expected one of them.")


def _first_error(error: ValidationError, row: Mapping[str, Any]) -> str:
    """The first of pydantic's errors in one line, with the remedy."""
    details = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in details["loc"])
    name = place.partition(".")[0]
    hint = _HINTS.get(name, "")
    if details["type"] == "missing":
        close = difflib.get_close_matches(name, [str(key) for key in row], n=1)
        hint = f"Is it {close[0]!r}? Rename it." if close else hint
        return f"has no field {name!r} (found {', '.join(row)}). {hint}".strip()
    return f"{place}: found {details['input']!r}. {details['msg']}. {hint}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Answers as columns, one entry an answer; NaN where a value is not known."""

    prompt: Index  # number of the prompt, 0 .. g - 1
    fold: Index
    score: Array  # the judge's, in [0, 1]
    variance: Array  # of the score
    label: Array  # the oracle's, in [0, 1]
    chars: Array  # length of the response

    def __len__(self) -> int:
        return len(self.prompt)

    def __getitem__(self, chosen: Mask | slice) -> Rows:
        names = (column.name for column in dataclasses.fields(self))
        return Rows(**{name: getattr(self, name)[chosen] for name in names})

    @property
    def labelled(self) -> Mask:
        return ~np.isnan(self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Logged answers with their log-probabilities, and fresh draws by policy."""

    logging_policy: str
    policies: tuple[str, ...]  # target policies to be estimated
    prompts: tuple[str, ...]  # prompt ids by number
    n_folds: int
    logged: Rows
    logging_logprob: Array  # (n,) nats
    target_logprob: Mapping[str, Array]  # policy -> (n,) nats
    fresh: Mapping[str, Rows] = field(default_factory=dict)
    probe: Mapping[str, Rows] = field(
        default_factory=dict
    )  # labelled draws for the audit alone

    @property
    def n_labels(self) -> int:
        return int(self.logged.labelled.sum())

    def log_ratio(self, policy: str) -> Array:
        """(n,) target minus logging log-probability in nats; NaN where either is not known."""
        missing = np.full(len(self.logged), np.nan)
        return self.target_logprob.get(policy, missing) - self.logging_logprob


def build_dataset(
    logged: Sequence[LoggedSample],
    *,
    fresh: Mapping[str, Sequence[FreshDraw]],
    probe: Mapping[str, Sequence[FreshDraw]],
    policies: Sequence[str] | None,
    n_folds: int,
    seed: int,
) -> Dataset:
    """Arrange answers as columns. Raises UserError for too few labels or no prompt in common.

    policies  those to be estimated; None for all that have log-probabilities
    n_folds   of the prompts, by a hash of the prompt's id, so that a prompt's fold does not depend
              on the other prompts
    """
    with_logprobs = list(
        dict.fromkeys(name for sample in logged for name in sample.target_logps)
    )
    groups: list[Sequence[FreshDraw]] = [logged, *fresh.values(), *probe.values()]
    number: dict[str, int] = {}
    for answers in groups:
        for answer in answers:
            number.setdefault(answer.prompt_id, len(number))
    folds = np.array(
        [fold(prompt, n_folds=n_folds, seed=seed) for prompt in number], dtype=np.intp
    )

    def columns(answers: Sequence[FreshDraw]) -> Rows:
        prompt = np.array(
            [number[answer.prompt_id] for answer in answers], dtype=np.intp
        )
        return Rows(
            prompt=prompt,
            fold=folds[prompt],
            score=_column(answer.judge_score for answer in answers),
            variance=_column(answer.judge_score_variance for answer in answers),
            label=_column(answer.oracle_label for answer in answers),
            chars=_column(answer.response_chars for answer in answers),
        )

    data = Dataset(
        logging_policy=logged[0].policy,
        policies=tuple(with_logprobs if policies is None else policies),
        prompts=tuple(number),
        n_folds=n_folds,
        logged=columns(logged),
        logging_logprob=_column(sample.total_logprob for sample in logged),
        target_logprob={
            policy: _column(sample.target_logps.get(policy) for sample in logged)
            for policy in with_logprobs
        },
        fresh={policy: columns(draws) for policy, draws in fresh.items()},
        probe={policy: columns(draws) for policy, draws in probe.items()},
    )
    _check(data)
    return data


def fold(prompt_id: str, *, n_folds: int, seed: int) -> int:
    """The fold of a prompt, from 0, as cje-eval assigns it."""
    digest = hashlib.blake2b(
        f"{prompt_id}-{seed}-{n_folds}".encode(), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big") % n_folds


def _column(values: Iterable[float | None]) -> Array:
    return np.array(
        [math.nan if value is None else value for value in values], dtype=float
    )


def _check(data: Dataset) -> None:
    n_labelled = len(np.unique(data.logged.prompt[data.logged.labelled]))
    if n_labelled < MIN_LABELS:
        raise UserError(
            f"oracle.logged: answers to {n_labelled} prompts have an oracle_label. Expected "
            f"{MIN_LABELS} or more: label a random slice of the logged answers."
        )
    for policy in data.policies:
        if policy not in data.fresh and not np.isfinite(data.log_ratio(policy)).any():
            raise UserError(
                f"oracle.policies: {policy!r} has neither log-probabilities nor fresh draws. "
                "Leave it out, or give its draws with oracle.fresh_dir=DIR."
            )
    for policy, draws in data.fresh.items():
        if not np.isin(draws.prompt, data.logged.prompt).any():
            ours, theirs = (
                data.prompts[data.logged.prompt[0]],
                data.prompts[draws.prompt[0]],
            )
            raise UserError(
                f"oracle.fresh_dir: the draws of {policy!r} and the logged answers have no "
                f"prompt_id in common (for example {theirs!r} and {ours!r}). Use the same ids."
            )
