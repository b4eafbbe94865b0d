"""report.html: a run on one page, in the order in which a reader asks. It needs no network and no script.

A string that is not Markup is text and gets escaped, so that entrants and dimensions may have any name.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.figures import style
from elo_exp.ratings.leaderboard import CONVERGED, ROUNDING, Leaderboard, Rating
from elo_exp.records import Plot
from elo_exp.report.findings import companion, converged, verdict
from elo_exp.report.markup import (
    NONE,
    Markup,
    between,
    codes,
    document,
    join,
    listed,
    maybe,
    p_value,
    percent,
    table,
    tag,
)
from elo_exp.report.trust import trust
from elo_exp.store.usage import TOKEN_CLASSES, added_up, paid

_PNG_WIDTH = slice(16, 20)  # of the file: pixels, the largest byte first
_OWN = (
    "|on one scale",
    "possible ranks",
    "chance_of being_best",
)  # beside the rating
_MAX_ROWS = 100  # of a leaderboard; all are in ratings.json
_MAX_PAIRS = 45  # of a dimension, all pairs of ten entrants; with more, only those with the best are listed
_LEGEND = (
    "Possible ranks: those that the prompts leave open, for all entrants at once with 95 %. The ordering error is how "
    "much the mean Elo would still move with other random orders of the same matches. It says nothing of how sure a "
    "rating is: the 95 % interval does."
)


def page(
    standings: Standings,
    plots: Sequence[Plot],
    *,
    title: str,
    manifest: Mapping[str, Any],
    quality: Sequence[JudgeQuality] = (),
) -> str:
    """The whole report as one HTML file. `manifest`: what manifest.json says, its `usage` so far among it."""
    method = companion(standings) or "elo"
    sections = {
        "Who is better": _verdicts(standings, method),
        "Leaderboard": _leaderboards(standings, method),
        "Differences": _differences(standings, method),
        "Figures": (figure(plot, numbers=f"figures/{plot.name}.csv") for plot in plots),
        "Can the judge be trusted": trust(standings, quality),
        "What this run could have found": _precision(standings, method),
        "What it cost": cost(manifest.get("usage") or {}, manifest.get("paid_before")),
        "How it was made": _making(manifest),
    }
    said = "Every number, also of the methods that are not shown here, is in ratings.json beside this page."
    return document(title, _lede(standings, manifest), sections, note=said)


# What is said


def _lede(standings: Standings, manifest: Mapping[str, Any]) -> str:
    prompts, judge = manifest.get("selected_prompt_count"), manifest.get("judge_model")
    started = [when(manifest["started_at"])] if manifest.get("started_at") else []
    n_battles = sum(map(len, standings.battles.values()))
    said = f"{len(standings.models)} entrants, {n_battles:,} battles" + (
        f" on {prompts:,} prompts" if prompts else ""
    )
    return ", ".join([said, *([f"judged by {judge}"] if judge else []), *started])


def when(time: str) -> str:
    """A time of manifest.json, to the minute."""
    return f"{time[:16].replace('T', ' ')} UTC"


def _verdicts(standings: Standings, method: str) -> Iterator[Markup]:
    for dimension in standings.dimensions:
        board = _board(standings, method, dimension)
        sure, sentences = verdict(board, _pairs(standings, method, dimension))
        said = tag("p", *sentences)
        yield tag(
            "div",
            tag("h3", dimension),
            said,
            class_="verdict" if sure else "verdict open",
        )


# Tables


def _leaderboards(standings: Standings, method: str) -> Iterator[Markup]:
    span = _span(standings, method)
    is_colored = len(standings.models) <= style.MAX_COLORED
    colors = style.colors(standings.models) if is_colored else {}
    for dimension in standings.dimensions:
        board, elo = _board(standings, method, dimension), standings.primary(dimension)
        yield tag("h3", dimension)
        yield tag("p", _games(standings, dimension, board, elo), class_="note")
        if elo and elo.parameters.get("convergence", 1.0) < CONVERGED:
            share = percent(converged(elo.parameters["convergence"]))
            yield tag(
                "p",
                f"Elo has gone only {share} of its way: its gaps would still grow. Raise K.",
                class_="warn",
            )
        if board is None:
            continue
        others = {
            name: by.get(dimension)
            for name, by in standings.companions.items()
            if name != method
        }
        own = [] if method == "elo" else [board.label, _interval(board), *_OWN]
        more = [other.label if other else name for name, other in others.items()]
        sure = [f"~{_interval(elo)}"] if elo and elo.interval else []
        head = [
            "rank",
            "!entrant",
            *own,
            *more,
            "battles",
            "~Elo",
            *sure,
            "~ordering_error (Monte_Carlo)",
        ]
        rows = [
            [
                r.rank or NONE,
                _entrant(r, colors),
                *(_own_cells(r, span, colors) if own else []),
            ]
            + [_points(_of(other, r.model)) for other in others.values()]
            + [f"{r.n_battles:,}", *_elo_cells(_of(elo, r.model), is_sure=bool(sure))]
            for r in board.ratings[:_MAX_ROWS]
        ]
        yield table(f"Leaderboard of {dimension}", head, rows, wide=True)
        if len(board.ratings) > _MAX_ROWS:
            yield tag(
                "p",
                f"... and {len(board.ratings) - _MAX_ROWS} more in ratings.json.",
                class_="note",
            )
    yield tag("p", _LEGEND, class_="note")


def _interval(board: Leaderboard) -> str:
    return f"95 %_{board.interval}" if board.interval else "no interval"


def _games(
    standings: Standings,
    dimension: str,
    board: Leaderboard | None,
    elo: Leaderboard | None,
) -> str:
    battles = standings.battles[dimension]
    parts = [
        f"{len(battles):,} battles, {int((~battles.is_tie()).sum()):,} of them decisive"
    ]
    parts += [f"{board.n_clusters:,} prompts"] if board and board.n_clusters else []
    if elo:
        parts += [
            f"Elo at K = {standings.k:g}, {percent(converged(elo.parameters.get('convergence', 1.0)))} converged"
        ]
    return "; ".join(parts)


def _own_cells(
    r: Rating, span: tuple[float, float], colors: Mapping[str, str]
) -> list[str]:
    if r.rating is None:
        return [r.flag or NONE, *[NONE] * 4]
    ranks = NONE
    if r.rank_low is not None and r.rank_high is not None:
        ranks = (
            str(r.rank_low)
            if r.rank_low == r.rank_high
            else f"{r.rank_low} to {r.rank_high}"
        )
    best = (
        NONE if r.p_best is None else percent(min(max(r.p_best, 0.001), 0.999))
    )  # draws prove nothing certain
    return [
        _points(r),
        between(r.ci_low, r.ci_high),
        _strip(r, span, colors.get(r.model)),
        ranks,
        best,
    ]


def _elo_cells(r: Rating | None, *, is_sure: bool) -> list[str]:
    """Neither one pass in file order nor matches that are all alike have an ordering error to speak of."""
    interval = [between(r.ci_low, r.ci_high) if r else NONE] if is_sure else []
    return [
        _points(r),
        *interval,
        f"{r.ordering_error:.2f}"
        if r and (r.ordering_error or 0.0) > ROUNDING
        else NONE,
    ]


def _entrant(r: Rating, colors: Mapping[str, str]) -> Markup:
    dot = (
        [tag("span", class_="dot", style=f"background:{colors[r.model]}")]
        if r.model in colors
        else []
    )
    return join([*dot, tag("bdi", r.model)])


def _strip(r: Rating, span: tuple[float, float], color: str | None) -> Markup:
    """The rating and its interval as a mark on the scale that all leaderboards share."""
    low, high = span

    def place(points: float) -> float:
        return 100 * (points - low) / (high - low)

    assert r.rating is not None
    marks = [tag("b", style=f"left:{place(r.rating):.2f}%")]
    if r.ci_low is not None and r.ci_high is not None:
        width = place(r.ci_high) - place(r.ci_low)
        marks.insert(
            0, tag("i", style=f"left:{place(r.ci_low):.2f}%;width:{width:.2f}%")
        )
    return tag("span", *marks, class_="strip", style=f"color:{color}" if color else "")


def _span(standings: Standings, method: str) -> tuple[float, float]:
    boards = [
        board for d in standings.dimensions if (board := _board(standings, method, d))
    ]
    ends = [
        x
        for b in boards
        for r in b.ratings
        for x in (r.rating, r.ci_low, r.ci_high)
        if x is not None
    ]
    margin = 0.05 * (max(ends) - min(ends)) + 1.0 if ends else 1.0
    return (min(ends) - margin, max(ends) + margin) if ends else (0.0, 1.0)


def _differences(standings: Standings, method: str) -> Iterator[Markup]:
    for dimension in standings.dimensions:
        pairs = _pairs(standings, method, dimension)
        if not pairs:
            continue
        known = [d for d in pairs if d.significant is not None]
        said = f"{sum(bool(d.significant) for d in known)} of {len(pairs)} hold."
        shown = list(pairs)
        if len(pairs) > _MAX_PAIRS:
            best = standings.companions[method][dimension].ratings[0].model
            shown = [d for d in pairs if d.higher == best][:_MAX_ROWS]
            said += f" Shown are those between {best} and the others; all are in ratings.json."
        yield tag("h3", dimension)
        yield tag(
            "p",
            said if known else "The prompts do not say how sure the differences are.",
            class_="note",
        )
        head = ["!higher", "<lower", "difference", "95 %", "p, Holm", "<at 5 %"]
        rows = [
            [
                *(
                    tag("bdi", d.higher),
                    tag("bdi", d.lower),
                    f"{d.difference:.0f}",
                    between(d.ci_low, d.ci_high),
                ),
                *(NONE if d.p_holm is None else p_value(d.p_holm), _holds(d)),
            ]
            for d in shown
        ]
        yield table(f"Differences in {dimension}", head, rows)
    if standings.differences.get(method):
        said = "In rating points. p values are adjusted by Holm for all pairs and dimensions, a difference holds at 5 %; "
        yield tag("p", said + "an interval is of its pair alone.", class_="note")


def _holds(pair: Difference) -> Markup:
    if pair.significant is None:
        return tag("span", "not known", class_="no")
    return (
        tag("span", "holds", class_="yes")
        if pair.significant
        else tag("span", "open", class_="no")
    )


def figure(plot: Plot, *, numbers: str) -> Markup:
    """As wide as it was drawn; `numbers`: the file that has them."""
    caption = plot.caption or plot.name.replace("_", " ").capitalize() + "."
    data = base64.b64encode(plot.png).decode("ascii")
    width = round(
        int.from_bytes(plot.png[_PNG_WIDTH]) * 96 / style.DPI
    )  # a pixel of CSS is 1/96 of an inch
    image = f'<img alt="{escape(caption)}" width="{width}" src="data:image/png;base64,{data}">'
    source = [" Its numbers: ", tag("code", numbers), "."]
    return tag(
        "figure",
        tag("div", Markup(image), class_="scroll"),
        tag("figcaption", caption, *source),
    )


def _precision(standings: Standings, method: str) -> Iterator[Markup]:
    known = [p for p in standings.precision.get(method, ()) if p.detectable is not None]
    if not known:
        return
    effects = list(known[0].prompts_needed)
    n_tests = known[0].n_tests
    head = ["!dimension", "prompts", "finds, one pair", f"finds, all {n_tests:,}"]
    rows = [
        [
            p.dimension,
            f"{p.n_prompts or 0:,}",
            maybe(p.detectable),
            maybe(p.detectable_corrected),
        ]
        + [f"{p.prompts_needed_corrected[e]:,}" for e in effects]
        for p in known
    ]
    yield table(
        "Precision", head + [f"prompts for {effect} points" for effect in effects], rows
    )
    said = (
        "The difference, in rating points, that a test of an average pair finds four times in five: on its own, and as "
        f"one of {n_tests:,} tests, for which the prompts are counted too. "
    )
    yield tag("p", said + "From this run's own scatter between prompts.", class_="note")


def cost(
    usage: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> Iterator[Markup]:
    """`usage`, and what was paid `before`: as manifest.json has them."""
    if not (usage.get("verdicts_wanted") or usage.get("responses_wanted")):
        return
    calls, stored = usage.get("judge_calls", 0), usage.get("verdicts_stored", 0)
    made, kept = usage.get("responses_generated", 0), usage.get("responses_stored", 0)
    bill = added_up([usage, before])
    spent, earlier = paid(bill), paid(before or {})
    tokens = {
        name.removesuffix("_tokens").replace("_", " "): usage.get(name)
        for name in TOKEN_CLASSES
    }
    rows: dict[str, object] = {
        "Paid": f"${spent:,.2f}" if spent else "nothing",
        "Before": f"${earlier:,.2f} of it, by earlier attempts in the same folder"
        if earlier
        else "",
        "By dimension": ", ".join(
            f"{name} ${d:,.2f}"
            for name, d in bill.get("dollars_by_dimension", {}).items()
        ),
        "By entrant": ", ".join(
            f"{name} ${d:,.2f}"
            for name, d in bill.get("dollars_by_entrant", {}).items()
        ),
        "Responses": f"{made:,} made, {kept:,} from the store" if made or kept else "",
        "Verdicts": f"{calls:,} asked of the judge, {stored:,} from the store"
        if calls or stored
        else "",
        "Missing": f"{usage['verdicts_missing']:,} verdicts"
        if usage.get("verdicts_missing")
        else "",
        "Tokens": ", ".join(f"{n:,} {name}" for name, n in tokens.items() if n),
        "Prompt cache": usage.get("cache"),
    }
    yield listed(rows)


def _making(manifest: Mapping[str, Any]) -> Iterator[Markup]:
    elo = manifest.get("config", {}).get("elo", {})
    judging = manifest.get("config", {}).get("judging", {})
    chosen, bank = manifest.get("selected_prompt_count"), manifest.get("bank_size")
    read = {
        name: manifest.get(f"n_{name}") for name in ("battles", "filtered", "dropped")
    }
    judge = (
        [manifest["judge_model"], f"orders used: {judging.get('use')}"]
        if manifest.get("judge_model")
        else []
    )
    repeats, mode = judging.get("repeats", 1), manifest.get("mode")
    ks = [
        f"{k:g}" for k in (elo.get("k"), *(elo.get("k_sweep") or ())) if k is not None
    ]
    seeds = {
        "match orders": manifest.get("shuffle_seed"),
        "prompts": manifest.get("pilot_seed") if chosen else None,
    }
    rows: dict[str, object] = {
        "Started": when(manifest["started_at"]) if manifest.get("started_at") else "",
        "Experiment": f"{manifest.get('experiment')}{f', mode {mode}' if chosen and mode else ''}",
        "Chosen by hand": codes(manifest.get("overrides") or ())
        or "nothing: all settings as they ship",
        "Judge": "; ".join(
            [*judge, *([f"asked {repeats} times"] if judge and repeats > 1 else [])]
        ),
        "Prompts": f"{chosen:,} of the {bank:,} in the bank" if chosen and bank else "",
        "Rubrics": ", ".join(
            f"{name} {version}"
            for name, version in manifest.get("rubric_versions", {}).items()
        ),
        "Battles": ", ".join(f"{n:,} {name}" for name, n in read.items() if n).replace(
            " battles", " read"
        ),
        "Elo": f"K = {ks[0]}, {manifest.get('n_perms')} match orders" if ks else "",
        "Also at K": ", ".join(k for k in ks[1:] if k != ks[0]),
        "Seeds": ", ".join(
            f"{name} {seed}" for name, seed in seeds.items() if seed is not None
        ),
        "Commit": codes([manifest["git_commit"]] if manifest.get("git_commit") else ()),
        "Versions": ", ".join(
            f"{name} {version}"
            for name, version in manifest.get("versions", {}).items()
        ),
        "Inputs": codes(
            f"{name} sha256:{digest[:12]}"
            for name, digest in manifest.get("input_hashes", {}).items()
        ),
    }
    yield listed(rows)
    yield tag(
        "p",
        "The whole configuration is in manifest.json beside this page.",
        class_="note",
    )


# What it is made of


def _board(standings: Standings, method: str, dimension: str) -> Leaderboard | None:
    return (
        standings.primary(dimension)
        if method == "elo"
        else standings.companions[method].get(dimension)
    )


def _of(board: Leaderboard | None, model: str) -> Rating | None:
    return board.row(model) if board and model in board.models else None


def _pairs(standings: Standings, method: str, dimension: str) -> list[Difference]:
    return [
        d for d in standings.differences.get(method, ()) if d.dimension == dimension
    ]


def _points(r: Rating | None) -> str:
    return (
        NONE if r is None else r.flag or NONE if r.rating is None else f"{r.rating:.0f}"
    )
