"""Human battles of an arena in one schema, whatever its columns are called.

The texts stay where they are; those of the battles that are drawn are read on their own.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp.arena import rows as arena_rows
from elo_exp.arena.rows import At, Row
from elo_exp.arena.settings import ArenaSource
from elo_exp.data import tables
from elo_exp.data.battles import Battles
from elo_exp.records import WINNERS, Battle, UserError, fingerprint

logger = logging.getLogger(__name__)

_MAX_LANGUAGES = 10  # that a message names
_TRUE = (True, 1, "1", "1.0", "true", "True", "TRUE")
_FALSE = (False, 0, "0", "0.0", "false", "False", "FALSE")


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The human battles of an arena, in the order of the source; each names its question."""

    name: str
    battles: Battles
    at: list[At]  # where in the source each battle stands
    held_out: Battles  # those of the models that are left out
    n_rows: int  # of the source
    dropped: Mapping[str, int]  # rows left out, by the reason

    @property
    def fingerprint(self) -> str:
        """Fingerprint of all that a rating depends on."""
        rows = self.battles.rows()
        return fingerprint(
            [[b.question_id, b.model_a, b.model_b, b.winner] for b in rows]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What was asked and answered in one battle."""

    prompt: str
    response_a: str
    response_b: str


def read(arena: ArenaSource) -> Arena:
    """Read the battles of one turn, in the chosen languages, that name two models and a winner.

    Raises UserError for a missing column, for a winner that is none, and where nothing is left.
    """
    _check_languages(arena)
    wanted = (
        None if arena.languages is None else [x.casefold() for x in arena.languages]
    )
    battles: list[Battle] = []
    at: list[At] = []
    held_out: list[Battle] = []
    dropped: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    for row in arena_rows.light(arena):
        language = tables.text(row.get(arena.columns.language)) or "none"
        languages[language] += 1
        found = _battle(row, arena)
        if isinstance(found, str):
            dropped[found] += 1
        elif wanted is not None and language.casefold() not in wanted:
            dropped["another language"] += 1
        elif {found.model_a, found.model_b} & set(arena.hold_out):
            dropped["a model that is held out"] += 1
            held_out.append(found)
        else:
            battles.append(found)
            at.append(row.at)
    n_rows = languages.total()
    reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.most_common())
    if not battles:
        hint = ""
        if dropped["another language"]:
            common = languages.most_common(_MAX_LANGUAGES)
            there = ", ".join(f"{name} {n}" for name, n in common)
            hint = f" Found in arena.columns.language: {there}."
        raise UserError(
            f"arena {arena.name}: no battle is left of {n_rows} rows ({reasons or 'it is empty'})."
            f"{hint}"
        )
    logger.info(
        "arena %s: %d human battles of %d rows; left out: %s",
        arena.name,
        len(battles),
        n_rows,
        reasons or "-",
    )
    read_out = Battles.from_rows(held_out)
    for model in arena.hold_out:
        if model not in read_out.models:
            raise UserError(
                f"arena.hold_out: {model!r} has no battle in {arena.name}. Check the name."
            )
    return Arena(
        name=arena.name,
        battles=Battles.from_rows(battles),
        at=at,
        held_out=read_out,
        n_rows=n_rows,
        dropped=dict(dropped.most_common()),
    )


def input_paths(arena: ArenaSource) -> dict[str, Path]:
    """Return the files of an arena and their folder; none of a data set, which has a revision."""
    found = {f"arena {path.name}": path for path in arena_rows.paths(arena)}
    if arena.path is not None and Path(arena.path).is_dir():
        return {"arena": Path(arena.path), **found}
    return found


def texts(arena: ArenaSource, at: Collection[At]) -> dict[At, Texts | str]:
    """Read what was asked and answered in battles; or, in words, why one cannot be judged."""
    return {row.at: _texts(row, arena) for row in arena_rows.whole(arena, at)}


def questions(arena: ArenaSource) -> Iterator[tuple[str | None, str | None]]:
    """Yield each row's language and what the user said first; None where it does not say."""
    c = arena.columns
    for row in arena_rows.whole(arena, [row.at for row in arena_rows.light(arena)]):
        texts = [
            _said(row, arena, conversation, c.prompt, "user")
            for conversation in (c.conversation_a, c.conversation_b)
        ]
        yield tables.text(row.get(c.language)), texts[0] or texts[1]


def _check_languages(arena: ArenaSource) -> None:
    if arena.languages is not None and arena.columns.language is None:
        raise UserError(
            f"arena.languages: found {', '.join(arena.languages)}, but no column of {arena.name} "
            "says the language. Name one with arena.columns.language=COLUMN, or leave languages "
            "out."
        )


def _battle(row: Row, arena: ArenaSource) -> Battle | str:
    """A human battle, or why the row is none."""
    c = arena.columns
    model_a, model_b = (
        tables.text(row.get(c.model_a)),
        tables.text(row.get(c.model_b)),
    )
    if model_a is None or model_b is None:
        return "without a model"
    if model_a == model_b:
        return "of a model with itself"
    winner = _winner(row, arena, model_a, model_b)
    if winner is None:
        return "without a winner"
    n_turns = _n_turns(row, arena)
    if n_turns != 1:
        return "of several turns" if n_turns else "without a message of the user"
    return Battle(
        model_a=model_a,
        model_b=model_b,
        winner=winner,
        source="human",
        question_id=tables.text(row.get(c.question_id))
        or f"row-{row.at[0]}-{row.at[1]}",
    )


def _winner(row: Row, arena: ArenaSource, model_a: str, model_b: str) -> str | None:
    """One of WINNERS; None where nobody said."""
    c = arena.columns
    columns = {"model_a": c.won_by_a, "model_b": c.won_by_b, "tie": c.tied}
    named = {winner: column for winner, column in columns.items() if column}
    true = [winner for winner, column in named.items() if _is_true(row, column)]
    if len(true) > 1:
        both = " and ".join(named[winner] for winner in true)
        raise UserError(
            f"{row.place}: {both} are both true. Expected one of them. Correct or remove the row."
        )
    if true:
        return true[0]
    word = tables.text(row.get(c.winner))
    if word is None:
        return None
    names: dict[str, str | None] = {model_a: "model_a", model_b: "model_b"}
    known = {**names, **dict(zip(WINNERS, WINNERS, strict=True)), **arena.winners}
    if word not in known:
        raise UserError(
            f"{row.place}: {c.winner} is {word!r}. Expected {', '.join(WINNERS)}, {model_a!r} or "
            f"{model_b!r}. Say what it means with '+arena.winners={{{word}: tie}}', or null to "
            "leave such rows out."
        )
    return known[word]


def _is_true(row: Row, column: str) -> bool:
    value = row.get(column)
    if value in _TRUE or value in _FALSE or tables.text(value) is None:
        return value in _TRUE
    raise UserError(
        f"{row.place}: {column} is {value!r}. Expected true or false, 1 or 0."
    )


def _n_turns(row: Row, arena: ArenaSource) -> int:
    """How often the user spoke."""
    c = arena.columns
    if c.turns is None:
        return len(_turns(row, arena, c.conversation_a, c.prompt, "user"))
    value = tables.text(row.get(c.turns))
    try:
        return int(float(value or 0))
    except ValueError:
        raise UserError(
            f"{row.place}: {c.turns} is {value!r}. Expected a number of turns."
        ) from None


def _texts(row: Row, arena: ArenaSource) -> Texts | str:
    c = arena.columns
    prompt = _said(row, arena, c.conversation_a, c.prompt, "user")
    response_a = _said(row, arena, c.conversation_a, c.response_a, "assistant")
    response_b = _said(row, arena, c.conversation_b, c.response_b, "assistant")
    if prompt is None or response_a is None or response_b is None:
        return "without a text, or with more than text"
    if max(map(len, (prompt, response_a, response_b))) > arena.max_chars:
        return f"longer than {arena.max_chars} characters"
    return Texts(prompt=prompt, response_a=response_a, response_b=response_b)


def _said(
    row: Row, arena: ArenaSource, conversation: str | None, plain: str | None, role: str
) -> str | None:
    """The first text of a speaker; None where it says nothing, or something that is no text."""
    content = next(iter(_turns(row, arena, conversation, plain, role)), None)
    if isinstance(content, list):
        if not all(isinstance(b, dict) and b.get("type") == "text" for b in content):
            return None
        content = "\n".join(block.get("text") or "" for block in content)
    return content if isinstance(content, str) and content.strip() else None


def _turns(
    row: Row, arena: ArenaSource, conversation: str | None, plain: str | None, role: str
) -> list[Any]:
    """What a speaker says in each turn: by a column of messages, or by a column of texts."""
    if conversation is None:
        return _listed(row, plain) if arena.text_lists else [row.get(plain)]
    messages = _listed(row, conversation)
    if not all(isinstance(message, dict) for message in messages):
        raise UserError(
            f"{row.place}: {conversation} holds no conversation. Expected a list of messages with "
            "role and content."
        )
    return [m.get("content") for m in messages if m.get("role") == role]


def _listed(row: Row, column: str | None) -> list[Any]:
    """A list, which CSV has as JSON."""
    value = row.get(column)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{row.place}: {column} is not JSON ({error}). Expected a JSON list."
            ) from None
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserError(
            f"{row.place}: {column} holds a {type(value).__name__}. Expected a list."
        )
    return value
