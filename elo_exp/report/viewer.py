"""The verdicts of a run with all texts, for the viewer of its page."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from elo_exp.records import Comparison, Judgment, Verdict

OUTCOMES = ("a", "b", "tie", "flipped", "invalid")
MAX_CHARACTERS = 40_000_000  # of all texts in a page: some 20 MB
_MAX_WORTH = 6
_SEED = 20260425  # of the sample where not all texts fit

Comparisons = Mapping[str, Sequence[Comparison]]  # by dimension
Judgments = Mapping[str, Sequence[Judgment]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A comparison and what was decided.

    outcome  its number in OUTCOMES
    upset    how many points higher the loser is rated; 0 where the winner is
    """

    comparison: Comparison
    judgment: Judgment
    outcome: int
    upset: float

    @property
    def kind(self) -> str:
        return "upset" if self.upset else OUTCOMES[self.outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What the page holds of all verdicts.

    island   gzip + base64 of the JSON that the script reads
    n_kept   comparisons whose texts are in the page
    notable  comparisons worth reading
    """

    island: str
    n_comparisons: int
    n_kept: int
    notable: Sequence[Judged]


def texts(
    comparisons: Comparisons,
    judgments: Judgments,
    ratings: Mapping[str, Mapping[str, float]],
    *,
    max_characters: int = MAX_CHARACTERS,
) -> Texts | None:
    """Collect all verdicts with their texts; None without a verdict.

    Of more texts than fit, those of flipped, invalid and upset comparisons come first, then a
    sample of each pair in each dimension.

    ratings  of each dimension by model, for the upsets
    """
    asked = {
        (c.dimension, c.prompt_id, c.entrants): c
        for some in comparisons.values()
        for c in some
    }
    judged = []
    for some in judgments.values():
        for j in some:
            c = asked[j.dimension, j.prompt_id, (j.entrant_a, j.entrant_b)]
            outcome = _outcome(j)
            points, upset = ratings.get(j.dimension, {}), 0.0
            if outcome < 2 and points.keys() >= {*c.entrants}:
                winner, loser = c.entrants if outcome == 0 else c.entrants[::-1]
                upset = max(points[loser] - points[winner], 0.0)
            judged.append(
                Judged(comparison=c, judgment=j, outcome=outcome, upset=upset)
            )
    if not judged:
        return None
    kept = _fitting(judged, max_characters)
    data = json.dumps(_data(judged, kept), ensure_ascii=False, separators=(",", ":"))
    packed = gzip.compress(data.encode(errors="replace"), mtime=0)
    return Texts(
        island=base64.b64encode(packed).decode("ascii"),
        n_comparisons=len(judged),
        n_kept=len(kept),
        notable=list(_notable(judged))[:_MAX_WORTH],
    )


def _outcome(judgment: Judgment) -> int:
    if judgment.invalid:
        return 4
    if judgment.inconsistent:
        return 3
    return [judgment.entrant_a, judgment.entrant_b, None].index(judgment.winner)


def _fitting(judged: Sequence[Judged], max_characters: int) -> set[int]:
    """The numbers of the comparisons whose texts fit, by order of their worth."""
    numbers = list(range(len(judged)))
    random.Random(_SEED).shuffle(numbers)
    n_before: Counter[tuple[str, ...]] = Counter()
    place = {}
    for i in numbers:
        c, is_worth_reading = judged[i].comparison, judged[i].kind not in OUTCOMES[:3]
        cell = c.dimension, *c.entrants
        place[i] = -1 if is_worth_reading else n_before[cell]
        n_before[cell] += not is_worth_reading
    kept: set[int] = set()
    known: set[tuple[str, str | None]] = set()
    total = 0
    for i in sorted(numbers, key=place.__getitem__):
        c = judged[i].comparison
        total += sum(len(verdict.reasoning) for verdict in judged[i].judgment.orders)
        for key, text in (
            ((c.prompt_id, None), c.prompt_text),
            ((c.prompt_id, c.entrant_a), c.response_a),
            ((c.prompt_id, c.entrant_b), c.response_b),
        ):
            total += 0 if key in known else len(text)
            known.add(key)
        if total > max_characters:
            break
        kept.add(i)
    return kept


def _data(judged: Sequence[Judged], kept: set[int]) -> dict[str, object]:
    """Rows of numbers that refer to lists of names and texts; a text that is absent is null."""
    prompts: dict[str, dict[str, object]] = {}
    answers: dict[str, dict[int, str]] = {}
    dimensions: dict[str, int] = {}
    entrants: dict[str, int] = {}
    reasons: dict[str, int] = {}
    rows = []
    for i, one in enumerate(judged):
        c = one.comparison
        a, b = (entrants.setdefault(name, len(entrants)) for name in c.entrants)
        prompt = prompts.setdefault(
            c.prompt_id,
            {"number": len(prompts), "id": c.prompt_id, "stratum": c.source},
        )
        if i in kept:
            prompt["text"] = c.prompt_text
            if reference := c.gold_answer or c.expected_behavior:
                prompt["reference"] = reference
            own = answers.setdefault(c.prompt_id, {})
            own |= {a: c.response_a, b: c.response_b}
            prompt["answers"] = own
        orders = [
            (
                int(verdict.position_swap),
                _winner(verdict),
                reasons.setdefault(verdict.reasoning, len(reasons))
                if i in kept
                else None,
            )
            for verdict in one.judgment.orders
        ]
        dimension = dimensions.setdefault(c.dimension, len(dimensions))
        rows.append((prompt["number"], dimension, a, b, one.outcome, orders))
    return {
        "dimensions": list(dimensions),
        "entrants": list(entrants),
        "prompts": list(prompts.values()),
        "reasons": list(reasons),
        "rows": rows,
    }


def _winner(verdict: Verdict) -> int:
    """The number of the outcome in one order: the letters are of the order shown."""
    if verdict.verdict in ("A", "B"):
        return int((verdict.verdict == "B") != verdict.position_swap)
    return 2 if verdict.verdict == "TIE" else 4


def _notable(judged: Sequence[Judged]) -> Iterator[Judged]:
    """Of each dimension the widest upset, a flip and an invalid verdict."""
    for dimension in dict.fromkeys(one.comparison.dimension for one in judged):
        own = [one for one in judged if one.comparison.dimension == dimension]
        own.sort(key=lambda one: -one.upset)
        for kind in ("upset", "flipped", "invalid"):
            yield from [one for one in own if one.kind == kind][:1]
