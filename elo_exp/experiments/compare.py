"""Finished runs side by side: what they conclude, what they cost, and in what they differ.

python -m elo_exp experiment=compare 'runs=[outputs/pilot_...,outputs/headline_...]'
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from elo_exp import runs
from elo_exp.analysis import agreement
from elo_exp.analysis.shifts import (
    Influence,
    Shift,
    adjusted,
    influence,
    shifts,
    verdicts,
)
from elo_exp.data.battles import Battles
from elo_exp.experiments import Context, Report
from elo_exp.records import Plot, UserError
from elo_exp.report import compare_report
from elo_exp.report.compare_report import Comparison, Overlap, Row
from elo_exp.runs import FinishedRun, FoundRuns

logger = logging.getLogger(__name__)

_FITTED = "bradley_terry"  # the method whose parts by prompt are known
_ELSEWHERE = ("tracker", "cache_dir", "figures")  # settings that change no result
_NO_BATTLES = Battles.from_rows([])
_MAX_NAMED = 4  # models in a message
_SAME_FIT = 0.01  # rating points between a run's rating and the fit of its battles


@dataclass(kw_only=True)
class Compare:
    runs: list[str]

    @property
    def input_files(self) -> Mapping[str, Path]:
        return {
            f"run {r.name}": r.folder / "manifest.json"
            for r in runs.read(self.runs).runs
        }

    def dry_run(self, context: Context) -> None:
        for left_out in _read(self.runs).left_out:
            logger.warning("warning: left out of the comparison: %s", left_out)

    def run(self, context: Context) -> Report:
        found = _compare(_read(self.runs).runs)
        return Report(
            headline=max(
                (abs(row["shift"]) for row in compare_report.moved(found)), default=0.0
            ),
            text=compare_report.table(found),
            facts={"compared": [row["folder"] for row in found.runs]},
            artifacts=compare_report.write(context.run_dir, found),
            metrics=compare_report.metrics(found),
            tables={"compare": found.ratings},
            figures=lambda: _figures(found),
            page=lambda title, manifest, figures: compare_report.page(
                found, figures, title=title, manifest=manifest
            ),
        )


def _figures(found: Comparison) -> Sequence[Plot]:
    from elo_exp.figures import sweep

    return sweep.compare_plots(found.ratings, list(found.number), found.method)


def _compare(chosen: Sequence[FinishedRun]) -> Comparison:
    battles = {r.name: r.battles() for r in chosen}
    overlaps, moved = _overlaps(chosen, battles)
    rows = [
        _rating_row(
            r, dimension, method, model, moved.get((r.name, dimension, method, model))
        )
        for dimension in dict.fromkeys(
            chain.from_iterable(r.dimensions for r in chosen)
        )
        for r in chosen
        for method in r.methods(dimension)
        for model in r.board(method, dimension)
    ]
    return Comparison(
        runs=[_run_row(r) for r in chosen],
        ratings=rows,
        judge=[_judge_row(r, dimension) for r in chosen for dimension in r.dimensions],
        overlaps=overlaps,
        answers=list(_answer_rows(chosen)),
        settings=runs.differing({r.name: _settings(r) for r in chosen}),
        inputs=list(_input_rows(chosen)),
        versions=runs.differing({r.name: _versions(r) for r in chosen}),
    )


def _read(folders: Sequence[str]) -> FoundRuns:
    """Raises UserError where there are not two runs that can be compared with the first."""
    if not folders:
        raise UserError(
            "runs: names no run folder. Name two or more: 'runs=[DIR1,DIR2]', a sweep, or "
            "'runs=[DIR/*]'."
        )
    found = runs.read(folders)
    if len(found.runs) < 2:
        one = (
            f"one finished run, {found.runs[0].folder}"
            if found.runs
            else "no finished run"
        )
        raise UserError(f"runs: found {one}. Comparing takes two or more.")
    first, *others = found.runs
    for other in others:
        if not _entrants(first) & _entrants(other):
            raise UserError(
                f"runs: {other.name} has no entrant and dimension in common with {first.name}: "
                f"{_described(other)}, against {_described(first)}. Compare runs that share some."
            )
    return found


def _entrants(r: FinishedRun) -> set[tuple[str, str]]:
    return {
        (dimension, model)
        for dimension in r.dimensions
        for method in r.methods(dimension)
        for model in r.board(method, dimension)
    }


def _described(r: FinishedRun) -> str:
    models = sorted({model for _, model in _entrants(r)})
    n_more = len(models) - _MAX_NAMED
    more = f" and {n_more} more" if n_more > 0 else ""
    return f"{', '.join(models[:_MAX_NAMED])}{more} on {', '.join(r.dimensions)}"


# How far ratings moved from those of the first run


def _overlaps(
    chosen: Sequence[FinishedRun], battles: Mapping[str, Mapping[str, Battles]]
) -> tuple[list[Overlap], dict[tuple[str, str, str, str], Shift]]:
    """What each run shares with the first, and the shifts by run, dimension, method and model."""
    first, *others = chosen
    overlaps: list[Overlap] = []
    moved: dict[tuple[str, str, str, str], Shift] = {}
    for dimension in first.dimensions:
        fit = _fit(first, battles[first.name].get(dimension, _NO_BATTLES), dimension)
        for other in (r for r in others if dimension in r.dimensions):
            pair = [battles[r.name].get(dimension, _NO_BATTLES) for r in (first, other)]
            again = _fit(other, pair[1], dimension)
            overlap = _overlap(first, other, pair, dimension, [fit, again])
            overlaps.append(overlap)
            for method in first.methods(dimension):
                fits = None
                if method == _FITTED and overlap.no_interval is None:
                    assert isinstance(fit, Influence) and isinstance(again, Influence)
                    fits = fit, again
                before, after = (_rated(r, method, dimension) for r in (first, other))
                moved |= {
                    (other.name, dimension, method, shift.model): shift
                    for shift in shifts(before, after, fits)
                }
    known = adjusted(list(moved.values()))
    return overlaps, dict(zip(moved, known, strict=True))


def _rated(r: FinishedRun, method: str, dimension: str) -> dict[str, float]:
    return {
        model: x.rating
        for model, x in r.board(method, dimension).items()
        if x.rating is not None
    }


def _fit(r: FinishedRun, some: Battles, dimension: str) -> Influence | str:
    """A run's Bradley-Terry ratings by the parts of its prompts; or, in words, why not."""
    stored = _rated(r, _FITTED, dimension)
    if not stored:
        return f"{r.name} has no Bradley-Terry ratings"
    if not len(some):
        is_there = (r.folder / "battles.jsonl").is_file()
        return (
            f"{r.name} has no battle on {dimension}"
            if is_there
            else f"{r.name} left no battles.jsonl"
        )
    fit = influence(some, use=r.manifest["config"]["rating"][_FITTED]["use"])
    if fit is None:
        return f"the battles of {r.name} do not say which prompt they are on, or are on one"
    again = shifts(stored, dict(zip(fit.models, fit.ratings.tolist(), strict=True)))
    if set(fit.models) != set(stored) or any(
        abs(shift.shift) > _SAME_FIT for shift in again
    ):
        return f"the ratings of {r.name} are not those of its battles.jsonl"
    return fit


def _overlap(
    first: FinishedRun,
    other: FinishedRun,
    pair: Sequence[Battles],
    dimension: str,
    fits: Sequence[Influence | str],
) -> Overlap:
    before, after = (set(some.questions) for some in pair)
    verdicts_before, verdicts_after = (verdicts(some) for some in pair)
    why = next((fit for fit in fits if isinstance(fit, str)), None)
    if verdicts_before < verdicts_after or verdicts_after < verdicts_before:
        why = (
            why
            or "all verdicts of one are in the other, so they differ by their prompts alone"
        )
    return Overlap(
        run=other.name,
        dimension=dimension,
        n_prompts_before=len(before),
        n_prompts=len(after),
        n_shared_prompts=len(before & after),
        same_verdicts=len(pair[0]) > 0 and verdicts_before == verdicts_after,
        agreement=agreement.kappa(
            pair[0], pair[1], names=(first.name, other.name), dimension=dimension
        ),
        no_interval=why,
    )


# Rows


def _rating_row(
    r: FinishedRun, dimension: str, method: str, model: str, shift: Shift | None
) -> Row:
    names = ("std_error", "ci_low", "ci_high", "p_value", "p_holm")
    return {
        "run": r.name,
        "dimension": dimension,
        "method": method,
        **r.board(method, dimension)[model].to_dict(),
        "shift": getattr(shift, "shift", None),
        **{f"shift_{name}": getattr(shift, name, None) for name in names},
    }


def _run_row(r: FinishedRun) -> Row:
    names = (
        "experiment",
        "mode",
        "judge_model",
        "selected_prompt_count",
        "n_battles",
        "started_at",
        "finished_at",
        "usage",
        "paid_before",
    )
    about = {name: r.manifest.get(name) for name in names}
    return {"run": r.name, "folder": str(r.folder), **about}


def _judge_row(r: FinishedRun, dimension: str) -> Row:
    """Nulls where no judge was asked in the run."""
    names = (
        "n_judgments",
        "n_flips",
        "n_two_order",
        "flip_rate",
        "first_shown_rate",
        "tie_rate",
        "n_invalid",
        "invalid_rate",
    )
    every = {q["dimension"]: q for q in r.manifest.get("judge_quality", ())}
    quality: Mapping[str, Any] = every.get(dimension, {})
    return {
        "run": r.name,
        "dimension": dimension,
        **{name: quality.get(name) for name in names},
        "elo_convergence": r.parameters("elo", dimension).get("convergence"),
    }


def _answer_rows(chosen: Sequence[FinishedRun]) -> Iterator[Row]:
    """How many answers on shared prompts are the same as in the first run, by entrant."""
    first, *others = chosen
    entrants = first.manifest.get("entrants", ())
    before = {entrant: first.responses(entrant) for entrant in entrants}
    for other in others:
        for entrant, texts in before.items():
            after = other.responses(entrant)
            same = [
                texts[prompt] == after[prompt] for prompt in texts if prompt in after
            ]
            if same:
                counts = {"n_shared": len(same), "n_same": sum(same)}
                yield {"run": other.name, "entrant": entrant, **counts}


def _settings(r: FinishedRun) -> dict[str, Any]:
    config = r.manifest["config"].items()
    return {name: value for name, value in config if name not in _ELSEWHERE}


def _versions(r: FinishedRun) -> dict[str, Any]:
    commit = r.manifest.get("git_commit")
    return {"git_commit": commit, **r.manifest.get("versions", {})}


def _input_rows(chosen: Sequence[FinishedRun]) -> Iterator[Row]:
    """The SHA-256 of each input file that at least two runs read."""
    hashes = {r.name: r.manifest.get("input_hashes", {}) for r in chosen}
    for name in dict.fromkeys(chain.from_iterable(hashes.values())):
        by_run = {run: some[name] for run, some in hashes.items() if name in some}
        if len(by_run) > 1:
            is_same = len(set(by_run.values())) == 1
            yield {"input": name, "same": is_same, "sha256": by_run}
