"""Battles of files that hold answers, as judged comparisons for the viewer of a page."""

from collections import defaultdict
from collections.abc import Collection

import numpy as np

from elo_exp.data.battle_files import BattleText
from elo_exp.data.battles import OVERALL_DIMENSION, Battles
from elo_exp.data.pairing import reconcile
from elo_exp.records import UNKNOWN_ORDER, Battle, Comparison, Judgment, Verdict

# More comparisons would not fit into a page
_MAX_COMPARISONS = 50_000
# For each order
_LETTERS_BY_WINNER = {"model_a": ("A", "B"), "model_b": ("B", "A")}


def build_comparisons(
    texts: Collection[BattleText], battles: Battles
) -> tuple[dict[str, list[Comparison]], dict[str, list[Judgment]]]:
    """Return the comparisons whose texts the files hold, and their judgments, by dimension.

    battles  only verdicts of their judges are wanted
    """
    judges = {battles.judges[i] for i in np.unique(battles.judge).tolist() if i >= 0}
    wanted_judges = {*judges, *([None] if (battles.judge < 0).any() else [])}
    comparisons = defaultdict[str, list[Comparison]](list)
    judgments = defaultdict[str, list[Judgment]](list)
    if len(texts) > _MAX_COMPARISONS:
        return comparisons, judgments
    shown_texts = dict[tuple[object, ...], BattleText]()
    for n, text in enumerate(texts, start=1):
        battle = text.battle
        if battle is None or battle.judge_model not in wanted_judges:
            continue
        dimension = battle.dimension or OVERALL_DIMENSION
        prompt_id = text.prompt_id or f"row {n}"
        key = (dimension, prompt_id, *text.models, battle.draw_a, battle.draw_b)
        same_id = shown_texts.setdefault(key, text)
        if (same_id.question, same_id.answers) != (text.question, text.answers):
            prompt_id = f"{prompt_id}, row {n}"  # of a conversation that went on
        comparison = Comparison(
            prompt_id=prompt_id,
            dimension=dimension,
            source=text.category or battle.source,
            prompt_text=text.question,
            entrant_a=battle.model_a,
            entrant_b=battle.model_b,
            response_a=text.answers[0],
            response_b=text.answers[1],
            draw_a=battle.draw_a,
            draw_b=battle.draw_b,
        )
        comparisons[dimension].append(comparison)
        judgments[dimension].append(_build_judgment(comparison, battle, text.reason))
    return comparisons, judgments


def _build_judgment(comparison: Comparison, battle: Battle, reason: str) -> Judgment:
    """Return the verdicts of both orders, or the one that the row holds."""
    orders = [battle.verdict_ab, battle.verdict_ba]
    winners = [battle.winner] if None in orders else orders
    verdicts = [
        Verdict(
            cache_key="",
            rubric_version="",
            judge_model=battle.judge_model or battle.source,
            position_swap=bool(is_swapped),
            verdict=_LETTERS_BY_WINNER.get(winner or "", ("TIE", "TIE"))[is_swapped],
            reasoning="" if is_swapped else reason,
            stop_reason=UNKNOWN_ORDER if len(winners) == 1 else "end_turn",
        )
        for is_swapped, winner in enumerate(winners)
    ]
    return reconcile(comparison, verdicts)
