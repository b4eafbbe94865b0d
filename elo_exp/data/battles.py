"""Battles, the atom of every rating, as columns: interned names, and codes that refer to them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
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
UNNAMED_CLUSTER = (
    "no question named"  # the cluster of battles without a question among others
)
# Judge names that do not identify a person
_ANONYMOUS_JUDGES = {
    "human",
    "humans",
    "people",
    "crowd",
    "users",
    "voters",
    "annotators",
}
# The text of one block of rows is in memory at a time
_BLOCK_ROWS = 10_000
_OPTIONAL_DEFAULTS = {"count": 1, "draw_a": 0, "draw_b": 0}
_OMITTED_IF_ZERO = ("draw_a", "draw_b")
# Field of names -> fields of codes that refer to them -> the fields of a row
_CODE_COLUMNS = {
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
        for names, fields in _CODE_COLUMNS.items():
            values = [getattr(row, name) for name in fields.values() for row in rows]
            initial_names = WINNERS if names == "winners" else ()
            columns[names], codes = _intern(values, initial_names)
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
            clusters, columns["cluster"] = _intern([row.cluster for row in rows])
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
        names, code = _intern(questions)
        question = code[question]
        own_question = len(names) + np.arange(len(question), dtype=np.int32)
        question = np.where(question < 0, own_question, question)
        return dataclasses.replace(self, questions=names, question=question)

    def set_clusters(self, cluster_of: Mapping[str, str]) -> Battles:
        """Name the cluster of each battle by its question; those that are not named keep the one that they have."""
        number = {name: code for code, name in enumerate(self.clusters)}
        codes = [
            -1 if name is None else number.setdefault(name, len(number))
            for name in map(cluster_of.get, self.questions)
        ]
        of_question = np.array([*codes, -1], dtype=np.int32)
        named_cluster = of_question[np.minimum(self.question, len(codes))]
        cluster = np.where(
            named_cluster >= 0, named_cluster, self._column("cluster", -1)
        )
        if (cluster < 0).all():
            return self
        return dataclasses.replace(self, cluster=cluster, clusters=tuple(number))

    def clusters_by_question(self) -> dict[str, str]:
        """Return the cluster of each question that is in one."""
        if self.cluster is None:
            return {}
        is_named = (self.question < len(self.questions)) & (self.cluster >= 0)
        pairs = np.stack((self.question[is_named], self.cluster[is_named]))
        return {
            self.questions[question]: self.clusters[cluster]
            for question, cluster in np.unique(pairs, axis=1).T.tolist()
        }

    def set_cluster_codes(self, names: Sequence[str], cluster: Codes) -> Battles:
        """Name the cluster of each battle by its place (n,) in `names`; -1: the one that it has, if any."""
        number = {name: code for code, name in enumerate(self.clusters)}
        used = np.unique(cluster[cluster >= 0])
        code = np.full(len(names) + 1, -1, dtype=np.int32)
        for i in used.tolist():
            code[i] = number.setdefault(names[i], len(number))
        new_cluster = np.where(cluster >= 0, code[cluster], self._column("cluster", -1))
        return dataclasses.replace(self, cluster=new_cluster, clusters=tuple(number))

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

    def concatenate(self, *others: Battles) -> Battles:
        """Return these battles and then the others, models and questions matched by name."""
        if not others:
            return self
        parts = (self, *others)
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("score", "equal_answers")
        }
        groups = {**_CODE_COLUMNS, "questions": {"question": "question_id"}}
        if any(part.cluster is not None for part in parts):
            groups["clusters"] = {"cluster": "cluster"}
            parts = tuple(
                dataclasses.replace(part, cluster=part._column("cluster", -1))
                for part in parts
            )
        for names, fields in groups.items():
            number = {name: n for n, name in enumerate(WINNERS)}
            number = number if names == "winners" else {}
            code_arrays = dict[str, list[NDArray[Any]]]()
            for part in parts:
                part_names = getattr(part, names)
                used = np.unique(
                    np.concatenate([getattr(part, field) for field in fields])
                )
                code = np.full(len(part_names) + 1, -1, dtype=np.int32)
                for i in used[(used >= 0) & (used < len(part_names))].tolist():
                    code[i] = number.setdefault(part_names[i], len(number))
                for field in fields:
                    old_codes = np.minimum(getattr(part, field), len(part_names))
                    code_arrays.setdefault(field, []).append(code[old_codes])
            columns |= {
                field: np.concatenate(arrays) for field, arrays in code_arrays.items()
            }
            if names != "winners":
                columns[names] = tuple(number)
        n, question = len(columns["score"]), columns["question"]
        own_prompt = len(columns["questions"]) + np.arange(n, dtype=np.int32)
        columns["question"] = np.where(question < 0, own_prompt, question)
        for name, default in _OPTIONAL_DEFAULTS.items():
            if any(getattr(part, name) is not None for part in parts):
                columns[name] = np.concatenate(
                    [part._column(name, default) for part in parts]
                )
        if "count" in columns:
            columns["is_alone"] = all(
                part.is_alone or not part.n_unnamed() for part in parts
            )
        return Battles(**columns).compact()

    def _column(self, name: str, default: int) -> Codes:
        """Return a column (n,); one that is None has the default everywhere."""
        column: Codes | None = getattr(self, name)
        if column is not None:
            return column
        return np.full(len(self), default, dtype=np.int32)

    def draws(self) -> tuple[Codes, Codes]:
        """Which answer (n,) of model_a, and which of model_b, was compared."""
        return self._column("draw_a", 0), self._column("draw_b", 0)

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

    def n_shares(self) -> tuple[int, int]:
        """Count the verdicts of judges that are shares of points, and those that are labels; votes are neither."""
        is_vote = np.append([name == "human" for name in self.sources], False)
        is_share = np.isfinite(self.score)
        is_judged = ~is_vote[self.source]
        return self.count_at(is_judged & is_share), self.count_at(is_judged & ~is_share)

    def annotators(self) -> Codes | None:
        """Return the person behind each battle (n,), a code of `judges`; None unless all are votes, and some name one.

        "human", "people" and the like are no names. Votes that name nobody among others that do have the code -1: they
        count together as one person.
        """
        is_vote = np.array([*(n == "human" for n in self.sources), False], np.bool_)
        is_personal_name = np.array(
            [*(n not in _ANONYMOUS_JUDGES for n in self.judges), False], np.bool_
        )
        is_named = is_personal_name[self.judge]
        if not is_vote[self.source].all() or not is_named.any():
            return None
        return np.where(is_named, self.judge, np.int32(-1))

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
        for names, fields in _CODE_COLUMNS.items():
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
        for optional in _OPTIONAL_DEFAULTS:
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

    def jsonl(self) -> Iterator[str]:
        """Yield the text of battles.jsonl in blocks; each name is encoded once."""
        encode = json.JSONEncoder(ensure_ascii=False).encode
        pieces, separator = [], "{"
        for name, (names, codes) in self.columns().items():
            encoded_names = [
                ""
                if name in _OMITTED_IF_ZERO and not value
                else f'{separator}"{name}": {encode(value)}'
                for value in (*names, None)
            ]
            pieces.append((np.array(encoded_names, dtype=object), codes))
            separator = ", "
        for start in range(0, len(self), _BLOCK_ROWS):
            block = [
                texts[codes[start : start + _BLOCK_ROWS]].tolist()
                for texts, codes in pieces
            ]
            rows = zip(*block, repeat("}\n"), strict=False)
            yield "".join(chain.from_iterable(rows))


def _intern(
    values: Sequence[Any], initial_names: Sequence[Any] = ()
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
