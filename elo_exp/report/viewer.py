"""The verdicts of a run with all texts, for the viewer of its page."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from elo_exp.records import Comparison, Judgment, Verdict

OUTCOMES = ("a", "b", "tie", "flipped", "invalid")
MAX_CHARACTERS = 40_000_000  # of all texts in a page: some 20 MB
_MAX_WORTH = 6

Comparisons = Mapping[str, Sequence[Comparison]]  # by dimension
Judgments = Mapping[str, Sequence[Judgment]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notable:
    """A comparison worth reading, and why: an upset, a flip or an invalid verdict.

    gap  of an upset: how many points higher the loser is rated
    """

    kind: str
    comparison: Comparison
    winner: str | None
    gap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What the page holds of all verdicts.

    island             gzip + base64 of the JSON that the script reads
    n_prompts, n_kept  of which the texts are in the page
    """

    island: str
    n_comparisons: int
    n_prompts: int
    n_kept: int
    notable: Sequence[Notable]


def texts(
    comparisons: Comparisons,
    judgments: Judgments,
    ratings: Mapping[str, Mapping[str, float]],
    *,
    max_characters: int = MAX_CHARACTERS,
) -> Texts | None:
    """Collect all verdicts with their texts; None without a verdict.

    Of more texts than fit, those of prompts with flips and invalid verdicts come first.

    ratings  of each dimension by model, for the upsets
    """
    asked = {
        (c.dimension, c.prompt_id, c.entrant_a, c.entrant_b): c
        for some in comparisons.values()
        for c in some
    }
    judged = [
        (j, asked[j.dimension, j.prompt_id, j.entrant_a, j.entrant_b])
        for some in judgments.values()
        for j in some
    ]
    if not judged:
        return None
    kept = _fitting(judged, max_characters)
    n_prompts = len({j.prompt_id for j, _ in judged})
    data = json.dumps(_data(judged, kept), ensure_ascii=False, separators=(",", ":"))
    packed = gzip.compress(data.encode(errors="replace"), mtime=0)
    return Texts(
        island=base64.b64encode(packed).decode("ascii"),
        n_comparisons=len(judged),
        n_prompts=n_prompts,
        n_kept=len(kept),
        notable=list(_notable(judged, ratings))[:_MAX_WORTH],
    )


def _fitting(
    judged: Sequence[tuple[Judgment, Comparison]], max_characters: int
) -> set[str]:
    """The prompts whose texts fit, those with flips and invalid verdicts first."""
    size: dict[str, int] = {}
    for judgment, c in sorted(judged, key=lambda pair: _outcome(pair[0]) < 3):
        length = len(c.prompt_text) + len(c.response_a) + len(c.response_b)
        length += sum(len(verdict.reasoning) for verdict in judgment.raw)
        size[c.prompt_id] = size.get(c.prompt_id, 0) + length
    kept, total = set(), 0
    for prompt, length in size.items():
        total += length
        if total <= max_characters:
            kept.add(prompt)
    return kept


def _data(
    judged: Sequence[tuple[Judgment, Comparison]], kept: set[str]
) -> dict[str, object]:
    """Rows of numbers that refer to lists of names and texts."""
    prompts: dict[str, dict[str, object]] = {}
    dimensions: dict[str, int] = {}
    entrants: dict[str, int] = {}
    reasons: dict[str, int] = {}
    rows = []
    for judgment, c in judged:
        first, second = (
            entrants.setdefault(name, len(entrants)) for name in c.entrants
        )
        prompt = prompts.setdefault(
            c.prompt_id,
            {"number": len(prompts), "id": c.prompt_id, "stratum": c.source},
        )
        orders = []
        for verdict in judgment.raw[:2]:
            reason = verdict.reasoning if c.prompt_id in kept else ""
            number = reasons.setdefault(reason, len(reasons))
            orders.append([int(verdict.position_swap), _winner(verdict), number])
        if c.prompt_id in kept:
            prompt["text"] = c.prompt_text
            prompt["reference"] = (
                c.gold_answer or c.expected_behavior or prompt.get("reference", "")
            )
            answers: dict[int, str] = prompt.setdefault("answers", {})  # type: ignore[assignment]
            answers |= {first: c.response_a, second: c.response_b}
        dimension = dimensions.setdefault(c.dimension, len(dimensions))
        rows.append(
            [prompt["number"], dimension, first, second, _outcome(judgment), orders]
        )
    return {
        "dimensions": list(dimensions),
        "entrants": list(entrants),
        "prompts": list(prompts.values()),
        "reasons": list(reasons),
        "rows": rows,
    }


def _outcome(judgment: Judgment) -> int:
    """The number of its outcome in OUTCOMES."""
    if judgment.invalid:
        return 4
    if judgment.inconsistent:
        return 3
    return [judgment.entrant_a, judgment.entrant_b, None].index(judgment.winner)


def _winner(verdict: Verdict) -> int:
    """The number of the outcome in one order: the letters are of the order shown."""
    if verdict.verdict in ("A", "B"):
        return int((verdict.verdict == "B") != verdict.position_swap)
    return 2 if verdict.verdict == "TIE" else 4


def _notable(
    judged: Sequence[tuple[Judgment, Comparison]],
    ratings: Mapping[str, Mapping[str, float]],
) -> Iterator[Notable]:
    """Of each dimension the widest upset, a flip and an invalid verdict."""
    for dimension in dict.fromkeys(c.dimension for _, c in judged):
        own = [pair for pair in judged if pair[1].dimension == dimension]
        points, upsets = ratings.get(dimension, {}), []
        for judgment, c in own:
            winner = judgment.winner
            if winner is not None and {*c.entrants} <= points.keys():
                loser = c.entrant_b if winner == c.entrant_a else c.entrant_a
                gap = points[loser] - points[winner]
                upsets.append(
                    Notable(kind="upset", comparison=c, winner=winner, gap=gap)
                )
        widest = max(upsets, key=lambda upset: upset.gap or 0.0, default=None)
        if widest is not None and (widest.gap or 0.0) > 0:
            yield widest
        for number in (3, 4):
            some = next((c for j, c in own if _outcome(j) == number), None)
            if some is not None:
                yield Notable(kind=OUTCOMES[number], comparison=some, winner=None)
