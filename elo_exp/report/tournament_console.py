"""The end of a tournament, and of rated battles, on the console: at most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report.checks import FIRST_SHOWN, MAX_FLIPS, MAX_INVALID, Check
from elo_exp.report.findings import Finding
from elo_exp.report.formats import names, number, p_value, percent, percent_reached
from elo_exp.report.tournament_page import Dimension, describe

_COLUMNS = 100
_NAME = 18, 34  # characters of a name, at least and at most
_PLOT = 34  # characters of the scale of intervals
_MAX_ROWS = 12  # entrants of a dimension: of more, the first ten and the last
_MAX_WARNINGS = 4
_MAX_JUDGES = 6  # pairs of judges
_MAX_ON_A_LINE = 4  # entrants by a further method
_CLAIMS = {  # by the case of a finding
    "unrated": "no ranking; fewer than two entrants are linked by wins and losses",
    "few_prompts": "too few prompts to rank; {leader} is ahead by about {gap}",
    "level": "{leader} is level with {others}",
    "unknown": "{leader} is ahead by about {gap}; its error cannot be estimated",
    "invalid": "no clear winner; invalid verdicts may explain that {leader} is ahead by {gap}",
    "undecided": "no clear winner; {leader} is ahead of {second} by about {gap}",
    "open": "{leader} leads by about {gap}; some that cannot be compared may be better",
    "caution": "the judge prefers {leader} by about {gap}",
    "supported": "{leader} leads by about {gap}",
}
_FAILED = {
    "flips": f"verdicts flip with the order (accepted: at most {MAX_FLIPS:.0%})",
    "first_shown": f"the first-shown answer wins (accepted: {FIRST_SHOWN[0]:.0%} to {FIRST_SHOWN[1]:.0%})",
    "length": "the lead halves at equal length; the longer answer wins",
    "invalid_by_entrant": "invalid verdicts fall on one entrant; largest share",
    "responses": "one answer to many prompts (accepted: at most 10%)",
    "invalid": f"verdicts are invalid (accepted: at most {MAX_INVALID:.0%})",
}


def text(standings: Standings, quality: Sequence[JudgeQuality] = ()) -> str:
    """Return the leaderboards, the judge's quality and the order experiment."""
    dimensions = describe(standings, quality)
    lines = ["", *_boards(dimensions), "", *_quality(dimensions)]
    lines += [_labelled("agreement", line) for line in _agreement(standings)]
    lines += _other_methods(dimensions)
    lines += _order_experiment(dimensions, standings.k)
    wrapped = "\n".join(part for line in lines for part in _wrapped(line))
    return wrapped.replace("\N{NO-BREAK SPACE}", " ")


def _wrapped(line: str) -> list[str]:
    if len(line) <= _COLUMNS:
        return [line.rstrip()]
    return textwrap.wrap(
        line, _COLUMNS, subsequent_indent=" " * 14, replace_whitespace=False
    )


def _labelled(label: str, line: str) -> str:
    return f"{label:<14}{line}"


# Leaderboards


def _boards(dimensions: Sequence[Dimension]) -> Iterator[str]:
    boards = [d.board for d in dimensions if d.board]
    groups = [rows for d in dimensions for rows in d.groups]
    ratings = [r for rows in groups for r in rows if r.rating is not None]
    ends = [
        end
        for r in ratings
        for end in (r.rating, r.ci_low, r.ci_high)
        if end is not None
    ]
    least, most = _NAME
    width = max([least, *(min(most, len(r.model) + 1) for r in ratings)])
    if boards:
        of_intervals = f", {boards[0].interval}" if boards[0].interval else ""
        title = f"{boards[0].label}{of_intervals}"
        yield f"  rank  {'entrant':<{width}}{'rating':>6}  {'95 % CI':>14}  {title}"
    for dimension in dimensions:
        of_prompts = (
            "" if dimension.n_prompts is None else f", {dimension.n_prompts} prompts"
        )
        yield f"{dimension.name}{of_prompts}: {_claim(dimension.finding)}"
        for i, rows in enumerate(dimension.groups):
            if i:
                yield "        a separate group, not comparable with those above:"
            for row in _shown(rows):
                yield (
                    "   ..." if row is None else _row(row, width, min(ends), max(ends))
                )
        yield from (f"        {sentence}" for sentence in dimension.finding.unrated)


def _shown(rows: Sequence[Rating]) -> list[Rating | None]:
    rated = [row for row in rows if row.rating is not None]
    if len(rated) <= _MAX_ROWS:
        return list(rated)
    return [*rated[: _MAX_ROWS - 2], None, rated[-1]]


def _row(rating: Rating, width: int, low: float, high: float) -> str:
    rank = str(rating.rank_low or rating.rank)
    if rating.rank_high not in (None, rating.rank_low):
        rank = f"{rating.rank_low}-{rating.rank_high}"
    interval = ""
    if rating.ci_low is not None and rating.ci_high is not None:
        interval = f"[{number(rating.ci_low)}, {number(rating.ci_high)}]"
    name = rating.model
    if len(name) >= width:
        name = f"{name[: width // 2]}…{name[len(name) - width // 2 + 3 :]}"
    return (
        f"{rank:>6}  {name:<{width}}{number(rating.rating):>6}  {interval:>14}  "
        f"{_plot(rating, low, high)}"
    )


def _plot(rating: Rating, low: float, high: float) -> str:
    """The rating as a dot on its interval, on the scale from low to high."""

    def place(value: float | None) -> int:
        assert value is not None
        return round((value - low) / max(high - low, 1e-9) * (_PLOT - 1))

    cells = [" "] * _PLOT
    if rating.ci_low is not None and rating.ci_high is not None:
        for cell in range(place(rating.ci_low), place(rating.ci_high) + 1):
            cells[cell] = "─"
    cells[place(rating.rating)] = "●"
    return "".join(cells).rstrip()


def _claim(found: Finding) -> str:
    gap = number(found.gap)
    if found.evidence is not None:
        low, high = number(found.gap_low), number(found.gap_high)
        p = p_value(found.evidence.p_holm)
        gap += f" [{low}, {high}], p {p if p.startswith('<') else f'= {p}'}"
    return _CLAIMS[found.case].format(
        leader=found.leader, second=found.second, others=names(found.others), gap=gap
    )


# The judge


def _quality(dimensions: Sequence[Dimension]) -> Iterator[str]:
    checks = {d.name: {check.name: check for check in d.checks} for d in dimensions}
    by_name: dict[str, list[tuple[str, Check]]] = {}
    for dimension, some in checks.items():
        for name, check in some.items():
            by_name.setdefault(name, []).append((dimension, check))
    failed = {
        name: [(d, check) for d, check in some if check.state == "caution"]
        for name, some in by_name.items()
    }
    failed = {name: some for name, some in failed.items() if some}
    measured = [
        f"{word} {value}"
        for name, word in (
            ("flips", "flips"),
            ("first_shown", "first shown wins"),
            ("length", "longer wins"),
            ("invalid", "invalid"),
        )
        if (value := _by_dimension([check for _, check in by_name.get(name, ())]))
    ]
    unchecked = "flips" not in by_name and "first_shown" not in by_name
    verdict = "CAUTION" if failed else "NOT CHECKED" if unchecked else "OK"
    yield _labelled(
        "judge", f"{verdict}: {', '.join(measured)}" if measured else verdict
    )
    n_pairs = sum(len(d.pairs) for d in dimensions if d.has_tests)
    if n_pairs:
        n = sum(d.n_significant for d in dimensions)
        yield _labelled(
            "significant", f"{n} of {n_pairs} pairwise differences (Holm, alpha .05)"
        )
    yield from _known_order(dimensions)
    warnings = [
        f"{_FAILED.get(name, name)}: "
        + ", ".join(f"{dimension} {percent(check.value)}" for dimension, check in some)
        for name, some in failed.items()
    ]
    differing = [
        d.name
        for d in dimensions
        if (p := d.diagnosis.get("strata", {}).get("p_value")) is not None and p < ALPHA
    ]
    if differing:
        warnings.append(
            f"ratings differ between strata in {names(differing)}; see By stratum"
        )
    yield from (_labelled("warning", line) for line in warnings[:_MAX_WARNINGS])
    if more := warnings[_MAX_WARNINGS:]:
        yield _labelled("warning", f"{len(more)} more in the report")


def _by_dimension(checks: Sequence[Check]) -> str:
    """One figure where all agree, else each: "91/25/64 %"."""
    values = [percent(check.value) for check in checks if check.value is not None]
    if len(set(values)) <= 1:
        return values[0] if values else ""
    shares = [number(100 * check.value) for check in checks if check.value is not None]
    return f"{'/'.join(shares)} %"


def _known_order(dimensions: Sequence[Dimension]) -> Iterator[str]:
    found: list[Mapping[str, int]] = [
        d.diagnosis["known_order"] for d in dimensions if "known_order" in d.diagnosis
    ]
    if found:
        n, recovered, significant = (
            sum(row[name] for row in found)
            for name in ("n_pairs", "n_recovered", "n_significant")
        )
        yield _labelled(
            "known order",
            f"{recovered} of {n} probe pairs recovered, {significant} significantly",
        )


def _agreement(standings: Standings) -> Iterator[str]:
    """How far each two judges of the same comparisons agree, where the store has several."""
    rho = {(r.dimension, r.first, r.second): r.rho for r in standings.judges_ranks}
    known = [a for a in standings.judges_agreement if a.agreement is not None]
    for a in known[:_MAX_JUDGES]:
        parts = [
            f"{a.dimension}: {a.first} and {a.second} agree on {percent(a.agreement)} of "
            f"{a.n_comparisons:,} comparisons"
        ]
        if a.kappa is not None:
            parts.append(f"kappa {a.kappa:.2f}")
        rank = rho.get((a.dimension or "", a.first, a.second))
        if rank is not None:
            parts.append(f"rank correlation {rank:.2f}")
        yield ", ".join(parts)


# Other ratings


def _other_methods(dimensions: Sequence[Dimension]) -> Iterator[str]:
    """The ratings by each further method; their intervals are in the report."""
    for label in dict.fromkeys(board.label for d in dimensions for board in d.others):
        boards = {d.name: b for d in dimensions for b in d.others if b.label == label}
        yield from ["", f"also rated by {label} (intervals in the report)"]
        yield from _by_name({name: _ratings(b) for name, b in boards.items()})


def _by_name(lines: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, lines))
    yield from (f"  {name:<{width}} {line}" for name, line in lines.items())


def _order_experiment(dimensions: Sequence[Dimension], k: float) -> Iterator[str]:
    boards = {d.name: d.elo[k] for d in dimensions if k in d.elo}
    if not boards:
        return
    samples = next(iter(boards.values())).samples
    n_perms = 1 if samples is None else len(samples)
    yield ""
    yield (
        f"order experiment: permutation Elo, K = {k:g}, {n_perms} permutations "
        "(± Monte Carlo error, % of limit)"
    )
    lines = {}
    for dimension in dimensions:
        if board := boards.get(dimension.name):
            progress = dimension.convergence.by_k.get(k)
            errors = [row.ordering_error or 0.0 for row in board.ratings]
            share = f"  {percent_reached(progress.convergence)}" if progress else ""
            lines[dimension.name] = (
                f"{_ratings(board)}  ± {max(errors, default=0.0):.1f}{share}"
            )
    yield from _by_name(lines)


def _ratings(board: Leaderboard) -> str:
    """The first ratings on one line, by names without a beginning that all of them share."""
    rows = [row for row in board.ratings if row.rating is not None]
    family = rows[0].model.partition("_")[0] + "_" if rows else ""
    is_shared = all(row.model.startswith(family) for row in rows)
    shown = [
        f"{row.model.removeprefix(family if is_shared else '')} {number(row.rating)}"
        for row in rows[:_MAX_ON_A_LINE]
    ]
    more = len(rows) - len(shown)
    return "  ".join([*shown, f"{more} more"] if more else shown)
