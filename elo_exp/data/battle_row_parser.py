"""One row of a file of battles: which battle it is, or why it is none."""

from collections.abc import Mapping
from dataclasses import dataclass

from elo_exp.data import formats
from elo_exp.data.battle_cells import (
    COUNT_RULE,
    MAX_NAME_CHARS,
    NO_COUNT_HINT,
    cell_to_text,
    is_name,
    parse_count,
    parse_draw,
    parse_score,
    parse_style,
)
from elo_exp.data.battle_columns import FIELDS, REQUIRED, WINNER_COLUMNS, BattleColumns
from elo_exp.data.formats import WINNER_WORDS, Format, MalformedError
from elo_exp.data.table_files import Nested, Row
from elo_exp.errors import FileError, UserError, format_value
from elo_exp.records import Battle

ROW_STATUSES = ("used", "filtered out", "invalid", "dropped", "refused")
USED, FILTERED, INVALID, DROPPED, REFUSED = range(len(ROW_STATUSES))
_METADATA_FIELDS = ("dimension", "judge_model", "source")
# A battle, the name of a row's status, or what is wrong with the row or with the file
Outcome = Battle | str | MalformedError | UserError


class UnknownWordError(MalformedError):
    """Says also in which of our fields the word stands."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, kw_only=True)
class BattleRowParser:
    """Reads the rows of one file, whose cells have the names of our fields.

    words           a word of the file -> one of WINNERS; None for no verdict
    active_filters  our field -> the value to keep
    """

    file_format: Format
    columns: BattleColumns
    words: Mapping[str, str | None]
    active_filters: Mapping[str, str]

    def classify(self, row: Row) -> Battle | str | MalformedError | UserError:
        """Return the battle of a row, or why it is none."""
        try:
            battle = self.parse_battle(row)
        except (MalformedError, UserError) as error:
            return error
        if not self.is_wanted(row):
            return ROW_STATUSES[FILTERED]
        return battle or ROW_STATUSES[INVALID]

    def is_wanted(self, row: Row) -> bool:
        """Whether the filters keep a row, but for the filter of questions."""
        return all(
            cell_to_text(row.get(name)) == value
            for name, value in self.active_filters.items()
            if name != "question_id"
        )

    def parse_battle(self, row: Row) -> Battle | None:
        """Return a battle without its question; None if the judge gave no verdict."""
        _check_cells(row)
        text = {name: cell_to_text(row.get(name)) for name in FIELDS}
        n, words = text["count"], self.words
        if n is None and self.columns.has("count"):
            raise MalformedError(
                f"{self.columns.fields['count']} {COUNT_RULE}; got null. {NO_COUNT_HINT}"
            )
        count = None if n is None else parse_count(self.columns.fields["count"], n)
        known_words = ", ".join(words)
        for name in ("verdict_ab", "verdict_ba"):
            if text[name] and text[name] not in words:
                error = f"{name} must be one of {known_words}; got {format_value(text[name])}."
                raise UnknownWordError(error, name)
        verdicts = (text[name] for name in ("verdict_ab", "verdict_ba"))
        ab, ba = (words[verdict] if verdict else None for verdict in verdicts)
        reconciled = (ab if ab == ba else "tie") if ab and ba else None
        share = text["score"]
        if self.file_format.fields and text["winner"] is None:
            if share is None and reconciled is None:
                return None
            text["winner"] = formats.winner_of(float(share)) if share else reconciled
        self._check_names(text)
        model_a, model_b, result = (str(text[name]) for name in REQUIRED)
        if model_a == model_b:
            raise MalformedError(
                f"the models must differ; got {format_value(model_a)} twice."
            )
        by_word = words.get(result)
        by_name = {model_a: "model_a", model_b: "model_b"}.get(result)
        winner = by_word or by_name
        is_word = result in words
        if is_word and by_name and by_word != by_name and not reconciled:
            raise FileError.bad_file(
                self.columns.path,
                f"has the winner {format_value(result)}, which is both a model and the word for another result",
                "Rename the model.",
            )
        verdict_words = filter(None, (text[name] for name in WINNER_COLUMNS))
        if any(words.get(word, "") is None for word in verdict_words):
            return None
        if winner is None:
            error = (
                f"winner must be one of {known_words}, or a model of its row ({model_a} or {model_b}); got "
                f"{format_value(result)}."
            )
            raise UnknownWordError(error, "winner")
        score = None if share is None else parse_score(share, winner, reconciled)
        winner_word = winner.split()[0]
        if reconciled and score is None and winner_word != reconciled.split()[0]:
            raise MalformedError(
                f"winner must be the verdict of both orders, or a tie if they disagree; got {result} for "
                f"verdict_ab={text['verdict_ab']} and verdict_ba={text['verdict_ba']}."
            )
        return Battle(
            model_a=model_a,
            model_b=model_b,
            winner=winner,
            source=text["source"] or _infer_source(text["judge_model"]),
            judge_model=text["judge_model"],
            dimension=text["dimension"],
            verdict_ab=ab,
            verdict_ba=ba,
            score=score,
            equal_answers=str(cell_to_text(row.get("equal_answers"))).lower() == "true",
            style_a=parse_style(cell_to_text(row.get("style_a"))),
            style_b=parse_style(cell_to_text(row.get("style_b"))),
            count=count,
            draw_a=parse_draw("draw_a", row),
            draw_b=parse_draw("draw_b", row),
        )

    def _check_names(self, text: Mapping[str, str | None]) -> None:
        """Raise MalformedError for a field that has no name where it has to have one."""
        for name in REQUIRED:
            value, noun = text[name], name.split("_")[0]
            if value is None or not is_name(value):
                raise MalformedError(
                    f"{self.columns.fields[name]} must be a {noun}: text without control characters, at most "
                    f"{MAX_NAME_CHARS} long; got {format_value(value)}."
                )
        for name in _METADATA_FIELDS:
            if (value := text[name]) and len(value) > MAX_NAME_CHARS:
                raise MalformedError(
                    f"{self.columns.fields[name]} must be a name of at most {MAX_NAME_CHARS} characters; got "
                    f"{format_value(value)}."
                )


def list_winner_words(
    columns: BattleColumns, file_format: Format, values: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return what each word of a file stands for: one of WINNERS, or None for no verdict.

    values  what the user says that words mean; of formats whose words are not known
    """
    fields = columns.fields
    sides = {fields["model_a"]: "model_a", fields["model_b"]: "model_b"}
    words: dict[str, str | None] = {**WINNER_WORDS, **sides}
    if not file_format.fields:
        words |= {
            word: meaning and WINNER_WORDS[meaning] for word, meaning in values.items()
        }
    return words


def status_of(outcome: Outcome) -> int:
    """Return the place of an outcome's status in ROW_STATUSES."""
    if isinstance(outcome, str):
        return ROW_STATUSES.index(outcome)
    if isinstance(outcome, Battle):
        return USED
    return DROPPED if isinstance(outcome, MalformedError) else REFUSED


def _check_cells(row: Row) -> None:
    """Raise MalformedError for a row that its format found malformed, and for a name that is none."""
    if row.get("malformed"):
        raise MalformedError(row["malformed"])
    for name in REQUIRED:
        if isinstance(row.get(name), list | dict | Nested):
            raise MalformedError(
                f"{name} must be a name; got {format_value(row[name])}."
            )


def _infer_source(judge: str | None) -> str:
    """Return the source of a battle by its judge alone: a language model, or a human."""
    return "human" if judge in (None, "human") else "llm-judge"
