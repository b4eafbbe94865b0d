"""Battles, the atom of every rating, as columns: interned names, and codes that refer to them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from elo_exp.arrays import Array, Index, Mask, count_codes, none_if_nan
from elo_exp.data.pairing import unswap_verdict
from elo_exp.data.writing_style import FEATURES, add_style
from elo_exp.records import WINNERS, Battle, Comparison, Judgment

Codes = NDArray[np.int32]

# The score of model_a, by the code of the winner
SCORES = np.array([1.0, 0.0, 0.5, 0.5])
# The dimension of battles that name none
OVERALL_DIMENSION = "overall"
# Columns that may be None, with the value that each row then has
OPTIONAL_DEFAULTS = {"count": 1, "draw_a": 0, "draw_b": 0}
# Field of names -> fields of codes that refer to them -> the fields of a row
CODE_COLUMNS = {
    "winners": {name: name for name in ("winner", "verdict_ab", "verdict_ba")},
    "models": {"model_a": "model_a", "model_b": "model_b"},
    "dimensions": {"dimension": "dimension"},
    "judges": {"judge": "judge_model"},
    "sources": {"source": "source"},
    "styles": {"style_a": "style_a", "style_b": "style_b"},
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Battles:
    """n rows, each a battle or so many alike. A code is the place of a name in the tuple beside it; -1
    stands for none."""

    models: tuple[str, ...]  # sorted
    model_a: Codes  # (n,)
    model_b: Codes  # (n,), nowhere equal to model_a
    winner: Codes  # (n,)
    verdict_ab: Codes  # (n,) with model_a shown first; -1: that order was not judged
    verdict_ba: Codes  # (n,) named by model, too
    winners: ClassVar = WINNERS
    score: Array  # (n,) model_a's share; NaN where it is what the winner says
    equal_answers: Mask  # (n,): one query was made for both orders
    questions: tuple[str, ...]
    # (n,); from len(questions) on: names none, and is a prompt of its own
    question: Codes
    dimensions: tuple[str, ...]
    dimension: Codes  # (n,)
    judges: tuple[str, ...]
    judge: Codes  # (n,)
    sources: tuple[str, ...]
    source: Codes  # (n,)
    # counts of data.writing_style.FEATURES in an answer
    styles: tuple[tuple[int, ...], ...]
    style_a: Codes  # (n,)
    style_b: Codes  # (n,)
    # (n,) how many battles each row stands for; None: one. Those of a row that names no question are on a
    # prompt of their own each
    count: Codes | None = None
    # (n,) which answer of each model; None: the first of all
    draw_a: Codes | None = None
    draw_b: Codes | None = None
    # (n,) of prompts that belong together: battles of one cluster are one observation; None: each prompt is its own
    cluster: Codes | None = None
    clusters: tuple[str, ...] = ()
    # whether a battle that names no question is known to be the only one on its prompt
    is_alone: bool = False

    def __len__(self) -> int:
        return len(self.winner)

    @classmethod
    def from_rows(cls, rows: Sequence[Battle]) -> Battles:
        n = np.arange(len(rows), dtype=np.int32)
        columns: dict[str, Any] = {"questions": (), "question": n}
        for names, fields in CODE_COLUMNS.items():
            values = [getattr(row, name) for name in fields.values() for row in rows]
            initial_names = WINNERS if names == "winners" else ()
            columns[names], codes = intern_names(values, initial_names)
            columns |= zip(fields, np.split(codes, len(fields)), strict=True)
        del columns["winners"]
        if any(row.count is not None for row in rows):
            counts = [1 if row.count is None else row.count for row in rows]
            columns["count"] = np.array(counts, dtype=np.int32)
            columns["is_alone"] = True
        if any(row.draw_a or row.draw_b for row in rows):
            columns["draw_a"] = np.array([row.draw_a for row in rows], dtype=np.int32)
            columns["draw_b"] = np.array([row.draw_b for row in rows], dtype=np.int32)
        if any(row.cluster is not None for row in rows):
            clusters, columns["cluster"] = intern_names([row.cluster for row in rows])
            columns["clusters"] = clusters
        battles = cls(
            score=np.array([row.score for row in rows], dtype=np.float64),
            equal_answers=np.array([row.equal_answers for row in rows], dtype=np.bool_),
            **columns,
        )
        return battles.compact().set_questions([row.question_id for row in rows], n)

    def set_questions(
        self, questions: Sequence[str | None], question: Codes
    ) -> Battles:
        """Name the question of each battle by its place (n,) in `questions`; None: its own."""
        names, code = intern_names(questions)
        question = code[question]
        own_question = len(names) + np.arange(len(question), dtype=np.int32)
        question = np.where(question < 0, own_question, question)
        return dataclasses.replace(self, questions=names, question=question)

    def units(self) -> Codes:
        """Return the unit of observation of each battle (n,): its cluster or, in none, its question.

        From `n_named_units` on: it names neither, and is one of its own.
        """
        if self.cluster is None:
            return self.question
        question = self.question + np.int32(len(self.clusters))
        return np.where(self.cluster >= 0, self.cluster, question)

    @property
    def n_named_units(self) -> int:
        return len(self.clusters) + len(self.questions)

    @property
    def unit_names(self) -> tuple[str, ...]:
        """Names of units, by their code."""
        return (*(f"cluster {name}" for name in self.clusters), *self.questions)

    def select_between(self, models: Collection[str]) -> Battles:
        """Return the battles between any two of these models."""
        is_member = np.isin(self.models, list(models))
        return self.select(is_member[self.model_a] & is_member[self.model_b]).compact()

    def select_with_any(self, models: Collection[str]) -> Battles:
        """Return the battles of any of these models, with any other."""
        is_member = np.isin(self.models, list(models))
        return self.select(is_member[self.model_a] | is_member[self.model_b])

    def select(self, rows: NDArray[Any]) -> Battles:
        """Return the battles at a mask (n,) or at indices; names and codes stay as they are."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        columns = {
            field.name: column[rows]
            for field in dataclasses.fields(self)
            if isinstance(column := getattr(self, field.name), np.ndarray)
        }
        return dataclasses.replace(self, **columns)

    def compact(self) -> Battles:
        """Return the battles with only the models that take part, sorted."""
        present = np.flatnonzero(self.n_battles()).tolist()
        present.sort(key=self.models.__getitem__)
        code = np.full(len(self.models), -1, dtype=np.int32)
        code[present] = np.arange(len(present))
        return dataclasses.replace(
            self,
            models=tuple(self.models[i] for i in present),
            model_a=code[self.model_a],
            model_b=code[self.model_b],
        )

    def fill_column(self, name: str, default: int) -> Codes:
        """Return a column (n,); one that is None has the default everywhere."""
        column: Codes | None = getattr(self, name)
        if column is not None:
            return column
        return np.full(len(self), default, dtype=np.int32)

    def draws(self) -> tuple[Codes, Codes]:
        """Which answer (n,) of model_a, and which of model_b, was compared."""
        return self.fill_column("draw_a", 0), self.fill_column("draw_b", 0)

    def split_by_dimension(self, names: Iterable[str] = ()) -> dict[str, Battles]:
        """Split the battles by dimension: these names first, then by first appearance.

        A name without battles has an empty value; battles without a dimension are `overall`.
        All share their codes of questions, so that prompts can be resampled jointly.
        """
        labels = (*self.dimensions, OVERALL_DIMENSION)
        codes, first_index = np.unique(self.dimension, return_index=True)
        code_of_label = {
            labels[code]: code for code in codes[np.argsort(first_index)].tolist()
        }
        return {
            name: self.select(self.dimension == code_of_label.get(name, -2)).compact()
            for name in dict.fromkeys((*names, *code_of_label))
        }

    def scores(self) -> Array:
        """Score (n,) of model_a: 1, 1/2, 0 or its share."""
        return np.where(np.isnan(self.score), SCORES[self.winner], self.score)

    def is_tie(self) -> Mask:
        return np.asarray(self.winner >= 2)

    def has_both_orders(self) -> Mask:
        """Whether both orders (n,) were judged, one independently of the other."""
        return (self.verdict_ab >= 0) & (self.verdict_ba >= 0) & ~self.equal_answers

    def is_inconsistent(self) -> Mask:
        """Whether both orders (n,) were judged and disagree."""
        return np.asarray(self.has_both_orders() & (self.verdict_ab != self.verdict_ba))

    def has_single_order(self) -> Mask:
        """Whether one order (n,) alone was judged, where it is not the same in all battles."""
        ab, ba = self.verdict_ab >= 0, self.verdict_ba >= 0
        return np.asarray((ab ^ ba) & (ab & ~ba).any() & (ba & ~ab).any())

    def n_total(self) -> int:
        """Count the battles."""
        return len(self) if self.count is None else int(self.count.sum(dtype=np.int64))

    def count_at(self, mask: Mask) -> int:
        """Count the battles at a mask (n,)."""
        counts = mask if self.count is None else self.count[mask]
        return int(counts.sum(dtype=np.int64))

    def n_battles(self) -> Index:
        """Count the battles (m,) of each model."""
        sides = np.append(self.model_a, self.model_b)
        count = None if self.count is None else np.tile(self.count, 2)
        return count_codes(sides, count, len(self.models))

    def style(self) -> Array:
        """Return the counts of style of both sides (n, 2, features); NaN where they are not known."""
        counts = np.array([*self.styles, [math.nan] * len(FEATURES)])
        return np.stack([counts[self.style_a], counts[self.style_b]], axis=1)

    def names_prompts(self) -> bool:
        """Whether any battle names its question, or is known to be alone on it."""
        return self.is_alone or bool((self.units() < self.n_named_units).any())

    def n_unnamed(self) -> int:
        """Count the battles that name neither a question nor a cluster."""
        return self.count_at(self.units() >= self.n_named_units)

    def n_prompts(self) -> int:
        """Count the prompts; a battle that names none has one of its own."""
        is_named = self.question < len(self.questions)
        n_named = int(np.count_nonzero(np.bincount(self.question[is_named])))
        if self.cluster is None:
            return n_named + self.n_unnamed()
        cluster_only = self.cluster[~is_named]
        return (
            n_named + len(np.unique(cluster_only[cluster_only >= 0])) + self.n_unnamed()
        )

    def columns(self) -> dict[str, tuple[tuple[Any, ...], NDArray[Any]]]:
        """Names and codes by the field of a row, in the order of battles.jsonl."""
        columns = dict[str, tuple[tuple[Any, ...], NDArray[Any]]]()
        for names, fields in CODE_COLUMNS.items():
            for code, name in fields.items():
                columns[name] = getattr(self, names), getattr(self, code)
        if not self.styles:
            del columns["style_a"], columns["style_b"]
        question_codes = np.where(
            self.question < len(self.questions), self.question, -1
        )
        columns["question_id"] = self.questions, question_codes
        if self.cluster is not None:
            columns["cluster"] = self.clusters, self.cluster
        columns["equal_answers"] = (False, True), self.equal_answers.view("i1")
        if np.isfinite(self.score).any():
            shares, share = np.unique(self.score, return_inverse=True)
            columns["score"] = tuple(map(none_if_nan, shares.tolist())), share
        for optional in OPTIONAL_DEFAULTS:
            if (column := getattr(self, optional)) is not None:
                values, codes = np.unique(column, return_inverse=True)
                columns[optional] = tuple(values.tolist()), codes
        return {name: columns[name] for name in Battle.__slots__ if name in columns}

    def rows(self) -> list[Battle]:
        """Return the battles as records, for a page, a message or a test."""
        columns = {
            name: map((*names, None).__getitem__, codes.tolist())
            for name, (names, codes) in self.columns().items()
        }
        all_rows = zip(*columns.values(), strict=True)
        return [Battle(**dict(zip(columns, row, strict=True))) for row in all_rows]


def intern_names(
    values: Iterable[Any], initial_names: Sequence[Any] = ()
) -> tuple[tuple[Any, ...], Codes]:
    """Return the initial names and the others by first appearance, and the code (n,) of each value; None is -1."""
    number = {name: code for code, name in enumerate(initial_names)}
    codes = [
        -1 if value is None else number.setdefault(value, len(number))
        for value in values
    ]
    return tuple(number), np.array(codes, dtype=np.int32)


def battles_from_judgments(
    judgments: Iterable[Judgment], comparisons: Sequence[Comparison] = ()
) -> list[Battle]:
    """Make one battle of each valid judgment, with the style of answers that are compared.

    A mirrored verdict is no second observation: it stands for the order that was judged.
    """
    battles = [_to_battle(judgment) for judgment in judgments if not judgment.invalid]
    return add_style(battles, comparisons) if comparisons else battles


def _to_battle(judgment: Judgment) -> Battle:
    winners = {"a": "model_a", "b": "model_b"}
    verdicts = {  # by whether model_b was shown first
        verdict.position_swap != verdict.mirrored: winners.get(
            str(unswap_verdict(verdict)), "tie"
        )
        for verdict in reversed(judgment.orders)
    }
    names: dict[str | None, str]
    names = {judgment.entrant_a: "model_a", judgment.entrant_b: "model_b"}
    return Battle(
        model_a=judgment.entrant_a,
        model_b=judgment.entrant_b,
        winner=names.get(judgment.winner, "tie"),
        source="llm-judge",
        question_id=judgment.prompt_id,
        judge_model=judgment.raw[0].judge_model,
        dimension=judgment.dimension,
        verdict_ab=verdicts.get(False),
        verdict_ba=verdicts.get(True),
        score=_mean_share(judgment),
        equal_answers=judgment.equal_answers,
        draw_a=judgment.draw_a,
        draw_b=judgment.draw_b,
    )


def _mean_share(judgment: Judgment) -> float | None:
    """Return the share of entrant_a, averaged over the orders; None if only labels were read."""
    shares = [
        1.0 - verdict.share if verdict.position_swap else verdict.share
        for verdict in judgment.orders
        if verdict.share is not None
    ]
    return fmean(shares) if shares and len(shares) == len(judgment.orders) else None
