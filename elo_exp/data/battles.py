"""Battles, the atom of every rating, as columns: interned names, and codes that refer to them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elo_exp.arrays import Array, Index, Mask
from elo_exp.data.pairing import outcome
from elo_exp.records import WINNERS, Battle, Judgment, UserError

Codes = NDArray[np.int32]
Winners = NDArray[np.int8]

SCORES = np.array([1.0, 0.0, 0.5, 0.5])  # of model_a, by the code of the winner
_BLOCK = 10_000  # rows of which the text is held at a time
_WINNER = {"a": "model_a", "b": "model_b", "tie": "tie"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Battles:
    """n battles. A code is the place of a name in the tuple beside it; -1 stands for none."""

    models: tuple[str, ...]  # sorted
    model_a: Codes  # (n,)
    model_b: Codes  # (n,), nowhere equal to model_a
    winner: Winners  # (n,) into WINNERS
    verdict_ab: Winners  # (n,) with model_a shown first; -1: that order was not judged
    verdict_ba: Winners  # (n,) named by model, too
    equal_answers: Mask  # (n,): one query was made for both orders
    questions: tuple[str, ...]
    question: (
        Codes  # (n,); from len(questions) on: names none, and is a prompt of its own
    )
    dimensions: tuple[str, ...]
    dimension: Codes  # (n,)
    judges: tuple[str, ...]
    judge: Codes  # (n,)
    sources: tuple[str, ...]
    source: Codes  # (n,)

    def __len__(self) -> int:
        return len(self.winner)

    @classmethod
    def from_rows(cls, rows: Sequence[Battle]) -> Battles:
        """Raises UserError for an unknown winner and for a model that battles itself."""

        def column(name: str) -> list[Any]:
            return [getattr(row, name) for row in rows]

        def winners(name: str) -> Winners:
            code: dict[str | None, int] = {word: i for i, word in enumerate(WINNERS)}
            code |= {} if name == "winner" else {None: -1}
            try:
                return np.array([code[word] for word in column(name)], dtype=np.int8)
            except KeyError as error:
                expected = ", ".join(WINNERS)
                raise UserError(
                    f"{name}: found {error.args[0]!r}. Expected one of {expected}."
                ) from None

        models, model = _interned(column("model_a") + column("model_b"))
        model_a, model_b = model[: len(rows)], model[len(rows) :]
        if (itself := model_a == model_b).any():
            name = models[model_a[int(np.argmax(itself))]]
            raise UserError(f"{name!r} battles itself. Expected two different models.")
        dimensions, dimension = _interned(column("dimension"))
        judges, judge = _interned(column("judge_model"))
        sources, source = _interned(column("source"))
        battles = cls(
            models=models,
            model_a=model_a,
            model_b=model_b,
            winner=winners("winner"),
            verdict_ab=winners("verdict_ab"),
            verdict_ba=winners("verdict_ba"),
            equal_answers=np.array(column("equal_answers"), dtype=np.bool_),
            questions=(),
            question=np.arange(len(rows), dtype=np.int32),
            dimensions=dimensions,
            dimension=dimension,
            judges=judges,
            judge=judge,
            sources=sources,
            source=source,
        )
        numbers = np.arange(len(rows), dtype=np.int32)
        return battles.compact().with_questions(column("question_id"), numbers)

    def with_questions(
        self, questions: Sequence[str | None], question: Codes
    ) -> Battles:
        """Name the question of each battle by its place (n,) in `questions`; None: its own."""
        names, code = _interned(questions)
        question = code[question]
        own = len(names) + np.arange(len(question), dtype=np.int32)
        question = np.where(question < 0, own, question)
        return dataclasses.replace(self, questions=names, question=question)

    def among(self, models: Collection[str]) -> Battles:
        """Return the battles between any two of these models."""
        chosen = np.isin(self.models, list(models))
        return self.select(chosen[self.model_a] & chosen[self.model_b]).compact()

    def select(self, rows: NDArray[Any]) -> Battles:
        """Return the battles at a mask (n,) or at indices; names and codes stay as they are."""
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
        rows = [row for some in (self, *others) for row in some.rows()]
        return Battles.from_rows(rows)

    def by_dimension(
        self, names: Iterable[str] = (), *, unnamed: str = "overall"
    ) -> dict[str, Battles]:
        """Split the battles by dimension: these names first, then by first appearance.

        A name without battles has an empty value; battles without a dimension are `unnamed`.
        All share their codes of questions, so that prompts can be resampled jointly.
        """
        labels = (*self.dimensions, unnamed)
        codes, first = np.unique(self.dimension, return_index=True)
        found = {labels[code]: code for code in codes[np.argsort(first)].tolist()}
        return {
            name: self.select(self.dimension == found.get(name, -2)).compact()
            for name in dict.fromkeys((*names, *found))
        }

    def scores(self) -> Array:
        """Score (n,) of model_a: 1, 1/2 or 0."""
        return SCORES[self.winner]

    def is_tie(self) -> Mask:
        return np.asarray(self.winner >= 2)

    def both_orders(self) -> Mask:
        """Whether both orders (n,) were judged, one independently of the other."""
        return (self.verdict_ab >= 0) & (self.verdict_ba >= 0) & ~self.equal_answers

    def is_inconsistent(self) -> Mask:
        """Whether both orders (n,) were judged and disagree."""
        return np.asarray(self.both_orders() & (self.verdict_ab != self.verdict_ba))

    def n_battles(self) -> Index:
        """Count the battles (m,) of each model."""
        m = len(self.models)
        return np.bincount(self.model_a, minlength=m) + np.bincount(
            self.model_b, minlength=m
        )

    def names_prompts(self) -> bool:
        """Whether any battle names its question."""
        return bool((self.question < len(self.questions)).any())

    def n_prompts(self) -> int:
        """Count the prompts; a battle that names none has one of its own."""
        return int(np.count_nonzero(np.bincount(self.question)))

    def judge_names(self) -> set[str]:
        return {
            self.judges[code]
            for code in np.flatnonzero(np.bincount(self.judge + 1)[1:])
        }

    def _columns(self) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
        """Names and codes by the field of a row, in the order of battles.jsonl."""
        named = np.where(self.question < len(self.questions), self.question, -1)
        return {
            "model_a": (self.models, self.model_a),
            "model_b": (self.models, self.model_b),
            "winner": (WINNERS, self.winner),
            "source": (self.sources, self.source),
            "question_id": (self.questions, named),
            "judge_model": (self.judges, self.judge),
            "dimension": (self.dimensions, self.dimension),
            "verdict_ab": (WINNERS, self.verdict_ab),
            "verdict_ba": (WINNERS, self.verdict_ba),
        }

    def rows(self) -> list[Battle]:
        """Return the battles as records, for a page, a message or a test."""
        columns = self._columns()
        values = [
            [(*names, None)[code] for code in codes.tolist()]
            for names, codes in columns.values()
        ]
        return [
            Battle(**dict(zip(columns, row, strict=True)), equal_answers=equal)
            for *row, equal in zip(*values, self.equal_answers.tolist(), strict=True)
        ]

    def jsonl(self) -> Iterator[str]:
        """Yield the text of battles.jsonl in blocks; each name is encoded once."""
        columns = {
            **self._columns(),
            "equal_answers": ((False, True), self.equal_answers.view("i1")),
        }
        pieces = []
        for name, (names, codes) in columns.items():
            encoded = [
                json.dumps(value, ensure_ascii=False) for value in (*names, None)
            ]
            texts = np.array([f'"{name}": {text}' for text in encoded], dtype=object)
            pieces.append((texts, codes))
        for start in range(0, len(self), _BLOCK):
            block = [
                texts[codes[start : start + _BLOCK]].tolist() for texts, codes in pieces
            ]
            yield "".join(
                "{" + ", ".join(row) + "}\n" for row in zip(*block, strict=True)
            )


def _interned(values: Sequence[Any]) -> tuple[tuple[str, ...], Codes]:
    """Names by first appearance, and the code (n,) of each value; None is -1."""
    number: dict[str, int] = {}
    codes = [
        -1 if value is None else number.setdefault(value, len(number))
        for value in values
    ]
    return tuple(number), np.array(codes, dtype=np.int32)


def from_judgments(judgments: Iterable[Judgment]) -> list[Battle]:
    """Make one battle of each valid judgment.

    A mirrored verdict is no second observation and leaves `verdict_ba` empty.
    """
    return [_battle(judgment) for judgment in judgments if not judgment.invalid]


def _battle(judgment: Judgment) -> Battle:
    ab, ba = (_WINNER[outcome(verdict) or "tie"] for verdict in judgment.raw[:2])
    one_order = any(verdict.mirrored for verdict in judgment.raw[:2])
    winners = {
        None: "tie",
        judgment.entrant_a: "model_a",
        judgment.entrant_b: "model_b",
    }
    return Battle(
        model_a=judgment.entrant_a,
        model_b=judgment.entrant_b,
        winner=winners[judgment.winner],
        source="llm-judge",
        question_id=judgment.prompt_id,
        judge_model=judgment.raw[0].judge_model,
        dimension=judgment.dimension,
        verdict_ab=ab,
        verdict_ba=None if one_order else ba,
        equal_answers=judgment.equal_answers,
    )
