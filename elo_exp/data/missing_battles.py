"""The comparisons of a file whose result is unknown, and those with a verdict on a blank answer."""

import itertools

import numpy as np

from elo_exp.arrays import Mask
from elo_exp.data.battle_cells import cell_to_text, count_battles, parse_draw
from elo_exp.data.battle_table import BattleTable
from elo_exp.data.table_files import BLANK_FIELDS
from elo_exp.records import MissingBattle


def find_missing_battles(
    table: BattleTable, is_missing: Mask, is_used: Mask, *, has_counts: bool
) -> list[MissingBattle]:
    """Return the comparisons without a result, and those with a verdict on a blank answer.

    is_missing  (n,) rows of two models whose result is unknown
    is_used     (n,) rows with a verdict
    has_counts  whether the file says how many battles a row is
    """
    is_blank_of = np.array(
        [[bool(row.get(name)) for name in BLANK_FIELDS] for row in table.rows],
        dtype=bool,
    ).reshape(-1, 2)
    is_blank = is_blank_of[table.row]
    is_blank &= not is_blank.all()  # such a file keeps no answers
    is_judged = is_used & is_blank.any(axis=1)
    missing = []
    for n in np.flatnonzero(is_missing | is_judged).tolist():
        row = table.rows[table.row[n]]
        sides = table.models[table.model_a[n]], table.models[table.model_b[n]]
        lacking = tuple(itertools.compress(sides, is_blank[n].tolist()))
        # An empty answer that was judged is on record
        on_record = lacking if is_judged[n] and len(lacking) == 1 else ()
        battle = MissingBattle(
            model_a=sides[0],
            model_b=sides[1],
            question_id=table.find_question(n),
            dimension=cell_to_text(row.get("dimension")),
            judge_model=cell_to_text(row.get("judge_model")),
            lacking=lacking,
            failed=on_record,
            is_judged=bool(is_judged[n]),
            count=count_battles(row) if has_counts else None,
            draw_a=parse_draw("draw_a", row) if is_judged[n] else 0,
            draw_b=parse_draw("draw_b", row) if is_judged[n] else 0,
            cluster=table.find_cluster(n),
        )
        missing.append(battle)
    return missing
