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
    Comparison,
    Item,
    JudgeReply,
    JudgeRequest,
    UserError,
)
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

_VERSION = 2  # part of every cache key: raise it when a file is read in another way
_CHUNK = 256  # replies in one transaction
_MAX_NAMES = 5  # judges named in a warning
# The original program's cache of verdicts: one file per dimension, one row per order.
_ORIGINAL = re.compile(r"judgments_(.+)\.jsonl(\.gz)?")
_METADATA = {
    "dimension": str,
    "prompt_id": str,
    "entrant_a": str,
    "entrant_b": str,
    "position_swap": bool,
}
_VERDICT_LINE = re.compile(r"^[ \t]*VERDICT:[ \t]*(\w*)", re.IGNORECASE | re.MULTILINE)
_SHAPES = (
    "Expected a verdict (prompt_id, dimension, entrant_a, entrant_b, raw), a battle (model_a, "
    "model_b, winner, question_id), a score (prompt_id, policy, judge_score) or a row of the "
    "original's judgments_<dimension>.jsonl (cache_key, judge_model, verdict, reasoning, metadata)."
)


class _Order(NamedTuple):
    """A query. Without a dimension, a verdict answers all of them."""

    prompt_id: str
    first: str
    second: str
    dimension: str | None
    repeat: int


class _Recorded(NamedTuple):
    """The winner's name, 'tie' or 'invalid'; whether the other order was asked instead."""

    winner: str
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
        wanted = max((request.repeat for request in requests), default=0)
        recorded = max((order.repeat for order in self._recordings.verdicts), default=0)
        if wanted > recorded:
            raise UserError(
                f"judging.repeats: found {wanted + 1}, but {self.path} holds {recorded + 1} for "
                f"each order at most. Set judging.repeats={recorded + 1}."
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
        recordings = _Recordings(self.judge_model)
        for file in self._paths:
            recordings.read(file)
        if not recordings.verdicts and not recordings.scores:
            raise UserError(
                f"judge_model: {self.path} holds no verdict of {self.judge_model!r}."
            )
        for text, n in recordings.warnings.items():
            logger.warning("%s: %d %s", self.path, n, text)
        if (n_judges := len(recordings.judges)) > 1:
            names = ", ".join(sorted(recordings.judges)[:_MAX_NAMES])
            more = ", ..." if n_judges > _MAX_NAMES else ""
            logger.warning(
                "%s: %d judges (%s%s); name one as judge.judge_model",
                self.path,
                n_judges,
                names,
                more,
            )
        return recordings

    def _reply(self, request: JudgeRequest) -> JudgeReply | None:
        subject = request.subject
        if isinstance(subject, Item):
            name = (subject.prompt_id, subject.entrant_id, subject.draw_idx)
            if name not in self._scores:
                return None
            score, mirrored = self._scores[name], False
            assert request.scale is not None
            low, high = request.scale
            answer: dict[str, Any] = {"evidence": ""}
            is_valid = score is not None
            if score is not None:
                answer["score"] = low + score * (high - low)
        else:
            recorded = self._find(subject, request.repeat)
            if recorded is None:
                return None
            verdicts = {subject.entrant_a: "A", subject.entrant_b: "B"}
            verdict = verdicts.get(recorded.winner, "TIE")
            answer = {"evidence_a": "", "evidence_b": "", "verdict": verdict}
            is_valid, mirrored = recorded.winner != "invalid", recorded.mirrored
        return JudgeReply(
            key=request.key,
            text=json.dumps(answer) if is_valid else "",
            stop_reason="end_turn" if is_valid else "recorded_invalid",
            mirrored=mirrored,
            timestamp=utc_now(),
            judge_model=self.model,
            **request.names,
        )

    @property
    def _scores(self) -> Mapping[tuple[str, str, int], float | None]:
        if not self._recordings.scores:
            raise UserError(
                f"{self.path}: holds verdicts and no scores. Expected rows with prompt_id, policy, "
                "draw_idx and judge_score in [0, 1]."
            )
        return self._recordings.scores

    def _find(self, shown: Comparison, repeat: int) -> _Recorded | None:
        pair = (shown.prompt_id, shown.entrant_a, shown.entrant_b)
        for dimension in (shown.dimension, None):
            if found := self._recordings.verdicts.get(_Order(*pair, dimension, repeat)):
                return found
        return None


class _Recordings:
    """Verdicts by query, and scores by prompt, policy and draw."""

    def __init__(self, judge_model: str | None) -> None:
        self.judge_model = judge_model
        self.verdicts: dict[_Order, _Recorded] = {}
        self.scores: dict[tuple[str, str, int], float | None] = {}
        self.judges: set[str] = set()
        self.warnings: Counter[str] = Counter()

    def read(self, path: Path) -> None:
        for place, row in read_jsonl(path):
            try:
                if "judge_score" in row:
                    self._add_score(place, row)
                else:
                    self._add_verdicts(path, place, row)
            except KeyError as error:
                raise UserError(f"{place}: has no {error}. {_SHAPES}") from None
            except (TypeError, IndexError) as error:
                message = f"{place}: a value has another shape ({error}). {_SHAPES}"
                raise UserError(message) from None

    def _is_chosen(self, judge_model: Any) -> bool:
        return self.judge_model in (None, judge_model)

    def _add_score(self, place: str, row: Mapping[str, Any]) -> None:
        if not self._is_chosen(row.get("judge_model")):
            return
        name = (row.get("prompt_id"), row.get("policy", row.get("entrant_id")))
        draw, score = row.get("draw_idx", 0), row["judge_score"]
        if not all(isinstance(text, str) for text in name) or not isinstance(draw, int):
            raise UserError(
                f"{place}: a score without prompt_id and policy. Expected both as text, and "
                "draw_idx as a number."
            )
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if score is not None and not (is_number and 0 <= score <= 1):
            raise UserError(
                f"{place}: judge_score is {score!r}. Expected a number in [0, 1], or null."
            )
        key = (str(name[0]), str(name[1]), draw)
        if key in self.scores:
            self.warnings[
                "further scores of responses that had one; the first was taken"
            ] += 1
        self.scores.setdefault(key, score)

    def _add_verdicts(self, path: Path, place: str, row: Mapping[str, Any]) -> None:
        is_original = "cache_key" in row
        taken = "last" if is_original else "first"
        judgment = _as_judgment(path, place, row) if is_original else row
        read = self._from_judgment if "raw" in judgment else self._from_battle
        for order, recorded in read(place, judgment).items():
            known = self.verdicts.get(order)
            if known is None or (known.mirrored and not recorded.mirrored):
                self.verdicts[order] = recorded
            elif not recorded.mirrored:
                text = f"further verdicts on pairs that had one; the {taken} was taken"
                self.warnings[text] += 1
                if is_original:
                    self.verdicts[order] = recorded

    def _from_judgment(
        self, place: str, row: Mapping[str, Any]
    ) -> dict[_Order, _Recorded]:
        prompt_id, a, b = row["prompt_id"], row["entrant_a"], row["entrant_b"]
        verdicts = {}
        for raw in row["raw"]:
            if not self._is_chosen(raw["judge_model"]):
                continue
            if not isinstance(repeat := raw.get("repeat") or 0, int):
                raise UserError(
                    f"{place}: repeat is {repeat!r}. Expected a whole number."
                )
            self.judges.add(str(raw["judge_model"]))
            # Only the original's rows have a cache key beside them, or repeat the pair.
            is_original = "cache_key" in row or "pair" in raw
            verdict = (
                self._checked_verdict(place, raw) if is_original else raw["verdict"]
            )
            first, second = (b, a) if raw["position_swap"] else (a, b)
            winner = {"A": first, "B": second, "TIE": "tie"}.get(verdict, "invalid")
            order = _Order(prompt_id, first, second, row["dimension"], repeat)
            verdicts[order] = _Recorded(winner, bool(raw.get("mirrored", False)))
        return verdicts

    def _checked_verdict(self, place: str, row: Mapping[str, Any]) -> str:
        """A verdict of the original; INVALID where the judge's reply, `reasoning`, disagrees."""
        verdict = row["verdict"] or "INVALID"
        if verdict not in VERDICTS:
            raise UserError(
                f"{place}: verdict is {verdict!r}. Expected A, B or TIE. Correct the row or remove "
                "it."
            )
        in_reply = verdict
        if "reasoning" in row:
            in_reply = (_VERDICT_LINE.findall(str(row["reasoning"])) or [""])[
                -1
            ].upper()
        if row.get("error") or verdict == "INVALID" or in_reply != verdict:
            self.warnings[
                "verdicts are invalid: failed, or not those of the judge's reply"
            ] += 1
            return "INVALID"
        if verdict == "TIE" and "reasoning" not in row:
            self.warnings[
                "TIEs may be failures, which the original wrote as TIE: no reply"
            ] += 1
        return str(verdict)

    def _from_battle(
        self, place: str, row: Mapping[str, Any]
    ) -> dict[_Order, _Recorded]:
        if not self._is_chosen(row.get("judge_model")):
            return {}
        if row.get("judge_model"):
            self.judges.add(str(row["judge_model"]))
        for name in ("winner", "verdict_ab", "verdict_ba"):
            value = row["winner"] if name == "winner" else row.get(name)
            if value not in (None, *WINNERS):
                raise UserError(
                    f"{place}: {name} is {value!r}. Expected one of {', '.join(WINNERS)}."
                )
        a, b = row["model_a"], row["model_b"]
        straight = _Order(row["question_id"], a, b, row.get("dimension"), 0)
        swapped = straight._replace(first=b, second=a)
        winners = dict.fromkeys(WINNERS, "tie") | {"model_a": a, "model_b": b}
        of_straight, of_swapped = row.get("verdict_ab"), row.get("verdict_ba")
        if of_straight is None or of_swapped is None:
            winner, b_first = winners[row["winner"]], row.get("shown_first") == "b"
            return {
                straight: _Recorded(winner, b_first),
                swapped: _Recorded(winner, not b_first),
            }
        return {
            straight: _Recorded(winners[of_straight]),
            swapped: _Recorded(winners[of_swapped]),
        }


def _dimension(path: Path) -> str | None:
    """The dimension in the name of a file of the original."""
    return match[1] if (match := _ORIGINAL.fullmatch(path.name)) else None


def _as_judgment(path: Path, place: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of the original's judgments_<dimension>.jsonl as a judgment with one verdict."""
    metadata = row.get("metadata")
    about = {
        "dimension": _dimension(path),
        **(metadata if isinstance(metadata, dict) else {}),
    }
    for name, kind in _METADATA.items():
        if not isinstance(value := about.get(name), kind):
            expected = "true or false" if kind is bool else "text"
            where = (
                ", or the file named judgments_<dimension>.jsonl"
                if name == "dimension"
                else ""
            )
            raise UserError(
                f"{place}: metadata.{name} is {value!r}. Expected {expected}{where}. Correct the "
                "row or remove it."
            )
    raw = {**row, "position_swap": about["position_swap"]}
    return {**about, "cache_key": row["cache_key"], "raw": [raw]}
