"""elo_exp: the answers of a run, responses/responses_NAME.jsonl (docs/row_files.md)."""

from collections.abc import Mapping
from typing import Any

from elo_exp.data.answers import Format, MalformedError, parse_name, require_text
from elo_exp.data.recorded_work import parse_messages
from elo_exp.data.table_files import Row
from elo_exp.errors import UserError
from elo_exp.files import validate
from elo_exp.records import Response, canonical_json

_RECORDED_FIELDS = ("p_correct", "finish_reason", "diagnostics", "timestamp")


def answer(row: Row) -> Mapping[str, Any]:
    entrant, prompt_id = (
        parse_name(row[key], key) for key in ("entrant_id", "prompt_id")
    )
    if entrant is None or prompt_id is None:
        raise MalformedError("entrant_id and prompt_id must be names; one is empty.")
    recorded = {key: row[key] for key in _RECORDED_FIELDS if row.get(key) is not None}
    answer_text = (
        None
        if row["response_text"] is None
        else require_text(row["response_text"], "it")
    )
    response_fields: dict[str, Any] = {"entrant_id": entrant, "prompt_id": prompt_id}
    response_fields["response_text"] = answer_text or ""
    response_fields["draw_idx"] = row.get("draw_idx") or 0
    try:
        response_fields["messages"] = parse_messages(row.get("messages") or (), "row")
        response = validate(
            Response, {**response_fields, "diagnostics": {}, **recorded}, "row"
        )
        canonical_json(response.to_dict())
    except UserError as error:
        raise MalformedError(str(error).removeprefix("row: ")) from None
    except ValueError:
        raise MalformedError(
            "the row holds NaN or Infinity, which JSON does not have. Write null, or leave it out."
        ) from None
    return {
        "text": answer_text,
        "id": prompt_id,
        "entrant": entrant,
        "messages": response.messages,
        "draw_idx": response.draw_idx,
        "is_cut": response.finish_reason == "length",
        "recorded": recorded,
    }


FORMATS = (
    Format(
        name="elo_exp's responses",
        required=("entrant_id", "prompt_id", "response_text"),
        answer=answer,
    ),
)
