"""Files that nobody wrote: good ones of every reader, spoilt in one place by a seed, and all that may read each.

    python -m tests.fuzz SEED N    # N files; prints what went wrong, and the most memory that the process took

A reader ends in what it has read or in a UserError of one line, within seconds.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from backports import zstd
from backports.zstd import zipfile
from omegaconf import OmegaConf

from elo_exp.analysis.answer_effort import average_effort
from elo_exp.arena import sources
from elo_exp.arena.sources import ArenaColumns, ArenaSource
from elo_exp.data import (
    answer_joins,
    answers,
    bank,
    battle_columns,
    battle_files,
    file_kinds,
    formats,
    labelled_pairs,
    scores,
)
from elo_exp.data.battle_lines import encode_battles
from elo_exp.entrants.recorded import AnswersEntrant, RecordedEntrant
from elo_exp.entrants.trajectories import TrajectoriesEntrant
from elo_exp.errors import UserError
from elo_exp.judges.replay import ReplayJudge
from elo_exp.oracle import data as oracle
from elo_exp.paths import CONF
from elo_exp.records import JudgeReply, Response
from elo_exp.runs import documents
from elo_exp.store import admin
from elo_exp.store.answer_store import Store
from tests import agents_example
from tests.answer_files import MADE, asked
from tests.run_folders import ODD, one_line, spoilt
from tests.score_files import inspect_log, lm_eval_rows, promptfoo_results

SECONDS = 5.0  # of processor time: a reader that takes longer hangs
COLUMNS = {name: name for name in battle_columns.FIELDS} | {"score": None}
_WORDS = (*ODD, "model_a", "tie", "A", [1, 2], "é" * 50, {"role": "user", "content": 7})
_BYTES = (
    b"",
    b"\0",
    b"\xff\xfe",
    b'"',
    b"{",
    b"]",
    b"\n\n",
    b",,,",
    b"\xed\xa0\x80",
    b"PK\3\4",
    b"\x1f\x8b",
)
_RESPONSE = Response(entrant_id="ann", prompt_id="p1", response_text="So.")
_REPLY = JudgeReply(key="k1", text='{"verdict": "A"}', judge_model="opus")

Reader = Callable[[Path], object]


def _battles(**more: Any) -> list[dict[str, Any]]:
    return [
        {
            "model_a": "ann",
            "model_b": "bob",
            "winner": word,
            "question_id": f"q{n}",
            **more,
        }
        for n, word in enumerate(("model_a", "tie", "model_b", "model_a"))
    ]


def _draws(**more: Any) -> list[dict[str, Any]]:
    common = {"policy": "ann", "oracle_label": 0.5, "response_chars": 9, **more}
    return [{"prompt_id": f"p{n}", "judge_score": n / 20, **common} for n in range(15)]


_LOGPROBS = {"policy": "base", "total_logprob": -3.5, "target_logps": {"ann": -3.0}}
_VERDICT = {"prompt_id": "p", "entrant_a": "ann", "entrant_b": "bob", "dimension": "d"}
GOOD: Mapping[str, Any] = {  # rows, or a document
    "battles": _battles(),
    "battles with all": _battles(
        dimension="d", judge_model="opus", count=2,
        style_a=[1, 2, 3, 4], equal_answers=False, source="llm-judge",
    ),
    "battles in both orders": [
        {**row, "verdict_ab": row["winner"], "verdict_ba": row["winner"]} for row in _battles()
    ],
    "pairs": [{"prompt": "Why?", "response_a": "a", "response_b": "b", "label": "a"}],
    "prompts": [{"prompt_id": "p1", "text": "Why?", "source": "s", "subject": "t", "tags": ["x"]}],
    "questions": [{"question": "Why?", "reference": "So.", "id": 7}],
    "responses": [_RESPONSE.to_dict(), {**_RESPONSE.to_dict(), "prompt_id": "p2"}],
    "verdicts": [
        {"cache_key": f"k{swap}", "judge_model": "opus", "verdict": "A", "reasoning": "So.\nVerdict: A",
         "metadata": {**_VERDICT, "position_swap": swap}}
        for swap in (True, False)
    ],
    "judgments": [{**_VERDICT, "raw": [{"judge_model": "opus", "position_swap": True, "verdict": "TIE"}]}],
    "scored": [{"prompt_id": "p", "policy": "ann", "judge_score": 0.5, "judge_model": "opus"}],
    "draws": _draws(),
    "logged": _draws(**_LOGPROBS),
    "truth": {"ann": {"mean": 0.5, "n": 9, "std_error": 0.1}},
    "votes": [
        {**row, "prompt": "Why?", "response_a": "a", "response_b": "b"} for row in _battles()
    ],
    "exported": [
        {"key": "k1", "kind": "JudgeReply", "value": _REPLY.to_dict()},
        {"key": "r1", "kind": "Response", "value": _RESPONSE.to_dict()},
    ],
    "estimates": [{"policy": "ann", "estimator": "direct", "value": 0.5, "headline": True}],
    "ratings": {"dimensions": {"d": {"elo": {"ratings": [{"model": "ann", "rating": 1.0}]}}}},
    "manifest": {"experiment": "rate", "config": {"elo": {"k": 8}}, "n_perms": 5, "files": ["a"]},
    "alpaca_eval": [
        {"instruction": "Why?", "output_1": "a", "output_2": "b", "generator_1": "x", "generator_2": "y",
         "annotator": "gpt", "preference": 1.5}
    ],
    "fastchat": [
        {"question_id": 81, "model_1": "ann", "model_2": "bob", "g1_winner": "tie", "g2_winner": "model_1",
         "judge": ["gpt-4", "pair-v2"], "turn": 1, "tstamp": 1.5}
    ],
    "arena_hard": [
        {"uid": "u", "model": "ann", "judge": "gpt", "baseline": "o3", "games": [{"score": "A>B"}, {"score": "B>A"}]}
    ],
    "lmarena": [{**row, "evaluation_session_id": "s", "evaluation_order": 1} for row in _battles()],
    "lmarena conversations": [
        {**row, "conversation_a": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "a"}],
         "conversation_b": [{"role": "assistant", "content": [{"type": "text", "text": "b"}]}]}
        for row in _battles()
    ],
    "orq-arena": [
        {"prompt_hash": "h", "prompt_text": "Why?", "model_a": "ann", "model_b": "bob", "response_a": "a",
         "response_b": "b", "error": None,
         "judge_votes": [{"model": "opus", "vote": "A", "flipped": False, "completed": True, "explanation": "So."}]}
    ],
    "RAGElo": [
        {"qid": "q", "evaluator_name": "pairwise", "agent_a": a, "agent_b": b, "answer": {"winner": "A"}}
        for a, b in (("ann", "bob"), ("bob", "ann"))
    ],
    "rankings": [{"item": n, "ranking": ["ann", ["bob", "cy"]], "judge": "opus"} for n in range(2)],
    "ranks": [{"item": 1, "model": name, "rank": n} for n, name in enumerate(("ann", "bob", "cy"))],
    "best of n": [{"question": "Why?", "candidates": {"ann": "a", "bob": "b"}, "best": "ann"}],
    "inspect_scout": [
        {"transcript_id": "t", "scanner_name": "lies", "value": "true", "value_type": "boolean",
         "transcript_model": "ann", "transcript_task_id": "1", "scan_error": None}
    ],
    "LLMBar": [
        {"input": "Why?", "output_1": "a", "output_2": "b", "label": 1,
         "results": [{"swap = False": {"winner": "1"}, "swap = True": {"winner": "2"}}]}
    ],
    "comparia": [
        {"model_a_name": "ann", "model_b_name": "bob", "chosen_model_name": "ann", "both_equal": False}
    ],
    "inspect": inspect_log("ann", ["C", "I"]),
    "agent": agents_example.log("careful", n=2),
    "promptfoo": promptfoo_results(ann=[0.5, 1.0], bob=[0.0, 0.5]),
    "lm_eval": lm_eval_rows([0, 1]),
    **{f"answers of {name}": make(asked("Said", 2), "ann") for name, make in MADE.items()},
}  # fmt: skip


def _arena(path: Path) -> ArenaSource:
    """The settings of arena=file."""
    group: Any = OmegaConf.to_container(OmegaConf.load(CONF / "arena/file.yaml"))
    given = {"text_lists": False, "where": {}, "union": {}, "hold_out": []} | group
    names = ArenaSource.__dataclass_fields__
    chosen = {name: given.get(name) for name in names}
    columns = dict.fromkeys(ArenaColumns.__dataclass_fields__) | dict(group["columns"])
    return ArenaSource(
        **chosen | {"path": str(path), "columns": ArenaColumns(**columns)}
    )


def _rated(path: Path) -> object:
    one = formats.recognise(path)
    if one.scores:
        return scores.read_scores({path: one}, metric=None, cluster=None)
    return battle_files.read(path, columns=COLUMNS, filters={})


def _by_columns(path: Path) -> object:
    """As a large file is."""
    before, battle_files.MIN_DUCKDB_BYTES = battle_files.MIN_DUCKDB_BYTES, 0
    try:
        return battle_files.read(path, columns=COLUMNS, filters={})
    finally:
        battle_files.MIN_DUCKDB_BYTES = before


def _texts(path: Path) -> object:
    form = formats.recognise(path)
    return list(battle_files.read_texts(path, columns=COLUMNS, filters={}, chosen=form))


def _dropping(path: Path) -> object:
    found, _ = battle_files.read(path, columns=COLUMNS, filters={}, on_error="drop")
    return list(encode_battles(found))


def _recorded(path: Path) -> object:
    entrant = RecordedEntrant(entrant_id="ann", path=str(path))
    return entrant.check(), entrant.input_files


def _agent(path: Path) -> object:
    entrant = TrajectoriesEntrant(entrant_id="ann", path=str(path))
    entrant.check()
    prompts = bank.load_bank(path)
    answers = list(entrant.generate(prompts))
    return average_effort({"ann": answers}), [entrant.cache_key(one) for one in prompts]


def _brought_in(path: Path, store: Store) -> object:
    n = admin.import_answers(store, path)
    admin.export_answers(store, path.with_name("again.jsonl"), admin.AnswerFilter())
    return n


def readers(store: Store) -> Mapping[str, Sequence[Reader]]:
    """What reads each kind of file; the first of them whatever it is given."""
    battles: list[Reader] = [_rated, _dropping, _by_columns]
    verdicts: list[Reader] = [
        lambda path: ReplayJudge(path=str(path), judge_model=None, kind="model").check()
    ]
    given: list[Reader] = [
        answers.read_answers,
        lambda path: answer_joins.read_answer_sets([(None, path)]),
        lambda path: AnswersEntrant(
            entrant_id="ann", path=str(path), inside=None
        ).check(),
    ]
    of_runs = {
        "estimates": documents.Estimates,
        "ratings": documents.Ratings,
        "manifest": documents.RatingsManifest,
    }
    return {
        "": [file_kinds.recognise_kinds, _rated],
        "pairs": [labelled_pairs.read_pairs],
        "LLMBar": [labelled_pairs.read_pairs, *verdicts],
        "agent": [*given, _agent],
        "prompts": [bank.load_bank],
        "questions": [bank.load_bank],
        "responses": [_recorded, *given],
        **dict.fromkeys(("verdicts", "judgments", "scored"), verdicts),
        "draws": [lambda path: oracle.read_dataset(fresh_dir=path, covariates=[oracle.LENGTH_COVARIATE], seed=1)],
        "logged": [lambda path: oracle.read_dataset(path, covariates=[oracle.LENGTH_COVARIATE], seed=1)],
        "truth": [oracle.read_truth],
        "votes": [lambda path: sources.read_arena(_arena(path))],
        "exported": [partial(_brought_in, store=store)],
        **{name: [partial(documents.read_document, kind)] for name, kind in of_runs.items()},
        **{name: given for name in GOOD if name.startswith("answers of ")},
        **dict.fromkeys(("rankings", "ranks", "orq-arena", "RAGElo"), battles),
        "lmarena conversations": [*battles, _texts],
        "best of n": [*battles, _texts],
        "battles with all": battles,
        **{name: [*battles, *verdicts] for name in ("battles", "battles in both orders")},
    }  # fmt: skip


def made(content: Any, rng: random.Random, folder: Path) -> Path:
    """A file of rows or of a document, in one of the shapes in which it is read."""
    if isinstance(content, list):
        shape = rng.choice(("jsonl", "jsonl", "jsonl", "json", "csv"))
    else:
        shape = "eval" if "samples" in content and rng.random() < 0.5 else "json"
    text = json.dumps(content)
    if shape == "jsonl":
        text = "".join(f"{json.dumps(row)}\n" for row in content)
    if shape == "csv":
        rows = [row if isinstance(row, dict) else {"x": row} for row in content]
        out = io.StringIO()
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(out, names)
        writer.writeheader()
        writer.writerows(rows)
        text = out.getvalue()
    whole = text.encode(errors="surrogatepass")
    if shape == "eval":
        packed = io.BytesIO()
        samples = content["samples"]
        with zipfile.ZipFile(
            packed, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93))
        ) as archive:
            archive.writestr("header.json", json.dumps({**content, "samples": None}))
            for n, sample in enumerate(samples if isinstance(samples, list) else []):
                archive.writestr(f"samples/{n}_epoch_1.json", json.dumps(sample))
        whole = packed.getvalue()
    if rng.random() < 0.4:
        whole = _other_bytes(whole, rng)
    how = rng.random()
    if how < 0.12:
        whole = (gzip.compress if how < 0.06 else zstd.compress)(whole)
        if rng.random() < 0.5:
            whole = _other_bytes(whole, rng)
    path = folder / f"responses.{shape}"
    path.write_bytes(whole)
    return path


def _other_bytes(whole: bytes, rng: random.Random) -> bytes:
    at, n = rng.randrange(len(whole) + 1), rng.choice((0, 1, 2, 40, len(whole)))
    if rng.random() < 0.2:
        return whole[:at] + whole[at : at + n] * rng.choice((2, 300)) + whole[at:]
    return whole[:at] + rng.choice(_BYTES) + whole[at + n :]


def fuzzed(seed: int, n: int) -> list[str]:
    """Spoil n files, and return what went wrong: the file, the reader and the traceback."""
    wrong = list[str]()

    def hangs(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    signal.signal(signal.SIGPROF, hangs)
    with (
        tempfile.TemporaryDirectory() as name,
        Store(Path(name, "store.sqlite")) as store,
    ):
        every = readers(store)
        for number in range(n):
            rng = random.Random(f"{seed} {number}")
            kind = rng.choice(list(GOOD))
            content = json.loads(json.dumps(GOOD[kind]))
            how = spoilt(content, rng, _WORDS) if rng.random() < 0.8 else "whole"
            path = made(content, rng, Path(name))
            for read in (*every[""], *every.get(kind, ())):
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                try:
                    read(path)
                except UserError as error:
                    with suppress(AssertionError):
                        one_line(error)
                        continue
                    wrong.append(f"{seed} {number}: {kind}, {how}: {error}")
                except BaseException:
                    why = traceback.format_exc(limit=-6)
                    wrong.append(
                        f"{seed} {number}: {path.suffix} of {kind}, {how}:\n{why}"
                    )
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
    return wrong


def peak() -> float:
    """The most memory that this program has held, bytes; its resource usage counts whoever forked it, too."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(row.split(":", 1) for row in status.read_text().splitlines())
        return float(lines["VmHWM"].split()[0]) * 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def main() -> None:
    logging.disable()
    seed, n = map(int, sys.argv[1:])
    wrong = fuzzed(seed, n)
    print(*wrong, f"{n} files, {len(wrong)} wrong, {peak() / 1e6:.0f} MB", sep="\n")


if __name__ == "__main__":
    main()
