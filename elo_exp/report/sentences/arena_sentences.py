"""What is said of models placed among human battles: on the page, on the console, in files and trackers."""

from collections.abc import Callable, Mapping
from typing import Any

from elo_exp.analysis.conclusions import Conclusion, Effect, Reason
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.api.costs import format_dollars
from elo_exp.arena.joint_fit import MIN_PROMPTS_FOR_COVERAGE
from elo_exp.arena.placement import Placement
from elo_exp.arena.style_distance import (
    MAX_STYLE_DISTANCE,
    MIN_ANCHORS_WITH_STYLE,
    StyleFeature,
)
from elo_exp.formatting import (
    format_count,
    format_interval,
    format_number,
    format_percent,
)
from elo_exp.pipeline import Plan
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report.sentences import scope_line, tournament_sentences
from elo_exp.report.sentences.state_rows import StateRow, index_by_state

STATE_ROWS = index_by_state(
    [
        StateRow(state="refused", chip="Not placed", tone="open"),
        StateRow(state="unrated", chip="No interval", tone="open"),
        StateRow(state="no_interval", chip="No interval", tone="open"),
        StateRow(state="caution", chip="Caution", tone="caution"),
        StateRow(state="placed", chip="Placed", tone="supported"),
    ]
)


def format_with_interval(row: Rating) -> str:
    """Return "1031 (95% CI 965 to 1097)", or the rating alone."""
    if row.ci_low is None or row.ci_high is None:
        return format_number(row.rating)
    return f"{format_number(row.rating)} (95% CI {format_interval(row.ci_low, row.ci_high)})"


def _format_short(row: Rating) -> str:
    return f"{format_number(row.rating)} ({format_interval(row.ci_low, row.ci_high)})"


def describe_rank(board: Leaderboard, model: str) -> str:
    """Say the rating of a model and its rank, or why it has none."""
    row = board.row(model)
    if row.rating is None:
        return f"no rating ({row.flag})"
    low, high = row.rank_low or row.rank, row.rank_high or row.rank
    ranks = f"{low}" if high == low else f"{low} to {high}"
    n_rated = sum(rating.rating is not None for rating in board.ratings)
    return f"{format_with_interval(row)}, rank {ranks} of {n_rated}"


def sentence(conclusion: Conclusion, placement: Placement) -> str:
    """Say where a model stands, with the weightiest reason against it, or why it is not placed."""
    if conclusion.state == "refused":
        return f"no placement: {explain_reason(conclusion.reasons[0], conclusion)}"
    position = describe_rank(placement.board, str(conclusion.subject))
    if conclusion.adjustment and conclusion.state != "unrated":
        condition = tournament_sentences.describe_control(
            conclusion.adjustment.features
        )
        position = (
            f"{condition}, {position}{_describe_uncontrolled(conclusion, placement)}"
        )
    if conclusion.state != "caution":
        return position
    return f"{position}, but {explain_reason(conclusion.reasons[0], conclusion)}"


def _describe_uncontrolled(conclusion: Conclusion, placement: Placement) -> str:
    """Say the rating without the control for style."""
    board = placement.uncontrolled_board
    if board is None or board.row(str(conclusion.subject)).rating is None:
        return ""
    return (
        f" (without this control {_format_short(board.row(str(conclusion.subject)))})"
    )


def list_further_reasons(conclusion: Conclusion, placement: Placement) -> list[str]:
    """Return the reasons that the sentence leaves out."""
    main_sentence = sentence(conclusion, placement)
    reasons = [explain_reason(reason, conclusion) for reason in conclusion.reasons]
    return [text for text in reasons if text not in main_sentence]


def headline(
    placement: Placement, conclusions: Mapping[str, Conclusion], *, is_short: bool
) -> str:
    """Say where each placed model stands, or why none does.

    is_short  the second without its figures
    """
    sentences = [sentence(conclusion, placement) for conclusion in conclusions.values()]
    if placement.refusal:
        (text, *_) = sentences
        text = f"{text[:1].upper()}{text[1:]}"
        return ":".join(text.split(":")[:2]) if is_short else text
    models = zip(conclusions, sentences, strict=True)
    return "; ".join(f"{model}: {text}" for model, text in models)


def points(conclusion: Conclusion, placement: Placement) -> str | None:
    """Say whose taste the points are; None where nobody is placed."""
    if placement.refusal:
        return None
    taste = placement.fit.taste if placement.fit and placement.judge_board else None
    if taste is None:
        return scope_line.describe_scope(conclusion.scope)
    return scope_line.describe_arena_scope(1.96 * taste)


def conclusion_to_row(conclusion: Conclusion, placement: Placement) -> dict[str, Any]:
    """Return a conclusion as the files have it, with its sentences."""
    effect = conclusion.effect or Effect(value=None)
    adjustment = conclusion.adjustment
    return {
        "state": conclusion.state,
        "sentence": sentence(conclusion, placement),
        "reasons": [
            {
                "name": reason.name,
                "value": reason.value,
                "words": explain_reason(reason, conclusion),
            }
            for reason in conclusion.reasons
        ],
        "rating": effect.value,
        "ci_low": effect.low,
        "ci_high": effect.high,
        "adjusted_for": [*adjustment.features] if adjustment else [],
        "raw_rating": adjustment.raw.value if adjustment and adjustment.raw else None,
        "n_prompts": conclusion.scope.n_prompts,
        "judge": conclusion.scope.judge,
        "whose": points(conclusion, placement),
        "style_distance": _make_style_row(placement, str(conclusion.subject)),
        "missing": _make_missing_row(placement, str(conclusion.subject)),
    }


def _make_style_row(placement: Placement, model: str) -> dict[str, Any] | None:
    style = placement.style.get(model)
    if style is None:
        return None
    return {
        "state": style.state,
        "distance": dict(style.distance),
        "n_answers": style.n_answers,
        "n_anchors": style.n_anchors,
    }


def _make_missing_row(placement: Placement, model: str) -> dict[str, Any] | None:
    missing = placement.missing.get(model)
    if missing is None:
        return None
    names_of_counts = ("n_battles", "n_lacks", "n_failed", "n_unjudged")
    ends = {
        f"{name}_{side}": getattr(end, name) if end else None
        for side, end in (("if_lost", missing.low), ("if_won", missing.high))
        for name in ("rating", "ci_low", "ci_high")
    }
    return {name: getattr(missing, name) for name in names_of_counts} | ends


# Reasons


def explain_reason(reason: Reason, conclusion: Conclusion) -> str:
    """Say one reason against a placement."""
    if reason.name in _REASON_TEXTS:
        return _REASON_TEXTS[reason.name](reason)
    return f"the judge is in doubt: {tournament_sentences.because(reason, conclusion)}"


def _explain_distances(reason: Reason) -> str:
    about = reason.about
    return (
        f"{_NOT_KNOWN_TO_FOLLOW}: it sees {about['s']:.2f} ± {about['s_std_error']:.2f} of their distances, "
        f"{reason.value:.1f} standard errors from 0 where more than {about['needed']:.1f} are needed"
    )


def _explain_correlation(reason: Reason) -> str:
    return (
        f"{_NOT_KNOWN_TO_FOLLOW}: it has abilities of the anchors that correlate with theirs at "
        f"{reason.value:.2f}, where more than {reason.about['needed']:.2f} is needed"
    )


def _explain_style(reason: Reason) -> str:
    feature: StyleFeature = reason.about["feature"]
    distance = reason.value or 0.0
    more, less = _MORE_AND_LESS[feature]
    return (
        f"its answers {more if distance > 0 else less} than the anchors' answers by "
        f"{format_number(abs(distance), 1)} standard deviations between anchors (limit "
        f"{reason.about['needed']:g}), and the interval does not cover a judge's taste for that"
    )


def _explain_failures(reason: Reason) -> str:
    n, n_battles = reason.value or 0.0, reason.about["of"]
    low, high = reason.about["low"], reason.about["high"]
    text = (
        f"{n:,.0f} of its {n_battles:,} battles {'has' if n == 1 else 'have'} no result"
    )
    if low is None or high is None:
        return f"{text}, without which nobody knows where it stands"
    return (
        f"{text}: it is at {format_number(low)} if it lost all of them, at {format_number(high)} if it "
        "won those of unknown result"
    )


_MORE_AND_LESS: Mapping[StyleFeature, tuple[str, str]] = {
    "length": ("are longer", "are shorter"),
    "markdown": ("have more markdown", "have less markdown"),
}
_NOT_KNOWN_TO_FOLLOW = "the judge is not known to follow the humans"
_REASON_TEXTS: dict[str, Callable[[Reason], str]] = {
    "not_calibrated": lambda _: (
        "the judge has judged no human battle again, so nothing calibrates it: give it more pairs, "
        "or take its own scale with arena.placement=raw"
    ),
    "few_anchors": lambda reason: (
        f"{reason.value:.0f} anchors, and {reason.about['needed']} are needed to calibrate the judge"
    ),
    "distances": _explain_distances,
    "correlation": _explain_correlation,
    "unrated": lambda reason: f"{reason.about['flag']} by the judge's verdicts",
    "no_kin_anchor": lambda _: "no anchor is of the judge's family",
    "wide": lambda _: "the interval says no more than that it is one of these models",
    "beyond": lambda _: "it is beyond all anchors, where nothing calibrates the judge",
    "style": _explain_style,
    "failures": _explain_failures,
    "few_prompts": lambda reason: (
        f"its verdicts are on {reason.value:.0f} prompts, fewer than {MIN_PROMPTS_FOR_COVERAGE}"
    ),
    "raw": lambda _: "this is the judge's own scale, not that of the voters",
}


# Beside it


def truth(placement: Placement, model: str) -> str | None:
    """Say the rating that simulated voters give; None where it is not known."""
    if placement.true_board is None or model not in placement.true_board.models:
        return None
    true_rating = placement.true_board.row(model).rating
    if true_rating is None:
        return None
    row = placement.board.row(model)
    truth_text = f"truly {true_rating:.0f}, known because its voters are simulated"
    if row.rating is None or row.ci_low is None or row.ci_high is None:
        return f"{model}: not placed, {truth_text}."
    location = "inside" if row.ci_low <= true_rating <= row.ci_high else "outside"
    text = f"{model}: placed {_format_short(row)}, {truth_text}: {location}."
    if placement.judge_board:
        text += f" The verdicts as they are: {_format_short(placement.judge_board.row(model))}."
    return text


def describe_judge_rating(placement: Placement, model: str) -> str | None:
    """Say where a calibrated model stands by the judge's verdicts as they are, unless the line about
    the truth has it."""
    if placement.judge_board is None or truth(placement, model):
        return None
    row = placement.judge_board.row(model)
    if row.rating is None:
        return None
    return (
        f"By the verdicts of {placement.judge_model} as they are, {model} is at "
        f"{format_with_interval(row)}."
    )


def describe_soft_rating(placement: Placement, model: str) -> str | None:
    """Say where a model stands by the judge's scores."""
    if placement.soft_board is None or model not in placement.soft_board.models:
        return None
    temperature = format_number(placement.soft_board.parameters["temperature"], 2)
    return (
        f"{model}: soft Elo {_format_short(placement.soft_board.row(model))} on the judge's scale, "
        f"temperature {temperature}."
    )


def describe_missing_results(placement: Placement, model: str) -> str | None:
    """Say where a model stands if missing answers and verdicts count against it; None if nothing is missing."""
    missing = placement.missing.get(model)
    if missing is None or placement.refusal:
        return None
    parts = {
        "without an answer": missing.n_lacks,
        "without a verdict": missing.n_unjudged,
    }
    counted = " and ".join(
        f"{format_count(n)} {kind}" for kind, n in parts.items() if n
    )
    ends = [
        format_with_interval(end) if end and end.rating is not None else "no rating"
        for end in (missing.low, missing.high)
    ]
    return (
        f"{model}: {counted} of {format_count(missing.n_battles)} battles: {ends[0]} if it lost all of "
        f"them, {ends[1]} if it won "
        "those of unknown result."
    )


def style_distance(placement: Placement, model: str) -> str | None:
    """Say how far the style of a model's answers lies from the anchors'; None if nobody is placed."""
    style = placement.style.get(model)
    if style is None or placement.refusal:
        return None
    if style.state == "not done":
        return (
            f"{model}: style distance not done, because {style.n_anchors} anchors have known answers and "
            f"{MIN_ANCHORS_WITH_STYLE} are needed."
        )
    distances = ", ".join(
        f"{name} {format_number(value, 1, sign=True)}"
        for name, value in style.distance.items()
    )
    return (
        f"{model}: style distance from the anchors {distances} standard deviations (caution beyond "
        f"{MAX_STYLE_DISTANCE:g})."
    )


def describe_human_rating(placement: Placement, model: str) -> str | None:
    """Compare the judge's placement of a model with that of humans, who judged it, too."""
    rating = placement.board.row(model).rating
    human = next((r for r in placement.human_board.ratings if r.model == model), None)
    if rating is None or human is None or human.rating is None:
        return None
    direction = "higher" if rating > human.rating else "lower"
    return (
        f"By humans alone {format_with_interval(human)}: the judge places {model} "
        f"{format_number(abs(rating - human.rating))} points {direction}."
    )


def calibration(placement: Placement) -> list[str]:
    """Compare the anchors' ratings, and the judge, with humans on the battles that both judged."""
    lines = []
    if placement.anchor_mae is not None:
        lines.append(
            f"The anchors are {format_number(placement.anchor_mae, 1)} points from where {placement.votes} "
            "votes alone put them, on average."
        )
    agreement, fit = placement.agreement, placement.fit
    if fit is None or agreement is None:
        return lines
    voters = "simulated voters" if placement.true_board else "humans"
    lines.append(
        f"On {agreement['n_comparisons']} {placement.votes} battles the judge names the {voters}' "
        f"winner in {format_percent(agreement['agreement'])} (kappa {format_number(agreement['kappa'], 2)}, "
        f"temperature {format_number(placement.temperature, 2)})."
    )
    taste = ""
    if placement.judge_board and fit.taste is not None:
        taste = (
            f", and its taste for a model is worth ± {format_number(1.96 * fit.taste)} points, which "
            "more battles do not narrow"
        )
    lines.append(
        f"The judge multiplies the {voters}' distances by {format_number(fit.s, 2)} ± "
        f"{format_number(fit.s_std_error, 2)}{taste}."
    )
    return lines


def battles(placement: Placement, quality: JudgeQuality) -> str:
    """Say what was judged, by whom, and how often the judge flipped."""
    if quality.n_two_order:
        flips = f"{quality.n_flips} of {quality.n_two_order} comparisons flipped"
    elif quality.n_one_order:
        flips = "flips not measured: one order"
    else:
        flips = "orders not compared"
    n_anchors = len(placement.board.models) - len(placement.placed_models)
    return (
        f"{placement.arena}: {format_count(len(placement.human_battles))} {placement.votes} battles of "
        f"{format_count(n_anchors)} anchors, {format_count(len(placement.judged_battles))} battles judged by "
        f"{placement.judge_model}; {flips}, {quality.n_invalid} invalid."
    )


def plan_is_assumed(arena: str) -> str:
    return (
        f"  assumed: {arena} is not here; numbers are those of the settings, lengths those of "
        "arena.assumed_chars."
    )


def describe_calibration_plan(plan: Plan, n: int) -> list[str]:
    """Say what share of a plan calibrates the judge, and what that buys.

    n  of the planned pairs, the human battles that are judged again
    """
    if not n:
        return []
    pairs, dollars = plan.rows[0].pairs, ""
    if plan.dollars:
        dollars = f" (about {format_dollars(round(plan.dollars * n / pairs, 2))})"
    return [
        f"  {format_count(n)} of the {format_count(pairs)} pairs are human battles that calibrate the judge"
        f"{dollars}. Much of the interval's",
        "  width is the judge's taste for single models, which more battles do not narrow; votes "
        "on the placed model do.",
    ]
