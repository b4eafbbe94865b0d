"""The console output of a tournament and of rated battles: leaderboards, checks, Elo."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elo_exp.analysis.checks import FAILED, list_definitions_by_row
from elo_exp.analysis.odd_answers import describe_odd_answers
from elo_exp.analysis.standings import Standings
from elo_exp.console import count_columns, wrap_lines
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.formatting import (
    format_count,
    format_number,
    format_percent,
    format_percent_floor,
    join_names,
)
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report.dimension_view import DimensionView
from elo_exp.report.sentences import (
    check_sentences,
    order_sentences,
    variance_sentences,
)
from elo_exp.report.sentences import standings_sentences as standings_words
from elo_exp.report.sentences import tournament_sentences as words
from elo_exp.report.standings_view import StandingsView

_MIN_NAME_COLUMNS, _MAX_NAME_COLUMNS = 18, 34
_MIN_RATING_COLUMNS = 6
_INTERVAL_PLOT_COLUMNS, _MIN_COLUMNS_WITH_PLOT = 34, 100
_MAX_ENTRANTS_ALL_SHOWN, _N_FIRST_ENTRANTS_SHOWN = 12, 10
_MAX_WARNINGS = 4
_MAX_AGREEMENTS = 6
_MAX_RATINGS_PER_LINE = 4
_INDENT = " " * 8


def format_console(view: StandingsView) -> str:
    """Return all lines, wrapped to the width of the terminal."""
    standings, dimensions = view.standings, view.dimensions
    lines = [
        *format_leaderboards(dimensions, scored=standings.is_scored),
        "CHECKS",
        *_list_labelled_lines(view),
        *_list_other_methods(dimensions),
        *_describe_order_experiment(standings, dimensions),
    ]
    return "\n".join(wrap_lines(lines)).rstrip("\n")


# Leaderboards


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Columns of a leaderboard: of names and ratings, and the scale from `low` over `span` points."""

    width: int
    rating_columns: int
    low: float
    span: float
    digits: int
    is_drawn: bool

    def head(self, value: str) -> str:
        return f"  rank  {'entrant':<{self.width}}{value:>{self.rating_columns}}  {'95% CI':>14}"

    def line(self, row: Rating) -> str:
        """Write an entrant's rank, rating and interval, and draw the interval if there is room."""
        rating = standings_words.rating(row, self.digits)
        return (
            f"{_format_rank(row):>6}  {self._shorten_name(row.model):<{self.width}}"
            f"{rating:>{self.rating_columns}}  {self._format_interval(row):>14}  "
            f"{self._draw_interval(row) if self.is_drawn else ''}"
        )

    def _format_interval(self, row: Rating) -> str:
        low, high = (
            format_number(end, self.digits) for end in (row.ci_low, row.ci_high)
        )
        if row.rating is None and row.ci_low is not None:
            return f"[{low}, …)"
        if row.rating is None and row.ci_high is not None:
            return f"(…, {high}]"
        return f"[{low}, {high}]" if None not in (row.ci_low, row.ci_high) else ""

    def _draw_interval(self, row: Rating) -> str:
        """Draw the rating as a dot on its interval; an interval that is open to one side as an arrow."""
        if row.rating is not None:
            dot = left = right = self._to_column(row.rating)
            if row.ci_low is not None and row.ci_high is not None:
                left, right = self._to_column(row.ci_low), self._to_column(row.ci_high)
            left = min(left, dot)
            return f"{' ' * left}{'─' * (dot - left)}●{'─' * (right - dot)}"
        if row.ci_low is not None:
            left = self._to_column(row.ci_low)
            return f"{' ' * left}{'─' * (_INTERVAL_PLOT_COLUMNS - 1 - left)}>"
        return "" if row.ci_high is None else f"<{'─' * self._to_column(row.ci_high)}"

    def _to_column(self, value: float) -> int:
        column = (value - self.low) / self.span * (_INTERVAL_PLOT_COLUMNS - 1)
        return round(round(column, 6))  # halves, too, fall alike on every processor

    def _shorten_name(self, model: str) -> str:
        if len(model) < self.width:
            return model
        half = self.width // 2
        return f"{model[:half]}…{model[len(model) - half + 3 :]}"


def _format_rank(row: Rating) -> str:
    """Return the rank, or the range of ranks that an entrant may have."""
    low = row.rank_low or row.rank
    return f"{low}-{row.rank_high}" if _is_range(row) else str(low)


def _is_range(row: Rating) -> bool:
    return row.rank is not None and row.rank_high not in (None, row.rank_low)


def _choose_layout(dimensions: Sequence[DimensionView], digits: int) -> _Layout:
    rows = [row for d in dimensions for group in d.groups for row in group]
    rows = [row for row in rows if row.rank is not None]
    ends = [
        end
        for row in rows
        for end in (row.rating, row.ci_low, row.ci_high)
        if end is not None
    ]
    low, high = (min(ends), max(ends)) if ends else (0.0, 0.0)
    longest = max((len(row.model) for row in rows), default=0)
    ratings = (len(standings_words.rating(row, digits)) for row in rows)
    rating_columns = max(_MIN_RATING_COLUMNS, *ratings, 0)
    width = min(_MAX_NAME_COLUMNS - rating_columns + _MIN_RATING_COLUMNS, longest + 1)
    return _Layout(
        width=max(_MIN_NAME_COLUMNS, width),
        rating_columns=rating_columns,
        low=low,
        span=max(high - low, 10.0**-digits),  # less is not seen in the numbers
        digits=digits,
        is_drawn=count_columns() >= _MIN_COLUMNS_WITH_PLOT,
    )


def format_leaderboards(
    dimensions: Sequence[DimensionView], *, scored: bool
) -> Iterator[str]:
    """Yield the lines of the leaderboards, each under its conclusion."""
    yield from describe_method(dimensions, scored=scored)
    layout = _choose_layout(dimensions, digits=3 if scored else 0)
    for d in dimensions:
        yield _format_heading(d, scored=scored)
        if d.conclusion:
            yield f"{words.sentence(d.conclusion)}."
        yield from _list_leaderboard_lines(d, layout, scored=scored)
        yield ""
    rows = (row for d in dimensions for group in d.groups for row in group)
    if (range_row := next(filter(_is_range, rows), None)) is not None:
        yield f"A rank such as {_format_rank(range_row)} is a range: the data cannot tell these entrants apart."
        yield ""


def format_leaderboard(dimension: DimensionView) -> Iterator[str]:
    """Yield the lines of one leaderboard, without its conclusion."""
    layout = _choose_layout([dimension], digits=0)
    yield from _list_leaderboard_lines(dimension, layout, scored=False)


def describe_method(
    dimensions: Sequence[DimensionView], *, scored: bool
) -> Iterator[str]:
    """Yield what the numbers are: the method, its unit and its interval."""
    boards = [d.board for d in dimensions if d.board]
    if not boards:
        return
    interval = next((board.interval for board in boards if board.interval), None)
    method = f"{boards[0].label}, {interval}" if interval else boards[0].label
    unit = "Mean scores."
    if not scored:
        unit = "Ratings in points: a gap of 400 means odds of 10 to 1."
    yield f"RESULT        {unit}"
    yield f"              Brackets: 95% confidence intervals ({method})."
    yield ""


def _list_leaderboard_lines(
    d: DimensionView, layout: _Layout, *, scored: bool
) -> Iterator[str]:
    if any(row.rank is not None for group in d.groups for row in group):
        yield ""
        yield layout.head("score" if scored else "rating")
    for i, group in enumerate(d.groups):
        if i:
            yield f"{_INDENT}a separate group, not comparable with those above:"
        yield from _list_entrant_lines(group, layout)
    if d.board:
        if scored:
            yield _INDENT + standings_words.items(d.board)
        for sentence in standings_words.list_unrated(d.board, d.groups[1:]):
            yield _INDENT + sentence


def _format_heading(d: DimensionView, *, scored: bool) -> str:
    if d.n_prompts is None:
        return d.name
    if scored and d.board:
        return f"{d.name} ({int(d.board.parameters['n_common'] or 0)} items)"
    return f"{d.name} ({d.n_prompts} prompt{'s' if d.n_prompts != 1 else ''})"


def _list_entrant_lines(group: Sequence[Rating], layout: _Layout) -> list[str]:
    """Return a line for each ranked entrant; of many, only the first ones and the last."""
    lines = [layout.line(row) for row in group if row.rank is not None]
    if len(lines) <= _MAX_ENTRANTS_ALL_SHOWN:
        return lines
    n_left_out = len(lines) - _N_FIRST_ENTRANTS_SHOWN - 1
    return [
        *lines[:_N_FIRST_ENTRANTS_SHOWN],
        f"{_INDENT}{n_left_out} more in the report",
        lines[-1],
    ]


# The judge, tests and what else is known, a line each behind its label


def _list_labelled_lines(view: StandingsView) -> Iterator[str]:
    standings, dimensions, conclusions = (
        view.standings,
        view.dimensions,
        view.conclusions,
    )
    points = words.points(conclusions) if conclusions else None
    judge_kind = conclusions[0].scope.kind if conclusions else "model"
    judge_line = check_sentences.describe_checks(standings.checks, judge_kind)
    judge_entry = "judge", [judge_line]
    if standings.is_scored:
        text = "the items were scored: Elo and other ratings of comparisons are not computed"
        if any(conclusion.scope.is_pointwise for conclusion in conclusions):
            text = "each answer was scored by itself: no order, no Elo, and no check of the judge by its verdicts"
        judge_entry = "scores", [text]
    for label, lines in (
        judge_entry,
        ("scope", [points] if points else ()),
        ("significant", _describe_significance(dimensions)),
        ("interim", _describe_looks(dimensions)),
        ("known order", _describe_known_order(dimensions)),
        ("variance", _describe_variance(dimensions)),
        ("answers", _describe_answers(dimensions)),
        ("audit", check_sentences.describe_audits(standings.diagnoses)),
        ("warning", _list_warnings(dimensions)),
        ("agreement", _describe_agreement(standings)),
    ):
        for line in lines:
            yield f"  {label:<14}{line}"


def _describe_significance(dimensions: Sequence[DimensionView]) -> Iterator[str]:
    tested_pairs = [
        pair
        for d in dimensions
        if any(pair.significant is not None for pair in d.pairs)
        for pair in d.pairs
    ]
    if tested_pairs:
        method = standings_words.name_test(has_looks=any(d.looks for d in dimensions))
        n = sum(bool(pair.significant) for pair in tested_pairs)
        yield f"{n} of {len(tested_pairs)} pairwise differences ({method})"


def _describe_looks(dimensions: Sequence[DimensionView]) -> Iterator[str]:
    for d in dimensions:
        if not d.looks:
            continue
        last_look = d.looks[-1]
        resolved_counts = ", ".join(str(look.n_resolved) for look in d.looks)
        prompts = ", ".join(str(look.n_prompts) for look in d.looks)
        text = (
            f"{d.name}: {resolved_counts} pairs decided at {prompts} prompts, {format_count(last_look.n_judged)} of "
            f"{format_count(last_look.n_planned)} comparisons judged"
        )
        min_prompts, max_prompts = d.prompts_of_pairs
        if min_prompts != max_prompts:
            text += f", pairs on {min_prompts} to {max_prompts} prompts"
        yield f"{text}, no pair left out" if last_look.is_whole else text


def _describe_known_order(dimensions: Sequence[DimensionView]) -> Iterator[str]:
    known_orders = [
        d.diagnosis["known_order"] for d in dimensions if "known_order" in d.diagnosis
    ]
    if known_orders:
        recovered, pairs, significant = (
            sum(getattr(order, name) for order in known_orders)
            for name in ("n_recovered", "n_pairs", "n_significant")
        )
        yield (
            f"{recovered} of {pairs} pairs of reference entrants recovered, {significant} of them "
            "significantly"
        )


def _describe_variance(dimensions: Sequence[DimensionView]) -> list[str]:
    return variance_sentences.describe_dimensions(
        {d.name: d.variance for d in dimensions if d.variance}
    )


def _describe_answers(dimensions: Sequence[DimensionView]) -> Iterator[str]:
    odd_answers = next((d.odd_answers for d in dimensions if d.odd_answers), None)
    if odd_answers:
        yield describe_odd_answers(odd_answers)
    answers_by_pair: dict[tuple[str, str], EqualAnswers] = {}
    for pair in (pair for d in dimensions for pair in d.equal_answers):
        previous = answers_by_pair.get((pair.first, pair.second), pair)
        answers_by_pair[pair.first, pair.second] = max(
            previous, pair, key=lambda answers: answers.n_prompts
        )
    yield from check_sentences.equal_answers([*answers_by_pair.values()])


def _list_warnings(dimensions: Sequence[DimensionView]) -> list[str]:
    """Return each failed check with the rubrics on which it failed, and only the first of many."""
    warnings = []
    for definition in list_definitions_by_row():
        failures = [
            f"{d.name} {format_percent(check.value)}"
            for d in dimensions
            for check in d.checks
            if (check.name, check.state) == (definition.name, FAILED)
            and check.value is not None
        ]
        if failures and definition.warning:
            warnings.append(f"{definition.warning}: {', '.join(failures)}")
    differing_dimensions = [
        d.name
        for d in dimensions
        if d.strata and d.strata.is_significant and not _has_reason(d, "stratum")
    ]
    if differing_dimensions:
        warnings.append(
            f"ratings on {join_names(differing_dimensions)} differ between groups of prompts (see the report)"
        )
    if len(warnings) <= _MAX_WARNINGS:
        return warnings
    return [
        *warnings[:_MAX_WARNINGS],
        f"{len(warnings) - _MAX_WARNINGS} more in the report",
    ]


def _has_reason(dimension: DimensionView, reason: str) -> bool:
    """Return whether the conclusion of a dimension has this reason, so that its sentence states it."""
    conclusion = dimension.conclusion
    return (
        any(
            conclusion_reason.name == reason for conclusion_reason in conclusion.reasons
        )
        if conclusion
        else False
    )


def _describe_agreement(standings: Standings) -> list[str]:
    key_columns = ("dimension", "first", "second")
    ranks = {
        tuple(row[name] for name in key_columns): row for row in standings.judges_ranks
    }
    lines = []
    for row in standings.judges_agreement:
        if row["agreement"] is None:
            continue
        text = (
            f"{row['dimension']}: {row['first']} and {row['second']} agree on "
            f"{format_percent(row['agreement'])} of {format_count(row['n_comparisons'])} comparisons"
        )
        if row["kappa"] is not None:
            text += f", kappa {format_number(row['kappa'], 2)}"
        rank = ranks.get(tuple(row[name] for name in key_columns))
        if rank and rank["rho"] is not None:
            text += f", rank correlation {format_number(rank['rho'], 2)}"
        lines.append(text + check_sentences.word_overlap([row["first"], row["second"]]))
    return lines[:_MAX_AGREEMENTS]


# Other methods


def _list_other_methods(dimensions: Sequence[DimensionView]) -> Iterator[str]:
    width = max((len(d.name) for d in dimensions), default=0)
    for label in dict.fromkeys(board.label for d in dimensions for board in d.others):
        yield ""
        yield f"ALSO          {label} (intervals in the report)"
        for d in dimensions:
            for board in d.others:
                if board.label == label:
                    yield f"  {d.name:<{width}} {_format_ratings(board)}"


def _format_ratings(board: Leaderboard) -> str:
    """Return the first ratings on one line, without a prefix that all names share."""
    rows = [row for row in board.ratings if row.rating is not None]
    family = rows[0].model.partition("_")[0] + "_" if rows else ""
    if not all(row.model.startswith(family) for row in rows):
        family = ""
    digits = 0 if board.unit == "points" else 3
    rating_texts = [
        f"{row.model.removeprefix(family)} {format_number(row.rating, digits)}"
        for row in rows[:_MAX_RATINGS_PER_LINE]
    ]
    if len(rows) > _MAX_RATINGS_PER_LINE:
        rating_texts.append(f"{len(rows) - _MAX_RATINGS_PER_LINE} more")
    return "  ".join(rating_texts)


def _describe_order_experiment(
    standings: Standings, dimensions: Sequence[DimensionView]
) -> Iterator[str]:
    """Yield how far shuffles of the same matches move Elo, and how much of the final gap Elo reaches at its K."""
    k, width = standings.k, max((len(d.name) for d in dimensions), default=0)
    if any(d.looks for d in dimensions) and not any(d.elo for d in dimensions):
        yield ""
        yield "ELO           not computed: after interim analyses it needs both orders (judging.orders)"
    boards = {d.name: d.elo[k] for d in dimensions if k in d.elo}
    if not boards:
        return
    n_perms = order_sentences.n_orders([*boards.values()])
    yield ""
    yield f"ELO           Average over {n_perms} shuffles of the match order, K = {k:g}."
    yield "              ± is the random error of this average, % the share of the final gap that K reaches."
    for name, board in boards.items():
        errors = [row.ordering_error for row in board.ratings]
        worst = max((error for error in errors if error is not None), default=None)
        line = (
            f"  {name:<{width}} {_format_ratings(board)}  ± {format_number(worst, 1)}"
        )
        progress = standings.convergence[name].by_k.get(k)
        yield (
            f"{line}  {format_percent_floor(progress.convergence)}"
            if progress
            else line
        )
