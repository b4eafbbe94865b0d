"""A judge that answers from a file: the verdicts of an earlier run, or battles or scores judged by somebody else."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp import files
from elo_exp.records import VERDICTS, WINNERS, Comparison, Item, JudgeReply, JudgeRequest, UserError
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

_CHUNK = 256  # replies in one transaction; they cost nothing to make again
# The original program's cache of verdicts: one file a dimension, one row an order, the judge's whole reply in it.
_FILE = re.compile(r"judgments_(.+)\.jsonl(\.gz)?")
_NAMED = 5  # of many judges, how many a warning names
_VERSION = 2  # part of every key: raise it when a file is read in another way
_ABOUT = {
    "dimension": str,
    "prompt_id": str,
    "entrant_a": str,
    "entrant_b": str,
    "position_swap": bool,
}
_SAID = re.compile(r"^[ \t]*VERDICT:[ \t]*(\w*)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The winner's name, 'tie' or 'invalid', and whether it was given for the order asked about."""

    winner: str
    mirrored: bool = False


_Verdicts = dict[
    tuple[str, str, str, str | None, int], _Recorded
]  # prompt, first and second shown, dimension, repeat
_Scores = dict[tuple[str, str, int], float | None]  # by prompt, policy and draw, in [0, 1]


@dataclass(kw_only=True)
class ReplayJudge:
    """path         verdicts/<dimension>.jsonl of a run, judgments_<dimension>.jsonl of the original program, the folder
                 of either, or battles (.jsonl, also .gz), or scores
    judge_model  of a file with several judges, the one to replay; None takes every row

    A battle with one verdict answers both orders with it, the second marked as mirrored, unless the file holds a battle
    with the sides exchanged, which is the second order. Where it holds several verdicts on one order, the first is
    taken (of the original's rows the last, as it did itself) and the number of the others is reported. Repeats are
    those on file: verdicts of a run may have them. The original wrote TIE for a reply that it could not read: its
    verdicts are invalid where the reply, kept beside them, does not say the same.

    A row of scores holds prompt_id, policy (or entrant_id), draw_idx (0 where it is absent) and judge_score in [0, 1],
    or null for one that could not be read. Of an interval it says nothing.
    """

    path: str
    judge_model: str | None

    key_fields = ("prompt_id", "entrant_a", "entrant_b")

    def __post_init__(self) -> None:
        self._verdicts: _Verdicts = {}
        self._scores: _Scores = {}
        self._judges: set[str] = set()
        self._notes: Counter[str] = Counter()  # what to warn of, and how often it was found

    @cached_property
    def _files(self) -> list[Path]:
        path = Path(self.path)
        found = (
            sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]) if path.is_dir() else [path]
        )
        if (path / "verdicts").is_dir() and not any(_FILE.fullmatch(file.name) for file in found):
            raise UserError(
                f"path: found no file of verdicts in {path}, the folder of a run. Expected "
                f"{path / 'verdicts'}."
            )
        if not found:
            raise UserError(f"path: found no .jsonl file in {path}. Expected verdicts or battles.")
        return found

    @property
    def input_files(self) -> Mapping[str, Path]:
        path = Path(self.path)
        return {"": path, **({file.name: file for file in self._files} if path.is_dir() else {})}

    @cached_property
    def _digest(self) -> list[list[str | None]]:
        """Dimension and SHA-256 of each file. Reads them all."""
        for file in self._files:
            self._read(file)
        if not self._verdicts and not self._scores:
            raise UserError(f"judge_model: {self.path} holds no verdict of {self.judge_model!r}.")
        for note, n in self._notes.items():
            logger.warning("%s: %d %s", self.path, n, note)
        if len(self._judges) > 1:
            named = ", ".join(sorted(self._judges)[:_NAMED])
            more = ", ..." if len(self._judges) > _NAMED else ""
            logger.warning(
                "%s: %d judges (%s%s); name one as judge.judge_model",
                self.path,
                len(self._judges),
                named,
                more,
            )
        return [[_dimension(file), files.sha256(file)] for file in self._files]

    def check(self) -> None:
        """Raise UserError for files that are missing or cannot be read."""
        _ = self._digest

    @property
    def model(self) -> str:
        return self.judge_model or "replay"

    def cache_key(self) -> Mapping[str, Any]:
        return {
            "judge": "replay",
            "version": _VERSION,
            "files": self._digest,
            "judge_model": self.judge_model,
        }

    def answer(self, requests: Sequence[JudgeRequest], store: Store) -> Iterator[JudgeReply]:
        self.check()
        self._check_repeats(max((request.repeat for request in requests), default=0))
        replies = (reply for request in requests if (reply := self._reply(request)))
        return store.keep(replies, key=lambda reply: reply.key, chunk=_CHUNK)

    def _check_repeats(self, wanted: int) -> None:
        on_file = max((key[-1] for key in self._verdicts), default=0)
        if wanted > on_file:
            raise UserError(
                f"judging.repeats: found {wanted + 1}, but {self.path} holds {on_file + 1} for each order at most. "
                f"Nobody can be asked again: set judging.repeats={on_file + 1}."
            )

    def _reply(self, request: JudgeRequest) -> JudgeReply | None:
        shown = request.subject
        if isinstance(shown, Item):
            return self._scored(request, (shown.prompt_id, shown.entrant_id, shown.draw_idx))
        recorded = self._find(shown, request.repeat)
        if recorded is None:
            return None
        sides = {shown.entrant_a: "A", shown.entrant_b: "B"}
        answer = {"evidence_a": "", "evidence_b": "", "verdict": sides.get(recorded.winner, "TIE")}
        invalid = recorded.winner == "invalid"
        return JudgeReply(
            key=request.key,
            text="" if invalid else json.dumps(answer),
            stop_reason="recorded_invalid" if invalid else "end_turn",
            mirrored=recorded.mirrored,
            timestamp=files.utc_now(),
            judge_model=self.model,
            **request.names,
        )

    def _scored(self, request: JudgeRequest, name: tuple[str, str, int]) -> JudgeReply | None:
        if not self._scores:
            raise UserError(
                f"path: {self.path} holds verdicts and no scores. Expected rows with prompt_id, policy, draw_idx and "
                "judge_score in [0, 1]."
            )
        if name not in self._scores:
            return None
        assert request.scale is not None
        score, (low, high) = self._scores[name], request.scale
        return JudgeReply(
            key=request.key,
            text=""
            if score is None
            else json.dumps({"evidence": "", "score": low + score * (high - low)}),
            stop_reason="recorded_invalid" if score is None else "end_turn",
            timestamp=files.utc_now(),
            judge_model=self.model,
            **request.names,
        )

    def _find(self, shown: Comparison, repeat: int) -> _Recorded | None:
        for dimension in (shown.dimension, None):
            if found := self._verdicts.get(
                (shown.prompt_id, shown.entrant_a, shown.entrant_b, dimension, repeat)
            ):
                return found
        return None

    def _read(self, path: Path) -> None:
        """Take a file's verdicts in, and count those on orders that had one already."""
        for place, row in files.read_jsonl(path):
            if "judge_score" in row:
                self._take_score(place, row)
                continue
            try:
                shaped = _as_judgment(path, place, row) if "cache_key" in row else row
                verdicts = (
                    self._from_judgment(place, shaped)
                    if "raw" in shaped
                    else self._from_battle(place, shaped)
                )
            except (KeyError, TypeError, IndexError) as error:
                fault = (
                    f"has no {error}"
                    if isinstance(error, KeyError)
                    else f"a value has another shape ({error})"
                )
                raise UserError(
                    f"{place}: {fault}. Expected a verdict (prompt_id, dimension, entrant_a, entrant_b, raw), "
                    "a battle (model_a, model_b, winner, question_id), a score (prompt_id, policy, judge_score) or a "
                    "row of the original's judgments_<dimension>.jsonl (cache_key, judge_model, verdict, reasoning, "
                    "metadata)."
                ) from None
            taken = "last" if "cache_key" in row else "first"
            for key, recorded in verdicts.items():
                known = self._verdicts.get(key)
                if known is None or (known.mirrored and not recorded.mirrored):
                    self._verdicts[key] = recorded
                elif not recorded.mirrored:
                    self._notes[
                        f"further verdicts on pairs that had one; the {taken} was taken"
                    ] += 1
                    if taken == "last":
                        self._verdicts[key] = recorded

    def _take_score(self, place: str, row: Mapping[str, Any]) -> None:
        if self.judge_model not in (None, row.get("judge_model")):
            return
        prompt, policy, draw = (
            row.get("prompt_id"),
            row.get("policy", row.get("entrant_id")),
            row.get("draw_idx", 0),
        )
        score = row["judge_score"]
        is_score = (
            isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1
        )
        if not isinstance(prompt, str) or not isinstance(policy, str) or not isinstance(draw, int):
            raise UserError(
                f"{place}: a score without prompt_id and policy. Expected both as text, draw_idx a number."
            )
        if score is not None and not is_score:
            raise UserError(
                f"{place}: judge_score is {score!r}. Expected a number in [0, 1], or null."
            )
        if (prompt, policy, draw) in self._scores:
            self._notes["further scores of responses that had one; the first was taken"] += 1
        self._scores.setdefault((prompt, policy, draw), score)

    def _from_judgment(self, place: str, row: Mapping[str, Any]) -> _Verdicts:
        prompt, a, b = row["prompt_id"], row["entrant_a"], row["entrant_b"]
        found = {}
        for raw in row["raw"]:
            if self.judge_model not in (None, raw["judge_model"]):
                continue
            if not isinstance(repeat := raw.get("repeat") or 0, int):
                raise UserError(f"{place}: repeat is {repeat!r}. Expected a whole number.")
            self._judges.add(str(raw["judge_model"]))
            is_original = (
                "cache_key" in row or "pair" in raw
            )  # only the original's verdicts/ repeat the pair
            verdict = self._borne_out(place, raw) if is_original else raw["verdict"]
            shown = (b, a) if raw["position_swap"] else (a, b)
            names = {"A": shown[0], "B": shown[1], "TIE": "tie"}
            recorded = _Recorded(names.get(verdict, "invalid"), bool(raw.get("mirrored", False)))
            found[(prompt, *shown, row["dimension"], repeat)] = recorded
        return found

    def _borne_out(self, place: str, row: Mapping[str, Any]) -> str:
        """A verdict of the original's; INVALID where the judge's reply, its `reasoning`, does not say the same."""
        verdict = row["verdict"] or "INVALID"
        if verdict not in VERDICTS:
            raise UserError(
                f"{place}: verdict is {verdict!r}. Expected A, B or TIE. Mend the row or remove it."
            )
        said = (_SAID.findall(str(row["reasoning"])) or [""]) if "reasoning" in row else [verdict]
        if row.get("error") or verdict == "INVALID" or said[-1].upper() != verdict:
            self._notes[
                "verdicts are invalid: marked as failed, or not what the judge's reply says"
            ] += 1
            return "INVALID"
        if verdict == "TIE" and "reasoning" not in row:
            self._notes[
                "TIEs may be failures of the judge: the original wrote TIE then, and no reply is there"
            ] += 1
        return str(verdict)

    def _from_battle(self, place: str, row: Mapping[str, Any]) -> _Verdicts:
        if self.judge_model not in (None, row.get("judge_model")):
            return {}
        if row.get("judge_model"):
            self._judges.add(str(row["judge_model"]))
        for name in ("winner", "verdict_ab", "verdict_ba"):
            found = row["winner"] if name == "winner" else row.get(name)
            if found not in (None, *WINNERS):
                raise UserError(
                    f"{place}: {name} is {found!r}. Expected one of {', '.join(WINNERS)}."
                )
        prompt, a, b, dimension = (
            row["question_id"],
            row["model_a"],
            row["model_b"],
            row.get("dimension"),
        )
        names = dict.fromkeys(WINNERS, "tie") | {"model_a": a, "model_b": b}
        both = row.get("verdict_ab"), row.get("verdict_ba")
        if None in both:
            winner = names[row["winner"]]
            first_b = row.get("shown_first") == "b"
            return {
                (prompt, a, b, dimension, 0): _Recorded(winner, first_b),
                (prompt, b, a, dimension, 0): _Recorded(winner, not first_b),
            }
        return {
            (prompt, a, b, dimension, 0): _Recorded(names[both[0]]),
            (prompt, b, a, dimension, 0): _Recorded(names[both[1]]),
        }


def _dimension(path: Path) -> str | None:
    """The dimension in the name of a file of the original's."""
    return match[1] if (match := _FILE.fullmatch(path.name)) else None


def _as_judgment(path: Path, place: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of the original's judgments_<dimension>.jsonl as a judgment with one of its two verdicts."""
    metadata = row.get("metadata")
    about = {"dimension": _dimension(path), **(metadata if isinstance(metadata, dict) else {})}
    for name, kind in _ABOUT.items():
        if not isinstance(found := about.get(name), kind):
            expected = "true or false" if kind is bool else "text"
            where = ", or the file named judgments_<dimension>.jsonl" if name == "dimension" else ""
            raise UserError(
                f"{place}: metadata.{name} is {found!r}. Expected {expected}{where}. Mend the row or remove it."
            )
    raw = {**row, "position_swap": about["position_swap"]}
    return {**about, "cache_key": row["cache_key"], "raw": [raw]}
