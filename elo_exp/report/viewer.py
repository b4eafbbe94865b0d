"""The verdicts of a run with all texts, for the viewer of its page."""

import base64
import gzip
import itertools
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.console import escape_unprintable
from elo_exp.data import pairing
from elo_exp.formatting import format_count, format_number
from elo_exp.masking import current_mask
from elo_exp.records import FIXED_SEED, UNKNOWN_ORDER, Comparison, Judgment
from elo_exp.report import provenance
from elo_exp.report.document import (
    Answer,
    Answers,
    Block,
    Details,
    Dot,
    Paragraph,
    Styled,
    Text,
    Verdict,
    ViewerLinks,
)

_NOTABLE_KINDS = ("upset", "flipped", "invalid")
_KIND_LABELS = {"upset": "unexpected winner", "flipped": "order changes the verdict"}
# All texts of a page together: about 20 MB
MAX_PAGE_CHARACTERS = 40_000_000
_MAX_LOSSES = 2
_MAX_NOTABLE = 6
_DEFAULT_COLOR = 9
_SAMPLE_NOTICE = (
    "All verdicts are in this page, but the texts of only {n_kept} comparisons: those with changed or invalid verdicts or "
    "an unexpected winner, and a random sample of each pair. All texts are in {place}."
)
_NO_TEXTS_NOTE = (
    "The page of a sweep job holds no texts. They are in verdicts/ and responses/ next to this page. To add them to the "
    "page, repeat the sweep with ",
    Styled("figures=true", "code"),
    ", or this job as a single run. Stored verdicts are reused.",
)

Comparisons = Mapping[str, Sequence[Comparison]]  # by dimension
Judgments = Mapping[str, Sequence[Judgment]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedComparison:
    """A comparison and its outcome.

    outcome  a, b, tie, flipped or invalid
    upset    by how many points the loser is rated higher; 0 if the winner is
    kind     upset, or the outcome
    """

    comparison: Comparison
    judgment: Judgment
    outcome: str
    upset: float
    kind: str

    @property
    def title(self) -> str:
        """The line above its texts."""
        c, winner = self.comparison, self.judgment.winner
        if self.kind != "upset":
            return f"{c.entrant_a} against {c.entrant_b}"
        loser = c.entrant_b if winner == c.entrant_a else c.entrant_a
        return (
            f"{winner} beats {loser}, rated {format_number(self.upset)} points higher"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The verdicts and texts in the page.

    island   gzip + base64 of the JSON that the script reads
    n_kept   comparisons whose texts are in the page
    notable  comparisons worth reading: for each rubric the widest upset, a changed verdict, an invalid one
    instructive  comparisons of the best two entrants on the first rubric, each with its outcome in words
    """

    island: str
    n_comparisons: int
    n_kept: int
    notable: Sequence[JudgedComparison]
    instructive: Sequence[tuple[str, JudgedComparison]] = ()

    @property
    def is_sample(self) -> bool:
        return self.n_kept < self.n_comparisons


def pair_judgments(
    comparisons: Comparisons, judgments: Judgments
) -> list[tuple[Comparison, Judgment]]:
    """Return each judgment with its comparison."""
    comparison_by_key = {
        (c.dimension, c.prompt_id, c.entrants, c.draw_a, c.draw_b): c
        for dimension_comparisons in comparisons.values()
        for c in dimension_comparisons
    }
    return [
        (comparison_by_key[j.dimension, j.prompt_id, names, j.draw_a, j.draw_b], j)
        for dimension_judgments in judgments.values()
        for j in dimension_judgments
        for names in [(j.entrant_a, j.entrant_b)]
    ]


def collect_texts(
    comparisons: Comparisons,
    judgments: Judgments,
    ratings: Mapping[str, Mapping[str, float]],
    *,
    max_characters: int = MAX_PAGE_CHARACTERS,
) -> Texts | None:
    """Collect all verdicts with their texts; None without a verdict.

    Of more texts than fit, those of flipped, invalid and upset comparisons come first, then a
    sample of each pair in each dimension.

    ratings  of each dimension by model, for the upsets
    """
    judged_comparisons = []
    for c, j in pair_judgments(comparisons, judgments):
        outcome, upset = "flipped" if j.inconsistent else "tie", 0.0
        rating_by_model = ratings.get(j.dimension, {})
        if j.invalid:
            outcome = "invalid"
        elif j.winner is not None:
            outcome = "a" if j.winner == j.entrant_a else "b"
            if rating_by_model.keys() >= {*c.entrants}:
                best = max(rating_by_model[entrant] for entrant in c.entrants)
                upset = best - rating_by_model[j.winner]
        kind = "upset" if upset else outcome
        judged_comparisons.append(
            JudgedComparison(
                comparison=c, judgment=j, outcome=outcome, upset=upset, kind=kind
            )
        )
    if not judged_comparisons:
        return None
    kept_indices = _select_fitting(judged_comparisons, max_characters)
    content = current_mask().values(
        _make_printable(_build_data(judged_comparisons, kept_indices))
    )
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    packed = gzip.compress(data.encode(errors="replace"), mtime=0)
    ranked = sorted(judged_comparisons, key=lambda judged: -judged.upset)
    widest = {
        (judged.comparison.dimension, judged.kind): judged for judged in ranked[::-1]
    }
    return Texts(
        island=base64.b64encode(packed).decode("ascii"),
        n_comparisons=len(judged_comparisons),
        n_kept=len(kept_indices),
        notable=[
            widest[dimension, kind]
            for dimension in dict.fromkeys(
                judged.comparison.dimension for judged in judged_comparisons
            )
            for kind in _NOTABLE_KINDS
            if (dimension, kind) in widest
        ][:_MAX_NOTABLE],
        instructive=choose_instructive(judged_comparisons, ratings),
    )


def choose_instructive(
    judged_comparisons: Sequence[JudgedComparison],
    ratings: Mapping[str, Mapping[str, float]],
) -> list[tuple[str, JudgedComparison]]:
    """Return up to three comparisons of the two best entrants on the first rubric, each with its outcome in words.

    They are a win of the leader with the longer answer, a win with the shorter, and a win of the rival. Among each kind,
    the answers differ most in length, relative to the longer. Comparisons without a winner are left out.

    ratings  of each dimension by model
    """
    dimension = next((c.comparison.dimension for c in judged_comparisons), "")
    best = sorted(ratings.get(dimension, {}).items(), key=lambda item: -item[1])[:2]
    if len(best) < 2:
        return []
    leader, rival = (model for model, _ in best)
    chosen: dict[str, tuple[float, JudgedComparison]] = {}
    for judged in judged_comparisons:
        c, winner = judged.comparison, judged.judgment.winner
        is_pair = c.dimension == dimension and {*c.entrants} == {leader, rival}
        if not is_pair or winner is None:
            continue
        lengths = {c.entrant_a: len(c.response_a), c.entrant_b: len(c.response_b)}
        longest = max(lengths.values())
        gap = abs(lengths[leader] - lengths[rival]) / longest if longest else 0.0
        if winner == rival:
            kind = f"{rival} wins"
        elif lengths[leader] > lengths[rival]:
            kind = f"{leader} wins with the longer answer"
        else:
            kind = f"{leader} wins without the longer answer"
        if kind not in chosen or gap > chosen[kind][0]:
            chosen[kind] = gap, judged
    return [(kind, judged) for kind, (_, judged) in sorted(chosen.items())]


def _make_printable(value: Any) -> Any:
    """Return the value with all its texts made safe to show on a page."""
    if isinstance(value, str):
        return escape_unprintable(value)
    if isinstance(value, dict):
        return {
            escape_unprintable(key): _make_printable(item)
            for key, item in value.items()
        }
    return [*map(_make_printable, value)] if isinstance(value, list | tuple) else value


def _select_fitting(
    judged_comparisons: Sequence[JudgedComparison], max_characters: int
) -> set[int]:
    """Return the indices of the comparisons whose texts fit; notable comparisons come first."""
    numbers = list(range(len(judged_comparisons)))
    random.Random(FIXED_SEED).shuffle(numbers)
    counters: dict[tuple[str, ...], Iterator[int]] = defaultdict(itertools.count)
    rank = {}
    for i in numbers:
        c = judged_comparisons[i].comparison
        is_worth_reading = judged_comparisons[i].kind in _NOTABLE_KINDS
        rank[i] = -1 if is_worth_reading else next(counters[c.dimension, *c.entrants])
    kept_indices: set[int] = set()
    counted_texts: set[tuple[str, str]] = set()
    total = 0
    for i in sorted(numbers, key=rank.__getitem__):
        c = judged_comparisons[i].comparison
        comparison_texts = {
            (c.prompt_id, x) for x in (c.prompt_text, c.response_a, c.response_b)
        }
        total += sum(
            len(verdict.reasoning) for verdict in judged_comparisons[i].judgment.orders
        )
        total += sum(len(text) for _, text in comparison_texts - counted_texts)
        counted_texts |= comparison_texts
        if total > max_characters:
            break
        kept_indices.add(i)
    return kept_indices


def _build_data(
    judged_comparisons: Sequence[JudgedComparison], kept_indices: set[int]
) -> dict[str, object]:
    """Return the prompts by id with their answers, and a row for each comparison; a text that is absent is null.

    Of several draws also how many they are, and in each row that of both. Where comparisons on one prompt show other
    texts, as rubrics of several turns do, these stand under another key, with the prompt's `id`.
    """
    n_draws = 1 + max(
        max(judged.comparison.draw_a, judged.comparison.draw_b)
        for judged in judged_comparisons
    )
    prompts: dict[str, dict[str, Any]] = {}
    texts_by_key: dict[str, dict[str | None, Any]] = {}
    rows = []
    for i, judged in enumerate(judged_comparisons):
        c = judged.comparison
        prompt_key = _find_prompt_key(c, texts_by_key)
        prompt = prompts.setdefault(prompt_key, {"stratum": c.source, "answers": {}})
        if prompt_key != c.prompt_id:
            prompt["id"] = c.prompt_id
        if c.in_turns:
            prompt["in_turns"] = True
        if i in kept_indices:
            prompt["text"] = c.prompt_text
            if reference := c.gold_answer or c.expected_behavior:
                prompt["reference"] = reference  # which some rubrics leave out
            prompt["answers"] |= {
                _make_answer_key(c.entrant_a, c.draw_a): c.response_a,
                _make_answer_key(c.entrant_b, c.draw_b): c.response_b,
            }
        orders = [
            (
                None
                if verdict.stop_reason == UNKNOWN_ORDER
                else int(verdict.position_swap),
                pairing.unswap_verdict(verdict) or "invalid",
                verdict.reasoning if i in kept_indices else None,
            )
            for verdict in judged.judgment.orders
        ]
        row = (prompt_key, c.dimension, *c.entrants, judged.outcome, orders)
        rows.append((*row, c.draw_a, c.draw_b) if n_draws > 1 else row)
    draws = {"draws": n_draws} if n_draws > 1 else {}
    return {"prompts": prompts, "rows": rows, **draws}


def _find_prompt_key(
    c: Comparison, texts_by_key: dict[str, dict[str | None, Any]]
) -> str:
    """Return the key under which a comparison's texts stand: the prompt's id, unless other texts stand there.

    texts_by_key  what stands under each key, by the key of an answer; None: the prompt, and whether all is in turns
    """
    new_texts: dict[str | None, Any] = {
        None: (c.prompt_text, c.in_turns),
        _make_answer_key(c.entrant_a, c.draw_a): c.response_a,
        _make_answer_key(c.entrant_b, c.draw_b): c.response_b,
    }
    for n in itertools.count():
        prompt_key = f"{c.prompt_id}\n{n}" if n else c.prompt_id
        existing_texts = texts_by_key.setdefault(prompt_key, {})
        if all(
            existing_texts.get(key, text) == text for key, text in new_texts.items()
        ):
            existing_texts |= new_texts
            return prompt_key
    raise AssertionError


def _make_answer_key(entrant: str, draw: int) -> str:
    """Return the key of an answer to a prompt; names have no line break, so it is unique."""
    return f"{entrant}\n{draw}" if draw else entrant


# Their blocks on a page


def list_verdict_blocks(
    texts: Texts | None,
    manifest: Mapping[str, Any],
    *,
    colors: Mapping[str, int],
    has_battles: bool = False,
) -> list[Block]:
    """Return the comparisons worth reading, and the links to the viewer.

    has_battles  whether the run has verdicts, even if its page has no texts
    """
    if texts is None:
        has_note = manifest.get("judge_model") and has_battles
        return [Paragraph(_NO_TEXTS_NOTE)] if has_note else []
    notice = ""
    if texts.is_sample:
        is_rated = "battles_files" in manifest
        folder = (
            "the files" if is_rated else "responses/ and verdicts/ next to this page"
        )
        notice = _SAMPLE_NOTICE.format(n_kept=format_count(texts.n_kept), place=folder)
    links = ViewerLinks(
        format_count(texts.n_comparisons), provenance.has_flips(manifest), notice
    )
    blocks: list[Block] = []
    if texts.instructive:
        rule = "Chosen by rule: wins of the two best entrants against each other whose answers differ most in length."
        blocks.append(Paragraph(rule, "small"))
    blocks += [
        Verdict(
            f"{i} · {kind}", judged.comparison.prompt_text, *_list_parts(judged, colors)
        )
        for i, (kind, judged) in enumerate(texts.instructive, start=1)
    ]
    blocks.append(links)
    if texts.notable:
        heading = "Unexpected winners, verdicts that change with the order, and invalid verdicts:"
        blocks.append(Paragraph(heading))
    return [*blocks, *(_show(judged, colors) for judged in texts.notable)]


def list_loss_blocks(
    comparisons: Comparisons,
    judgments: Judgments,
    prompt_ids: Sequence[str],
    *,
    loser: str,
    colors: Mapping[str, int],
) -> list[Block]:
    """Return the first comparisons on these prompts that an entrant lost, at most two.

    prompt_ids  prompts in the order in which they are searched
    loser       name of the entrant
    """
    lost = {
        c.prompt_id: JudgedComparison(
            comparison=c, judgment=j, outcome="b", upset=0.0, kind="b"
        )
        for c, j in reversed(pair_judgments(comparisons, judgments))
        if j.winner not in (None, loser)
    }
    losses = [lost[name] for name in prompt_ids if name in lost][:_MAX_LOSSES]
    return [
        Verdict(
            f"{i} · {judged.judgment.winner} wins on {judged.comparison.dimension}",
            judged.comparison.prompt_text,
            *_list_parts(judged, colors),
        )
        for i, judged in enumerate(losses, start=1)
    ]


def _list_parts(
    judged: JudgedComparison, colors: Mapping[str, int]
) -> tuple[list[Answer], list[str]]:
    """Return the answers of a comparison, and the judge's reason in each order, with the entrant that was answer A."""
    entrants = judged.comparison.entrants
    orders = [verdict for verdict in judged.judgment.orders if verdict.reasoning]
    if len({verdict.reasoning for verdict in orders}) == 1:
        return _list_answers(judged, colors), [orders[0].reasoning]
    reasons = [
        f"If {entrants[verdict.position_swap]} is answer A: {verdict.reasoning}"
        for verdict in orders
    ]
    return _list_answers(judged, colors), reasons


def _show(judged: JudgedComparison, colors: Mapping[str, int]) -> Details:
    comparison = judged.comparison
    prompt: Text = [
        Styled(comparison.prompt_id, "bold"),
        f" {comparison.prompt_text}",
    ]
    return Details(
        [
            Styled(_KIND_LABELS.get(judged.kind, judged.kind), "chip"),
            f" {comparison.dimension}: {judged.title}",
        ],
        [Paragraph(prompt, "text"), Answers(_list_answers(judged, colors))],
        style="notable",
    )


def _list_answers(judged: JudgedComparison, colors: Mapping[str, int]) -> list[Answer]:
    comparison = judged.comparison
    return [
        Answer(
            [Dot(colors.get(entrant, _DEFAULT_COLOR)), entrant],
            text,
            is_winner=entrant == judged.judgment.winner,
        )
        for entrant, text in (
            (comparison.entrant_a, comparison.response_a),
            (comparison.entrant_b, comparison.response_b),
        )
    ]
