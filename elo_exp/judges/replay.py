"""A judge that answers from files: verdicts of an earlier run, battles or scores."""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import AliasChoices, BaseModel, Field

from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.verdict_sources import are_judges
from elo_exp.data import labelled_pairs, table_files
from elo_exp.data.table_files import Row
from elo_exp.errors import FileError, SettingError
from elo_exp.files import read_jsonl, report_read_errors, sha256, utc_now, validate
from elo_exp.judges import Judge, guess_judge_kind
from elo_exp.records import Item, JudgeReply, JudgeRequest
from elo_exp.types import Integer, JudgeKind, Share

logger = logging.getLogger(__name__)

# Part of every cache key: raise it when a file is read in another way.
_READER_VERSION = 2
# The original program's cache of verdicts: one file per dimension, one row per order.
_ORIGINAL_FILE_PATTERN = re.compile(r"judgments_(.+)\.jsonl(\.gz)?")
_VERDICT_LINE = re.compile(r"^[ \t]*VERDICT:[ \t]*(\w*)", re.IGNORECASE | re.MULTILINE)
_SHAPE_HINTS = (
    "A row is one of these:",
    "a verdict: prompt_id, dimension, entrant_a, entrant_b, raw",
    "a battle: model_a, model_b, winner, question_id",
    "a score: prompt_id, policy, judge_score",
    "a labelled pair: prompt, response_a, response_b, label, verdict_ab, verdict_ba, or a row of LLMBar's results",
    "a row of the original's judgments_<dimension>.jsonl: cache_key, judge_model, verdict, reasoning, metadata",
)
# For each order
_LETTERS_BY_WINNER = {"model_a": ("A", "B"), "model_b": ("B", "A")}
_LETTERS_BY_RESPONSE = {"a": ("A", "B"), "b": ("B", "A"), "tie": ("TIE", "TIE")}
# As which an audit asks about a labelled pair
_NAMES_OF_LABELLED_PAIR = ("gold", "other")
_Winner = Literal["model_a", "model_b", "tie", "tie (bothbad)"]


class _Answer(NamedTuple):
    """An answer on file.

    query       prompt, the pair in the order shown, dimension (None: all of them), repeat and the
                pair's draws; of a score prompt, policy and draw
    value       A, B or TIE, or a score in [0, 1]; None where it is invalid
    mirrored    the other order was judged
    note        what a warning counts
    """

    query: tuple[Any, ...]
    judge: Any
    value: str | float | None
    mirrored: bool = False
    note: str | None = None


class _Score(BaseModel):
    prompt_id: str
    policy: Annotated[str, Field(validation_alias=AliasChoices("policy", "entrant_id"))]
    draw_idx: Integer = 0
    judge_score: Share | None
    judge_model: Any = None

    def answers(self) -> Iterator[_Answer]:
        query = (self.prompt_id, self.policy, self.draw_idx)
        yield _Answer(query, self.judge_model, self.judge_score)


class _Battle(BaseModel):
    question_id: str
    model_a: str
    model_b: str
    winner: _Winner
    verdict_ab: _Winner | None = None
    verdict_ba: _Winner | None = None
    draw_a: Integer = 0
    draw_b: Integer = 0
    shown_first: Any = None
    dimension: str | None = None
    judge_model: Any = None

    def answers(self) -> Iterator[_Answer]:
        """Yield the verdict on each order; of a single verdict one is mirrored."""
        verdicts, models = (
            (self.verdict_ab, self.verdict_ba),
            (self.model_a, self.model_b),
        )
        has_one_order, draws = None in verdicts, (self.draw_a, self.draw_b)
        for is_swapped, verdict in enumerate(verdicts):
            winner = self.winner if has_one_order else str(verdict)
            step = -1 if is_swapped else 1
            yield _Answer(
                (self.question_id, *models[::step], self.dimension, 0, *draws[::step]),
                self.judge_model,
                _LETTERS_BY_WINNER.get(winner, ("TIE", "TIE"))[is_swapped],
                mirrored=has_one_order and is_swapped != (self.shown_first == "b"),
            )


class _Verdict(BaseModel):
    """The verdict on one order of a pair; `pair` and no `stop_reason`: as the original wrote it."""

    prompt_id: str
    entrant_a: str
    entrant_b: str
    dimension: str
    judge_model: str
    position_swap: Annotated[bool, Field(strict=True)]
    draw_a: Integer = 0
    draw_b: Integer = 0
    verdict: Literal["A", "B", "TIE", "INVALID", "", None] = None
    repeat: Integer | None = None
    mirrored: bool = False
    error: Any = None
    reasoning: Any = None
    stop_reason: Any = None
    pair: Any = None

    def answers(self) -> Iterator[_Answer]:
        names, present_fields = (self.entrant_a, self.entrant_b), self.model_fields_set
        draws, step = (self.draw_a, self.draw_b), -1 if self.position_swap else 1
        value = self.verdict if self.verdict in ("A", "B", "TIE") else None
        note = None
        if "pair" in present_fields and "stop_reason" not in present_fields:
            lines = _VERDICT_LINE.findall(str(self.reasoning))
            is_contradicted = [line.upper() for line in lines[-1:]] != [value]
            if (
                self.error
                or not value
                or ("reasoning" in present_fields and is_contradicted)
            ):
                note = "verdicts are invalid: failed, or not those of the judge's reply"
                value = None
            elif value == "TIE" and "reasoning" not in present_fields:
                note = "TIEs may be failures, which the original wrote as TIE: no reply"
        shown_names, repeat = names[::step], self.repeat or 0
        query = (self.prompt_id, *shown_names, self.dimension, repeat, *draws[::step])
        yield _Answer(query, self.judge_model, value, self.mirrored, note)


@dataclass(kw_only=True)
class ReplayJudge(Judge):
    """path         verdicts/<dimension>.jsonl of a run, judgments_<dimension>.jsonl of the original
                 program, the folder of either, or battles (.jsonl, also .gz), or scores, or labelled pairs
                 with verdicts
    judge_model  the judge to replay from a file with several; None takes every row

    A battle with one verdict answers both orders, the second marked as mirrored, unless the file
    has a battle with the sides exchanged. If an order has several verdicts, the judge replays the
    first and counts the others. In files of the original program it replays the last, as that
    program did. The original wrote TIE for a reply that it could not read. Such a verdict
    is invalid if the reply, which is kept beside it, disagrees.

    A row of scores has prompt_id, policy (or entrant_id), draw_idx (default 0) and judge_score in
    [0, 1], or null for one that could not be read. It has no interval.
    """

    kind: JudgeKind | None  # None: what their names tell
    path: str
    judge_model: str | None

    key_fields = ("prompt_id", "entrant_a", "entrant_b")
    is_instant = True
    is_recorded = True
    answers_criteria = False

    def __post_init__(self) -> None:
        self.model = self.judge_model or "replay"

    @staticmethod
    def each(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the settings of a replay of each judge on file, by its name; {} where one is chosen or there is one.

        Voters, and whoever is said to be people, are no judges. Raises UserError for files that cannot be read.
        """
        if settings.get("judge_model") is not None:
            return {}
        path = str(settings["path"])
        names, voters = ReplayJudge(
            kind=None, path=path, judge_model=None
        )._judges_and_voters
        if len(names) < 2:
            return {}
        if voters:
            logger.warning(
                "%s: verdicts of %s are votes, which are not replayed together with the verdicts of judges. "
                "To replay them alone: judge.judge_model=NAME",
                path,
                ", ".join(voters),
            )
        return {name: {**settings, "judge_model": name} for name in names}

    @property
    def input_files(self) -> Mapping[str, Path]:
        path = Path(self.path)
        files = {file.name: file for file in self._paths} if path.is_dir() else {}
        return {"": path, **files}

    def check(self) -> None:
        """Raise UserError for files that are absent or cannot be read."""
        _ = self._answers

    def cache_key(self) -> Mapping[str, Any]:
        self.check()
        return {
            "judge": "replay",
            "version": _READER_VERSION,
            "files": [[_dimension_in_name(file), sha256(file)] for file in self._paths],
            "judge_model": self.judge_model,
        }

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        n_repeats = 1 + max((request.repeat for request in requests), default=0)
        repeats = [query[4] for query in self._answers if len(query) == 7]
        n = 1 + max(repeats, default=0)
        if n_repeats > n:
            raise SettingError.bad_value(
                "judging.repeats",
                n_repeats,
                f"be at most {n}, as many as {self.path} holds for each order",
            )
        return filter(None, map(self._make_reply, requests))

    @property
    def missing_replies_hint(self) -> str:
        return "Supply them"

    def make_scope(self) -> Scope:
        """Return whose verdicts these are: those of the judges on file, by whose names it is known what they are."""
        names = self.recorded
        kind = self.kind or guess_judge_kind(names)
        return Scope(judge=", ".join(names) or self.model, kind=kind, source=self.path)

    @cached_property
    def _paths(self) -> list[Path]:
        path = Path(self.path)
        if not path.is_dir():
            return [path]
        if (path / "verdicts").is_dir() and not list(path.glob("judgments_*")):
            path /= "verdicts"  # of a run
        paths = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
        if not paths:
            raise FileError(
                f"path must be a folder with .jsonl files of verdicts or battles; {path} has none."
            )
        return paths

    @property
    def recorded(self) -> tuple[str, ...]:
        """Names of those whose verdicts these are; empty where none is on file."""
        return self._contents[1]

    @property
    def _answers(self) -> dict[tuple[Any, ...], _Answer]:
        """The answers on file, by query."""
        return self._contents[0]

    @cached_property
    @report_read_errors
    def _contents(self) -> tuple[dict[tuple[Any, ...], _Answer], tuple[str, ...]]:
        """The answers by query, and the names of those who gave them."""
        answers_by_query: dict[tuple[Any, ...], _Answer] = {}
        judges, notes = set[str](), Counter[str]()
        all_answers = (
            (answer, "last" if "cache_key" in row else "first")
            for file in self._paths
            for location, row in _read_rows(file)
            for answer in _read_row(location, row, _dimension_in_name(file))
            if self.judge_model in (None, answer.judge)
        )
        for answer, preference in all_answers:
            if answer.judge:
                judges.add(str(answer.judge))
            if answer.note:
                notes[answer.note] += 1
            earlier = answers_by_query.get(answer.query)
            is_first = earlier is None or (earlier.mirrored and not answer.mirrored)
            if not is_first and not answer.mirrored:
                notes[f"repeated answers; the {preference} of each was taken"] += 1
            if is_first or (not answer.mirrored and preference == "last"):
                answers_by_query[answer.query] = answer
        if not answers_by_query:
            raise SettingError.bad_value(
                "judge_model",
                self.judge_model,
                f"name a judge whose verdicts are in {self.path}",
            )
        for note, n in notes.items():
            logger.warning("%s: %d %s", self.path, n, note)
        if len(judges) > 1:
            logger.warning(
                "%s: %d judges (%s); name one as judge.judge_model",
                self.path, len(judges), ", ".join(sorted(judges)),
            )  # fmt: skip
        return answers_by_query, tuple(sorted(judges))

    @property
    @report_read_errors
    def _judges_and_voters(self) -> tuple[list[str], list[str]]:
        """The names on file of judges of pairs, and those of voters, by first appearance."""
        names, prompts, pairs = dict[Any, int](), dict[Any, int](), dict[Any, int]()
        people = dict[str, None]()
        rows = list[tuple[int, int, int]]()
        for file in self._paths:
            for location, row in read_jsonl(file):
                for answer in _read_row(location, row, _dimension_in_name(file)):
                    judge, query = answer.judge, answer.query
                    if not judge or len(query) == 3:
                        continue
                    if row.get("source") == "human" or judge == "human":
                        people[str(judge)] = None
                        continue
                    prompt, entrant, other_entrant, dimension, *_ = query
                    pair = (prompt, dimension, frozenset((entrant, other_entrant)))
                    rows.append(
                        (
                            names.setdefault(str(judge), len(names)),
                            prompts.setdefault(prompt, len(prompts)),
                            pairs.setdefault(pair, len(pairs)),
                        )
                    )
        if not rows:
            return [], [*people]
        judge_numbers, prompt_numbers, pair_numbers = np.array(rows, dtype=np.intp).T
        is_judge = are_judges(judge_numbers, prompt_numbers, pair_numbers, len(names))
        voters = [name for name, i in names.items() if not is_judge[i]]
        return [name for name in names if name not in voters], [*voters, *people]

    def _make_reply(self, request: JudgeRequest) -> JudgeReply | None:
        """Return the recorded answer as a judge gives it; None if there is none."""
        subject, answers = request.subject, self._answers
        if isinstance(subject, Item):
            recorded = answers.get(
                (subject.prompt_id, subject.entrant_id, subject.draw_idx)
            )
        else:
            names = (subject.prompt_id, subject.entrant_a, subject.entrant_b)
            repeat_and_draws = (request.repeat, subject.draw_a, subject.draw_b)
            pooled_answer = answers.get((*names, None, *repeat_and_draws))
            recorded = answers.get(
                (*names, subject.dimension, *repeat_and_draws), pooled_answer
            )
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


def _read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Iterate over the rows of a file: lines of JSON, or a table by another name."""
    is_lines = ".jsonl" in path.suffixes
    return read_jsonl(path) if is_lines else table_files.read_rows(path)


def _read_labelled_pair(location: str, row: Row) -> Iterator[_Answer]:
    """Yield the verdicts on both orders of a labelled pair."""
    pair = labelled_pairs.parse_pair(location, row)
    verdicts = labelled_pairs.parse_verdicts(location, row)
    for is_swapped, verdict in enumerate(verdicts):
        names = _NAMES_OF_LABELLED_PAIR[:: -1 if is_swapped else 1]
        letters = _LETTERS_BY_RESPONSE.get(verdict or "", (None, None))
        query = (pair.pair_id, *names, None, 0, 0, 0)
        yield _Answer(query, row.get("judge_model"), letters[is_swapped])


def _read_row(
    location: str, row: Mapping[str, Any], dimension: str | None
) -> Iterator[_Answer]:
    """Read one row of any kind.

    dimension  in the name of the file
    """
    if labelled_pairs.has_labels(row.keys()):
        yield from _read_labelled_pair(location, row)
        return
    kind: Any = _Verdict
    rows = [row]
    if "judge_score" in row:
        kind = _Score
    elif "cache_key" in row:  # of the original
        pair = validate(dict[str, Any], row.get("metadata"), f"{location}: metadata")
        rows = [{"dimension": dimension, "pair": pair, **row, **pair}]
    elif "raw" in row:
        verdicts = validate(list[dict[str, Any]], row["raw"], f"{location}: raw")
        rows = [{**row, **verdict} for verdict in verdicts]
    else:
        kind = _Battle
    for record in rows:
        yield from validate(kind, record, location, *_SHAPE_HINTS).answers()


def _dimension_in_name(path: Path) -> str | None:
    """Return the dimension in the name of a file of the original, or None."""
    return match[1] if (match := _ORIGINAL_FILE_PATTERN.fullmatch(path.name)) else None
