"""The tables of a finished run, made from the files in its folder.

An entrant is called `entrant` in every table, or `entrant_a` and `entrant_b` in a pair. Only battles keep the names of
battle files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elo_exp.data import pairing
from elo_exp.files import validate
from elo_exp.library.rows import Rows
from elo_exp.library.run_files import RunFiles
from elo_exp.library.user_mistakes import raise_user_errors
from elo_exp.records import Comparison, Judgment, Verdict
from elo_exp.runs.reading import (
    battles_file,
    manifest_if_any,
    primary_method,
    read_manifest,
    sweep_jobs,
)
from elo_exp.runs.sweep_record import JobSettings

_CONCLUSION_FILES = (
    *("ratings.json", "gate.json", "audit.json", "judges.json"),
    "compare.json",
)
_LEADERBOARD_COLUMNS = (
    *("rating", "ci_low", "ci_high", "rank", "rank_low", "rank_high", "p_best"),
    *("n_battles", "n_prompts", "flag"),
)
_PAIR_COLUMNS = (
    *("prompt_id", "dimension", "entrant_a", "entrant_b"),
    *("draw_a", "draw_b"),
)


def list_conclusions(files: RunFiles) -> Rows:
    """Return a row per rubric, and for the oracle per policy."""
    is_present = (name for name in _CONCLUSION_FILES if files.has(name))
    name = next(is_present, "manifest.json")
    content = files.read_document(name)
    if name in ("audit.json", "judges.json"):
        by = {key: entry["conclusion"] for key, entry in content.items()}
    elif name == "gate.json":
        by = {"": content["conclusion"]}
    else:
        by = content.get("conclusions", {})
    if name == "manifest.json" and (choice := content.get("choice")):
        by = {**by, "choice": choice}
    return Rows({"dimension": key, **conclusion} for key, conclusion in by.items())


def list_ratings(files: RunFiles) -> Rows:
    """Return a row per rubric, method and entrant; the primary method comes first."""
    return Rows(
        {"dimension": dimension, "method": method, **_name_entrant(row, "model")}
        for dimension, methods in files.ratings["dimensions"].items()
        for method in sorted(methods, key=primary_method(methods).__ne__)
        for row in methods[method].get("ratings", ())
    )


def list_leaderboard(files: RunFiles) -> Rows:
    """Return a row per rubric and entrant, with the ratings of the primary method."""
    return Rows(
        {
            "dimension": dimension,
            "entrant": row["model"],
            **{name: row.get(name) for name in _LEADERBOARD_COLUMNS},
            "method": method,
            "unit": methods[method].get("unit", "points"),
        }
        for dimension, methods in files.ratings["dimensions"].items()
        for method in [primary_method(methods)]
        for row in methods.get(method, {}).get("ratings", ())
    )


def list_differences(files: RunFiles) -> Rows:
    """Return a row per method, rubric and pair of entrants."""
    return Rows(
        {"method": method, **row}
        for method, rows in files.ratings.get("differences", {}).items()
        for row in rows
    )


def list_battles(files: RunFiles) -> Rows:
    """Return the rows of the file of battles."""
    path = battles_file(files.folder)
    return files.read_rows("battles", path.name if path else None)


def list_responses(files: RunFiles) -> Rows:
    """Return a row per entrant and prompt."""
    rows = files.read_rows("responses")
    return Rows(_name_entrant(row, "entrant_id") for row in rows)


def list_scores(files: RunFiles) -> Rows:
    """Return a row per rubric, entrant, prompt and draw, with the score of the answer."""
    return Rows(
        {
            "dimension": row.get("dimension"),
            "entrant": row["policy"],
            "prompt_id": row["prompt_id"],
            "draw_idx": row["draw_idx"],
            "score": row["judge_score"],
            "criteria": row.get("criteria"),
            "reason": row["reasoning"],
            "stop_reason": row["stop_reason"],
            "judge_model": row["judge_model"],
        }
        for row in files.read_rows("scores")
    )


def list_probes(files: RunFiles) -> Rows:
    """Return a row per rubric and test of an audit."""
    return Rows(
        {"dimension": dimension, **row}
        for dimension, audit in files.read_document("audit.json").items()
        for row in audit["results"]
    )


def list_verdicts(files: RunFiles) -> Rows:
    """Return a row per verdict, with the texts that the judge saw."""
    comparisons = _read_comparisons(files)
    paid_keys: set[str] = set()
    rows = Rows()
    for n, row in enumerate(files.read_rows("verdicts", "verdicts.jsonl"), start=1):
        location = f"{files.folder}: verdict {n}"
        with raise_user_errors():
            judgment = validate(Judgment, row, location)
            if "prompt_text" in row:
                comparison = validate(Comparison, row, location)
            else:
                comparison = comparisons.get(_identify_comparison(judgment))
        for verdict in judgment.raw:
            is_repeated_text = verdict.cache_key in paid_keys
            paid_keys.add(verdict.cache_key)
            cost = None if is_repeated_text else verdict.dollars
            rows.append(_make_verdict_row(judgment, verdict, comparison, cost))
    return rows


def _read_comparisons(files: RunFiles) -> dict[tuple[object, ...], Comparison]:
    """Return the comparisons of a run with their texts; none of a run that keeps no texts."""
    if not files.has("matches/matches.jsonl"):
        return {}
    with raise_user_errors():
        comparisons = [
            validate(Comparison, row, f"{files.folder}: comparison {n}")
            for n, row in enumerate(files.read_rows("matches"), start=1)
        ]
    return {_identify_comparison(c): c for c in comparisons}


def _make_verdict_row(
    judgment: Judgment,
    verdict: Verdict,
    comparison: Comparison | None,
    cost: float | None,
) -> dict[str, Any]:
    """Return one verdict on a comparison, in the order of the comparison's entrants.

    comparison  with the texts; None if the run has none
    cost        None if it is not known, or if another row has it
    """
    side = pairing.unswap_verdict(verdict)
    entrants = {"a": judgment.entrant_a, "b": judgment.entrant_b}
    share = verdict.share
    if share is not None and verdict.position_swap:
        share = 1.0 - share
    return {
        **{name: getattr(judgment, name) for name in _PAIR_COLUMNS},
        "question": comparison and comparison.prompt_text,
        "answer_a": comparison and comparison.response_a,
        "answer_b": comparison and comparison.response_b,
        "order": "ba" if verdict.position_swap else "ab",
        "repeat": verdict.repeat,
        "verdict": f"entrant_{side}" if side in entrants else side or "invalid",
        "winner": entrants.get(side or ""),
        "share": share,
        "inconsistent": judgment.inconsistent,
        "reason": verdict.reasoning,
        "cost": cost,
        "judge_model": verdict.judge_model,
    }


def _identify_comparison(record: Comparison | Judgment) -> tuple[object, ...]:
    return tuple(getattr(record, name) for name in _PAIR_COLUMNS)


def _name_entrant(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    """Return a row whose column of entrants is called `entrant`."""
    return {"entrant" if name == column else name: row[name] for name in row}


def list_finished_jobs(folder: Path) -> list[Path]:
    """Return the folders of the finished jobs of a sweep in their order; none for a single run."""
    jobs = sweep_jobs(folder)
    return [job for job in jobs if manifest_if_any(job).get("finished_at")]


def list_swept_settings(folder: Path) -> dict[Path, dict[str, Any]]:
    """Return by finished job its number and the value of each setting that differs between the jobs.

    A setting that names an option, such as `judge`, has the word of the command.
    """
    manifests = {job: read_manifest(job) for job in list_finished_jobs(folder)}
    settings = JobSettings(
        [
            {"job": job.name, "overrides": manifest.get("overrides")}
            for job, manifest in manifests.items()
        ]
    )
    return {
        job: {
            "job": int(job.name),
            **{
                name: _find_value(manifest.get("config") or {}, name, word)
                for name, word in settings.choices(job.name).items()
            },
        }
        for job, manifest in manifests.items()
    }


def _find_value(config: Mapping[str, Any], name: str, word: str | None) -> Any:
    """Return a setting as the run had it, or the word of the command if the setting names an option."""
    value: Any = config
    for key in name.lstrip("+").split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    is_plain = value is not None and not isinstance(value, Mapping)
    return value if is_plain else word


def join_jobs(
    tables: Mapping[Path, Rows], swept: Mapping[Path, dict[str, Any]]
) -> Rows:
    """Return the rows of all jobs, with the swept settings as the first columns.

    A setting that is called like a column of the tables has the prefix `setting_`.
    """
    return Rows(_iterate_job_rows(tables, swept))


def _iterate_job_rows(
    tables: Mapping[Path, Rows], swept: Mapping[Path, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    columns = {name for rows in tables.values() for row in rows for name in row}
    for job, rows in tables.items():
        settings = {
            f"setting_{name}" if name in columns else name: value
            for name, value in swept[job].items()
        }
        for row in rows:
            yield {**settings, **row}
