"""The page and the console text of a placement among human battles."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.arena.placement import Placement
from elo_exp.console import format_table, wrap_lines
from elo_exp.formatting import (
    format_count,
    format_interval,
    format_number,
    join_names,
)
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.report.document import (
    Block,
    Card,
    Cards,
    Document,
    Link,
    OtherFigures,
    Paragraph,
    Section,
    Styled,
    TextFragment,
)
from elo_exp.report.judge_section import JUDGE_HEADING, list_judge_blocks
from elo_exp.report.leaderboard_section import list_leaderboard_blocks
from elo_exp.report.provenance import (
    build_details_section,
    describe_judge_roles,
    format_kicker,
    join_pairs,
    list_made_blocks,
    list_run_bill,
)
from elo_exp.report.sentences import arena_sentences as words
from elo_exp.report.sentences import check_sentences
from elo_exp.report.standings_view import FIGURES_SHOWN_AS_TABLES, StandingsView
from elo_exp.report.strata_section import list_strata_blocks
from elo_exp.report.viewer import list_verdict_blocks

_SIMULATED_NOTICE = (
    "This is a demonstration with simulated voters. Each model gives a part of a reference answer, and the voters weigh "
    "its words by a known rule, so the true ratings are known. The result says nothing about real models."
)
_FOOTER = (
    "All numbers are in elo_ratings.json, figures/ and the battles file next to this page. To rate the battles again, "
    "use experiment=rate."
)
_N_TOP_ROWS, _N_ROWS_AROUND_PLACED = 3, 4


def build_document(
    placement: Placement,
    conclusions: Mapping[str, Conclusion],
    view: StandingsView,
    manifest: Mapping[str, Any],
) -> Document:
    """Return the page of models that were placed among human battles.

    conclusions  by placed model
    view         the leaderboard and the checks of the judge
    """
    cards = [_build_card(placement, conclusion) for conclusion in conclusions.values()]
    return Document(
        kicker=format_kicker(f"arena {placement.arena}", manifest),
        headline=words.headline(placement, conclusions, is_short=True),
        lede=_list_lede(placement, conclusions[placement.placed_models[0]], manifest),
        sections=[
            Section(
                "result",
                "Result",
                [Cards(cards), *map(Paragraph, words.calibration(placement))],
            ),
            Section(
                "leaderboard",
                "Leaderboard",
                list_leaderboard_blocks(view, max_rows=len(placement.board.models)),
            ),
            Section(
                "arenas",
                "Votes by arena",
                list_strata_blocks(view.dimensions, "arenas"),
            ),
            Section(
                "judge",
                JUDGE_HEADING,
                list_judge_blocks(view, _explain_refusal(placement, conclusions)),
            ),
            Section(
                "verdicts",
                "Verdicts",
                list_verdict_blocks(
                    view.texts,
                    manifest,
                    colors=view.colors,
                    has_battles=view.has_battles,
                ),
            ),
            Section("figures", "Further figures", [OtherFigures()]),
            build_details_section(
                list_run_bill(manifest),
                made=list_made_blocks(
                    manifest, _list_arena_facts(manifest), has_elo=False
                ),
            ),
        ],
        footer=_FOOTER,
        verdict_data=view.texts.island if view.texts else None,
        figures_left_out=FIGURES_SHOWN_AS_TABLES,
    )


def _list_lede(
    placement: Placement, conclusion: Conclusion, manifest: Mapping[str, Any]
) -> list[Paragraph]:
    """Return the placed models, the judge, the votes, and what the ratings measure."""
    board, is_simulated = placement.board, placement.true_board is not None
    interval = (
        f"95% intervals: {board.interval}" if board.interval else "without intervals"
    )
    n_judged, n_human = map(
        format_count, (len(placement.judged_battles), len(placement.human_battles))
    )
    voters = "simulated voters" if is_simulated else "humans"
    facts: list[TextFragment] = [
        f"Placed: {join_names(placement.placed_models)}. Arena: {placement.arena}, with {n_human} battles judged by "
        f"{voters}. The judge ",
        Styled(placement.judge_model, "bold"),
        f"{describe_judge_roles(manifest)} judged {n_judged} battles of the placed "
        f"{'model' if len(placement.placed_models) == 1 else 'models'}. Rating: {board.label}, {interval}.",
    ]
    lede = [Paragraph(facts, "facts")]
    if points := words.points(conclusion, placement):
        lede.append(Paragraph(points, "facts"))
    if is_simulated:
        lede.append(Paragraph(_SIMULATED_NOTICE, "warn"))
    return lede


def _explain_refusal(
    placement: Placement, conclusions: Mapping[str, Conclusion]
) -> str | None:
    """Return why the judge cannot be used, if its calibration failed."""
    if placement.refusal is None:
        return None
    return words.explain_reason(
        placement.refusal, conclusions[placement.placed_models[0]]
    )


def _build_card(placement: Placement, conclusion: Conclusion) -> Card:
    model, state = str(conclusion.subject), conclusion.state
    row = words.STATE_ROWS[state]
    position, blocks = "", list[Block]()
    if state != "refused":
        n_judged = format_count(placement.count_judged(model))
        position = (
            f"{words.sentence(conclusion, placement)}. Battles judged: {n_judged}."
        )
        details = (
            words.describe_judge_rating(placement, model),
            words.describe_soft_rating(placement, model),
            words.describe_missing_results(placement, model),
            words.style_distance(placement, model),
        )
        blocks = [
            Paragraph(position),
            *(Paragraph(detail, "small") for detail in details if detail),
        ]
    if truth := words.truth(placement, model):
        blocks.append(Paragraph([Styled(truth, "bold")]))
    if held_out := words.describe_human_rating(placement, model):
        blocks.append(Paragraph(held_out))
    for reason in conclusion.reasons:
        doubt = words.explain_reason(reason, conclusion)
        if doubt not in position:
            text: list[TextFragment] = [f"{_capitalize(doubt)}."]
            if reason.judges:
                text += [" ", Link("Checks of the judge", "#judge")]
            blocks.append(Paragraph(text, "reason"))
    return Card(title=model, chip=row.chip, tone=row.tone, blocks=blocks)


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _list_arena_facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows about the arena and its sample, for the section on how a run was made."""
    arena = manifest.get("arena")
    if arena is None:
        return []
    return [
        ("Arena", f"{arena['name']}: {arena['n_battles']:,} battles of {arena['n_rows']:,} rows"),
        ("Left out", join_pairs(arena["dropped"])),
        (
            "Sample",
            f"{manifest['selected_prompt_count']:,} prompts, seed "
            f"{manifest['config']['arena']['seed']}, fingerprint {arena['draw_fingerprint']}",
        ),
    ]  # fmt: skip


# The console


def format_console(
    placement: Placement,
    conclusions: Mapping[str, Conclusion],
    quality: JudgeQuality,
    diagnoses: Mapping[str, Diagnosis],
) -> str:
    """Return the headline, the top of the leaderboard and the models around the placed ones.

    conclusions  by placed model
    diagnoses    of the judge, as in Standings
    """
    lines = [
        f"{words.headline(placement, conclusions, is_short=False)}.",
        *filter(
            None, [words.points(conclusions[placement.placed_models[0]], placement)]
        ),
        words.battles(placement, quality),
        f"95% intervals: {placement.board.interval or 'none'}.",
    ]
    lines = [
        *wrap_lines(lines),
        _format_board(placement.board, placement.placed_models),
    ]
    details = list[str]()
    for model, conclusion in conclusions.items():
        doubts = words.list_further_reasons(conclusion, placement)
        if conclusion.state == "caution":
            details += [f"Caution for {model}: {doubt}." for doubt in doubts]
        describers = (
            *(
                words.describe_judge_rating,
                words.describe_soft_rating,
                words.describe_missing_results,
            ),
            *(words.style_distance, words.describe_human_rating),
        )
        details += [
            line for describe in describers if (line := describe(placement, model))
        ]
    details += words.calibration(placement)
    truths = (words.truth(placement, model) for model in placement.placed_models)
    details += filter(None, truths)
    details += check_sentences.describe_audits(diagnoses)
    return "\n".join([*lines, *wrap_lines(details)])


def _format_board(board: Leaderboard, placed: Sequence[str]) -> str:
    head = ["rank", "model", board.label, "95% CI", "ranks", "battles"]
    return format_table(head, _list_board_rows(board, placed), text=["model"])


def _list_board_rows(board: Leaderboard, placed: Sequence[str]) -> Iterator[list[str]]:
    """Yield the top models and those around placed ones, with dots for each gap."""
    ratings, was_left_out = board.ratings, False
    for i, row in enumerate(ratings):
        around = ratings[
            max(i - _N_ROWS_AROUND_PLACED, 0) : i + _N_ROWS_AROUND_PLACED + 1
        ]
        if i >= _N_TOP_ROWS and not any(
            neighbour.model in placed for neighbour in around
        ):
            if not was_left_out:
                yield ["...", "", "", "", "", ""]
            was_left_out = True
            continue
        was_left_out = False
        rating = row.flag or "–" if row.rating is None else format_number(row.rating, 1)
        yield [
            str(row.rank or "–"),
            f"{'> ' if row.model in placed else '  '}{row.model}",
            rating,
            format_interval(row.ci_low, row.ci_high),
            format_interval(row.rank_low, row.rank_high),
            format_count(row.n_battles),
        ]
