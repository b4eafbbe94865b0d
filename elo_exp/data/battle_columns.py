"""The columns of a file of battles: which of them holds which of our fields."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from elo_exp.data import column_roles, table_files
from elo_exp.data.battle_texts import QUESTION_TEXT_COLUMNS, find_answer_columns
from elo_exp.data.column_roles import BATTLE_COLUMNS
from elo_exp.data.formats import Format
from elo_exp.data.table_files import BLANK_FIELDS, CONVERSATION_PREFIX, Source
from elo_exp.errors import FileError, SettingError

REQUIRED = ("model_a", "model_b", "winner")
ID_COLUMNS = ("model_a", "model_b", "question_id")
WINNER_COLUMNS = ("winner", "verdict_ab", "verdict_ba")
FIELDS = (
    *REQUIRED,
    "source",
    "question_id",
    "judge_model",
    "verdict_ab",
    "verdict_ba",
    "dimension",
    "score",  # unless the format or the user names its column, it is not read
    "count",  # of a format that makes its fields neither
    "cluster",
)
_ROLE_BY_FIELD = {field: role for role, field in BATTLE_COLUMNS.items()}
_OPTIONAL_COLUMNS = ("equal_answers", "style_a", "style_b", "draw_a", "draw_b")
# Not a column of the file: why a row is malformed
MALFORMED_COLUMN = "\0malformed"


def name_fields(
    columns: Mapping[str, str | Sequence[str] | None],
    column_by_field: Mapping[str, str | None],
) -> dict[str, str | None]:
    """Return the column of each field of a battle, as the roles of columns and the fields say.

    columns          the column of each role
    column_by_field  the column of each field, for fields without a role

    Raises SettingError for a field that has two columns.
    """
    named_fields = dict(column_by_field)
    for role, field in BATTLE_COLUMNS.items():
        column = columns.get(role)
        if not isinstance(column, str):
            continue
        usual = None if field == "score" else field
        if (other_column := named_fields.get(field, usual)) not in (usual, column):
            raise SettingError(
                f"columns.{role}={column} and battles_columns.{field}={other_column} are two columns for one thing. "
                "Give one of them."
            )
        named_fields[field] = column
    return named_fields


@dataclass(frozen=True, kw_only=True)
class BattleColumns:
    """The columns of one file.

    present   all columns that the file has
    fields    those that are named for our fields, and may not be there
    by_field  our field -> its column, of all cells that are read
    """

    path: Source
    present: Set[str]
    fields: Mapping[str, str]
    by_field: Mapping[str, str]

    def has(self, field: str) -> bool:
        """Whether there is a column of this field."""
        return self.fields.get(field) in self.present


def find_columns(
    path: Source, file_format: Format, columns: Mapping[str, str | None]
) -> BattleColumns:
    """Find the column of each field of a file.

    columns  our field -> the column that the user names for it

    Raises FileError if a column is missing, and SettingError if a column that is needed is set to null.
    """
    present, fields = table_files.read_keys(path), dict[str, str]()
    for name in FIELDS:
        requested, default = columns.get(name), None if name == "score" else name
        if name == requested == "count" and file_format.fields:
            continue
        column = (
            file_format.columns.get(name, requested)
            if requested == default
            else requested
        )
        if column is None and name == "winner" and file_format.fields:
            column = name
        if column is None and name in REQUIRED:
            shares = "  columns.share=COLUMN     if it holds shares of model_a"
            raise SettingError(
                f"battles_columns.{name} must name a column; got null.",
                *([shares] if name == "winner" else []),
            )
        if column is None:
            continue
        fields[name] = column = str(column)
        is_required = name in REQUIRED and not file_format.fields
        if (is_required or requested == column != name) and column not in present:
            role = _ROLE_BY_FIELD.get(name)
            if role is not None:
                raise column_roles.build_no_column_error(path, role, column)
            raise FileError.bad_file(
                path,
                f"has no column {column}",
                "Name the column:",
                f"  battles_columns.{name}=COLUMN",
                column_roles.describe_columns(path),
            )
    by_field = {name: name for name in _OPTIONAL_COLUMNS} | fields
    texts = [
        name
        for name in QUESTION_TEXT_COLUMNS
        if name in present and name not in fields.values()
    ]
    if texts:
        by_field["question_text"] = texts[0]
    if fields.get("dimension") != "dimension":
        by_field["pooled"] = "dimension"
    if file_format.fields:
        by_field["malformed"] = MALFORMED_COLUMN
    answers = None if file_format.answers else find_answer_columns(present)
    if answers and not answers[0].startswith(CONVERSATION_PREFIX):
        by_field |= zip(BLANK_FIELDS, answers, strict=True)
    return BattleColumns(path=path, present=present, fields=fields, by_field=by_field)


def check_same_columns(shards: Sequence[BattleColumns]) -> None:
    """Raise FileError for shards with different columns; a line of JSON may lack those that are empty."""
    first_shard, *other_shards = shards
    for shard in other_shards:
        for name, column in first_shard.fields.items():
            if first_shard.has(name) == shard.has(name):
                continue
            with_column, without_column = (
                (first_shard, shard) if first_shard.has(name) else (shard, first_shard)
            )
            shapes = map(table_files.detect_shape, (first_shard.path, shard.path))
            if name == "count" or "lines" not in shapes:
                raise FileError.bad_file(
                    without_column.path,
                    f"has no column {column}, and {with_column.path} has it",
                    "The files of a folder must have the same columns. If they differ, list them:",
                    "  'battles=[a.csv,b.csv]'",
                )
