"""Rankings of several entrants, and the best of several: rows of any table, of no program.

A ranking implies a comparison of each pair that it orders. The best of n implies that it beats each other, and nothing
among these. All comparisons of a prompt have its name, so they count together as one observation, whoever ranked. If
entrants are ranked by Luce's choice rule, the implied comparisons follow Bradley and Terry's model with the same
abilities (R. L. Plackett, 1975, "The analysis of permutations", Applied Statistics 24, 193-202).
"""

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from elo_exp.data import field_names, table_files
from elo_exp.data.battle_texts import QUESTION_TEXT_COLUMNS
from elo_exp.data.formats import Format, MalformedError, Rows, parse_number, score_table
from elo_exp.data.table_files import Row, Source
from elo_exp.errors import format_value

_RANKING_COLUMNS = ("ranking", "ranked", "order", "rank_order")
_RANK_COLUMNS = ("rank", "ranking", "place")
_CANDIDATE_COLUMNS = ("candidates", "entrants", "models", "systems")
_BEST_COLUMNS = ("best", "chosen", "winner", "selected", "preferred", "pick")
# Columns that name the judge or person who ranked
_RATER_COLUMNS = (
    *("judge_model", "judge", "judge_name", "voter", "annotator", "annotator_id"),
    *("rater", "rater_id", "user", "user_id", "worker", "worker_id", "person"),
    *("reviewer", "labeler"),
)
_NAMES_OF_ENTRANTS = (*field_names.ENTRANT, "entrant", "name", "agent", "system")
_N_ROWS_LOOKED_AT = 50
_MAX_DIGITS = 4
_TIE_WORDS = ("tie", "tied", "draw", "equal", "none")

# Groups of entrants, the best first; those of one group are level
Groups = Sequence[Sequence[str]]


def find_faults_of_rankings(path: Source, keys: set[str]) -> list[str]:
    """Return what a file lacks to have a list of entrants in each row, the best first."""
    column = _find_column(keys, _RANKING_COLUMNS)
    if column is None:
        return ["lacks a column for the ranking"]
    value = _find_value(path, column)
    is_text = isinstance(value, str) and any(sign in value for sign in ">,;")
    return (
        [] if is_text or isinstance(value, list | dict) else ["lacks a list of ranks"]
    )


def find_faults_of_ranks(path: Source, keys: set[str]) -> list[str]:
    """Return what a file lacks to have a row for the rank of each entrant."""
    columns = score_table.find_columns(keys)
    faults = [
        f"lacks a column for the {role}"
        for role in ("item", "entrant")
        if role not in columns
    ]
    if _find_column(keys, _RANK_COLUMNS) is None:
        faults.append("lacks a column for the rank")
    if "score" in columns:
        faults.append("has a column of scores")
    return faults


def find_faults_of_best(path: Source, keys: set[str]) -> list[str]:
    """Return what a file lacks to name the best of several candidates in each row."""
    faults = [
        f"lacks a column for the {noun}"
        for noun, names in (("candidates", _CANDIDATE_COLUMNS), ("best", _BEST_COLUMNS))
        if _find_column(keys, names) is None
    ]
    column = _find_column(keys, _CANDIDATE_COLUMNS)
    if not faults and not isinstance(_find_value(path, column), list | dict):
        faults.append("lacks a list of candidates")
    return faults


def _find_value(path: Source, column: str | None) -> Any:
    """Return the value of a column in the top row that has one."""
    rows = itertools.islice(table_files.read_rows(path), _N_ROWS_LOOKED_AT)
    values = (_parse_json(row.get(column)) for _, row in rows)
    return next((value for value in values if value not in (None, "", [])), None)


def join_rankings(rows: Rows) -> Rows:
    """Make a row of each comparison that a ranking implies."""
    for location, row in rows:
        column = _find_column(row, _RANKING_COLUMNS)
        yield from _imply(
            location, row, lambda row, column=column: _parse_ranking(row, column)
        )


def join_best(rows: Rows) -> Rows:
    """Make a row of the comparison of the best candidate with each other."""
    all_rows = list(rows)
    start = _find_start(row for _, row in all_rows)
    for location, row in all_rows:
        yield from _imply(location, {**row, "\0start": start}, _parse_best)


def _find_start(rows: Iterable[Row]) -> int | None:
    """Return whether numbers of the best count from 0 or from 1; None if no row shows it."""
    for row in rows:
        number = _read_number(row.get(_find_column(row, _BEST_COLUMNS)))
        if number == 0:
            return 0
        if number is not None and number == len(_list_candidates(row)):
            return 1
    return None


def _read_number(cell: Any) -> int | None:
    text = table_files.to_text(cell) or ""
    return int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else None


def join_ranks(rows: Rows) -> Rows:
    """Make a row of each comparison that the ranks of one item imply, as one person or judge gave them."""
    rows_by_ranking = dict[str, tuple[str, list[Row]]]()
    columns = dict[str, str]()
    for location, row in rows:
        columns = columns or score_table.find_columns({*map(str, row)})
        rater = field_names.first_value(row, _RATER_COLUMNS)
        roles = ("item", "draw", "dimension")
        key = str([*(row.get(columns.get(role)) for role in roles), rater])
        rows_by_ranking.setdefault(key, (location, []))[1].append(row)
    for location, ranks in rows_by_ranking.values():
        ranking = {**ranks[0], "\0ranks": ranks, "\0columns": columns}
        yield from _imply(location, ranking, _parse_ranks)


def fields(row: Row) -> Mapping[str, Any]:
    """Return the prompt, the rater and the entrants of a ranking. A row without id and question is a prompt of its own."""
    if "\0error" in row:
        raise MalformedError(row["\0error"])
    present = {str(key) for key in row if table_files.to_text(row[key]) is not None}
    columns = score_table.find_columns(present)
    item, dimension = columns.get("item"), columns.get("dimension")
    has_question = any(name in present for name in QUESTION_TEXT_COLUMNS)
    question_id = None if has_question else row["\0location"]
    if item is not None and item not in QUESTION_TEXT_COLUMNS:
        question_id = row[item]
    texts = row["\0texts"]
    return {
        "model_a": row["\0models"][0],
        "model_b": row["\0models"][1],
        "winner": row["\0winner"],
        "question_id": question_id,
        "dimension": row[dimension] if dimension else None,
        "judge_model": field_names.first_value(row, _RATER_COLUMNS),
        **({"response_a": texts[0], "response_b": texts[1]} if texts else {}),
    }


def _find_column(keys: Iterable[Any], names: Sequence[str]) -> str | None:
    present = {*keys}
    return next((name for name in names if name in present), None)


def _parse_json(value: Any) -> Any:
    """Return a list or an object that a table holds as JSON; anything else as it is."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


# Implied comparisons


def _imply(location: str, row: Row, parse: Any) -> Iterator[tuple[str, Row]]:
    """Yield a row for each comparison. Sides are in the order of names, so that none of them is favoured."""
    try:
        groups, is_best_of_n = parse(row)
        texts = _read_texts(row)
    except MalformedError as error:
        yield location, {**row, "\0error": str(error)}
        return
    ranked = [name for group in groups or () for name in group]
    candidates = ranked if groups else _read_candidates(row)
    best = set(groups[0]) if groups and is_best_of_n else None
    level = {name: n for n, group in enumerate(groups or ()) for name in group}
    pairs = list(itertools.combinations(sorted(candidates), 2))
    for a, b in pairs:
        if best is not None and not best & {a, b}:
            continue
        winner = None
        if groups:
            lead = level[a] - level[b]
            winner = "tie" if lead == 0 else "model_a" if lead < 0 else "model_b"
        pair_texts = (texts[a], texts[b]) if {a, b} <= texts.keys() else None
        implied = {"\0models": (a, b), "\0winner": winner, "\0texts": pair_texts}
        yield location, {**row, **implied, "\0location": location.rpartition("/")[2]}
    if not pairs:  # a row without a verdict
        implied = {"\0models": (None, None), "\0winner": None, "\0texts": None}
        yield location, {**row, **implied, "\0location": location.rpartition("/")[2]}


def _read_candidates(row: Row) -> list[str]:
    """Return the candidates of a row, by name; none if the row does not list them."""
    return _check_names(_list_candidates(row))


def _list_candidates(row: Row) -> list[Any]:
    column = _find_column(row, _CANDIDATE_COLUMNS)
    value = _parse_json(row.get(column)) if column else None
    return [*value] if isinstance(value, list | dict) else []


def _name_letter(name: str, candidates: Sequence[str]) -> str:
    """Return the candidate at the place of a letter, if no candidate has this name; else the name."""
    is_letter = len(name) == 1 and "A" <= name <= "Z" and name not in candidates
    index = ord(name) - ord("A") if is_letter else len(candidates)
    return candidates[index] if index < len(candidates) else name


def _read_texts(row: Row) -> dict[str, str]:
    """Return the answers of candidates whose names are keys of an object."""
    column = _find_column(row, _CANDIDATE_COLUMNS)
    value = _parse_json(row.get(column)) if column else None
    if not isinstance(value, dict) or not all(
        isinstance(v, str) for v in value.values()
    ):
        return {}
    return {str(name).strip(): text for name, text in value.items()}


def _check_names(values: Iterable[Any]) -> list[str]:
    """Return the names of entrants. Raises MalformedError for what names none, and for a name that stands twice."""
    names = list[str]()
    for value in values:
        is_row = isinstance(value, Mapping)
        cell = field_names.first_value(value, _NAMES_OF_ENTRANTS) if is_row else value
        name = (table_files.to_text(cell) or "").strip()
        if not name or isinstance(cell, list | dict | bool):
            raise MalformedError(
                f"a ranking must hold names of entrants; got {format_value(value)}."
            )
        names.append(name)
    if repeated := {name for name in names if names.count(name) > 1}:
        raise MalformedError(f"the row ranks {format_value(min(repeated))} twice.")
    return names


def _parse_ranking(row: Row, column: str | None) -> tuple[Groups | None, bool]:
    """Return groups of equal rank from a list, an object of ranks, or a text such as a > b = c. None if there are none."""
    value = _parse_json(row.get(column))
    candidates = _read_candidates(row)
    if isinstance(value, str) and value.strip():
        sign = next((sign for sign in ">;," if sign in value), ">")
        value = [group.split("=") for group in value.split(sign)]
    if isinstance(value, dict):
        return _sort_by_rank(value.items()), False
    if not isinstance(value, list) or not value:
        return None, False
    lists = [group if isinstance(group, list) else [group] for group in value]
    if all(type(cell) is int for group in lists for cell in group):
        lists = _name_numbers(lists, candidates)
    cells = _check_names(cell for group in lists for cell in group)
    names = [_name_letter(cell, candidates) for cell in cells]
    if candidates and (unknown := [name for name in names if name not in candidates]):
        raise MalformedError(
            f"the ranking must name candidates of its row ({', '.join(candidates)}); got {format_value(unknown[0])}."
        )
    sizes = [len(group) for group in lists]
    ends = list(itertools.accumulate(sizes))
    return [names[end - n : end] for end, n in zip(ends, sizes, strict=True)], False


def _name_numbers(
    groups: Sequence[Sequence[int]], candidates: Sequence[str]
) -> list[list[str]]:
    """Return the candidates that numbers stand for, from 0 or from 1. Raises MalformedError if this is not clear."""
    numbers = sorted(number for group in groups for number in group)
    n = len(candidates)
    for start in (0, 1):
        if candidates and numbers == list(range(start, start + n)):
            return [
                [candidates[number - start] for number in group] for group in groups
            ]
    raise MalformedError(
        f"the ranking must name entrants, or number all candidates of its row; got {format_value(list(groups))}."
    )


def _parse_best(row: Row) -> tuple[Groups | None, bool]:
    """Return the best candidates and the others; None if none is named."""
    candidates = _read_candidates(row)
    value = _parse_json(row.get(_find_column(row, _BEST_COLUMNS)))
    if table_files.to_text(value) is None or value == []:
        return None, True
    if str(value).strip().casefold() in _TIE_WORDS and str(value) not in candidates:
        return [candidates], True
    number, start = _read_number(value), row["\0start"]
    if number is not None and start is not None and str(value) not in candidates:
        value = next(iter(candidates[number - start :]), value)
    cells = _check_names(value if isinstance(value, list) else [value])
    best = [_name_letter(cell, candidates) for cell in cells]
    if unknown := [name for name in best if name not in candidates]:
        raise MalformedError(
            f"the best must be a candidate of its row ({', '.join(candidates)}); got {format_value(unknown[0])}."
        )
    return [best, [name for name in candidates if name not in best]], True


def _parse_ranks(row: Row) -> tuple[Groups | None, bool]:
    """Return the groups of entrants by their ranks; those without a rank are left out."""
    entrant = row["\0columns"]["entrant"]
    ranks = row["\0ranks"]
    _ = _check_names(rank.get(entrant) for rank in ranks)
    column = _find_column(ranks[0], _RANK_COLUMNS)
    return _sort_by_rank((rank[entrant], rank.get(column)) for rank in ranks), False


def _sort_by_rank(ranks: Iterable[tuple[Any, Any]]) -> Groups | None:
    names_by_rank = dict[float, list[str]]()
    for name, cell in ranks:
        try:
            rank = parse_number(cell)
        except (TypeError, ValueError):
            rank = math.inf
        if rank is not None and not math.isfinite(rank):
            raise MalformedError(
                f"a rank must be a number, 1 for the best; got {format_value(cell)}."
            )
        if rank is not None:
            names_by_rank.setdefault(rank, []).append(str(name).strip())
    return [names_by_rank[rank] for rank in sorted(names_by_rank)] or None


_RANKINGS = Format(
    name="rankings",
    required=(),
    find_faults=find_faults_of_rankings,
    join=join_rankings,
    fields=fields,
    assumption="a ranking implies the comparison of each pair, and those on one prompt count together",
)
FORMATS = (
    _RANKINGS,
    replace(_RANKINGS, name="ranks", find_faults=find_faults_of_ranks, join=join_ranks),
    replace(
        _RANKINGS,
        name="best of n",
        find_faults=find_faults_of_best,
        join=join_best,
        assumption="the best beats each other candidate, and those on one prompt count together",
    ),
)
