"""Pair up responses, and reconcile the two orders of a pair into one judgment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice

from elo_exp.data.rubrics import Rubric
from elo_exp.records import Comparison, Judgment, Prompt, Response, UserError, Verdict

# By entrant, in the order given; then by prompt.
Responses = Mapping[str, Mapping[str, Response]]


def check_entrants(names: Sequence[str]) -> None:
    if len(names) < 2:
        raise UserError(
            f"entrant: found {len(names)} ({', '.join(names) or 'none'}). A tournament needs at "
            "least two: 'entrant=[first,second]'."
        )


def pair_up(
    prompts: Sequence[Prompt],
    responses: Responses,
    rubric: Rubric,
    *,
    limit: int | None = None,
) -> list[Comparison]:
    """Compare every two entrants on every prompt that the rubric applies to, prompts first.

    A prompt that an entrant has not answered is left out for all, so that all are rated on the same
    prompts; `limit` keeps the first so many comparisons.
    """
    comparisons = (
        rubric.compare(
            prompt,
            entrant_a=a,
            entrant_b=b,
            response_a=responses[a][prompt.prompt_id].response_text,
            response_b=responses[b][prompt.prompt_id].response_text,
        )
        for prompt in prompts
        if rubric.applies_to(prompt)
        and all(prompt.prompt_id in answered for answered in responses.values())
        for a, b in combinations(responses, 2)
    )
    return list(islice(comparisons, limit))


def on_whole_prompts(
    judgments: Sequence[Judgment], comparisons: Sequence[Comparison]
) -> list[Judgment]:
    """Keep the prompts on which every comparison has a judgment: the same for all entrants."""
    lacking = Counter(c.prompt_id for c in comparisons)
    lacking.subtract(j.prompt_id for j in judgments)
    return [j for j in judgments if not lacking[j.prompt_id]]


def outcome(verdict: Verdict) -> str | None:
    """Return the side that a verdict names once the swap is undone: a, b or tie; None: invalid."""
    sides = ("b", "a") if verdict.position_swap else ("a", "b")
    return {"A": sides[0], "B": sides[1], "TIE": "tie"}.get(verdict.verdict)


def reconcile(
    comparison: Comparison, ab: Verdict, ba: Verdict, repeats: Sequence[Verdict] = ()
) -> Judgment:
    """Reconcile the verdicts of both orders.

    Invalid in either order: no winner, and not a tie. Both orders name the same entrant: it wins.
    Both are ties: a tie. Anything else: a tie, marked inconsistent unless the answers are equal,
    where one query stands for both orders and its letter names another entrant in each. `repeats`
    are kept and decide nothing.
    """
    equal = comparison.response_a == comparison.response_b
    first, second = outcome(ab), outcome(ba)
    invalid = first is None or second is None
    entrants = {"a": comparison.entrant_a, "b": comparison.entrant_b}
    winner = entrants.get(first or "") if first == second else None
    return Judgment(
        prompt_id=comparison.prompt_id,
        dimension=comparison.dimension,
        entrant_a=comparison.entrant_a,
        entrant_b=comparison.entrant_b,
        winner=winner,
        inconsistent=not invalid and first != second and not equal,
        invalid=invalid,
        equal_answers=equal,
        raw=(ab, ba, *repeats),
    )


def repeated(judgment: Judgment) -> Iterator[tuple[Verdict, Verdict]]:
    """Yield each repeated verdict after the first one of its order, both valid.

    A mirrored verdict is no observation, nor is the second order of equal answers.
    """
    for again in judgment.raw[2:]:
        before = judgment.raw[1] if again.position_swap else judgment.raw[0]
        is_second = (
            before.mirrored
            or again.mirrored
            or (judgment.equal_answers and again.position_swap)
        )
        if not is_second and "INVALID" not in (before.verdict, again.verdict):
            yield before, again
