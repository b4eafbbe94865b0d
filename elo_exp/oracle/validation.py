"""What was collected of each policy, counted: what is there, what is missing, what looks odd."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elo_exp.oracle.samples import Collected
from elo_exp.oracle.weights import EXTREME
from elo_exp.records import Record, Score

_LEGEND = (
    "null, zero: log-probabilities of the logged answers that are not known, or 0 of an answer that says something.\n"
    "w: their importance weights, exactly 1, and beyond 1/5 .. 5. unread: scores and labels without a number."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers(Record):
    """What a judge said of the answers of one policy."""

    n: int
    n_unreadable: int  # it said nothing that can be read as a score
    mean: float | None
    std: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary(Record):
    """One policy's answers, and what it makes of the logging policy's."""

    policy: str
    n_responses: int
    n_empty: int
    n_cut_off: int  # at the limit of their length
    n_logprobs: int  # logged answers with a log-probability under this policy
    n_null: int  # those without
    n_zero: int  # exactly 0, of an answer that says something
    n_exactly_one: int  # importance weights
    n_extreme: int  # importance weights outside [1/5, 5]
    max_abs_log_ratio: float | None  # nats
    scores: Numbers
    labels: Numbers


def summaries(found: Collected) -> list[PolicySummary]:
    """Of every policy, the logging one first."""
    return [_summary(found, policy) for policy in (found.logging_policy, *found.targets)]


def _summary(found: Collected, policy: str) -> PolicySummary:
    said = found.responses[policy].values()
    logged = found.responses[found.logging_policy]
    known = {p: value for p, value in found.logprobs[policy].items() if value is not None}
    base = found.logprobs[found.logging_policy]
    ratios = [value - logging for p, value in known.items() if (logging := base[p]) is not None]
    return PolicySummary(
        policy=policy,
        n_responses=len(said),
        n_empty=sum(not response.response_text for response in said),
        n_cut_off=sum(response.finish_reason == "length" for response in said),
        n_logprobs=len(known),
        n_null=len(logged) - len(known),
        n_zero=sum(value == 0.0 and logged[p].response_text != "" for p, value in known.items()),
        n_exactly_one=sum(ratio == 0.0 for ratio in ratios),
        n_extreme=sum(abs(ratio) > math.log(EXTREME) for ratio in ratios),
        max_abs_log_ratio=max(map(abs, ratios), default=None),
        scores=_numbers(found.scores[policy].values()),
        labels=_numbers(found.labels[policy].values()),
    )


def _numbers(said: Iterable[Score]) -> Numbers:
    scores = list(said)
    values = [score.judge_score for score in scores if score.judge_score is not None]
    return Numbers(
        n=len(values),
        n_unreadable=len(scores) - len(values),
        mean=statistics.fmean(values) if values else None,
        std=statistics.stdev(values) if len(values) > 1 else None,
    )


def table(rows: Sequence[PolicySummary]) -> str:
    """The counts as a table, a line for each policy, and what its columns are."""
    lines = [
        [
            *(
                row.policy,
                f"{row.n_responses:,}",
                f"{row.n_cut_off:,}",
                f"{row.n_null:,}",
                f"{row.n_zero:,}",
            ),
            *(
                f"{row.n_exactly_one:,}",
                f"{row.n_extreme:,}",
                *_cells(row.scores),
                *_cells(row.labels),
            ),
            f"{row.scores.n_unreadable + row.labels.n_unreadable:,}",
        ]
        for row in rows
    ]
    head = [
        "policy",
        "answers",
        "cut off",
        "null",
        "zero",
        "w = 1",
        "w > 5",
        "scores",
        "mean",
        "labels",
        "mean",
    ]
    return f"{grid([*head, 'unread'], lines)}\n\n{_LEGEND}"


def _cells(numbers: Numbers) -> tuple[str, str]:
    return f"{numbers.n:,}", "-" if numbers.mean is None else f"{numbers.mean:.3f}"


def status_table(done: Mapping[str, Sequence[tuple[int, int]]]) -> str:
    """What is there and what is wanted, by policy: of answers, log-probabilities, scores and labels."""
    steps = ("answers", "log-probabilities", "scores", "labels")
    lines = [
        [policy, *(f"{n:,} of {wanted:,}" for n, wanted in of_policy)]
        for policy, of_policy in done.items()
    ]
    lacks = [sum(wanted - n for n, wanted in column) for column in zip(*done.values(), strict=True)]
    missing = ", ".join(f"{n:,} {step}" for step, n in zip(steps, lacks, strict=True) if n)
    said = (
        f"missing: {missing}. The same command without status=true goes on."
        if missing
        else "complete"
    )
    return f"{grid(['policy', *steps], lines)}\n\n{said}"


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is of names and the others of numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    text = io.StringIO()
    found = Table(box=SIMPLE_HEAD, collapse_padding=True)
    for i, name in enumerate(head):
        found.add_column(name, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        found.add_row(*row)
    Console(file=text, width=120, markup=False).print(found)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")
