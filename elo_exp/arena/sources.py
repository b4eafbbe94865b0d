"""Human battles of an arena in one schema, whatever its columns are called: who met, who won, and what was left out.

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
from elo_exp.records import WINNERS, Battle, UserError, fingerprint

logger = logging.getLogger(__name__)

_MAX_LANGUAGES = 10  # that a message names
_TRUE = (True, 1, "1", "1.0", "true", "True", "TRUE")
_FALSE = (False, 0, "0", "0.0", "false", "False", "FALSE", "", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """The human battles of an arena, in the order of the source."""

    name: str
    battles: list[Battle]
    at: list[At]  # where in the source each battle stands
    held_out: list[Battle]  # those of the models that are left out
    n_rows: int  # of the source
    dropped: Mapping[str, int]  # rows left out, by the reason

    @property
    def fingerprint(self) -> str:
        """Of all that a rating depends on."""
        return fingerprint(
            [[b.question_id, b.model_a, b.model_b, b.winner] for b in self.battles]
        )

    @property
    def models(self) -> set[str]:
        return {b.model_a for b in self.battles} | {b.model_b for b in self.battles}


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What was asked and answered in one battle."""

    prompt: str
    response_a: str
    response_b: str


def read(arena: ArenaSource) -> Arena:
    """The battles of one turn, in the languages asked for, that name two models and a winner.

    Raises UserError for a missing column, for a winner that is none, and where nothing is left.
    """
    battles: list[Battle] = []
    at: list[At] = []
    held_out: list[Battle] = []
    dropped: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    n_rows = 0
    wanted = _wanted_languages(arena)
    for row in arena_rows.light(arena):
        n_rows += 1
        language = _text(row, arena.columns.language)
        languages[language or "none"] += 1
        found = _battle(row, arena)
        if isinstance(found, str):
            dropped[found] += 1
        elif wanted is not None and (language or "").casefold() not in wanted:
            dropped["another language"] += 1
        elif found.model_a in arena.hold_out or found.model_b in arena.hold_out:
            dropped["a model that is held out"] += 1
            held_out.append(found)
        else:
            battles.append(found)
            at.append(row.at)
    reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.most_common())
    if not battles:
        there = ", ".join(
            f"{name} {n}" for name, n in languages.most_common(_MAX_LANGUAGES)
        )
        hint = (
            f" Found in arena.columns.language: {there}."
            if dropped["another language"]
            else ""
        )
        raise UserError(
            f"arena {arena.name}: no battle is left of {n_rows} rows ({reasons or 'it is empty'}).{hint}"
        )
    logger.info(
        "arena %s: %d human battles of %d rows; left out: %s",
        arena.name,
        len(battles),
        n_rows,
        reasons or "-",
    )
    _check_held_out(arena, held_out)
    return Arena(
        name=arena.name,
        battles=battles,
        at=at,
        held_out=held_out,
        n_rows=n_rows,
        dropped=dict(dropped.most_common()),
    )


def input_paths(arena: ArenaSource) -> dict[str, Path]:
    """The files of the arena and their folder; none of a data set, which its revision names."""
    folder = (
        {"arena": Path(arena.path)}
        if arena.path is not None and Path(arena.path).is_dir()
        else {}
    )
    return {
        **folder,
        **{f"arena {path.name}": path for path in arena_rows.paths(arena)},
    }


def texts(arena: ArenaSource, at: Collection[At]) -> dict[At, Texts | str]:
    """What was asked and answered in these battles; or why one cannot be judged again, in words."""
    return {row.at: _texts(row, arena) for row in arena_rows.whole(arena, at)}


def questions(arena: ArenaSource) -> Iterator[tuple[str | None, str | None]]:
    """Of every row the language that it names, and what the user said first; None where it does not say."""
    c = arena.columns
    for row in arena_rows.whole(arena, [row.at for row in arena_rows.light(arena)]):
        said = [
            _said(_messages(row, column), "user")
            for column in (c.conversation_a, c.conversation_b)
            if column
        ]
        said += [_plain(row, arena, c.prompt)] if c.prompt is not None else []
        yield (
            _text(row, c.language),
            next((text for text in said if text is not None), None),
        )


def _wanted_languages(arena: ArenaSource) -> set[str] | None:
    if arena.languages is None:
        return None
    if arena.columns.language is None:
        raise UserError(
            f"arena.languages: found {', '.join(arena.languages)}, but no column of {arena.name} says the language. "
            "Name one with arena.columns.language=COLUMN, or leave languages out."
        )
    return {language.casefold() for language in arena.languages}


def _check_held_out(arena: ArenaSource, held_out: Collection[Battle]) -> None:
    there = {name for battle in held_out for name in (battle.model_a, battle.model_b)}
    for model in arena.hold_out:
        if model not in there:
            raise UserError(
                f"arena.hold_out: {model!r} has no battle in {arena.name}. Check the name."
            )


def _battle(row: Row, arena: ArenaSource) -> Battle | str:
    """A human battle, or why the row is none."""
    model_a, model_b = (
        _text(row, column) for column in (arena.columns.model_a, arena.columns.model_b)
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
        question_id=_text(row, arena.columns.question_id)
        or "-".join(("row", *map(str, row.at))),
    )


def _winner(row: Row, arena: ArenaSource, model_a: str, model_b: str) -> str | None:
    """One of WINNERS; None where nobody said."""
    c = arena.columns
    columns = {"model_a": c.won_by_a, "model_b": c.won_by_b, "tie": c.tied}
    true = [
        winner
        for winner, column in columns.items()
        if column is not None and _is_true(row, column)
    ]
    if len(true) > 1:
        named = " and ".join(str(columns[winner]) for winner in true)
        raise UserError(
            f"{row.place}: {named} are both true. Expected one of them. Mend the row or remove it."
        )
    if true:
        return true[0]
    word = _text(row, c.winner)
    if word is None:
        return None
    if word in arena.winners:
        return arena.winners[word]
    if word in WINNERS:
        return word
    if word in (model_a, model_b):
        return "model_a" if word == model_a else "model_b"
    raise UserError(
        f"{row.place}: {c.winner} is {word!r}. Expected {', '.join(WINNERS)}, {model_a!r} or {model_b!r}. Say what it "
        f"means with '+arena.winners={{{word}: tie}}', or null to leave such rows out."
    )


def _is_true(row: Row, column: str) -> bool:
    value = row.values.get(column)
    if value in _TRUE:
        return True
    if value in _FALSE or value != value:  # noqa: PLR0124  (NaN)
        return False
    raise UserError(
        f"{row.place}: {column} is {value!r}. Expected true or false, 1 or 0."
    )


def _text(row: Row, column: str | None) -> str | None:
    """A value as text; None where there is none, NaN being what some programs write for nothing."""
    value = row.values.get(column) if column is not None else None
    return None if value is None or value == "" or value != value else str(value)  # noqa: PLR0124


def _n_turns(row: Row, arena: ArenaSource) -> int:
    """How often the user spoke."""
    c = arena.columns
    if c.turns is not None:
        value = _text(row, c.turns)
        try:
            return int(float(value or 0))
        except ValueError:
            raise UserError(
                f"{row.place}: {c.turns} is {value!r}. Expected a number of turns."
            ) from None
    if c.conversation_a is not None:
        return sum(
            message.get("role") == "user"
            for message in _messages(row, c.conversation_a)
        )
    if arena.text_lists and c.prompt is not None:
        return len(_listed(row, c.prompt))
    return 1


def _messages(row: Row, column: str) -> list[Mapping[str, Any]]:
    """A conversation, which CSV holds as JSON."""
    found = _listed(row, column)
    if not all(isinstance(message, dict) for message in found):
        raise UserError(
            f"{row.place}: {column} holds no conversation. Expected a list of messages with role and content."
        )
    return found


def _listed(row: Row, column: str) -> list[Any]:
    value = row.values.get(column)
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


def _texts(row: Row, arena: ArenaSource) -> Texts | str:
    c = arena.columns
    if c.conversation_a is not None and c.conversation_b is not None:
        a, b = _messages(row, c.conversation_a), _messages(row, c.conversation_b)
        found = [_said(a, "user"), _said(a, "assistant"), _said(b, "assistant")]
    else:
        found = [
            _plain(row, arena, column)
            for column in (c.prompt, c.response_a, c.response_b)
        ]
    prompt, response_a, response_b = found
    if prompt is None or response_a is None or response_b is None:
        return "without a text, or with more than text"
    if max(map(len, found)) > arena.max_chars:  # type: ignore[arg-type]
        return f"longer than {arena.max_chars} characters"
    return Texts(prompt=prompt, response_a=response_a, response_b=response_b)


def _said(messages: Collection[Mapping[str, Any]], role: str) -> str | None:
    """The first message of a speaker; None where it says nothing, or something that is no text."""
    content = next(
        (message.get("content") for message in messages if message.get("role") == role),
        None,
    )
    if isinstance(content, list):
        if not all(
            isinstance(block, dict) and block.get("type") == "text" for block in content
        ):
            return None
        content = "\n".join(block.get("text") or "" for block in content)
    return content if isinstance(content, str) and content.strip() else None


def _plain(row: Row, arena: ArenaSource, column: str | None) -> str | None:
    assert column is not None
    said = (
        (_listed(row, column) or [None])[0]
        if arena.text_lists
        else row.values.get(column)
    )
    return said if isinstance(said, str) and said.strip() else None
