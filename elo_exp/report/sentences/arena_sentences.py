"""The sentences about models placed among human battles: on the page, on the console, in files and trackers."""

from collections.abc import Callable, Mapping, Sequence
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
    join_names,
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
    """Return "1031 (95% interval 965 to 1097)", or the rating alone."""
    if row.ci_low is None or row.ci_high is None:
        return format_number(row.rating)
    return f"{format_number(row.rating)} (95% interval {format_interval(row.ci_low, row.ci_high)})"


def _format_short(row: Rating) -> str:
    return f"{format_number(row.rating)} ({format_interval(row.ci_low, row.ci_high)})"


def describe_position(board: Leaderboard, model: str, *, is_short: bool = False) -> str:
    """Return the rating of a model and its rank, or why it has none.

    is_short  the rank alone
    """
    row = board.row(model)
    if row.rating is None:
        return f"{model} has no rating: {_REASON_BY_FLAG.get(row.flag or '', row.flag)}"
    low, high = row.rank_low or row.rank, row.rank_high or row.rank
    ranks = f"{low}" if high == low else f"{low} to {high}"
    n_rated = sum(rating.rating is not None for rating in board.ratings)
    rank = f"rank {ranks} of {n_rated}"
    if is_short:
        return f"{model} has {rank}"
    return f"{model} is rated {format_with_interval(row)}, {rank}"


def sentence(
    conclusion: Conclusion, placement: Placement, *, is_short: bool = False
) -> str:
    """Say where a model stands, with the weightiest reason against it, or why it is not placed.

    is_short  ranks and reasons without their figures
    """
    model = str(conclusion.subject)
    if conclusion.state == "refused":
        return _refuse([model], conclusion, is_short=is_short)
    text = describe_position(placement.board, model, is_short=is_short)
    is_controlled = conclusion.adjustment and conclusion.state != "unrated"
    if conclusion.adjustment and is_controlled:
        condition = tournament_sentences.describe_control(
            conclusion.adjustment.features
        )
        text = f"{condition[:1].upper()}{condition[1:]}, {text}"
    if conclusion.state == "caution":
        reason = explain_reason(conclusion.reasons[0], conclusion)
        text += f", but {_shorten(reason) if is_short else reason}"
    if is_controlled and not is_short:
        text += _describe_uncontrolled(model, placement)
    return text


def _refuse(models: Sequence[str], conclusion: Conclusion, *, is_short: bool) -> str:
    reason = explain_reason(conclusion.reasons[0], conclusion)
    text = _shorten(reason) if is_short else reason
    return f"{join_names(models)} cannot be placed: {text}"


def _shorten(reason: str) -> str:
    """Return the first sentence of a reason."""
    return reason.partition(". ")[0]


def _describe_uncontrolled(model: str, placement: Placement) -> str:
    """Return a sentence with the rating without the control for style."""
    board = placement.uncontrolled_board
    if board is None or board.row(model).rating is None:
        return ""
    return f". Without this control, its rating is {_format_short(board.row(model))}"


def list_further_reasons(conclusion: Conclusion, placement: Placement) -> list[str]:
    """Return the reasons that the sentence leaves out."""
    main_sentence = sentence(conclusion, placement)
    reasons = [explain_reason(reason, conclusion) for reason in conclusion.reasons]
    return [text for text in reasons if text not in main_sentence]


def headline(
    placement: Placement, conclusions: Mapping[str, Conclusion], *, is_short: bool
) -> str:
    """Say where each placed model stands, or why none does.

    is_short  ranks and reasons without their figures
    """
    if placement.refusal:
        (conclusion, *_) = conclusions.values()
        return _refuse([*conclusions], conclusion, is_short=is_short)
    sentences = [
        sentence(conclusion, placement, is_short=is_short)
        for conclusion in conclusions.values()
    ]
    return ". ".join(sentences)


def points(conclusion: Conclusion, placement: Placement) -> str | None:
    """Return what the ratings measure; None if no model is placed."""
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
    """Say one reason against a placement: a clause, and perhaps further sentences."""
    if reason.name in _REASON_TEXTS:
        return _REASON_TEXTS[reason.name](reason)
    doubt = tournament_sentences.because(reason, conclusion)
    return f"a check raises a doubt about the judge: {doubt}"


def _explain_distances(reason: Reason) -> str:
    about = reason.about
    return (
        f"{_NOT_SHOWN_TO_FOLLOW}. Its verdicts show {about['s']:.2f} ± {about['s_std_error']:.2f} times the distances "
        f"between models that the votes show. This is {reason.value:.1f} standard errors from 0, and more than "
        f"{about['needed']:.1f} are needed"
    )


def _explain_correlation(reason: Reason) -> str:
    return (
        f"{_NOT_SHOWN_TO_FOLLOW}. For the anchors, abilities by the judge and abilities by the votes correlate at "
        f"{reason.value:.2f}, and more than {reason.about['needed']:.2f} is needed"
    )


def _explain_style(reason: Reason) -> str:
    feature: StyleFeature = reason.about["feature"]
    distance = reason.value or 0.0
    verb, adjectives = _VERB_AND_ADJECTIVES[feature]
    adjective = adjectives[distance <= 0]
    preferred = (
        f"{adjective} answers" if feature == "length" else f"{adjective} markdown"
    )
    object_ = adjective if feature == "length" else f"{adjective} markdown"
    return (
        f"its answers {verb} {object_} than the anchors' answers, by {format_number(abs(distance), 1)} standard "
        f"deviations (limit {reason.about['needed']:g}). The interval does not cover a judge's preference for {preferred}"
    )


def _explain_failures(reason: Reason) -> str:
    n, n_battles = reason.value or 0.0, reason.about["of"]
    low, high = reason.about["low"], reason.about["high"]
    text = (
        f"{n:,.0f} of its {n_battles:,} battles {'has' if n == 1 else 'have'} no result"
    )
    if low is None or high is None:
        return f"{text}, and without them its position is unknown"
    return (
        f"{text}. Its rating is {format_number(low)} if it lost all of them, and {format_number(high)} if it won "
        "the battles with an unknown result"
    )


_VERB_AND_ADJECTIVES: Mapping[StyleFeature, tuple[str, tuple[str, str]]] = {
    "length": ("are", ("longer", "shorter")),
    "markdown": ("have", ("more", "less")),
}
_NOT_SHOWN_TO_FOLLOW = "the judge has not been shown to follow people's votes"
_REASON_BY_FLAG = {
    "unbeaten": "it lost no battle",
    "winless": "it won no battle",
    "disconnected": "no chain of battles links it to the anchors and back",
    "separated": "ties leave its rating open",
}
_REASON_TEXTS: dict[str, Callable[[Reason], str]] = {
    "not_calibrated": lambda _: (
        "the judge repeated no human battle, so it is not calibrated. Let it judge more battles, or set "
        "arena.placement=raw for a rating on the judge's own scale"
    ),
    "few_anchors": lambda reason: (
        f"there are {reason.value:.0f} anchors, and {reason.about['needed']} are needed to calibrate the judge"
    ),
    "distances": _explain_distances,
    "correlation": _explain_correlation,
    "unrated": lambda reason: (
        f"by the judge's verdicts, {_REASON_BY_FLAG.get(reason.about['flag'], reason.about['flag'])}"
    ),
    "no_kin_anchor": lambda _: "no anchor is from the judge's model family",
    "wide": lambda _: (
        "the interval is too wide to say more than that it is one of these models"
    ),
    "beyond": lambda _: (
        "its rating is beyond all anchors, where nothing calibrates the judge"
    ),
    "style": _explain_style,
    "failures": _explain_failures,
    "few_prompts": lambda reason: (
        f"there are verdicts on only {reason.value:.0f} prompts, and {MIN_PROMPTS_FOR_COVERAGE} are needed for a "
        "reliable interval"
    ),
    "raw": lambda _: (
        "this rating is on the judge's own scale, not on the voters' scale"
    ),
}


# Further sentences about a placed model


def truth(placement: Placement, model: str) -> str | None:
    """Return the true rating by simulated voters; None if it is not known."""
    if placement.true_board is None or model not in placement.true_board.models:
        return None
    true_rating = placement.true_board.row(model).rating
    if true_rating is None:
        return None
    row = placement.board.row(model)
    text = f"The true rating of {model} is {true_rating:.0f} (known because the voters are simulated)"
    if row.rating is None or row.ci_low is None or row.ci_high is None:
        return f"{text}, but it is not placed."
    location = "inside" if row.ci_low <= true_rating <= row.ci_high else "outside"
    text += (
        f". It is {location} the interval {format_interval(row.ci_low, row.ci_high)}."
    )
    if placement.judge_board:
        judge_row = placement.judge_board.row(model)
        text += f" On the judge's own scale, the rating is {_format_short(judge_row)}."
    return text


def describe_judge_rating(placement: Placement, model: str) -> str | None:
    """Return the rating of a calibrated model on the judge's own scale, unless the line about the truth has it."""
    if placement.judge_board is None or truth(placement, model):
        return None
    row = placement.judge_board.row(model)
    if row.rating is None:
        return None
    return f"On the judge's own scale, {model} is rated {format_with_interval(row)}."


def describe_soft_rating(placement: Placement, model: str) -> str | None:
    """Return the rating of a model by the judge's scores."""
    if placement.soft_board is None or model not in placement.soft_board.models:
        return None
    temperature = format_number(placement.soft_board.parameters["temperature"], 2)
    return (
        f"By the judge's scores, {model} has a soft Elo rating of {_format_short(placement.soft_board.row(model))} on "
        f"the judge's own scale (temperature {temperature})."
    )


def describe_missing_results(placement: Placement, model: str) -> str | None:
    """Return the ratings if missing answers and verdicts count against a model or for it; None if nothing is missing."""
    missing = placement.missing.get(model)
    if missing is None or placement.refusal:
        return None
    parts = {"answer": missing.n_lacks, "valid verdict": missing.n_unjudged}
    counted = " and ".join(
        f"{format_count(n)} {'has' if n == 1 else 'have'} no {kind}"
        for kind, n in parts.items()
        if n
    )
    ends = [
        f"rated {format_with_interval(end)}"
        if end and end.rating is not None
        else "without a rating"
        for end in (missing.low, missing.high)
    ]
    return (
        f"{model}: of {format_count(missing.n_battles)} battles, {counted}. If it lost all of these, it is {ends[0]}. "
        f"If it won those with an unknown result, it is {ends[1]}."
    )


def style_distance(placement: Placement, model: str) -> str | None:
    """Return how far the style of a model's answers is from the anchors' styles; None if no model is placed."""
    style = placement.style.get(model)
    if style is None or placement.refusal:
        return None
    if style.state == "not done":
        return (
            f"{model}: style distance not measured. It needs {MIN_ANCHORS_WITH_STYLE} anchors with known answers and "
            f"has {style.n_anchors}."
        )
    distances = ", ".join(
        f"{name} {format_number(value, 1, sign=True)}"
        for name, value in style.distance.items()
    )
    return (
        f"{model}: style distance from the anchors in standard deviations: {distances} (caution beyond "
        f"{MAX_STYLE_DISTANCE:g})."
    )


def describe_human_rating(placement: Placement, model: str) -> str | None:
    """Compare the judge's placement of a model with its rating by human votes, if it has votes."""
    rating = placement.board.row(model).rating
    human = next((r for r in placement.human_board.ratings if r.model == model), None)
    if rating is None or human is None or human.rating is None:
        return None
    direction = "higher" if rating > human.rating else "lower"
    return (
        f"By human votes alone, {model} is rated {format_with_interval(human)}. The judge places it "
        f"{format_number(abs(rating - human.rating))} points {direction}."
    )


def calibration(placement: Placement) -> list[str]:
    """Compare the anchors' ratings, and the judge, with humans on the battles that both judged."""
    lines = []
    if placement.anchor_mae is not None:
        lines.append(
            f"On average, the anchors are {format_number(placement.anchor_mae, 1)} points from their ratings by "
            f"{placement.votes} votes alone."
        )
    agreement, fit = placement.agreement, placement.fit
    if fit is None or agreement is None:
        return lines
    voters = "simulated voters" if placement.true_board else "humans"
    lines.append(
        f"On {agreement['n_comparisons']} {placement.votes} battles, the judge chose the {voters}' winner in "
        f"{format_percent(agreement['agreement'])} (kappa {format_number(agreement['kappa'], 2)}, "
        f"temperature {format_number(placement.temperature, 2)})."
    )
    lines.append(
        f"The judge multiplies the {voters}' distances between models by "
        f"{format_number(fit.s, 2)} ± {format_number(fit.s_std_error, 2)}."
    )
    if placement.judge_board and fit.taste is not None:
        lines.append(
            f"Its preference for a single model is worth ± {format_number(1.96 * fit.taste)} points, and more battles "
            "do not reduce it."
        )
    return lines


def battles(placement: Placement, quality: JudgeQuality) -> str:
    """Return the numbers of battles, and how often the order of the answers changed a verdict."""
    if quality.n_two_order:
        flips = f"Order changes the verdict in {quality.n_flips} of {quality.n_two_order} comparisons"
    elif quality.n_one_order:
        flips = "Order inconsistency was not measured, because each pair was judged in one order"
    else:
        flips = "Order inconsistency was not measured"
    n_anchors = len(placement.board.models) - len(placement.placed_models)
    return (
        f"{placement.arena}: {format_count(len(placement.human_battles))} {placement.votes} battles between "
        f"{format_count(n_anchors)} anchors, {format_count(len(placement.judged_battles))} battles judged by "
        f"{placement.judge_model}. {flips}. Invalid verdicts: {quality.n_invalid}."
    )


# Plans and warnings


def plan_is_assumed(arena: str) -> str:
    return (
        f"  The votes of {arena} are not on this machine. The plan takes the numbers of battles from the settings\n"
        "  and the lengths of texts from arena.assumed_chars."
    )


def describe_calibration_plan(plan: Plan, n: int) -> list[str]:
    """Say what share of a plan calibrates the judge, and what narrows the interval.

    n  of the planned pairs, the human battles that are judged again
    """
    if not n:
        return []
    pairs, dollars = plan.rows[0].pairs, ""
    if plan.dollars:
        dollars = f" (about {format_dollars(round(plan.dollars * n / pairs, 2))})"
    return [
        f"  {format_count(n)} of the {format_count(pairs)} comparisons repeat human battles, to calibrate the judge"
        f"{dollars}.",
        "  Much of the interval's width is the judge's preference for single models. More battles do not",
        "  reduce it. Votes on the placed model do.",
    ]


def warn_of_no_calibration(limit: int, n_wanted: int, models: Sequence[str]) -> str:
    """Warn that a limit leaves no battle to calibrate the judge.

    Parameters
    ----------
    limit
        `judging.limit_pairs`.
    n_wanted
        Battles that the models enter without the limit.
    models
        The models to place.
    """
    return (
        f"judging.limit_pairs={limit} leaves no human battle to calibrate the judge, so the run cannot place "
        f"{join_names(models)}.\n  Set a limit above {n_wanted}, lower arena.n_battles, or set arena.placement=raw."
    )
