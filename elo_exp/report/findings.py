"""Who is better, in plain words, and whether the prompts tell."""

from __future__ import annotations

from collections.abc import Sequence

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.standings import Standings
from elo_exp.ratings.leaderboard import CONVERGED, Leaderboard, Rating
from elo_exp.report.markup import between, p_value, percent, tag

METHODS = {
    "bradley_terry": "Bradley-Terry",
    "davidson": "Davidson",
    "rao_kupper": "Rao-Kupper",
    "elo": "Elo",
}
_MAX_NAMES = 4  # in a sentence
_FLAGS = {
    "unbeaten": "no finite rating, and perhaps better than all that have one",
    "winless": "no finite rating, below all that have one",
    "disconnected": "no chain of wins leads to the others and back",
    "separated": "the ties leave its rating open",
}


def companion(standings: Standings) -> str | None:
    """The method that is shown beside Elo: Bradley-Terry, or the first of those chosen instead."""
    return next(
        (
            name
            for name in ("bradley_terry", *standings.companions)
            if name in standings.companions
        ),
        None,
    )


def verdict(
    board: Leaderboard | None, pairs: Sequence[Difference]
) -> tuple[bool, list[str]]:
    """Whether the best entrant is known, and in plain words who it is."""
    ratings = board.ratings if board else ()
    rated = [r for r in ratings if r.rating is not None]
    without = [f" {sentence}" for sentence in unrated(board)]
    if len(rated) < 2:
        alone = (
            f"Only {rated[0].model} has a rating, and none to be compared with."
            if rated
            else "Nobody can be rated."
        )
        return False, [alone, *without]
    first, second = rated[:2]
    if first.rank == second.rank:
        return False, [*_level(rated, pairs), *without]
    name, gap = tag("b", first.model), (first.rating or 0.0) - (second.rating or 0.0)
    points = f"{gap:.0f} points" if gap > 0.5 else "less than a point"
    ahead = [f"{points} ahead of ", tag("b", second.model)]
    others = {d.lower: d for d in pairs if d.higher == first.model}
    against = others.get(second.model)
    if against is None or against.p_holm is None:
        return False, [
            name,
            " is ",
            *ahead,
            "; how sure that is, the prompts do not say.",
            *without,
        ]
    share = percent(1 / (1 + 10 ** (-gap / 400)))
    ahead.append(
        f" ({_evidence(against, against.p_holm)}), which means winning {share} of the battles between them, "
    )
    ahead.append("a tie being half a win.")
    may_be_above = any(r.rating is None and r.flag != "winless" for r in ratings)
    best = "the best of those that can be rated" if may_be_above else "the best"
    if level := [d.lower for d in others.values() if not d.significant]:
        doubt = f" {first.model} may be no better than {names(level)}."
        said = tag("b", f"The prompts do not tell who is {best}.")
        return False, [said, " ", name, " is ", *ahead, doubt, *without]
    return best == "the best", [name, f" is {best}: ", *ahead, *without]


def _level(rated: Sequence[Rating], pairs: Sequence[Difference]) -> list[str]:
    """Of the two or more that are equal at the top: who, how far apart two may be, and who else may be as good."""
    best = [r.model for r in rated if r.rank == rated[0].rank]
    who = tag("b", " and ".join(best) if len(best) == 2 else names(best))
    known = [d for d in pairs if d.higher in best and d.p_holm is not None]
    if not known:
        return [who, " are level; how sure that is, the prompts do not say."]
    sure = [
        f" ({_evidence(d, d.p_holm)})"
        for d in known
        if {d.higher, d.lower} == set(best) and d.p_holm is not None
    ]
    others = [
        d.lower
        for d in known
        if d.higher == best[0] and d.lower not in best and not d.significant
    ]
    doubt = [f" {best[0]} may be no better than {names(others)}."] if others else []
    return [who, " are level", *sure, ".", *doubt]


def unrated(board: Leaderboard | None) -> list[str]:
    """Who has no rating, a sentence for each reason; and whose rating has no error because it rests on one prompt."""
    if board is None:
        return []
    by_flag = {
        flag: [r.model for r in board.ratings if r.rating is None and r.flag == flag]
        for flag in _FLAGS
    }
    said = [
        f"Not rated: {names(models)} ({flag}: {_FLAGS[flag]})."
        for flag, models in by_flag.items()
        if models
    ]
    alone = [
        r.model for r in board.ratings if r.n_prompts == 1 and board.n_clusters != 1
    ]
    if alone:
        said.append(
            f"Rated on one prompt alone, which cannot tell how sure that is: {names(alone)}."
        )
    return said


def converged(share: float) -> float:
    """The share of its way that Elo has gone, to be said in whole percent: too little is not rounded to enough."""
    return min(share, CONVERGED - 0.01) if share < CONVERGED else share


def how_far(share: float) -> str:
    """The same in words, with what to do where it is too little."""
    return f"{100 * converged(share):.0f} % converged" + (
        " (below 95 %: raise K)" if share < CONVERGED else ""
    )


def names(models: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(models) - _MAX_NAMES
    return ", ".join(models[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _evidence(pair: Difference, p_holm: float) -> str:
    p = p_value(p_holm)
    return f"95 %: {between(pair.ci_low, pair.ci_high)}; p {p if p[0] == '<' else f'= {p}'} after Holm"
