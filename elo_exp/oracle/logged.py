"""Logged responses with log-probabilities, fresh draws and labels: read from files and checked.

A logging policy has answered prompts; `target_logps` says what other policies make of the very same tokens. Fresh draws
are the other policies' own answers. A judge has scored them all, an oracle labelled some.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp import files
from elo_exp.records import Record, UserError, fingerprint

LATER_NAMES = {"base_policy_logprob": "total_logprob", "target_policy_logprobs": "target_logps"}
MAX_LOGPROB = 1e-7  # nats: what rounding may leave of certainty
_ENDINGS = (".jsonl", "_responses.jsonl", ".jsonl.gz", "_responses.jsonl.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSample(Record):
    """One answer of the logging policy. Scores and labels are in [0, 1], log-probabilities in nats and sums over its
    tokens; None is for what is not known."""

    prompt_id: str
    policy: str
    judge_score: float
    total_logprob: float | None
    target_logps: Mapping[str, float | None]
    judge_score_variance: float | None = None
    oracle_label: float | None = None
    draw_idx: int = 0
    response_chars: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshDraw(Record):
    """One answer of a target policy."""

    prompt_id: str
    policy: str
    judge_score: float
    draw_idx: int = 0
    judge_score_variance: float | None = None
    oracle_label: float | None = None
    response_chars: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth(Record):
    """The mean oracle label of a policy, from labels on many of its own answers."""

    mean: float
    n: int | None = None
    std_error: float | None = None


def read_truth(path: Path) -> dict[str, Truth]:
    """A JSON object, policy: {mean, n, std_error}, the last two optional. Raises UserError for anything else."""
    with files.open_text(path) as file:
        try:
            found = json.loads(file.read())
            truth = {str(policy): Truth.from_dict(of_policy) for policy, of_policy in found.items()}
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise UserError(
                f'{path}: not readable as {{policy: {{"mean": 0.7, "n": 500}}}} ({error}).'
            ) from None
    for policy, of_policy in truth.items():
        _share(f"{path}, {policy}", "mean", of_policy.mean)
    return truth


def read_logged(path: Path) -> list[LoggedSample]:
    """The logged answers of a JSON lines file. Raises UserError naming file, line, field and remedy."""
    samples: list[LoggedSample] = []
    seen: dict[tuple[str, int], str] = {}
    names: dict[str, tuple[str, str]] = {}
    for place, raw in files.read_jsonl(path):
        row = _one_kind_of_names(place, raw, names)
        sample = LoggedSample(
            total_logprob=_logprob(place, "total_logprob", _required(place, row, "total_logprob")),
            target_logps=_target_logps(place, row),
            **_answer(place, row, policy=str(row.get("policy") or "base")),
        )
        _once(place, seen, sample)
        if samples and sample.policy != samples[0].policy:
            raise UserError(
                f"{place}: policy is {sample.policy!r}, above it was {samples[0].policy!r}. Expected the answers of "
                "one logging policy; those of others go into the folder of fresh draws."
            )
        samples.append(sample)
    if not samples:
        raise UserError(f"{path}: is empty. Expected one logged answer a line.")
    return samples


def read_draws(folder: Path, policy: str) -> list[FreshDraw] | None:
    """The answers of one policy, from its file in a folder; None where it has none there."""
    path = next(
        (folder / f"{policy}{end}" for end in _ENDINGS if (folder / f"{policy}{end}").is_file()),
        None,
    )
    if path is None:
        return None
    draws: list[FreshDraw] = []
    seen: dict[tuple[str, int], str] = {}
    for place, row in files.read_jsonl(path):
        if row.get("policy") not in (None, policy):
            raise UserError(
                f"{place}: policy is {row['policy']!r} in the file of {policy!r}. Move the line."
            )
        draw = FreshDraw(**_answer(place, row, policy=policy))
        _once(place, seen, draw)
        draws.append(draw)
    if not draws:
        raise UserError(f"{path}: is empty. Expected one answer of {policy!r} a line.")
    return draws


def policies_with_draws(folder: Path) -> list[str]:
    """Those that have a file in a folder of draws, sorted."""
    names = (path.name.removesuffix(".gz") for path in folder.glob("*.jsonl*"))
    return sorted({name.removesuffix(".jsonl").removesuffix("_responses") for name in names})


def _one_kind_of_names(
    place: str, row: Mapping[str, Any], names: dict[str, tuple[str, str]]
) -> dict[str, Any]:
    """The row by our names. A file keeps to one kind of names, so that no column is half empty.

    names  what each field is called in this file, and where that was seen
    """
    for later, ours in LATER_NAMES.items():
        for name in (ours, later):
            if name not in row:
                continue
            first, where = names.setdefault(ours, (name, place))
            if name != first:
                raise UserError(
                    f"{place}: has {name!r}, and {where} has {first!r}. Keep to one of the two names."
                )
    return {LATER_NAMES.get(key, key): value for key, value in row.items()}


def _answer(place: str, row: Mapping[str, Any], *, policy: str) -> dict[str, Any]:
    """What logged answers and fresh draws have in common."""
    variance = row.get("judge_score_variance")
    if variance is not None and not _is_number(variance, 0.0, math.inf):
        raise UserError(
            f"{place}: judge_score_variance is {variance!r}. Expected 0 or more, or null."
        )
    chars, response, draw = row.get("response_chars"), row.get("response"), row.get("draw_idx", 0)
    if not isinstance(draw, int) or isinstance(draw, bool) or draw < 0:
        raise UserError(f"{place}: draw_idx is {draw!r}. Expected a whole number from 0.")
    if chars is not None and not _is_number(chars, 0.0, math.inf):
        raise UserError(f"{place}: response_chars is {chars!r}. Expected 0 or more, or null.")
    return {
        "prompt_id": _prompt_id(place, row),
        "policy": policy,
        "judge_score": _share(place, "judge_score", _required(place, row, "judge_score")),
        "judge_score_variance": None if variance is None else float(variance),
        "oracle_label": None
        if (y := row.get("oracle_label")) is None
        else _share(place, "oracle_label", y),
        "draw_idx": draw,
        "response_chars": len(response) if chars is None and isinstance(response, str) else chars,
    }


def _prompt_id(place: str, row: Mapping[str, Any]) -> str:
    metadata = row.get("metadata")
    named = row.get(
        "prompt_id", metadata.get("prompt_id") if isinstance(metadata, Mapping) else None
    )
    if named is not None and named != "":
        return str(named)
    if isinstance(row.get("prompt"), str):
        return fingerprint(row["prompt"])
    raise UserError(f"{place}: has neither prompt_id nor prompt. Expected one of them.")


def _required(place: str, row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    close = difflib.get_close_matches(name, [str(key) for key in row], n=1)
    hint = f" Is it {close[0]!r}? Rename it." if close else ""
    raise UserError(f"{place}: has no field {name!r} (found {', '.join(row)}).{hint}")


def _target_logps(place: str, row: Mapping[str, Any]) -> dict[str, float | None]:
    found = _required(place, row, "target_logps")
    if not isinstance(found, Mapping) or not found:
        raise UserError(
            f"{place}: target_logps is {found!r}. Expected an object, policy: log-probability or null."
        )
    return {
        str(policy): _logprob(place, f"target_logps.{policy}", value)
        for policy, value in found.items()
    }


def _logprob(place: str, name: str, value: Any) -> float | None:
    """Nats; rounding may leave certainty a little above zero."""
    if value is None:
        return None
    if not _is_number(value, -math.inf, math.inf):
        raise UserError(
            f"{place}: {name} is {value!r}. Expected a finite number, or null where it is not known."
        )
    if value > MAX_LOGPROB:
        raise UserError(
            f"{place}: {name} is {value:g}. Expected the sum of the tokens' log-probabilities in nats, 0 or below: "
            "write log p, not p or -log p, and null where it is not known."
        )
    return min(float(value), 0.0)


def _share(place: str, name: str, value: Any) -> float:
    if not _is_number(value, 0.0, 1.0):
        raise UserError(
            f"{place}: {name} is {value!r}. Expected a number in [0, 1]: divide one of a scale from 0 to 10 by 10."
            + (
                " Leave it out, or write null, where there is no label."
                if name == "oracle_label"
                else ""
            )
        )
    return float(value)


def _is_number(value: Any, low: float, high: float) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
    )


def _once(place: str, seen: dict[tuple[str, int], str], answer: LoggedSample | FreshDraw) -> None:
    key = (answer.prompt_id, answer.draw_idx)
    if (first := seen.setdefault(key, place)) != place:
        raise UserError(
            f"{place}: prompt {answer.prompt_id!r}, draw_idx {answer.draw_idx} was there before ({first}). Remove one "
            "of the two, or number several answers to one prompt with draw_idx."
        )
