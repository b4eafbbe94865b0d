"""A judge that answers from files: verdicts of an earlier run, battles or scores."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from elo_exp.files import read_jsonl, sha256, utc_now
from elo_exp.records import (
    VERDICTS,
    WINNERS,
    Item,
    JudgeReply,
    JudgeRequest,
    UserError,
    one_of,
)
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

_VERSION = 2  # part of every cache key: raise it when a file is read in another way
_CHUNK = 256  # replies in one transaction
_MAX_NAMES = 5  # judges named in a warning
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


class _Query(NamedTuple):
    """A pair in the order shown. A verdict without a dimension is valid for all of them."""

    prompt_id: str
    first: str
    second: str
    dimension: str | None
    repeat: int = 0


class _Recorded(NamedTuple):
    """A verdict A, B or TIE, or a score in [0, 1]; None where it is invalid.

    mirrored  the other order was judged
    """

    value: str | float | None
    mirrored: bool = False


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
        _ = self._recordings

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
        if wanted > (n := self._recordings.n_repeats):
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
        paths = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
        if (path / "verdicts").is_dir() and not any(_dimension(file) for file in paths):
            raise UserError(
                f"path: found no file of verdicts in {path}, the folder of a run. Expected "
                f"{path / 'verdicts'}."
            )
        if not paths:
            raise UserError(
                f"path: found no .jsonl file in {path}. Expected verdicts or battles."
            )
        return paths

    @cached_property
    def _recordings(self) -> _Recordings:
        found = _Recordings(self.judge_model)
        for file in self._paths:
            found.read(file)
        if not found.answers:
            raise UserError(
                f"judge_model: {self.path} holds no verdict of {self.judge_model!r}."
            )
        for text, n in found.warnings.items():
            logger.warning("%s: %d %s", self.path, n, text)
        if (n_judges := len(found.judges)) > 1:
            names = ", ".join(sorted(found.judges)[:_MAX_NAMES])
            names += ", ..." if n_judges > _MAX_NAMES else ""
            text = "%s: %d judges (%s); name one as judge.judge_model"
            logger.warning(text, self.path, n_judges, names)
        return found

    def _reply(self, request: JudgeRequest) -> JudgeReply | None:
        """The recorded answer as a judge gives it; None where there is none."""
        recorded = self._find(request)
        if recorded is None:
            return None
        value = recorded.value
        answer = {"evidence_a": "", "evidence_b": "", "verdict": value}
        if request.scale is not None and isinstance(value, int | float):
            low, high = request.scale
            answer = {"evidence": "", "score": low + value * (high - low)}
        return JudgeReply(
            key=request.key,
            text="" if value is None else json.dumps(answer),
            stop_reason="recorded_invalid" if value is None else "end_turn",
            mirrored=recorded.mirrored,
            timestamp=utc_now(),
            judge_model=self.model,
            **request.names,
        )

    def _find(self, request: JudgeRequest) -> _Recorded | None:
        shown, recordings = request.subject, self._recordings
        if isinstance(shown, Item):
            if not recordings.has_scores:
                raise UserError(
                    f"{self.path}: holds verdicts and no scores. Expected rows with prompt_id, "
                    "policy, draw_idx and judge_score in [0, 1]."
                )
            name = (shown.prompt_id, shown.entrant_id, shown.draw_idx)
            return recordings.answers.get(name)
        names = (shown.prompt_id, shown.entrant_a, shown.entrant_b)
        for dimension in (shown.dimension, None):
            query = _Query(*names, dimension, request.repeat)
            if found := recordings.answers.get(query):
                return found
        return None


class _Recordings:
    """Verdicts by query, and scores by prompt, policy and draw."""

    def __init__(self, judge_model: str | None) -> None:
        self.judge_model = judge_model
        self.answers: dict[tuple[Any, ...], _Recorded] = {}
        self.n_repeats = 1
        self.has_scores = False
        self.judges: set[str] = set()
        self.warnings: Counter[str] = Counter()

    def read(self, path: Path) -> None:
        for place, row in read_jsonl(path):
            if "judge_score" in row:
                self._read_score(place, row)
            elif "cache_key" in row:  # the original's
                metadata = row.get("metadata")
                pair: dict[str, Any] = {"dimension": _dimension(path)}
                pair |= metadata if isinstance(metadata, dict) else {}
                verdict = {**row, "position_swap": pair.get("position_swap")}
                self._read_verdict(place, pair, verdict, taken="last")
            elif "raw" in row:
                for verdict in _field(place, row, "raw", list):
                    self._read_verdict(place, row, verdict)
            else:
                self._read_battle(place, row)

    def _is_chosen(self, judge_model: Any) -> bool:
        return self.judge_model in (None, judge_model)

    def _read_score(self, place: str, row: Mapping[str, Any]) -> None:
        if not self._is_chosen(row.get("judge_model")):
            return
        policy = "policy" if "policy" in row else "entrant_id"
        key = (
            _field(place, row, "prompt_id", str),
            _field(place, row, policy, str),
            _field(place, {"draw_idx": 0, **row}, "draw_idx", int),
        )
        score = row["judge_score"]
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if score is not None and not (is_number and 0 <= score <= 1):
            raise UserError(
                f"{place}: judge_score is {score!r}. Expected a number in [0, 1], or null."
            )
        self.has_scores = True
        self._add(key, score)

    def _read_verdict(
        self,
        place: str,
        pair: Mapping[str, Any],
        row: Any,
        *,
        taken: str = "first",
    ) -> None:
        """Read the verdict on one order of a pair."""
        if not isinstance(row, dict):
            raise UserError(f"{place}: raw has {row!r}. Expected objects. {_SHAPES}")
        names = ("prompt_id", "entrant_a", "entrant_b", "dimension")
        prompt_id, a, b, dimension = (_field(place, pair, name, str) for name in names)
        swapped = _field(place, row, "position_swap", bool)
        judge_model = _field(place, row, "judge_model", str)
        repeat = _field(place, {"repeat": row.get("repeat") or 0}, "repeat", int)
        if not self._is_chosen(judge_model):
            return
        self.judges.add(judge_model)
        self.n_repeats = max(self.n_repeats, repeat + 1)
        verdict = row.get("verdict")
        is_originals = "pair" in row and "stop_reason" not in row
        if taken == "last" or is_originals:
            verdict = self._checked_verdict(place, row)
        first, second = (b, a) if swapped else (a, b)
        self._add(
            _Query(prompt_id, first, second, dimension, repeat),
            verdict if verdict in ("A", "B", "TIE") else None,
            mirrored=bool(row.get("mirrored", False)),
            taken=taken,
        )

    def _checked_verdict(self, place: str, row: Mapping[str, Any]) -> str:
        """A verdict of the original; INVALID where the judge's reply, `reasoning`, disagrees."""
        verdict = one_of(f"{place}: verdict", row.get("verdict") or "INVALID", VERDICTS)
        in_reply = verdict
        if "reasoning" in row:
            lines = _VERDICT_LINE.findall(str(row["reasoning"]))
            in_reply = lines[-1].upper() if lines else ""
        if row.get("error") or verdict == "INVALID" or in_reply != verdict:
            text = "verdicts are invalid: failed, or not those of the judge's reply"
            self.warnings[text] += 1
            return "INVALID"
        if verdict == "TIE" and "reasoning" not in row:
            text = "TIEs may be failures, which the original wrote as TIE: no reply"
            self.warnings[text] += 1
        return verdict

    def _read_battle(self, place: str, row: Mapping[str, Any]) -> None:
        names = ("question_id", "model_a", "model_b")
        question, a, b = (_field(place, row, name, str) for name in names)
        judge_model = row.get("judge_model")
        if not self._is_chosen(judge_model):
            return
        if judge_model:
            self.judges.add(str(judge_model))
        b_first = row.get("shown_first") == "b"
        one_order = row.get("verdict_ab") is None or row.get("verdict_ba") is None
        for swapped in (False, True):
            name = "verdict_ba" if swapped else "verdict_ab"
            if one_order:
                name = "winner"
            winner = one_of(f"{place}: {name}", str(row.get(name)), WINNERS)
            letters = {"model_a": "AB"[swapped], "model_b": "BA"[swapped]}
            shown = (b, a) if swapped else (a, b)
            self._add(
                _Query(question, *shown, row.get("dimension")),
                letters.get(winner, "TIE"),
                mirrored=one_order and swapped != b_first,
            )

    def _add(
        self,
        query: tuple[Any, ...],
        value: str | float | None,
        *,
        mirrored: bool = False,
        taken: str = "first",
    ) -> None:
        known = self.answers.get(query)
        if known is None or (known.mirrored and not mirrored):
            self.answers[query] = _Recorded(value, mirrored)
        elif not mirrored:
            self.warnings[f"repeated answers; the {taken} of each was taken"] += 1
            if taken == "last":
                self.answers[query] = _Recorded(value)


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
