"""The page of a tournament, and of rated battles: the leader, how certain the lead is, and whether the judge can be
trusted."""

import re
from collections.abc import Mapping, Sequence
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
    join_names,
)
from elo_exp.report.dimension_view import DimensionView
from elo_exp.report.document import (
    Block,
    Card,
    Cards,
    Document,
    FigureSlot,
    Fold,
    Heading,
    Link,
    OtherFigures,
    OutcomeCount,
    Outcomes,
    Paragraph,
    Section,
    Styled,
    Table,
    TextFragment,
)
from elo_exp.report.effort_section import build_effort_table
from elo_exp.report.judge_section import JUDGE_HEADING, list_judge_blocks
from elo_exp.report.leaderboard_section import (
    Bars,
    fit_page_scale,
    list_leaderboard_blocks,
)
from elo_exp.report.order_section import list_order_blocks
from elo_exp.report.pairs_section import (
    list_look_blocks,
    list_pair_blocks,
    list_prompts_note,
)
from elo_exp.report.provenance import (
    build_details_section,
    describe_judge_roles,
    list_made_blocks,
    list_run_bill,
)
from elo_exp.report.scores_section import (
    SingleScores,
    list_comparison_blocks,
    list_criteria_tables,
)
from elo_exp.report.sentences import (
    check_sentences,
    order_sentences,
    strata_sentences,
    variance_sentences,
)
from elo_exp.report.sentences import standings_sentences as standings_words
from elo_exp.report.sentences import tournament_sentences as words
from elo_exp.report.standings_view import FIGURES_SHOWN_AS_TABLES, StandingsView
from elo_exp.report.strata_section import list_strata_blocks
from elo_exp.report.viewer import list_verdict_blocks

_MAX_ENTRANTS_ON_CARD = 6
_NUMBERS = re.compile(r"\[[^]]*\]|p [<=>] \.\d+|(?<!\d)\d+ points")
_SEEN_NOTICE = (
    "Exploratory: {n_seen} verdicts had been seen under another design, so false differences are found more often than "
    "stated."
)
_DEMO_NOTICE = "The ratings only show how elo_exp works."
_SCORES_NOTE = (
    "The items have scores, so the page shows mean scores and their paired differences. Elo and other ratings of "
    "comparisons are not computed."
)
_FOOTER = "All numbers, including those of other methods, are in ratings.json next to this page."


def build_document(
    view: StandingsView,
    manifest: Mapping[str, Any],
    *,
    scores: SingleScores | None = None,
) -> Document:
    """Return the page of a tournament, or of rated battles.

    scores  of answers that the judge scored one by one; None if it scored none
    """
    conclusions, dimensions = view.conclusions, view.dimensions
    headline = _find_title(view) or words.headline(conclusions)
    precision = _find_detectable(view)
    cards = [
        _build_card(view, d, d.conclusion, precision.get(d.name), headline)
        for d in dimensions
        if d.conclusion
    ]
    judging = (manifest.get("config") or {}).get("judging") or {}
    leaderboard = Section(
        "leaderboard",
        "Leaderboard",
        [*list_prompts_note(view), *list_leaderboard_blocks(view)],
    )
    pairs = Section("pairs", "Head to head", list_pair_blocks(view))
    is_of_two = len(view.standings.models) == 2
    folds = _list_folds(view, precision)
    if is_of_two:
        answers = (
            "ratings with 95% intervals, and ranks",
            "win rates and differences",
        )
        folds = [
            Fold(section.anchor, section.heading, answer, section.blocks)
            for section, answer in zip((leaderboard, pairs), answers, strict=True)
        ] + folds
    return Document(
        kicker=_format_kicker(manifest),
        headline=headline,
        begins_with_word=words.begins_with_word(headline, conclusions),
        lede=_list_lede(view, manifest),
        sections=[
            Section("result", "Result", [Cards(cards), *_list_outcomes(view)]),
            *(_list_score_sections(scores) if scores else ()),
            *([] if is_of_two else [leaderboard, pairs]),
            Section(
                "looks",
                "Interim analyses",
                list_look_blocks(view, drops=judging.get("drop") != "none"),
            ),
            Section(
                "effort",
                "Effort per answer",
                [build_effort_table(manifest.get("effort") or ())],
            ),
            Section("judge", JUDGE_HEADING, list_judge_blocks(view)),
            Section(
                "verdicts",
                "Verdicts worth reading",
                list_verdict_blocks(
                    view.texts,
                    manifest,
                    colors=view.colors,
                    has_battles=view.has_battles,
                ),
            ),
            build_details_section(
                list_run_bill(manifest),
                folds=folds,
                made=list_made_blocks(manifest, has_elo=not view.is_of_scores),
            ),
        ],
        footer=_FOOTER,
        verdict_data=view.texts.island if view.texts else None,
        figures_left_out=FIGURES_SHOWN_AS_TABLES,
    )


def _list_score_sections(scores: SingleScores) -> list[Section]:
    """Return what single answers got: next to a result of pairs, and criterion by criterion."""
    blocks: list[Block] = []
    if view := scores.view:
        cards = [
            _build_card(view, d, d.conclusion, None, "")
            for d in view.dimensions
            if d.conclusion
        ]
        whose = Paragraph(words.points(view.conclusions), "facts")
        blocks = [whose, Cards(cards), *list_comparison_blocks(scores)]
    return [
        Section("scores", "Scores of single answers", blocks),
        Section("criteria", "Criteria", list_criteria_tables(scores)),
    ]


def _find_title(view: StandingsView) -> str | None:
    """Return a title that is shorter than the conclusions; None if they need all their words."""
    if len(view.conclusions) > 1:
        return words.title_of_all(view.conclusions)
    if len(view.dimensions) != 1 or len(view.standings.models) != 2:
        return None
    (d,) = view.dimensions
    rates = [r for r in view.standings.win_rates if r.dimension == d.name]
    if d.conclusion is None or len(rates) != 1:
        return None
    (rate,) = rates
    is_a = d.conclusion.subject == rate.entrant_a
    return words.title_in_wins(
        d.conclusion,
        rate.a_wins if is_a else rate.b_wins,
        rate.ties,
        rate.a_wins + rate.b_wins + rate.ties,
    )


def _list_outcomes(view: StandingsView) -> list[Block]:
    """Return how often each of two entrants won, by rubric; nothing for more entrants, and for scores."""
    if len(view.standings.models) != 2:
        return []
    leaders = {d.name: d.conclusion and d.conclusion.subject for d in view.dimensions}
    blocks: list[Block] = []
    for rate in view.standings.win_rates:
        names, wins = [rate.entrant_a, rate.entrant_b], [rate.a_wins, rate.b_wins]
        if leaders.get(rate.dimension) == rate.entrant_b:
            names, wins = names[::-1], wins[::-1]
        counts = [
            OutcomeCount(f"{names[0]} wins {format_count(wins[0])}", wins[0], "lead"),
            OutcomeCount(f"tie {format_count(rate.ties)}", rate.ties, "tie"),
            OutcomeCount(f"{names[1]} wins {format_count(wins[1])}", wins[1], "other"),
        ]
        n = sum(count.n for count in counts)
        share = format_percent((wins[0] + rate.ties / 2) / n)
        label = (
            f"Observed win rate of {names[0]}: {share} of {format_count(n)} comparisons on {rate.dimension}, ties count "
            "half"
        )
        blocks.append(Outcomes(label, counts))
    return blocks


def _list_folds(view: StandingsView, precision: Mapping[str, Precision]) -> list[Fold]:
    """Return details for a reader to look up, each with its answer on one line."""
    dimensions = view.dimensions
    return [
        Fold(
            "strata",
            "Results by source",
            strata_sentences.summarize(
                {d.name: d.strata for d in dimensions if d.strata}
            ),
            list_strata_blocks(dimensions),
        ),
        Fold(
            "variance",
            "Sources of variance",
            "prompts, samples and the judge",
            [_build_variance_table(dimensions)],
        ),
        Fold(
            "power",
            "Prompts needed",
            _summarize_precision(precision),
            _list_power_blocks(precision),
        ),
        Fold(
            "order",
            "Elo and match order",
            _summarize_order(view),
            list_order_blocks(view),
        ),
        Fold("figures", "More figures", "all are in figures/", [OtherFigures()]),
    ]


def _summarize_precision(precision: Mapping[str, Precision]) -> str:
    gaps = [
        f"{format_number(row.detectable)} points on {name}"
        for name, row in precision.items()
    ]
    return f"4 of 5 runs find a true gap of {join_names(gaps)}" if gaps else ""


def _summarize_order(view: StandingsView) -> str:
    boards = [
        d.elo[view.standings.k] for d in view.dimensions if view.standings.k in d.elo
    ]
    return order_sentences.summarize(boards, view.standings.k) if boards else ""


def _list_lede(view: StandingsView, manifest: Mapping[str, Any]) -> list[Paragraph]:
    """Return the entrants, prompts and judge, and what a reader has to know before the result."""
    judge, conclusions = manifest.get("judge_model"), view.conclusions
    is_baseline = any(conclusion.scope.is_baseline for conclusion in conclusions)
    facts: list[TextFragment] = [_format_sizes(view.standings, manifest)]
    if judge:
        verb = "compared" if is_baseline else "judged"
        role = describe_judge_roles(manifest)
        facts += [f", {verb} by ", Styled(judge, "bold"), role]
    facts.append(f". {_SCORES_NOTE}" if view.is_of_scores else ".")
    lede = [Paragraph(facts, "facts")]
    if n_seen := manifest.get("n_seen"):
        notice = _SEEN_NOTICE.format(n_seen=format_count(n_seen))
        lede.append(Paragraph(notice, "notice"))
    is_demo = judge == "lexical" and not is_baseline
    points = words.points(conclusions) if conclusions else ""
    if points and not is_demo:
        lede.append(Paragraph(points, "facts"))
    if is_baseline:
        lede.append(Paragraph(check_sentences.BASELINE_NOTE, "notice"))
    elif is_demo:
        entrants = (manifest.get("config") or {}).get("entrant") or {}
        notice = f"{points} {_DEMO_NOTICE}{_describe_lapses(entrants)}"
        lede.append(
            Paragraph([Styled("Demonstration.", "bold"), f" {notice}"], "notice")
        )
    return lede


def _find_detectable(view: StandingsView) -> dict[str, Precision]:
    """Return the detectable differences by rubric, if they are known."""
    rows = view.standings.precision.get(view.standings.primary_method or "", ())
    return {row.dimension: row for row in rows if row.detectable}


# Cards: the conclusion of each dimension


def _build_card(
    view: StandingsView,
    d: DimensionView,
    conclusion: Conclusion,
    precision: Precision | None,
    headline: str,
) -> Card:
    sentence = words.sentence(conclusion)
    begins = "begins" if words.begins_with_word(sentence, [conclusion]) else ""
    notes = [words.comment(conclusion, precision)]
    if view.is_of_scores and d.board:
        notes.append(standings_words.items(d.board))
    if conclusion.state != "same":
        notes += check_sentences.equal_answers(d.equal_answers)
    notes += standings_words.list_unrated(d.board, d.groups[1:])
    ratings = d.board.ratings[:_MAX_ENTRANTS_ON_CARD] if d.board else ()
    n_more = len(d.board.ratings) - len(ratings) if d.board else 0
    scale = fit_page_scale(view)
    bars = [bar for row in ratings if (bar := scale.bar(row, view.colors))]
    tests = " ".join(_describe_tests(d))
    return Card(
        title=d.name,
        chip=words.chip(conclusion),
        tone=words.choose_tone(conclusion),
        blocks=[
            *(
                []
                if sentence == headline
                else [Heading(_keep_numbers_together(f"{sentence}."), begins)]
            ),
            *(Paragraph(note) for note in notes if note),
            *(_link_to_judge(text, conclusion) for text in words.further(conclusion)),
            *([Bars(bars)] if bars else []),
            *([Paragraph(f"and {n_more:,} more", "small")] if n_more else []),
            *([Paragraph(tests, "small")] if tests else []),
        ],
    )


def _keep_numbers_together(text: str) -> str:
    """Return a text that does not break within an interval or a p value."""
    return _NUMBERS.sub(lambda numbers: numbers[0].replace(" ", "\u00a0"), text)


def _link_to_judge(reason: str, conclusion: Conclusion) -> Paragraph:
    """Return a reason that the section on the judge explains."""
    begins = " begins" if words.begins_with_word(reason, [conclusion]) else ""
    link = Link("Checks of the judge", "#judge")
    return Paragraph([f"{reason}. ", link], f"reason{begins}")


def _describe_tests(d: DimensionView) -> list[str]:
    if not d.pairs or (len(d.pairs) == 1 and d.pairs[0].significant is not None):
        return []
    sentences = ["The standard errors of the differences cannot be estimated."]
    if any(pair.significant is not None for pair in d.pairs):
        n = sum(bool(pair.significant) for pair in d.pairs)
        sentences = [f"{n} of {len(d.pairs)} pairs differ significantly."]
    if known_order := d.diagnosis.get("known_order"):
        sentences.append(
            f"Known order recovered in {known_order.n_recovered} of {known_order.n_pairs} pairs, in "
            f"{known_order.n_significant} significantly."
        )
    return sentences


# Power


def _list_power_blocks(precision: Mapping[str, Precision]) -> list[Block]:
    return [_build_power_table(precision), FigureSlot("power")] if precision else []


def _build_power_table(precision: Mapping[str, Precision]) -> Table:
    first_precision = next(iter(precision.values()))
    efforts = list(first_precision.prompts_needed_corrected)
    return Table(
        label="Power",
        columns=[
            "Rubric",
            "Prompts",
            "Detectable gap",
            "Win rate at this gap",
            f"Detectable in {format_count(first_precision.n_tests)} tests",
            *(f"Prompts for {effort} points" for effort in efforts),
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
            "Detectable gap: the smallest true gap of an average pair that 4 of 5 runs of this size find, from the variance "
            "between the prompts of this run (80% power, two-sided test at 5%). It holds for one planned pair. The column "
            f"for {format_count(first_precision.n_tests)} tests and the numbers of prompts correct for all pairs. Do not "
            "compare judges by this gap: a noisy judge pulls ratings together, and the gap with them."
        ),
    )


def _build_variance_table(dimensions: Sequence[DimensionView]) -> Table:
    variance_by_dimension = {d.name: d.variance for d in dimensions if d.variance}
    return Table(
        label="Sources of variance",
        columns=[
            "Rubric",
            "Prompts × samples",
            "From prompts",
            "From samples",
            "From the judge",
            "Width with twice the prompts",
            "Width with twice the samples",
            "Width with any number of samples",
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
            "The shares of the variance of one comparison: between prompts, between samples of one prompt, and from a judge "
            "that gives other verdicts to the same answers. A share below 10% cannot be told from zero. On the right: the "
            "width of an interval with more prompts or samples, in percent of its width now."
        ),
    )


def _list_components(dimension_variance: Variance) -> list[str]:
    if "within" in dimension_variance.shares:
        within = variance_sentences.format_share(dimension_variance, "within")
        return [
            variance_sentences.format_share(dimension_variance, "prompts"),
            within,
            "with samples (one order)",
        ]
    return [
        variance_sentences.format_share(dimension_variance, name)
        for name in ("prompts", "draws", "judge")
    ]


# From the manifest of the run


def _format_kicker(manifest: Mapping[str, Any]) -> str:
    parts = [manifest.get("experiment") or ""]
    if manifest.get("mode") and manifest.get("selected_prompt_count"):
        parts.append(f"mode {manifest['mode']}")
    if started := manifest.get("started_at"):
        parts.append(format_time(started))
    return " · ".join(parts)


def _format_sizes(standings: Standings, manifest: Mapping[str, Any]) -> str:
    """Return the numbers of entrants, prompts, rubrics and comparisons."""
    n_prompts, n = manifest.get("selected_prompt_count"), len(standings.dimensions)
    parts = [f"{len(standings.models)} entrants"]
    if n_prompts:
        parts.append(f"{format_count(n_prompts)} prompts")
    parts.append(f"{n} rubric{'s' if n != 1 else ''}")
    if not standings.is_scored:
        n_battles = sum(battles.n_total() for battles in standings.battles.values())
        parts.append(f"{format_count(n_battles)} comparisons")
    return " · ".join(parts)


def _describe_lapses(entrants: Mapping[str, Any]) -> str:
    """Return the share of prompts that reference entrants answer in another style; empty if they never do."""
    rates = [entrant.get("lapse_rate") for entrant in entrants.values()]
    numeric_rates = [rate for rate in rates if isinstance(rate, int | float)]
    if not numeric_rates:
        return ""
    share = format_percent(max(numeric_rates))
    return f" Each reference entrant answers {share} of the prompts in another style."
