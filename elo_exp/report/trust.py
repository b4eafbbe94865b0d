"""Whether the judge can be trusted, in tables: how it behaved, what else moves it, and whom it agrees with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from elo_exp.analysis.agreement import Agreement, RankCorrelation
from elo_exp.analysis.judge_bias import LengthEffect, LengthRating, PositionEffect
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.transitivity import Cycles, TransitivityTest
from elo_exp.report.markup import (
    NONE,
    Markup,
    between,
    maybe,
    p_value,
    percent,
    share,
    table,
    tag,
)

_ALPHA = 0.05
_MAX_ROWS = 30  # of a dimension's ratings at equal length; all are in ratings.json
_PLACE = (
    "prefers the second shown",
    "no taste for a place found",
    "prefers the first shown",
)
_LENGTH = ("prefers the shorter", "no taste for length found", "prefers the longer")
_OF_BEHAVIOUR = (
    "A judge that looks only at the answers never flips, and lets the first shown win as often as the second. Ties are "
    "of single verdicts, before the two orders are reconciled. Of two equal answers, which are one query, none counts."
)
_OF_PLACE = (
    "How often the first shown would win if both were equally good, ties left out; 95 % over prompts. From pairs that "
    "were asked in both orders, where a taste for a place blurs the ratings and favours nobody."
)
_OF_LENGTH = (
    "How often the longer of two equally good responses would win, a tie being half a win, where they are so many "
    "characters apart: the root mean square difference of two responses."
)
_OF_EQUAL_LENGTH = (
    "Bradley-Terry of the same games, as it is and as it would be if all responses were equally long. Where better "
    "entrants also write more, nobody can tell a taste for length from one for quality."
)
_OF_ORDER = (
    "Whether the wins of all pairs follow from one rating each; χ² over prompts. A small p says that some do not: win "
    "rates then say more of these pairs than ratings. A circle: on one prompt a beats b, b beats c, and c beats a."
)
_OF_KAPPA = (
    "Kappa is 1 where both always name the same winner and 0 where they agree as often as chance would; 95 % over "
    "prompts. "
)
_OF_DIMENSIONS = (
    _OF_KAPPA + "Dimensions that agree on everything ask the same question twice."
)
_OF_JUDGES = _OF_KAPPA + (
    "The rank correlation (Spearman) is of the ratings by what both have judged: judges who differ on many a pair may "
    "still put the entrants in the same order."
)


def trust(standings: Standings, quality: Sequence[JudgeQuality]) -> Iterator[Markup]:
    """All that is known of the judge; a table of which nothing is known is left out."""
    found = standings.diagnoses.values()
    lengths = [d["length"] for d in found if "length" in d]
    tests = [TransitivityTest.from_dict(d["transitivity"]) for d in found]
    yield from _behaviour(quality)
    yield from _position([PositionEffect.from_dict(d["position"]) for d in found])
    yield from _length([LengthEffect.from_dict(length["effect"]) for length in lengths])
    yield from _length_ratings(
        [LengthRating.from_dict(row) for length in lengths for row in length["ratings"]]
    )
    yield from _order(tests, [Cycles.from_dict(d["cycles"]) for d in found])
    yield from _repeats(
        [Agreement.from_dict(d["repeats"]) for d in found if "repeats" in d]
    )
    yield from _dimensions(standings.agreement)
    yield from _judges([*standings.judges_agreement, *standings.judges_ranks])


def _behaviour(quality: Sequence[JudgeQuality]) -> Iterator[Markup]:
    if not quality:
        return
    head = [
        "!dimension",
        "judgments",
        "flips when the order is swapped",
        "first shown wins",
        "ties",
        "invalid",
    ]
    rows = [
        [
            q.dimension,
            f"{q.n_judgments:,}",
            share(q.n_flips, q.n_two_order),
            share(q.n_first_shown_wins, q.n_decisive_verdicts),
            _percent(q.tie_rate),
            _invalid(q),
        ]
        for q in quality
    ]
    yield table("Judge", head, rows)
    yield tag("p", _OF_BEHAVIOUR, class_="note")


def _invalid(q: JudgeQuality) -> str:
    kinds = {"refused": q.n_refused, "cut off": q.n_cut_off}
    named = ", ".join(f"{n:,} {kind}" for kind, n in kinds.items() if n)
    return f"{q.n_invalid:,}{f' ({named})' if named else ''}"


def _position(effects: Sequence[PositionEffect]) -> Iterator[Markup]:
    known = [e for e in effects if e.p_first is not None]
    if not known:
        return
    yield tag("h3", "Does the place matter?")
    head = [
        "!dimension",
        "verdicts with a winner",
        "first shown wins, of equals",
        "95 %",
        "<reading",
    ]
    rows = [
        [
            *(
                e.dimension,
                f"{e.n_decisive:,}",
                _tenths(e.p_first),
                _percents(e.ci_low, e.ci_high),
            ),
            _taste(e.ci_low, e.ci_high, _PLACE),
        ]
        for e in known
    ]
    yield table("Place", head, rows)
    yield tag("p", _OF_PLACE, class_="note")


def _length(effects: Sequence[LengthEffect]) -> Iterator[Markup]:
    known = [e for e in effects if e.effect is not None]
    if not known:
        return
    yield tag("h3", "Does length matter?")
    head = [
        "!dimension",
        "characters apart",
        "longer wins, of equals",
        "95 %",
        "<reading",
    ]
    rows = []
    for e in known:
        wins, low, high = map(_longer_wins, (e.effect, e.ci_low, e.ci_high))
        rows.append(
            [
                e.dimension,
                maybe(e.scale),
                _tenths(wins),
                _percents(low, high),
                _taste(low, high, _LENGTH),
            ]
        )
    yield table("Length", head, rows)
    yield tag("p", _OF_LENGTH, class_="note")


def _longer_wins(effect: float | None) -> float | None:
    """Where lengths differ by the scale, so that the column is tanh(1)."""
    return None if effect is None else (1 + math.tanh(effect * math.tanh(1) / 2)) / 2


def _length_ratings(ratings: Sequence[LengthRating]) -> Iterator[Markup]:
    known = [
        r
        for r in ratings
        if r.rating is not None and r.rating_at_equal_length is not None
    ]
    if not known:
        return
    head = [
        "!entrant",
        "<dimension",
        "characters",
        "rating",
        "at equal length",
        "change",
    ]
    rows = [
        [
            *(tag("bdi", r.model), r.dimension, maybe(r.mean_length)),
            *(maybe(r.rating), maybe(r.rating_at_equal_length), _change(r)),
        ]
        for dimension in dict.fromkeys(r.dimension for r in known)
        for r in [r for r in known if r.dimension == dimension][:_MAX_ROWS]
    ]
    yield table("Ratings at equal length", head, rows)
    yield tag("p", _OF_EQUAL_LENGTH, class_="note")


def _change(r: LengthRating) -> str:
    change = (r.rating_at_equal_length or 0.0) - (r.rating or 0.0)
    return f"{change:+.0f}".replace("-", "−")


def _order(
    tests: Sequence[TransitivityTest], circles: Sequence[Cycles]
) -> Iterator[Markup]:
    shown = [
        (t, c) for t, c in zip(tests, circles, strict=True) if t.df > 0 or c.n_triples
    ]
    if not shown:
        return
    yield tag("h3", "Does one ranking say it all?")
    head = [
        "!dimension",
        "entrants",
        "χ²",
        "degrees of freedom",
        "p",
        "prompts with a circle",
        "<reading",
    ]
    rows = [
        [
            *(t.dimension, t.n_models, maybe(t.chi_square, 1), t.df),
            *(
                NONE if t.p_value is None else p_value(t.p_value),
                share(c.n_cyclic_prompts, c.n_prompts),
                _fits(t),
            ),
        ]
        for t, c in shown
    ]
    yield table("Transitivity", head, rows)
    yield tag("p", _OF_ORDER, class_="note")


def _fits(test: TransitivityTest) -> Markup | str:
    if test.p_value is None:
        return "too few prompts to test" if test.n_prompts <= test.df else NONE
    return (
        _no("some pairs do not fit")
        if test.p_value <= _ALPHA
        else "no pair stands apart"
    )


def _repeats(repeats: Sequence[Agreement]) -> Iterator[Markup]:
    known = [r for r in repeats if r.n_comparisons]
    if not known:
        return
    yield tag("h3", "Asked again, does it say the same?")
    head = ["!dimension", "asked again", "same verdict", "kappa", "95 %"]
    yield table("Repeats", head, [[r.dimension or NONE, *_kappa(r)] for r in known])
    yield tag("p", _OF_KAPPA, class_="note")


def _dimensions(agreement: Sequence[Agreement]) -> Iterator[Markup]:
    known = [a for a in agreement if a.n_comparisons]
    if not known:
        return
    yield tag("h3", "Do the dimensions say the same?")
    head = ["!dimension", "<and", "pairs on a prompt", "same winner", "kappa", "95 %"]
    yield table("Dimensions", head, [[a.first, a.second, *_kappa(a)] for a in known])
    yield tag("p", _OF_DIMENSIONS, class_="note")


def _judges(agreement: Sequence[Agreement | RankCorrelation]) -> Iterator[Markup]:
    """Every two judges: their verdicts on the same pairs and prompts, and the order in which they put the entrants."""
    verdicts = [a for a in agreement if isinstance(a, Agreement)]
    orders = {
        (a.first, a.second, a.dimension): a
        for a in agreement
        if isinstance(a, RankCorrelation)
    }
    if not verdicts:
        return
    yield tag("h3", "Judge against judge")
    head = [
        "!judge",
        "<and",
        "<dimension",
        "pairs on a prompt",
        "same winner",
        "kappa",
        "95 %",
        "rank correlation",
    ]
    rows = [
        [
            a.first,
            a.second,
            a.dimension or NONE,
            *_kappa(a),
            _rho(orders.get((a.first, a.second, a.dimension or ""))),
        ]
        for a in verdicts
    ]
    yield table("Judge against judge", head, rows)
    yield tag("p", _OF_JUDGES, class_="note")


def _rho(correlation: RankCorrelation | None) -> str:
    if correlation is None or correlation.rho is None:
        return NONE
    return f"{maybe(correlation.rho, 2)} ({correlation.n_models:,} entrants)"


def _kappa(a: Agreement) -> list[str]:
    return [
        f"{a.n_comparisons:,}",
        _percent(a.agreement),
        maybe(a.kappa, 2),
        between(a.ci_low, a.ci_high, 2),
    ]


def _percent(probability: float | None) -> str:
    return NONE if probability is None else percent(probability)


def _tenths(probability: float | None) -> str:
    return (
        NONE if probability is None else f"{100 * probability:.1f}\N{NO-BREAK SPACE}%"
    )


def _percents(low: float | None, high: float | None) -> str:
    return (
        NONE
        if low is None or high is None
        else f"{between(100 * low, 100 * high, 1)}\N{NO-BREAK SPACE}%"
    )


def _taste(
    low: float | None, high: float | None, words: tuple[str, str, str]
) -> Markup | str:
    """Whether the interval of a probability lies below, around or above one half."""
    below, around, above = words
    if low is None or high is None:
        return NONE
    return _no(below) if high < 0.5 else _no(above) if low > 0.5 else around


def _no(said: str) -> Markup:
    return tag("span", said, class_="no")
