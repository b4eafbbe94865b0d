"""The rows of a file of battles as a table: distinct rows, and the models and the question of each battle."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from elo_exp.arrays import to_mask
from elo_exp.data.bank import hash_text
from elo_exp.data.battle_cells import cell_to_text, to_model_name
from elo_exp.data.battles import intern_names
from elo_exp.data.table_files import Cell, CodedBattles, Codes, Row

# No model is named by one of the private characters from here on
_FIRST_PRIVATE_CHARACTER = 0xE000


@dataclass(frozen=True, kw_only=True, eq=False)
class BattleTable:
    """n battles as they stand in a file. A code is a place in the names beside it; -1 stands for none.

    rows      the distinct rows, without the names of their models unless these decide what a row says
    row       (n,) the row of each battle
    prompts   by field of a prompt, its cells and the cell (n,) of each battle
    """

    rows: list[Row]
    row: Codes
    models: tuple[str, ...]
    model_a: Codes  # (n,)
    model_b: Codes  # (n,)
    questions: list[str | None]
    question: Codes  # (n,)
    prompts: dict[str, tuple[list[Cell], Codes]]

    def __len__(self) -> int:
        return len(self.row)

    def find_cluster(self, n: int) -> str | None:
        """Return the cluster that row n names."""
        return self._prompt_cell(n, "cluster")

    def find_question(self, n: int) -> str | None:
        """Return the question of row n; if it names none, the id of its text, as `add_units` does."""
        text = self._prompt_cell(n, "question_text")
        hashed = None if text is None else hash_text(text)
        return self.questions[self.question[n]] or hashed

    def _prompt_cell(self, n: int, field: str) -> str | None:
        if field not in self.prompts:
            return None
        cells, codes = self.prompts[field]
        return cell_to_text(cells[codes[n]])


def tabulate_battles(
    coded: CodedBattles, words: Collection[str], *, keep_models: bool
) -> BattleTable:
    """Return the battles of a file with names of models and questions as text.

    words        those that a winner may be; a row whose winner may be a word or a name keeps its own models
    keep_models  all rows keep their own models
    """
    rows, row = _expand_kinds(coded, words, keep_models=keep_models)
    models, number = intern_names(map(to_model_name, coded.models))
    no_questions = [None], np.zeros(len(coded), dtype=np.int32)
    question_cells, question = coded.prompts.get("question_id", no_questions)
    return BattleTable(
        rows=rows,
        row=row,
        models=models,
        model_a=number[coded.a],
        model_b=number[coded.b],
        questions=[cell_to_text(name) for name in question_cells],
        question=question,
        prompts=coded.prompts,
    )


def _expand_kinds(
    coded: CodedBattles, words: Collection[str], *, keep_models: bool
) -> tuple[list[Row], Codes]:
    """Return the distinct rows up to the names of their models, and the code (n,) of each row."""
    names = [cell_to_text(name) for name in coded.models]
    winners = [cell_to_text(kind.get("winner")) for kind in coded.kinds]
    used_words = {*words, *winners}
    free_names = (
        name
        for name in map(chr, itertools.count(_FIRST_PRIVATE_CHARACTER))
        if name not in used_words
    )
    placeholder_models = next(free_names), next(free_names)
    kinds_with_sides = zip(coded.kinds, coded.winner_sides, strict=True)
    rows = [
        _fill_in_models(kind, winner_side, *placeholder_models)
        for kind, winner_side in kinds_with_sides
    ]
    is_word = to_mask(name in words for name in names)
    model_names = {*names} - {None}
    is_name = to_mask(winner in model_names for winner in winners)
    if keep_models:
        is_name[:] = True
    unclear = is_name[coded.kind_codes]
    for side, code in (("model_a", coded.a), ("model_b", coded.b)):
        is_own = to_mask(winner_side == side for winner_side in coded.winner_sides)
        unclear |= is_own[coded.kind_codes] & is_word[code]
    unclear_rows = np.flatnonzero(unclear)
    codes = np.stack((coded.kind_codes, coded.a, coded.b))[:, unclear_rows]
    distinct, number = np.unique(codes, axis=1, return_inverse=True)
    kind = coded.kind_codes.copy()
    kind[unclear_rows] = len(rows) + number
    for k, i, j in distinct.T.tolist():
        names_of = coded.models[i], coded.models[j]
        rows.append(_fill_in_models(coded.kinds[k], coded.winner_sides[k], *names_of))
    return rows, kind


def _fill_in_models(
    kind: Row, winner_side: str | None, model_a: Cell, model_b: Cell
) -> Row:
    """Return a kind with the names of its models."""
    models = {"model_a": model_a, "model_b": model_b}
    return {
        **kind,
        **models,
        **({"winner": models[winner_side]} if winner_side else {}),
    }
