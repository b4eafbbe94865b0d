"""Pair up responses, and reconcile the two orders of a pair into one judgment."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, islice

from elo_exp.data import conversations
from elo_exp.data.conversations import ViewSettings
from elo_exp.data.rubrics import Rubric
from elo_exp.records import (
    FIXED_SEED,
    Comparison,
    Judgment,
    MissingBattle,
    Prompt,
    Response,
    Slot,
    Verdict,
    make_fingerprint,
)

# By entrant, in the order given; then by prompt and draw.
Responses = Mapping[str, Mapping[Slot, Response]]


def pair_up(
    prompts: Sequence[Prompt],
    responses: Responses,
    rubric: Rubric,
    *,
    settings: ViewSettings | None = None,
    limit: int | None = None,
    opponents: int | None = None,
) -> list[Comparison]:
    """Compare entrants on every prompt that the rubric applies to, prompts first.

    Draw i meets draw i, and the one draw of an entrant that does not vary each draw of the others; two such
    entrants meet once. If an entrant has no answer to a prompt, the others are compared on it all the same:
    `unanswered` lists the comparisons that are missing.

    prompts    all with draw 0, then with draw 1, and so on
    settings   how much of conversations the judge sees, unless the rubric says otherwise; None: there are none
    limit      keep the first so many comparisons
    opponents  that each entrant meets on a prompt; None: all others
    """
    n_draws = {name: n_drawn(by_slot) for name, by_slot in responses.items()}
    comparisons = (
        comparison
        for prompt in prompts
        if rubric.applies_to(prompt)
        for comparison in _compare_on_prompt(
            prompt,
            {
                name: by_slot.get((prompt.prompt_id, draw))
                for name, by_slot in responses.items()
                for draw in [min(prompt.draw_idx, n_draws[name] - 1)]
            },
            {name: min(prompt.draw_idx, n - 1) for name, n in n_draws.items()},
            rubric,
            settings,
            opponents,
        )
    )
    return list(islice(comparisons, limit))


def list_unanswered(
    prompts: Sequence[Prompt],
    responses: Responses,
    rubric: Rubric,
    *,
    failed: Mapping[str, Collection[str]],
    compared: Sequence[Comparison],
    limit: int | None = None,
    opponents: int | None = None,
) -> list[MissingBattle]:
    """Return the planned comparisons that lack an answer, and those on an empty answer.

    prompts    that were planned, all with draw 0, then with draw 1, and so on
    failed     prompts on which an entrant is on record as having failed, by entrant
    compared   what `pair_up` returned; with a limit, prompts after the last of these were not planned
    opponents  as of `pair_up`
    """
    n_draws = {name: n_drawn(by_slot) for name, by_slot in responses.items()}
    last = compared[-1] if limit is not None and len(compared) >= limit else None
    missing = []
    for prompt in prompts:
        if not rubric.applies_to(prompt):
            continue
        draws = {name: min(prompt.draw_idx, n - 1) for name, n in n_draws.items()}
        answers = {
            name: by_slot.get((prompt.prompt_id, draws[name]))
            for name, by_slot in responses.items()
        }
        for a, b in choose_pairs(list(answers), prompt.slot, opponents):
            if prompt.draw_idx not in (draws[a], draws[b]):
                continue
            pair = [(name, answers[name]) for name in (a, b)]
            empty_names = [
                name
                for name, response in pair
                if response is not None and is_empty(response)
            ]
            absent_names = [name for name, response in pair if response is None]
            lacking_names = [
                name for name in (a, b) if name in (*empty_names, *absent_names)
            ]
            on_record = [
                name
                for name, response in pair
                if (
                    response is not None
                    and is_empty(response)
                    and response.finish_reason
                )
                or (response is None and prompt.prompt_id in failed.get(name, ()))
            ]
            if lacking_names:
                missing.append(
                    MissingBattle(
                        model_a=a,
                        model_b=b,
                        question_id=prompt.prompt_id,
                        dimension=rubric.dimension,
                        lacking=tuple(lacking_names),
                        failed=tuple(on_record),
                        is_judged=not absent_names,
                        draw_a=draws[a],
                        draw_b=draws[b],
                    )
                )
        if last is not None and (prompt.prompt_id, prompt.draw_idx) == (
            last.prompt_id,
            max(last.draw_a, last.draw_b),
        ):
            break
    return missing


def is_empty(response: Response) -> bool:
    """Whether an answer holds no text, and nothing else that a judge could see."""
    return not (response.response_text.strip() or response.messages)


def n_drawn(responses: Mapping[Slot, Response]) -> int:
    """Count the answers that an entrant has to a prompt."""
    return 1 + max((draw for _, draw in responses), default=0)


def answered_prompts(responses: Mapping[Slot, Response]) -> set[str]:
    """Return the prompts of which an entrant has every answer."""
    n = n_drawn(responses)
    counts = Counter(prompt_id for prompt_id, _ in responses)
    return {prompt_id for prompt_id, count in counts.items() if count == n}


def _compare_on_prompt(
    prompt: Prompt,
    answers_of: Mapping[str, Response | None],
    draws: Mapping[str, int],
    rubric: Rubric,
    settings: ViewSettings | None,
    opponents: int | None,
) -> Iterator[Comparison]:
    """Yield the comparisons on one prompt and draw, in the texts that the judge is shown.

    They are in turns where either side shows more than the words of one turn, so that no plain answer can pretend to be
    a conversation. Who meets whom does not depend on who answered.

    answers_of  the answer of this draw, or the only one of an entrant; None: it is missing
    draws       which answer that is
    """
    responses = {
        name: response for name, response in answers_of.items() if response is not None
    }
    pairs = [
        (a, b)
        for a, b in choose_pairs(list(answers_of), prompt.slot, opponents)
        if a in responses and b in responses and prompt.draw_idx in (draws[a], draws[b])
    ]
    if not prompt.messages and not any(
        response.messages for response in responses.values()
    ):
        for a, b in pairs:
            yield rubric.compare(
                prompt,
                entrant_a=a,
                entrant_b=b,
                response_a=responses[a].response_text,
                response_b=responses[b].response_text,
                draw_a=responses[a].draw_idx,
                draw_b=responses[b].draw_idx,
            )
        return
    assert settings is not None
    rubric_settings = rubric.merge_settings(settings)
    answers = {
        name: conversations.view_answer(response, rubric_settings)
        for name, response in responses.items()
    }
    shown_prompts = {
        in_turns: conversations.view_prompt(prompt, rubric_settings, in_turns=in_turns)
        for in_turns in (False, True)
    }
    is_question = conversations.is_question(prompt)
    for a, b in pairs:
        in_turns = not is_question or None in (
            answers[a].single_turn_text,
            answers[b].single_turn_text,
        )
        if not rubric.applies_to(shown_prompts[in_turns]):
            return
        texts = [
            answers[name].transcript if in_turns else answers[name].single_turn_text
            for name in (a, b)
        ]
        yield rubric.compare(
            shown_prompts[in_turns],
            entrant_a=a,
            entrant_b=b,
            response_a=texts[0],
            response_b=texts[1],
            draw_a=responses[a].draw_idx,
            draw_b=responses[b].draw_idx,
            in_turns=in_turns,
        )


def choose_pairs(
    names: Sequence[str], slot: Slot, opponents: int | None
) -> Iterator[tuple[str, str]]:
    """Yield who meets whom: neighbours on a ring of all, drawn by a hash of the prompt, and of the draw above 0.

    A circulant graph. An odd number of opponents takes an even number of entrants: two of them meet
    across the ring.
    """
    m, (prompt_id, draw) = len(names), slot
    hashed_parts = [prompt_id] + [str(draw)] * (draw > 0)
    ring = sorted(
        names, key=lambda name: make_fingerprint([FIXED_SEED, *hashed_parts, name])
    )
    for a, b in combinations(names, 2):
        steps = abs(ring.index(a) - ring.index(b))
        is_across = opponents is not None and opponents % 2 and 2 * steps == m
        if opponents is None or 2 * min(steps, m - steps) <= opponents or is_across:
            yield a, b


def keep_complete_prompts(
    judgments: Sequence[Judgment], comparisons: Sequence[Comparison]
) -> list[Judgment]:
    """Keep the prompts on which every comparison has a judgment: the same for all entrants."""
    n_unjudged = Counter(c.prompt_id for c in comparisons)
    n_unjudged.subtract(j.prompt_id for j in judgments)
    return [j for j in judgments if not n_unjudged[j.prompt_id]]


def list_unjudged(
    comparisons: Sequence[Comparison], judgments: Sequence[Judgment]
) -> list[MissingBattle]:
    """Return the comparisons without a valid verdict: nobody knows who would have won."""
    valid = {_pair_key(judgment) for judgment in judgments if not judgment.invalid}
    return [
        MissingBattle(
            model_a=comparison.entrant_a,
            model_b=comparison.entrant_b,
            question_id=comparison.prompt_id,
            dimension=comparison.dimension,
            draw_a=comparison.draw_a,
            draw_b=comparison.draw_b,
        )
        for comparison in comparisons
        if _pair_key(comparison) not in valid
    ]


def _pair_key(pair: Comparison | Judgment) -> tuple[str, str, str, int, int]:
    return pair.prompt_id, pair.entrant_a, pair.entrant_b, pair.draw_a, pair.draw_b


def choose_orders(comparison: Comparison, both_orders: float) -> tuple[bool, ...]:
    """List the orders in which a comparison is judged: whether entrant_b is shown first.

    A hash of the prompt and the two names draws which answer is shown first, and whether the pair is
    judged in both orders. From draw to draw the first answer alternates: draws in one order are balanced.
    One query on equal answers serves both orders. A control is judged in both.

    both_orders  the share of comparisons that is judged in both
    """
    pair = sorted(comparison.entrants)
    digest = make_fingerprint([FIXED_SEED, comparison.prompt_id, pair])
    is_both = int(digest[8:16], 16) < both_orders * 16**8
    is_equal = comparison.response_a == comparison.response_b
    if is_both or is_equal or comparison.is_control:
        return (False, True)
    position = int(digest[:8], 16) + max(comparison.draw_a, comparison.draw_b)
    return (comparison.entrant_b == pair[position % 2],)


def unswap_verdict(verdict: Verdict) -> str | None:
    """Return the side that a verdict names once the swap is undone: a, b or tie; None: invalid."""
    sides = ("b", "a") if verdict.position_swap else ("a", "b")
    return {"A": sides[0], "B": sides[1], "TIE": "tie"}.get(verdict.verdict)


def reconcile(comparison: Comparison, verdicts: Sequence[Verdict]) -> Judgment:
    """Reconcile the verdicts of both orders, or take that of the one that was judged.

    Invalid in either order: no winner, and not a tie. Both orders name the same entrant: it wins.
    Both are ties: a tie. Anything else: a tie, marked inconsistent unless the answers are equal,
    where one query stands for both orders and its letter names another entrant in each. Repeats
    are kept and decide nothing.
    """
    equal = comparison.response_a == comparison.response_b
    outcomes = [unswap_verdict(verdict) for verdict in verdicts if not verdict.repeat]
    invalid = None in outcomes
    differ = len(set(outcomes)) > 1
    entrants = {"a": comparison.entrant_a, "b": comparison.entrant_b}
    return Judgment(
        prompt_id=comparison.prompt_id,
        dimension=comparison.dimension,
        entrant_a=comparison.entrant_a,
        entrant_b=comparison.entrant_b,
        winner=None if invalid or differ else entrants.get(outcomes[0] or ""),
        inconsistent=None if len(outcomes) == 1 else not (invalid or equal) and differ,
        invalid=invalid,
        equal_answers=equal,
        raw=tuple(verdicts),
        draw_a=comparison.draw_a,
        draw_b=comparison.draw_b,
    )


def tie_judgment(comparison: Comparison) -> Judgment:
    """Return the judgment of two equal answers that no judge was asked about."""
    return Judgment(
        prompt_id=comparison.prompt_id,
        dimension=comparison.dimension,
        entrant_a=comparison.entrant_a,
        entrant_b=comparison.entrant_b,
        winner=None,
        inconsistent=None,
        invalid=False,
        equal_answers=True,
        raw=(),
        draw_a=comparison.draw_a,
        draw_b=comparison.draw_b,
    )


def pair_repeats(judgment: Judgment) -> Iterator[tuple[Verdict, Verdict]]:
    """Yield each repeated verdict after the first one of its order, both valid.

    A mirrored verdict is no observation, nor is the second order of equal answers.
    """
    first_verdicts = {verdict.position_swap: verdict for verdict in judgment.orders}
    for repeat in filter(lambda verdict: verdict.repeat, judgment.raw):
        original = first_verdicts[repeat.position_swap]
        is_second = (
            original.mirrored
            or repeat.mirrored
            or (judgment.equal_answers and repeat.position_swap)
        )
        if not is_second and "INVALID" not in (original.verdict, repeat.verdict):
            yield original, repeat
