"""Battles of several files, judges or placements as one."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elo_exp.data.battles import CODE_COLUMNS, OPTIONAL_DEFAULTS, Battles
from elo_exp.records import WINNERS


def concatenate_battles(*parts: Battles) -> Battles:
    """Return the battles of all parts, one part after the other; models and questions are matched by name."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("score", "equal_answers")
    }
    groups = {**CODE_COLUMNS, "questions": {"question": "question_id"}}
    if any(part.cluster is not None for part in parts):
        groups["clusters"] = {"cluster": "cluster"}
        parts = tuple(
            dataclasses.replace(part, cluster=part.fill_column("cluster", -1))
            for part in parts
        )
    for names, fields in groups.items():
        number = {name: n for n, name in enumerate(WINNERS)}
        number = number if names == "winners" else {}
        code_arrays = dict[str, list[NDArray[Any]]]()
        for part in parts:
            part_names = getattr(part, names)
            used = np.unique(np.concatenate([getattr(part, field) for field in fields]))
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
    for name, default in OPTIONAL_DEFAULTS.items():
        if any(getattr(part, name) is not None for part in parts):
            columns[name] = np.concatenate(
                [part.fill_column(name, default) for part in parts]
            )
    if "count" in columns:
        columns["is_alone"] = all(
            part.is_alone or not part.n_unnamed() for part in parts
        )
    return Battles(**columns).compact()
