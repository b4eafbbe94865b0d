"""A judge that answers from files: verdicts of an earlier run, battles or scores."""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from elo_exp.files import one_of, read_jsonl, sha256, utc_now
from elo_exp.records import (
    VERDICTS,
    WINNERS,
    Item,
    JudgeReply,
    JudgeRequest,
    UserError,
)
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

_VERSION = 2  # part of every cache key: raise it when a file is read in another way
_CHUNK = 256  # replies in one transaction
# The original program's cache of verdicts: one file per dimension, one row per order.
_ORIGINAL = re.compile(r"judgments_(.+)\.jsonl(\.gz)?")
_VERDICT_LINE = re.compile(r"^[ \t]*VERDICT:[ \t]*(\w*)", re.IGNORECASE | re.MULTILINE)
_KINDS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    list: "a list",
}
_SHAPES = (
    "Expected a verdict (prompt_id, dimension, entrant_a, entrant_b, raw), a battle (model_a, "
    "model_b, winner, question_id), a score (prompt_id, policy, judge_score) or a row of the "
    "original's judgments_<dimension>.jsonl (cache_key, judge_model, verdict, reasoning, metadata)."
)


class _Answer(NamedTuple):
    """An answer on file.

    query       prompt, the pair in the order shown, dimension (None: all of them) and repeat; of
                a score prompt, policy and draw
    value       A, B or TIE, or a score in [0, 1]; None where it is invalid
    mirrored    the other order was judged
    taken       of several on one query, the first or the last
    note        what a warning counts
    """

    query: tuple[Any, ...]
    judge: Any
    value: str | float | None
    mirrored: bool = False
    taken: str = "first"
    note: str | None = None


@dataclass(kw_only=True)
class ReplayJudge:
    """path         verdicts/<dimension>.jsonl of a run, judgments_<dimension>.jsonl of the original
                 program, the folder of either, or battles (.jsonl, also .gz), or scores
    judge_model  the judge to replay from a file with several; None takes every row

    A battle with one verdict answers both orders, the second marked as mirrored, unless the file
    has a battle with the sides exchanged. Of several verdicts on one order the first is taken (of
    the original's rows the last, as it did itself) and the others are counted. The original wrote
    TIE for a reply that it could not read: its verdicts are invalid where the reply, kept beside
    them, disagrees.

    A row of scores has prompt_id, policy (or entrant_id), draw_idx (default 0) and judge_score in
    [0, 1], or null for one that could not be read. It has no interval.
    """

    path: str
    judge_model: str | None

    key_fields = ("prompt_id", "entrant_a", "entrant_b")

    @property
    def input_files(self) -> Mapping[str, Path]:
        path = Path(self.path)
        files = {file.name: file for file in self._paths} if path.is_dir() else {}
        return {"": path, **files}

    @property
    def model(self) -> str:
        return self.judge_model or "replay"

    def check(self) -> None:
        """Raise UserError for files that are absent or cannot be read."""
        _ = self._answers

    def cache_key(self) -> Mapping[str, Any]:
        self.check()
        return {
            "judge": "replay",
            "version": _VERSION,
            "files": [[_dimension(file), sha256(file)] for file in self._paths],
            "judge_model": self.judge_model,
        }

    def answer(
        self, requests: Sequence[JudgeRequest], store: Store
    ) -> Iterator[JudgeReply]:
        wanted = 1 + max((request.repeat for request in requests), default=0)
        repeats = [query[4] for query in self._answers if len(query) == 5]
        n = 1 + max(repeats, default=0)
        if wanted > n:
            raise UserError(
                f"judging.repeats: found {wanted}, but {self.path} holds {n} for each order at "
                f"most. Set judging.repeats={n}."
            )
        replies = (reply for request in requests if (reply := self._reply(request)))
        return store.keep(replies, key=lambda reply: reply.key, chunk=_CHUNK)

    @cached_property
    def _paths(self) -> list[Path]:
        path = Path(self.path)
        if not path.is_dir():
            return [path]
        if (path / "verdicts").is_dir() and not list(path.glob("judgments_*")):
            path /= "verdicts"  # of a run
        paths = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
        if not paths:
            raise UserError(
                f"path: found no .jsonl file in {path}. Expected verdicts or battles."
            )
        return paths

    @cached_property
    def _answers(self) -> dict[tuple[Any, ...], _Answer]:
        """By query."""
        found: dict[tuple[Any, ...], _Answer] = {}
        judges, notes = set[str](), Counter[str]()
        every = (
            answer
            for file in self._paths
            for place, row in read_jsonl(file)
            for answer in _read(place, row, _dimension(file))
        )
        for answer in every:
            if self.judge_model not in (None, answer.judge):
                continue
            if answer.judge:
                judges.add(str(answer.judge))
            if answer.note:
                notes[answer.note] += 1
            known = found.get(answer.query)
            is_first = known is None or (known.mirrored and not answer.mirrored)
            if not is_first and not answer.mirrored:
                notes[f"repeated answers; the {answer.taken} of each was taken"] += 1
            if is_first or (not answer.mirrored and answer.taken == "last"):
                found[answer.query] = answer
        if not found:
            raise UserError(
                f"judge_model: {self.path} holds no verdict of {self.judge_model!r}."
            )
        for text, n in notes.items():
            logger.warning("%s: %d %s", self.path, n, text)
        if len(judges) > 1:
            text = "%s: %d judges (%s); name one as judge.judge_model"
            names = ", ".join(sorted(judges))
            logger.warning(text, self.path, len(judges), names)
        return found

    def _reply(self, request: JudgeRequest) -> JudgeReply | None:
        """The recorded answer as a judge gives it; None where there is none."""
        shown, answers = request.subject, self._answers
        if isinstance(shown, Item):
            if not any(len(query) == 3 for query in answers):
                raise UserError(
                    f"{self.path}: holds verdicts and no scores. Expected rows with prompt_id, "
                    "policy, draw_idx and judge_score in [0, 1]."
                )
            found = answers.get((shown.prompt_id, shown.entrant_id, shown.draw_idx))
        else:
            names = (shown.prompt_id, shown.entrant_a, shown.entrant_b)
            own, pooled = (
                answers.get((*names, dimension, request.repeat))
                for dimension in (shown.dimension, None)
            )
            found = own or pooled
        if found is None:
            return None
        value = found.value
        answer = {"evidence_a": "", "evidence_b": "", "verdict": value}
        if request.scale is not None and isinstance(value, int | float):
            low, high = request.scale
            answer = {"evidence": "", "score": low + value * (high - low)}
        return JudgeReply(
            key=request.key,
            text="" if value is None else json.dumps(answer),
            stop_reason="recorded_invalid" if value is None else "end_turn",
            mirrored=found.mirrored,
            timestamp=utc_now(),
            judge_model=self.model,
            **request.names,
        )


def _read(
    place: str, row: Mapping[str, Any], dimension: str | None
) -> Iterator[_Answer]:
    """Read one row of any kind.

    dimension  in the name of the file
    """
    if "judge_score" in row:
        yield _score(place, row)
    elif "cache_key" in row:  # of the original
        metadata = row.get("metadata")
        pair = {"dimension": dimension}
        pair |= metadata if isinstance(metadata, dict) else {}
        verdict = {**row, "position_swap": pair.get("position_swap")}
        yield _verdict(place, pair, verdict, is_original=True)._replace(taken="last")
    elif "raw" in row:
        for verdict in _field(place, row, "raw", list):
            if not isinstance(verdict, dict):
                raise UserError(
                    f"{place}: raw has {verdict!r}. Expected objects. {_SHAPES}"
                )
            # The original's verdicts/<dimension>.jsonl has our layout without a stop_reason
            is_original = "pair" in verdict and "stop_reason" not in verdict
            yield _verdict(place, row, verdict, is_original=is_original)
    else:
        yield from _battle(place, row)


def _score(place: str, row: Mapping[str, Any]) -> _Answer:
    query = (
        _field(place, row, "prompt_id", str),
        _field(place, row, "policy" if "policy" in row else "entrant_id", str),
        _field(place, {"draw_idx": 0, **row}, "draw_idx", int),
    )
    score = row["judge_score"]
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    if score is not None and not (is_number and 0 <= score <= 1):
        raise UserError(
            f"{place}: judge_score is {score!r}. Expected a number in [0, 1], or null."
        )
    return _Answer(query, row.get("judge_model"), score)


def _verdict(
    place: str, pair: Mapping[str, Any], row: Mapping[str, Any], *, is_original: bool
) -> _Answer:
    """Read the verdict on one order of a pair."""
    names = ("prompt_id", "entrant_a", "entrant_b", "dimension")
    prompt_id, a, b, dimension = (_field(place, pair, name, str) for name in names)
    first, second = (b, a) if _field(place, row, "position_swap", bool) else (a, b)
    judge = _field(place, row, "judge_model", str)
    repeat = _field(place, {"repeat": row.get("repeat") or 0}, "repeat", int)
    value, note = row.get("verdict"), None
    if is_original:
        value = one_of(f"{place}: verdict", value or "INVALID", VERDICTS)
        lines = _VERDICT_LINE.findall(str(row.get("reasoning")))
        in_reply = lines[-1].upper() if lines else ""
        is_unlike = "reasoning" in row and in_reply != value
        if row.get("error") or value == "INVALID" or is_unlike:
            note = "verdicts are invalid: failed, or not those of the judge's reply"
            value = None
        elif value == "TIE" and "reasoning" not in row:
            note = "TIEs may be failures, which the original wrote as TIE: no reply"
    return _Answer(
        (prompt_id, first, second, dimension, repeat),
        judge,
        value if value in ("A", "B", "TIE") else None,
        mirrored=bool(row.get("mirrored", False)),
        note=note,
    )


def _battle(place: str, row: Mapping[str, Any]) -> Iterator[_Answer]:
    """Read a battle as a verdict on each order; of a single verdict one is mirrored."""
    names = ("question_id", "model_a", "model_b")
    question, a, b = (_field(place, row, name, str) for name in names)
    one_order = row.get("verdict_ab") is None or row.get("verdict_ba") is None
    for swapped in (False, True):
        name = "winner" if one_order else "verdict_ba" if swapped else "verdict_ab"
        winner = one_of(f"{place}: {name}", str(row.get(name)), WINNERS)
        letters = {"model_a": "AB"[swapped], "model_b": "BA"[swapped]}
        shown = (b, a) if swapped else (a, b)
        yield _Answer(
            (question, *shown, row.get("dimension"), 0),
            row.get("judge_model"),
            letters.get(winner, "TIE"),
            mirrored=one_order and swapped != (row.get("shown_first") == "b"),
        )


def _dimension(path: Path) -> str | None:
    """The dimension in the name of a file of the original."""
    return match[1] if (match := _ORIGINAL.fullmatch(path.name)) else None


def _field(place: str, row: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of a row. Raises UserError where it is absent or of another type."""
    if not isinstance(value := row.get(name), kind):
        raise UserError(
            f"{place}: {name} is {value!r}. Expected {_KINDS[kind]}. {_SHAPES}"
        )
    return value
