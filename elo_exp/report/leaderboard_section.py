"""The leaderboard of a page: a line for each entrant, its interval as marks on one scale."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from elo_exp.analysis import judge_panel
from elo_exp.analysis.odd_answers import describe_odd_answers
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
    format_percent,
)
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report.dimension_view import DimensionView
from elo_exp.report.document import Block, Paragraph
from elo_exp.report.sentences import standings_sentences
from elo_exp.report.standings_view import StandingsView

_TICK_STEPS = [digit * 10.0**n for n in range(-6, 12) for digit in (1, 2, 5)]
_SCALE_MARGIN_SHARE = 0.04
_MAX_TICKS = 8
_MAX_LEADERBOARD_ROWS = 100
_DEFAULT_COLOR = 9
_UNRANKED_SORT_KEY = 9999.0
_MAX_LINES_WITHOUT_FILTER = 8
_P_BEST_HEADING = "Chance of being best"
# By a joint fit of all models; None if there is none
_P_BEST_HEADING_BY_LABEL = {
    "Calibrated": _P_BEST_HEADING,
    judge_panel.JOINT_BOARD_LABEL: None,
}
_RANKS_NOTE = (
    "A rank range such as 1–2 means that the data cannot tell these entrants apart. All ranges hold together with "
    "95% confidence."
)
# So many draws can tell this from 0, and its complement from 1
_MIN_P_BEST = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A rating and its interval as marks on the scale of the page, in percent of its width.

    mark         of the rating; None of an entrant without one, whose interval is open to one side
    left, right  of the interval, from either end; None without one
    label        what a screen reader says
    """

    model: str
    color: int
    label: str
    mark: str | None
    left: str | None = None
    right: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis that holds all ratings and their intervals."""

    low: float
    high: float
    digits: int

    @property
    def ticks(self) -> list[tuple[str, str]]:
        """Round values: where they stand, in percent of the width, and their names."""
        width = self.high - self.low
        step = next(s for s in _TICK_STEPS if width < _MAX_TICKS * s)
        first_tick, last_tick = math.ceil(self.low / step), math.floor(self.high / step)
        return [
            (self._to_percent(step * i), f"{step * i:g}")
            for i in range(first_tick, last_tick + 1)
        ]

    def bar(self, rating: Rating, colors: Mapping[str, int]) -> Bar | None:
        """Draw a rating, or the open interval of an entrant that took every point, or none."""
        low, high, value = rating.ci_low, rating.ci_high, rating.rating
        if (low, high, value) == (None, None, None):
            return None
        if value is None:  # to the edge of the page's scale
            low = self.low if low is None else low
            high = self.high if high is None else high
        interval = format_interval(rating.ci_low, rating.ci_high, self.digits)
        return Bar(
            model=rating.model,
            color=colors.get(rating.model, _DEFAULT_COLOR),
            label=f"{standings_sentences.rating(rating, self.digits)}, 95% interval {interval}",
            mark=None if value is None else self._to_percent(value),
            left=None if low is None else self._to_percent(low),
            right=None
            if high is None
            else self._to_percent(self.low + self.high - high),
        )

    def _to_percent(self, value: float) -> str:
        return f"{100.0 * (value - self.low) / (self.high - self.low):.2f}"


def fit_scale(ratings: Iterable[Rating], *, digits: int) -> Scale:
    ends = [
        value
        for rating in ratings
        for value in (rating.rating, rating.ci_low, rating.ci_high)
        if value is not None
    ]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    has_spread = (
        high - low >= 10.0**-digits
    )  # in the numbers, and not the noise of rounding
    margin = _SCALE_MARGIN_SHARE * (high - low) if has_spread else 1.0
    return Scale(low=low - margin, high=high + margin, digits=digits)


def fit_page_scale(view: StandingsView) -> Scale:
    """Return the axis that all leaderboards of a page share."""
    rows = [row for d in view.dimensions for group in d.groups for row in group]
    return fit_scale(rows, digits=3 if view.is_of_scores else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sortable:
    """A cell, and the number by which a click on the heading sorts it."""

    text: str
    order: float

    @property
    def data_value(self) -> str:
        """The number with the digits that do not depend on the processor."""
        return f"{self.order:.6g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An entrant.

    ranks    the set of ranks that it may have; empty where that is one
    odd      what is unusual about its answers
    numbers  a cell for each of the leaderboard's `headings`
    """

    model: str
    color: int
    rank: Sortable
    ranks: str
    odd: str | None
    rating: Sortable
    bar: Bar | None
    interval: str
    numbers: Sequence[Sortable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The entrants of a dimension that can be compared with each other; `n_more` are not shown."""

    dimension: str
    about: str
    lines: Sequence[Line]
    n_more: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardTable(Block):
    """The leaderboards of all dimensions under each other.

    headings  of the columns next to rank, entrant, rating and interval
    """

    caption: str
    rating: str
    headings: Sequence[str]
    ticks: Sequence[tuple[str, str]]
    groups: Sequence[Group]
    is_long: bool

    @property
    def n_columns(self) -> int:
        return 5 + len(self.headings)


@dataclass(frozen=True, slots=True)
class Bars(Block):
    """Entrants with their intervals, small, on the scale of the page."""

    bars: Sequence[Bar]


def list_leaderboard_blocks(
    view: StandingsView, *, max_rows: int = _MAX_LEADERBOARD_ROWS
) -> list[Block]:
    """Return the leaderboards with their notes; empty if nothing was rated."""
    dimensions, scored = view.dimensions, view.is_of_scores
    boards = [d.board for d in dimensions if d.board]
    if not boards:
        return []
    label, scale = boards[0].label, fit_page_scale(view)
    interval = next((board.interval for board in boards if board.interval), None)
    other_labels = list(dict.fromkeys(o.label for d in dimensions for o in d.others))
    has_win_rates = any(d.win_rate for d in dimensions)
    columns = _Columns(
        others=other_labels,
        p_best=None if scored else _P_BEST_HEADING_BY_LABEL.get(label, _P_BEST_HEADING),
        has_win_rates=has_win_rates,
    )
    groups = [
        Group(
            dimension=d.name,
            about=_describe_group(d, is_first=i == 0, scored=scored),
            lines=[
                _make_line(d, row, columns, view.colors, scale)
                for row in rows[:max_rows]
            ],
            n_more=format_count(len(rows) - max_rows) if len(rows) > max_rows else None,
        )
        for d in dimensions
        for i, rows in enumerate(d.groups)
    ]
    table = BoardTable(
        caption=_write_caption(label, interval, scored=scored),
        rating="Mean score" if scored else "Rating",
        headings=[*columns.headings, "Items" if scored else "Comparisons"],
        ticks=scale.ticks,
        groups=groups,
        is_long=len(boards[0].models) > _MAX_LINES_WITHOUT_FILTER,
    )
    is_open = any(board.one_sided and board.rank is not None for board in boards)
    notes = [
        *(
            text
            for d in dimensions
            if d.board
            for text in _describe_style(d.name, d.board)
        ),
        _write_note(label, scored=scored, is_open=is_open),
    ]
    return [table, *(Paragraph(note, "small") for note in notes if note)]


def _write_caption(label: str, interval: str | None, *, scored: bool) -> str:
    if scored:
        text = (
            f"Mean scores on the items that all entrants have, with 95% intervals "
            f"({interval})."
        )
    else:
        intervals = (
            f"with 95% intervals ({interval})" if interval else "without intervals"
        )
        text = (
            f"{label} ratings {intervals}. A gap of 400 points means odds of 10 to 1."
        )
    return f"{text} Select a column heading to sort."


def _describe_group(dimension: DimensionView, *, is_first: bool, scored: bool) -> str:
    """Return the number of comparisons and prompts behind the ratings of a group of entrants."""
    if scored and dimension.board:
        return f"{format_count(int(dimension.board.parameters['n_common'] or 0))} items"
    if not is_first:
        return (
            "a separate group: no chain of wins leads to the entrants above and back, so the ratings "
            "of the groups cannot be compared"
        )
    n, battles = dimension.battles.n_total(), dimension.battles
    n_decisive = n - battles.count_at(battles.is_tie())
    text = f"{format_count(n)} comparisons, {format_count(n - n_decisive)} of them ties"
    if dimension.n_prompts:
        text += f", {format_count(dimension.n_prompts)} prompts"
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The columns that depend on what was rated; `others` are labels of further methods."""

    others: Sequence[str]
    p_best: str | None
    has_win_rates: bool

    @property
    def headings(self) -> list[str]:
        p_best = [self.p_best] if self.p_best else []
        return [*p_best, *self.others, *(["Win rate"] if self.has_win_rates else [])]

    def cells(self, dimension: DimensionView, row: Rating) -> Iterator[Sortable]:
        if self.p_best:
            text, p_best = NO_VALUE, row.p_best
            if p_best is not None:
                text = format_percent(min(max(p_best, _MIN_P_BEST), 1.0 - _MIN_P_BEST))
            yield Sortable(text=text, order=p_best or 0.0)
        boards = {board.label: board for board in dimension.others}
        for label in self.others:
            yield _make_method_cell(boards.get(label), row.model)
        if self.has_win_rates:
            share = dimension.win_rate.get(row.model)
            yield Sortable(text=format_percent(share), order=share or 0.0)


def _make_method_cell(board: Leaderboard | None, model: str) -> Sortable:
    if board is None or model not in board.models:
        return Sortable(text=NO_VALUE, order=0.0)
    row = board.row(model)
    if row.rating is None:
        labels = standings_sentences.FLAG_LABELS
        text = labels.get(row.flag, row.flag) if row.flag else NO_VALUE
        return Sortable(text=text, order=0.0)
    if board.unit == "points":
        return Sortable(text=format_number(row.rating), order=row.rating)
    text = f"{format_number(row.rating, 3)} ({format_interval(row.ci_low, row.ci_high, 3)})"
    return Sortable(text=text, order=row.rating)


def _make_line(
    dimension: DimensionView,
    row: Rating,
    columns: _Columns,
    colors: Mapping[str, int],
    axis: Scale,
) -> Line:
    odd = dimension.odd_answers.get(row.model)
    ends = (end for end in (row.rating, row.ci_low, row.ci_high) if end is not None)
    rating = Sortable(
        text=standings_sentences.rating(row, axis.digits),
        order=next(ends, -_UNRANKED_SORT_KEY),
    )
    ranks = ""
    if row.rank_low is not None and row.rank_low != row.rank_high:
        ranks = f"{row.rank_low}–{row.rank_high}"
    n_battles = Sortable(text=format_count(row.n_battles), order=row.n_battles)
    return Line(
        model=row.model,
        color=colors.get(row.model, _DEFAULT_COLOR),
        rank=Sortable(
            text=str(row.rank or NO_VALUE), order=row.rank or _UNRANKED_SORT_KEY
        ),
        ranks=ranks,
        odd=describe_odd_answers({row.model: odd}) if odd else None,
        rating=rating,
        bar=axis.bar(row, colors),
        interval=format_interval(row.ci_low, row.ci_high, axis.digits),
        numbers=[*columns.cells(dimension, row), n_battles],
    )


def _describe_style(dimension: str, board: Leaderboard) -> Iterator[str]:
    """Yield the worth of each kind of style in points, if ratings control for style."""
    parameters = board.parameters
    terms = []
    for name, value in parameters.items():
        if not name.startswith("style_") or name.endswith("_error"):
            continue
        worth = "does not vary"
        if value is not None:
            error = format_number(parameters[f"{name}_std_error"])
            worth = f"{format_number(value, sign=True)} ± {error}"
        terms.append(f"{name.removeprefix('style_').replace('_', ' in ')} {worth}")
    if terms:
        yield (
            f"Style on {dimension}, in points per root mean square of its differences, ± standard "
            f"error: {', '.join(terms)}."
        )


def _write_note(label: str, *, scored: bool, is_open: bool) -> str:
    """`is_open`: whether an entrant's interval is open to one side."""
    if label == "Calibrated":
        return (
            f"{_RANKS_NOTE} Chance of being best: the share of draws from the joint fit in which no other model is better. "
            "Judge’s scale: the judge’s verdicts counted as votes."
        )
    if scored or label == judge_panel.JOINT_BOARD_LABEL:
        return _RANKS_NOTE
    open_ends = ""
    if is_open:
        open_ends = (
            " Over, under: an entrant that won or lost every comparison has no finite rating. Its bound is exact and adds "
            "to the rating of the nearest entrant that it met."
        )
    return (
        f"{_RANKS_NOTE} Chance of being best: for entrants whose rank range includes 1. It allows for the luck of the leader "
        "by empirical Bayes, which with two or three entrants assumes a spread of about 50 points. Win rate: average over "
        f"opponents, ties count half.{open_ends}"
    )
