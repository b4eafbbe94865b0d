"""What the page of a tournament, and of rated battles, shows: who leads, how certain that is, and whether the judge
can be trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.power import Precision
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.variance import Variance
from elo_exp.formatting import (
    expected_win_rate,
    format_count,
    format_number,
    format_percent,
    format_time,
)
from elo_exp.report import page as pages
from elo_exp.report import viewer
from elo_exp.report.dimension_view import DimensionView, build_dimension_view
from elo_exp.report.document import Table
from elo_exp.report.effort_section import effort_table
from elo_exp.report.judge_section import judge_section
from elo_exp.report.leaderboard_section import Bar, fit_scale, leaderboard_section
from elo_exp.report.order_section import order_section
from elo_exp.report.pairs_section import looks_section, pairs_section
from elo_exp.report.sentences import check_sentences, variance_sentences
from elo_exp.report.sentences import standings_sentences as standings_words
from elo_exp.report.sentences import tournament_sentences as words
from elo_exp.report.strata_section import strata_tables
from elo_exp.report.viewer import Comparisons, Judgments

# Figures of which the leaderboard and the matrix of the page are the better form
_FIGURES_SHOWN_AS_TABLES = ("ratings", "leaderboard", "pairwise_winrates")
_MAX_LEADERBOARD_ROWS = 100
_MAX_DIMENSIONS_WITH_STRATA = 20
_MAX_ENTRANTS_ON_CARD = 6


def context(
    standings: Standings,
    comparisons: Comparisons | None = None,
    judgments: Judgments | None = None,
) -> dict[str, Any]:
    """Return what page and console show.

    comparisons, judgments  with all texts; None where the page is to have none
    """
    page_sections = build_sections(standings, comparisons, judgments)
    dimensions, scored = page_sections["dimensions"], standings.is_of_scores
    conclusions = [*standings.conclusions.values()]
    method = standings.primary_method or ""
    precision = {
        row.dimension: row
        for row in standings.precision.get(method, ())
        if row.detectable
    }
    return {
        **page_sections,
        "method": _describe_method(
            page_sections["label"], page_sections["interval"], scored=scored
        ),
        "headline": (headline := words.headline(conclusions)),
        "begins": words.begins_with_word(headline, conclusions),
        "points": words.points(conclusions) if conclusions else None,
        "baseline": check_sentences.BASELINE_NOTE
        if any(conclusion.scope.is_baseline for conclusion in conclusions)
        else None,
        "judge_line": check_sentences.describe_checks(
            standings.checks, conclusions[0].scope.kind if conclusions else "model"
        ),
        "cards": [
            _build_card(d, d.conclusion, precision.get(d.name), page_sections)
            for d in dimensions
            if d.conclusion
        ],
        "pairs": pairs_section(
            dimensions,
            n_models=len(standings.models),
            scored=scored,
            has_texts=page_sections["texts"] is not None,
        ),
        "power": _build_power_table(precision) if precision else None,
        "variance": _build_variance_table(
            {d.name: d.variance for d in dimensions if d.variance}
        ),
        "order": order_section(standings, dimensions),
        "from_manifest": partial(_build_manifest_context, standings, dimensions),
    }


def build_sections(
    standings: Standings,
    comparisons: Comparisons | None = None,
    judgments: Judgments | None = None,
    *,
    max_rows: int = _MAX_LEADERBOARD_ROWS,
    noun: str = "strata",
    refusal: str | None = None,
) -> dict[str, Any]:
    """Return the sections that every page of standings has.

    comparisons, judgments  with all texts; None where the page is to have none
    max_rows                of the leaderboard
    noun                    what strata are called
    refusal                 why the judge cannot be used, where more than its checks says so
    """
    dimensions = [
        build_dimension_view(standings, name) for name in standings.dimensions
    ]
    boards = [d.board for d in dimensions if d.board]
    scored, color = standings.is_of_scores, pages.number_colors(standings.models)
    rows = [row for d in dimensions for group in d.groups for row in group]
    axis = fit_scale(rows, digits=3 if scored else 0)
    return {
        "standings": standings,
        "dimensions": dimensions,
        "without": _FIGURES_SHOWN_AS_TABLES,
        "scored": scored,
        "color": color,
        "axis": axis,
        "label": boards[0].label if boards else None,
        "interval": next((b.interval for b in boards if b.interval), None),
        "texts": viewer.collect_texts(
            comparisons or {}, judgments or {}, list_primary_ratings(standings)
        ),
        "has_battles": any(len(d.battles) for d in dimensions),
        "leaderboard": leaderboard_section(
            dimensions, color, axis, scored=scored, max_rows=max_rows
        ),
        "strata": strata_tables(dimensions[:_MAX_DIMENSIONS_WITH_STRATA], noun),
        "judged": judge_section(dimensions, standings, refusal),
    }


def list_primary_ratings(standings: Standings) -> dict[str, dict[str, float]]:
    """Return the ratings of the primary method by dimension and model."""
    boards = standings.companions.get(standings.primary_method or "", {})
    return {
        name: {r.model: r.rating for r in board.ratings if r.rating is not None}
        for name, board in boards.items()
    }


def _describe_method(label: str | None, interval: str | None, *, scored: bool) -> str:
    if scored:
        return (
            "Items were scored, none compared: mean scores and their paired differences; Elo and other "
            "ratings of battles are not computed."
        )
    if label is None:
        return ""
    intervals = f"95 % intervals: {interval}" if interval else "without intervals"
    return f"Primary rating: {label}, {intervals}."


# Cards: the conclusion of each dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The conclusion of a dimension.

    tone     supported, caution or open
    begins   whether the sentence begins with a word, and no name
    comment  what would tell more
    notes    what else is to be known of its ratings: entrants without one, items that were scored
    reasons  those that the sentence leaves out
    bars     the first entrants
    tests    how many differences are significant
    """

    dimension: str
    tone: str
    chip: str
    sentence: str
    begins: bool
    comment: str
    notes: Sequence[str]
    reasons: Sequence[str]
    bars: Sequence[Bar]
    tests: str


def _build_card(
    d: DimensionView,
    conclusion: Conclusion,
    precision: Precision | None,
    page_sections: Mapping[str, Any],
) -> Card:
    notes = (
        [standings_words.items(d.board)] if page_sections["scored"] and d.board else []
    )
    if conclusion.state != "same":
        notes += check_sentences.equal_answers(d.equal_answers)
    ratings = d.board.ratings[:_MAX_ENTRANTS_ON_CARD] if d.board else ()
    bars = [page_sections["axis"].bar(row, page_sections["color"]) for row in ratings]
    sentence = words.sentence(conclusion)
    return Card(
        dimension=d.name,
        tone=words.choose_tone(conclusion),
        chip=words.chip(conclusion),
        sentence=sentence,
        begins=words.begins_with_word(sentence, [conclusion]),
        comment=words.comment(conclusion, precision),
        notes=[*notes, *standings_words.list_unrated(d.board, d.groups[1:])],
        reasons=words.further(conclusion),
        bars=[bar for bar in bars if bar],
        tests=" ".join(_describe_tests(d)),
    )


def _describe_tests(d: DimensionView) -> list[str]:
    if not d.pairs:
        return []
    sentences = ["The errors of the differences cannot be estimated."]
    if any(pair.significant is not None for pair in d.pairs):
        n = sum(bool(pair.significant) for pair in d.pairs)
        method = standings_words.name_test(has_looks=bool(d.looks))
        sentences = [
            f"{n} of {len(d.pairs)} pairwise differences are significant ({method}, all dimensions)."
        ]
    if known_order := d.diagnosis.get("known_order"):
        sentences.append(
            f"Known order of the entrants: {known_order['n_recovered']} of {known_order['n_pairs']} pairs "
            f"recovered, {known_order['n_significant']} significantly."
        )
    return sentences


# Power


def _build_power_table(precision: Mapping[str, Precision]) -> Table:
    first_precision = next(iter(precision.values()))
    efforts = list(first_precision.prompts_needed_corrected)
    return Table(
        label="Power",
        columns=[
            "Dimension",
            "Prompts",
            "80 % power at",
            "that is a win rate of",
            f"as one of {first_precision.n_tests} tests",
            *(f"prompts for {effort} points" for effort in efforts),
        ],
        rows=[
            [
                name,
                format_count(row.n_prompts),
                f"{format_number(row.detectable)} points",
                expected_win_rate(row.detectable or 0.0),
                f"{format_number(row.detectable_corrected)} points",
                *(
                    format_count(row.prompts_needed_corrected.get(effort))
                    for effort in efforts
                ),
            ]
            for name, row in precision.items()
        ],
        note=(
            "The smallest gap between an average pair that a two-sided test at 5\N{NO-BREAK SPACE}% "
            "detects with 80\N{NO-BREAK SPACE}% power, by this run’s own variance between prompts: for "
            f"one comparison, and as one of {format_count(first_precision.n_tests)} tests, for which the numbers of "
            "prompts are, too. Judges cannot be compared by it: noise draws ratings together, and with "
            "them these gaps."
        ),
    )


def _build_variance_table(
    variance_by_dimension: Mapping[str, Variance],
) -> Table | None:
    if not variance_by_dimension:
        return None
    return Table(
        label="What the variance is made of",
        columns=[
            "Dimension",
            "Prompts × draws",
            "Prompts",
            "Draws",
            "Judge",
            "twice the prompts",
            "twice the draws",
            "any number of draws",
        ],
        rows=[
            [
                name,
                f"{format_count(dimension_variance.n)} × {dimension_variance.k}",
                *_list_components(dimension_variance),
                variance_sentences.format_width(
                    dimension_variance, 2 * dimension_variance.n, dimension_variance.k
                ),
                variance_sentences.format_width(
                    dimension_variance, dimension_variance.n, 2 * dimension_variance.k
                ),
                variance_sentences.format_floor(dimension_variance),
            ]
            for name, dimension_variance in variance_by_dimension.items()
        ],
        note=(
            "Shares of the variance of one draw of a pair: between prompts, between draws of a prompt, and of the "
            "judge, which answers otherwise when it is asked again; below 10\N{NO-BREAK SPACE}% is not told from "
            "none. On the right, how wide an interval would be, in percent of that above: of twice the prompts, of "
            "twice the draws, and of any number of draws of these prompts."
        ),
    )


def _list_components(dimension_variance: Variance) -> list[str]:
    if "within" in dimension_variance.shares:
        within = variance_sentences.format_share(dimension_variance, "within")
        return [
            variance_sentences.format_share(dimension_variance, "prompts"),
            within,
            "with draws (one order)",
        ]
    return [
        variance_sentences.format_share(dimension_variance, name)
        for name in ("prompts", "draws", "judge")
    ]


# What the manifest of the run knows


def _build_manifest_context(
    standings: Standings,
    dimensions: Sequence[DimensionView],
    manifest: Mapping[str, Any],
) -> dict[str, Any]:
    config = manifest.get("config") or {}
    drops = (config.get("judging") or {}).get("drop") != "none"
    n_seen = manifest.get("n_seen")
    return {
        "kicker": _format_kicker(manifest),
        "sizes": _format_sizes(standings, manifest),
        "n_seen": format_count(n_seen) if n_seen else None,
        "lapses": _format_lapses(config.get("entrant") or {}),
        "looks": looks_section(dimensions, drops=drops),
        "effort": effort_table(manifest.get("effort") or ()),
    }


def _format_kicker(manifest: Mapping[str, Any]) -> str:
    parts = [manifest.get("experiment") or ""]
    if manifest.get("mode") and manifest.get("selected_prompt_count"):
        parts.append(f"mode {manifest['mode']}")
    if started := manifest.get("started_at"):
        parts.append(format_time(started))
    return " · ".join(parts)


def _format_sizes(standings: Standings, manifest: Mapping[str, Any]) -> str:
    """Return how many entrants, prompts, dimensions and battles there are."""
    n_prompts, n = manifest.get("selected_prompt_count"), len(standings.dimensions)
    parts = [f"{len(standings.models)} entrants"]
    if n_prompts:
        parts.append(f"{format_count(n_prompts)} prompts")
    parts.append(f"{n} dimension{'s' if n != 1 else ''}")
    if not standings.is_of_scores:
        n_battles = sum(battles.total() for battles in standings.battles.values())
        parts.append(f"{format_count(n_battles)} battles")
    return " · ".join(parts)


def _format_lapses(entrants: Mapping[str, Any]) -> str | None:
    """Return the share of prompts that probes answer in another style; None if they never do."""
    rates = [entrant.get("lapse_rate") for entrant in entrants.values()]
    numeric_rates = [rate for rate in rates if isinstance(rate, int | float)]
    return format_percent(max(numeric_rates)) if numeric_rates else None
