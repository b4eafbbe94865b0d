"""What battles of a file have in common beyond the name of a question: its text, or a cluster."""

from collections.abc import Sequence

import numpy as np

from elo_exp.arrays import Index
from elo_exp.data.bank import hash_text
from elo_exp.data.battle_cells import cell_to_text
from elo_exp.data.battle_clusters import UNNAMED_CLUSTER, set_cluster_codes
from elo_exp.data.battle_table import BattleTable
from elo_exp.data.battles import Battles, Codes, intern_names


def add_units(battles: Battles, table: BattleTable, used: Index) -> Battles:
    """Add what prompts have in common: a named cluster, or the text of the question.

    A battle that names no question is on that of its text. If neither names one, all such battles of a file that
    names some are one cluster, as they may all be on one prompt.

    used  the rows of the table that these battles are
    """
    texts = table.prompts.get("question_text")
    if texts is not None:
        text_hashes, number = intern_names(
            None if (text := cell_to_text(cell)) is None else hash_text(text)
            for cell in texts[0]
        )
        battles = _add_texts(battles, text_hashes, number[texts[1][used]])
    if (cluster_cells := table.prompts.get("cluster")) is not None:
        clusters, number = intern_names(map(cell_to_text, cluster_cells[0]))
        code = number[cluster_cells[1][used]]
        if (code >= 0).any():
            battles = set_cluster_codes(battles, clusters, code)
    n_lacking = battles.n_unnamed()
    if 0 < n_lacking < battles.n_total() and battles.count is None:
        is_unnamed = battles.units() >= battles.n_named_units
        code = np.where(is_unnamed, 0, -1).astype(np.int32)
        battles = set_cluster_codes(battles, [UNNAMED_CLUSTER], code)
    return battles


def _add_texts(battles: Battles, texts: Sequence[str], text_code: Codes) -> Battles:
    """Name questions that have no name by their texts; if all that have a text are named, cluster equal texts."""
    lacks = battles.question >= len(battles.questions)
    if not (lacks & (text_code >= 0)).any():
        return _cluster_equal_texts(battles, text_code, texts)
    n = len(battles.questions)
    names = [*battles.questions, *texts, None]
    text_question = np.where(text_code >= 0, n + text_code, n + len(texts))
    question = np.where(lacks, text_question, battles.question)
    return battles.set_questions(names, question)


def _cluster_equal_texts(
    battles: Battles, text_code: Codes, texts: Sequence[str]
) -> Battles:
    """Make one cluster of questions with other names and the same text."""
    rows = np.flatnonzero(
        (text_code >= 0) & (battles.question < len(battles.questions))
    )
    pairs = np.unique(np.stack((text_code[rows], battles.question[rows])), axis=1)
    n_questions = np.bincount(pairs[0], minlength=len(texts))
    is_shared = np.append(n_questions > 1, False)[text_code]
    if not is_shared.any():
        return battles
    names = [f"text {text}" for text in texts]
    return set_cluster_codes(battles, names, np.where(is_shared, text_code, -1))
