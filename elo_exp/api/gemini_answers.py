"""What Gemini answers: batches, their rows and single messages, read from JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from elo_exp.api.batch_protocol import RemoteBatch, ResultRow, UnreadablePart
from elo_exp.api.costs import read_token_count
from elo_exp.api.jobs import Completion
from elo_exp.api.result_lines import parse_row, split_rows
from elo_exp.api.transport import RefusedError, UnexpectedResponseError

_BATCH_LIFETIME_SECONDS = 172_800.0
_STOP_REASONS = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
}
# For requests without a row
_OUTCOME_BY_END_STATE = {
    "SUCCEEDED": None,
    "PARTIALLY_SUCCEEDED": "api_error",
    "FAILED": "api_error",
    "CANCELLED": "canceled",
    "EXPIRED": "expired",
}
# With the words of api/batches for them
_TRANSIENT_ERROR_CODES = {
    4: "timeout_error",
    8: "rate_limit_error",
    13: "api_error",
    14: "overloaded_error",
}
_RESOURCE_EXHAUSTED_CODE = 8
# For a document that is no JSON
_METADATA_PATTERNS = {
    "state": re.compile(r'"state"\s*:\s*"([A-Z_]{1,60})"'),
    "displayName": re.compile(r'"displayName"\s*:\s*"([0-9a-z]{1,60})"'),
    "requestCount": re.compile(r'"requestCount"\s*:\s*"?([0-9]{1,9})'),
}


def batch_in(answer: Any) -> RemoteBatch:
    """A batch. Raises OddAnswerError for what is none."""
    match answer:
        case {"name": str(batch_id), "metadata": {"state": str(state), **metadata}}:
            pass
        case _:
            raise UnexpectedResponseError(answer, "a batch")
    end_state = state.rpartition("STATE_")[2]
    rows = _list_rows(answer)
    size = _parse_count(metadata.get("batchStats"), "requestCount")
    refusal = (
        _find_refusal(answer.get("error"))
        if end_state == "FAILED" and not rows
        else None
    )
    is_whole = end_state == "SUCCEEDED"
    return RemoteBatch(
        batch_id=batch_id,
        size=size,
        is_ended=end_state in _OUTCOME_BY_END_STATE,
        n_rows=(size or len(rows)) if is_whole else len(rows),
        missing_outcome=_OUTCOME_BY_END_STATE.get(end_state),
        refusal=refusal,
        nonce=str(metadata["displayName"]) if metadata.get("displayName") else None,
        lifetime_seconds=_BATCH_LIFETIME_SECONDS,
    )


def _parse_count(stats: Any, name: str) -> int | None:
    """Return a count, which JSON has as text, of 64 bits; None if there is none."""
    text = str(stats.get(name)) if isinstance(stats, Mapping) else ""
    return int(text) or None if text.isascii() and text.isdigit() else None


def _find_refusal(error: Any) -> RefusedError | None:
    """Return why the server has begun none of a batch that it had accepted; None for an error that may pass."""
    match error:
        case {"code": int(code), **error_fields} if (
            code == _RESOURCE_EXHAUSTED_CODE or code not in _TRANSIENT_ERROR_CODES
        ):
            message = (
                f"{error_fields.get('message') or 'it does not say why'} (code {code})"
            )
            return RefusedError(
                message, status=429 if code == _RESOURCE_EXHAUSTED_CODE else 400
            )
        case {"code": int()}:
            return None
    return RefusedError("it does not say why", status=400)


def _list_rows(answer: Mapping[str, Any]) -> list[Any]:
    """The rows that came with a batch."""
    for container in (answer.get("response"), answer.get("metadata")):
        output = (
            container.get("output", container)
            if isinstance(container, Mapping)
            else None
        )
        match output:
            case {"inlinedResponses": {"inlinedResponses": list(rows)}}:
                return rows
    return []


def parse_result_rows(answer: Any) -> list[ResultRow | UnreadablePart]:
    batch_in(answer)
    return [
        parse_row(f"row {number}", row, row_in)
        for number, row in enumerate(_list_rows(answer), start=1)
    ]


def parse_document(batch_id: str, data: bytes) -> Any:
    """Return a batch with its rows. In a spoilt one a row that cannot be read is None, and more may be missing; None
    if nothing in it is of a batch."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        rows, around = split_rows(data)
    matches = {
        name: pattern.search(around) for name, pattern in _METADATA_PATTERNS.items()
    }
    state, name, count = ((match and match[1]) for match in matches.values())
    if not rows and state is None:
        return None
    if None not in rows:  # it is spoilt elsewhere, or cut short
        rows.append(None)
    output = {"inlinedResponses": {"inlinedResponses": rows}}
    metadata = {
        "state": state or "BATCH_STATE_SUCCEEDED",  # a batch has rows when it has ended
        "displayName": name,
        "batchStats": {"requestCount": count},
        "output": output,
    }
    return {"name": batch_id, "metadata": metadata}


def page_in(answer: Any) -> tuple[list[RemoteBatch], str | None]:
    """Return the batches of a page, and the token of the next page; None if this is the last."""
    match answer:
        case {"operations": list(rows)}:
            return [batch_in(row) for row in rows], answer.get("nextPageToken")
        case {**answer_fields} if not answer_fields:  # no batch
            return [], None
    raise UnexpectedResponseError(answer, "a list of batches")


def row_in(line: Any) -> ResultRow:
    """The result of one request. What is no answer of a model did not succeed, whatever the row says."""
    row = line if isinstance(line, Mapping) else {}
    metadata = row.get("metadata")
    custom_id = str(metadata.get("key") if isinstance(metadata, Mapping) else None)
    match row:
        case {"error": {"code": int(code), **error_fields}}:
            kind = _TRANSIENT_ERROR_CODES.get(code, f"error {code}")
            detail = str(error_fields.get("message") or "")
            return ResultRow(custom_id=custom_id, outcome=kind, detail=detail)
        case {"response": answer} if _is_damaged(answer):
            return ResultRow(custom_id=custom_id, outcome=None)
        case {"response": answer}:
            try:
                message = message_in(answer)
            except UnexpectedResponseError as error:
                return ResultRow(
                    custom_id=custom_id,
                    outcome="api_error",
                    detail=str(error),
                    possibly_billed=True,
                )
            return ResultRow(custom_id=custom_id, outcome="succeeded", message=message)
    return ResultRow(custom_id=custom_id, outcome=None)


def _is_damaged(answer: Any) -> bool:
    """Whether what should be an answer of a model has parts of other types, which no server sends."""
    match answer:
        case None:
            return False
        case {"candidates": list(candidates)}:
            contents = [
                candidate.get("content")
                if isinstance(candidate, Mapping)
                else candidate
                for candidate in candidates
            ]
            return not all(
                isinstance(content, Mapping | None)
                and isinstance((content or {}).get("parts"), list | None)
                for content in contents
            )
        case {**parts}:
            return parts.get("candidates") is not None
    return True


def message_in(answer: Any) -> dict[str, Any]:
    """An answer of a model, with its tokens as the other providers count them: thoughts, which stand beside the answer's,
    are output. Raises OddAnswerError for anything else.
    """
    match answer:
        case {"candidates": [dict(), *_]} | {"promptFeedback": {"blockReason": str()}}:
            pass
        case _:
            raise UnexpectedResponseError(answer, "an answer of a model")
    message = dict(answer)
    usage = answer.get("usageMetadata")
    if isinstance(usage, Mapping) and "promptTokenCount" in usage:
        names = ("candidatesTokenCount", "thoughtsTokenCount")
        n_cached = usage.get("cachedContentTokenCount") or 0
        message["usage"] = {
            "prompt_tokens": usage["promptTokenCount"],
            "cached_tokens": n_cached,
            "completion_tokens": sum(
                read_token_count(answer, "usageMetadata", name) for name in names
            ),
        }
    return message


def parse_message(message: Mapping[str, Any]) -> Completion:
    """What an answer says; its model is named as the server names it."""
    # A blocked prompt has no candidate
    blocked_candidate = {"finishReason": "SAFETY"}
    candidate = next(iter(message.get("candidates") or [blocked_candidate]))
    content = candidate.get("content") or {}
    parts = [
        content_part
        for content_part in content.get("parts") or ()
        if isinstance(content_part, Mapping)
    ]
    texts = [
        str(content_part.get("text") or "")
        for content_part in parts
        if not content_part.get("thought")
    ]
    reason = str(candidate.get("finishReason") or "STOP")
    n_prompt = read_token_count(message, "usage", "prompt_tokens")
    n_cached = min(n_prompt, read_token_count(message, "usage", "cached_tokens"))
    usage = {
        "cache_read_tokens": n_cached,
        "input_tokens": n_prompt - n_cached,
        "output_tokens": read_token_count(message, "usage", "completion_tokens"),
    }
    return Completion(
        text="".join(texts).encode(errors="replace").decode(),
        stop_reason=_STOP_REASONS.get(reason, reason.lower()),
        usage=usage if message.get("usage") else {},
        model=str(message["modelVersion"]) if message.get("modelVersion") else None,
    )
