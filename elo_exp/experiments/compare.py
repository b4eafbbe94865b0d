"""Compare finished runs: their conclusions, costs, ratings, settings and inputs.

python -m elo_exp experiment=compare 'runs=[outputs/pilot_...,outputs/headline_...]'
"""

import functools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from elo_exp.analysis import agreement
from elo_exp.analysis.comparisons import ALPHA, adjust_by_holm
from elo_exp.analysis.rating_changes import (
    PromptInfluence,
    RatedRun,
    compute_shifts,
    count_verdicts,
    may_be_nested,
    retest_with_missing,
    split_fit_by_prompt,
)
from elo_exp.arrays import Array, none_if_nan
from elo_exp.data.battle_judges import count_shares_and_labels
from elo_exp.data.battles import Battles
from elo_exp.data.field_names import describe_alike
from elo_exp.errors import EvidenceError, SettingError
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.files import write_csv, write_json
from elo_exp.oracle.evidence import Estimate, compute_clustered_error
from elo_exp.oracle.label_means import LabelMean
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import Plot
from elo_exp.report import compare_page, page
from elo_exp.report.compare_page import Comparison, Row
from elo_exp.report.sentences import opening_line
from elo_exp.runs.fetching import fetch_entries
from elo_exp.runs.lineage import summarise_manifest
from elo_exp.runs.reading import (
    FinishedRun,
    battles_file,
    find_differences,
    manifest_path,
    read_runs,
)
from elo_exp.store.usage import sum_usages, total_dollars
from elo_exp.types import Orders

logger = logging.getLogger(__name__)

# Only ratings of this method can be split by prompt
_REFITTABLE_METHOD = "bradley_terry"
_NO_BATTLES = Battles.from_rows([])
# Between a rating of a run and the fit of its battles
_MAX_REFIT_ERROR_POINTS = 0.01
_RUN_FIELDS = ("experiment", "judge_model", "finished_at", "usage", "paid_before")
_JUDGE_RATES = (
    "flip_rate",
    "first_shown_rate",
    "tie_rate",
    "invalid_rate",
    "n_one_order",
)
_DIFFERENCE_COLUMNS = (
    *("difference", "difference_std_error", "difference_ci_low", "difference_ci_high"),
    *("difference_p_value", "n_shared_prompts"),
)
# A smaller standard error counts as zero
_MIN_STD_ERROR = 1e-12
_SHIFT_FIELDS = ("std_error", "ci_low", "ci_high", "p_value")


@dataclass(kw_only=True)
class Compare(Experiment):
    runs: list[str]
    downloads: str

    @property
    def input_files(self) -> Mapping[str, Path]:
        runs, _ = read_runs(self._folders, with_oracle=True)
        return {f"run {r.name}": manifest_path(r.folder) for r in runs}

    @functools.cached_property
    def _folders(self) -> list[str]:
        """The folders of the runs, also of those that Weights & Biases keeps."""
        return fetch_entries(self.runs, Path(self.downloads))

    @functools.cached_property
    def _readable_runs(self) -> tuple[list[FinishedRun], list[str]]:
        """The runs, and why others of these folders are left out."""
        return _read_runs(self._folders)

    @property
    def opening(self) -> str:
        return opening_line.runs(len(self._readable_runs[0]))

    def dry_run(self, context: Context) -> None:
        with context.needs.collect():
            self._check_runs()

    def _check_runs(self) -> None:
        for reason in self._readable_runs[1]:
            logger.warning("warning: left out of the comparison: %s", reason)
        models = [model for r in self._readable_runs[0] for _, model in _list_rated(r)]
        for line in describe_alike(models):
            logger.warning("warning: %s", line)
        _ = self._comparison

    @functools.cached_property
    def _comparison(self) -> Comparison:
        return compare_runs(self._readable_runs[0])

    def run(self, context: Context) -> Report:
        comparison = self._comparison
        result = compare_page.conclude_comparison(comparison)
        values = compare_page.metrics(result)
        changes = [abs(value) for value in values.values() if isinstance(value, float)]
        rows = comparison["estimates"] or comparison["ratings"]
        return Report(
            headline=max(changes, default=0.0),
            text=compare_page.format_console(result),
            facts={"compared": [row["folder"] for row in comparison["runs"]]},
            artifacts=[
                write_json(
                    context.run_dir / "compare.json",
                    {**comparison, "conclusions": result.list_conclusion_rows()},
                ),
                write_csv(context.run_dir / "compare.csv", rows),
            ],
            metrics=values,
            tables={"compare": rows},
            figures=lambda: _draw_figures(comparison),
            page=page.make_page_renderer(
                functools.partial(compare_page.build_document, result)
            ),
        )


def _draw_figures(comparison: Comparison) -> Sequence[Plot]:
    from elo_exp.figures import sweep_figures

    names = [row["run"] for row in comparison["runs"]]
    if comparison["estimates"]:
        return [sweep_figures.estimates(comparison["estimates"], names)]
    return sweep_figures.compare_plots(
        comparison["ratings"], names, comparison["method"]
    )


def _read_runs(folders: Sequence[str]) -> tuple[list[FinishedRun], list[str]]:
    """Read the runs, and why others are left out.

    Raises SettingError or EvidenceError unless there are two runs, each of which can be compared with the first."""
    if not folders:
        raise SettingError.no_value(
            "runs",
            needed_for="experiment=compare",
            value="at least two finished runs",
            example="python -m elo_exp experiment=compare 'runs=[DIR1,DIR2]'",
        )
    runs, left_out = read_runs(folders, with_oracle=True)
    if len(runs) < 2:
        run_list = ", ".join(str(r.folder) for r in runs) or "none"
        raise SettingError(
            f"experiment=compare needs at least two finished runs; runs has {run_list}. Add another run folder:",
            f"  python -m elo_exp experiment=compare 'runs=[{','.join([*(str(r.folder) for r in runs), 'DIR'])}]'",
        )
    first_rated, *other_rated = map(_list_rated, runs)
    for run, entrants in zip(runs[1:], other_rated, strict=True):
        if first_rated.keys().isdisjoint(entrants):
            raise EvidenceError(
                f"{run.name} and {runs[0].name} have no entrant and no policy in common, so they cannot be compared. "
                "Choose runs that share one."
            )
    return runs, left_out


def _list_rated(r: FinishedRun) -> dict[tuple[str, str], None]:
    """List each policy of a run, and each model by dimension."""
    return dict.fromkeys(
        [
            *(("", policy) for policy in r.headlines()),
            *(
                (dimension, model)
                for dimension, methods in r.boards.items()
                for method in methods
                for model in r.board(method, dimension)
            ),
        ]
    )


def compare_runs(runs: Sequence[FinishedRun]) -> Comparison:
    """Compare runs with the first of them, and return what compare.json holds.

    method        the one that leads, with its `label`, `unit` and the kind of its `interval`
    runs          what each run is and what it cost
    ratings       by run, dimension and method: a Rating, and its shift from the first run
    conclusions_of_runs  by run and dimension, what its ratings.json concludes
    estimates     of oracle runs, by run and policy: the headline, and its difference from the first
    judge         rates by run and dimension; None where the run asked no judge
    overlaps      by run and dimension: what it shares with the first
    answers       by run and entrant: how many answers are those of the first run
    differences   settings, versions and SHA-256 of input files that differ, by path and run
    """
    baseline = runs[0]
    battles = {r.name: r.battles() for r in runs}
    _refuse_pooled(battles)
    ratings: list[dict[str, Any]] = []
    judge, overlaps = [], []
    for dimension in dict.fromkeys(d for r in runs for d in r.boards):
        before = battles[baseline.name].get(dimension, _NO_BATTLES)
        for r in runs:
            if dimension not in r.boards:
                continue
            keys = {"run": r.name, "dimension": dimension}
            qualities = r.manifest.get("judge_quality", ())
            quality = {q["dimension"]: q for q in qualities}.get(dimension, {})
            elo = r.stored_board("elo", dimension).get("parameters") or {}
            rates = {name: quality.get(name) for name in _JUDGE_RATES}
            judge.append({**keys, **rates, "elo_convergence": elo.get("convergence")})
            fits = None
            if r is not baseline and dimension in baseline.boards:
                after = battles[r.name].get(dimension, _NO_BATTLES)
                shared, fits = _measure_overlap(
                    (baseline, before), (r, after), dimension=dimension
                )
                overlaps.append({**keys, **shared})
            for method in r.boards[dimension]:
                shift_by_model = {}
                if r is not baseline:
                    model_shifts = compute_shifts(
                        _read_ratings(baseline, method, dimension),
                        _read_ratings(r, method, dimension),
                        fits if method == _REFITTABLE_METHOD else None,
                    )
                    if method == _REFITTABLE_METHOD and fits:
                        model_shifts = retest_with_missing(
                            model_shifts,
                            *(
                                _make_rated_run(run, battles, dimension)
                                for run in (baseline, r)
                            ),
                        )
                    shift_by_model = {shift.model: shift for shift in model_shifts}
                for model, rating in r.board(method, dimension).items():
                    shift = shift_by_model.get(model)
                    row = {**keys, "method": method, **rating.to_dict()}
                    row["shift"] = shift and shift.shift
                    row |= {
                        f"shift_{n}": getattr(shift, n, None) for n in _SHIFT_FIELDS
                    }
                    ratings.append(row)
    _adjust_p_values(ratings, "shift_p")
    dimension = next(iter(baseline.boards), "")
    leading_method = baseline.primary_method(dimension)
    board = baseline.stored_board(leading_method, dimension)
    return {
        "method": leading_method,
        "label": board.get("label", leading_method),
        "interval": board.get("interval"),
        "unit": board.get("unit", "points"),
        "runs": [_make_run_row(r, battles[r.name]) for r in runs],
        "ratings": ratings,
        "conclusions_of_runs": {r.name: dict(r.conclusions) for r in runs},
        "estimates": _make_estimate_rows(runs),
        "judge": judge,
        "overlaps": overlaps,
        "answers": list(_compare_answers(runs)),
        "differences": find_differences(_collect_settings(runs)),
    }


def _refuse_pooled(battles: Mapping[str, Mapping[str, Battles]]) -> None:
    """Raise SettingError where the verdicts of one run are shares, and those of another labels."""
    shares, labels = dict[str, str](), dict[str, str]()  # the first run, by dimension
    for run, battles_by_dimension in battles.items():
        for dimension, dimension_battles in battles_by_dimension.items():
            n_shares, n_labels = count_shares_and_labels(dimension_battles)
            if n_shares:
                shares.setdefault(dimension, run)
            if n_labels:
                labels.setdefault(dimension, run)
    for dimension in sorted(shares.keys() & labels.keys()):
        raise SettingError(
            f"On {dimension}, the verdicts of {shares[dimension]} are probabilities and those of {labels[dimension]} "
            f"are labels. "
            "Their scales differ, so compare runs of one kind."
        )


def _adjust_p_values(rows: Sequence[dict[str, Any]], name: str) -> None:
    """Add `<name>_holm` to the rows, adjusted over all of them that have a `<name>_value`."""
    p_values = np.array([row[f"{name}_value"] for row in rows], dtype=float)
    for row, p_holm in zip(rows, adjust_by_holm(p_values).tolist(), strict=True):
        row[f"{name}_holm"] = none_if_nan(p_holm)


# Estimates


def _make_estimate_rows(runs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Make the rows of estimates, with differences paired by prompt if both runs stored their influences.

    A prompt of both runs is one observation; else the two errors are taken to be independent. Bounds of a
    bounded mean hold for labels, as within a run. No test rests on an estimate whose error is zero.
    """
    rows = []
    first_headlines, influences = runs[0].headlines(), runs[0].influences()
    for r in runs:
        run_influences = r.influences()
        for policy, row in r.headlines().items():
            difference = dict.fromkeys(_DIFFERENCE_COLUMNS)
            if r is not runs[0] and policy in first_headlines:
                pair = influences.get(policy), run_influences.get(policy)
                difference |= _subtract_estimates(first_headlines[policy], row, *pair)
            rows.append({"run": r.name, **row, **difference})
    _adjust_p_values(rows, "difference_p")
    return rows


def _subtract_estimates(before: Row, after: Row, a: Row | None, b: Row | None) -> Row:
    if None in (row[n] for row in (before, after) for n in ("value", "std_error")):
        return {}
    n_shared, df = 0, math.inf
    value = after["value"] - before["value"]
    error = math.hypot(before["std_error"], after["std_error"])
    prompts = dict[str, float]()
    for side in (a, b) if a and b else ():
        prompts |= side["influence"]
        prompts |= (side.get("labels") or {"influence": {}})["influence"]
    if a and b and prompts:
        parts = [
            (a["influence"].get(p, 0.0), b["influence"].get(p, 0.0)) for p in prompts
        ]
        n_shared = sum(x != 0 and y != 0 for x, y in parts)
        prompt_differences = np.array(parts)[:, 1] - np.array(parts)[:, 0]
        value = b["value"] - a["value"]
        error, df = compute_clustered_error(
            prompt_differences, np.ones(len(parts), dtype=bool)
        )
        if labels := _subtract_label_means(prompts, a, b):
            uncovered = [_select_uncovered_influence(side, prompts) for side in (b, a)]
            gap = Estimate(
                value=value,
                std_error=error,
                degrees_of_freedom=df,
                n=len(parts),
                influence=prompt_differences,
                influence_labels=prompt_differences,
                influence_outside_bounds=uncovered[0] - uncovered[1],
                labels=labels,
            )
            (label_reach,) = LabelMean.bound_means([labels])
            below, above = gap.reach_at(label_reach, ALPHA / 2)
            ends = (value - below, value + above, gap.compute_p_value(label_reach))
            return dict(
                zip(_DIFFERENCE_COLUMNS, (value, error, *ends, n_shared), strict=True)
            )
    half_width = t_quantile(df) * error
    p_value = None
    if min(before["std_error"], after["std_error"], error) > _MIN_STD_ERROR:
        p_value = 2 * float(scipy.special.stdtr(df, -abs(value) / error))
    numbers = (value, error, value - half_width, value + half_width, p_value)
    return dict(zip(_DIFFERENCE_COLUMNS, (*numbers, n_shared), strict=True))


def _select_uncovered_influence(side: Row, prompts: Mapping[str, Any]) -> Array:
    """Return the influence (prompts,) that the bounds of a side's labels do not cover."""
    labels = side.get("labels")
    influence = labels["beside"] if labels else side["influence"]
    return np.array([influence.get(p, 0.0) for p in prompts])


def _subtract_label_means(
    prompts: Mapping[str, Any], before: Row, after: Row
) -> LabelMean | None:
    """Subtract the mean label of one run from the mean label of another; None if neither has bounds."""
    sides = []
    for side, sign in ((before, -1.0), (after, 1.0)):
        if (labels := side.get("labels")) is None:
            continue
        influence = labels["influence"]
        mean = LabelMean(
            influence=np.array([influence.get(p, 0.0) for p in prompts]),
            labelled=np.array([p in influence for p in prompts]),
            lowest=labels["lowest"],
            highest=labels["highest"],
        )
        sides.append(mean if sign > 0 else -mean)
    if not sides:
        return None
    return sides[0] + sides[1] if len(sides) == 2 else sides[0]


# Shifts


def _read_ratings(r: FinishedRun, method: str, dimension: str) -> dict[str, float]:
    board = r.board(method, dimension).values()
    return {row.model: row.rating for row in board if row.rating is not None}


def _make_rated_run(
    r: FinishedRun, battles: Mapping[str, Mapping[str, Battles]], dimension: str
) -> RatedRun:
    """Collect a run's battles on a dimension, its battles without a result, and the games of each battle."""
    return RatedRun(
        battles=battles[r.name].get(dimension, _NO_BATTLES),
        missing=r.missing().get(dimension, ()),
        orders=_read_orders(r),
    )


def _read_orders(r: FinishedRun) -> Orders:
    """Return which games of a battle a run's Bradley-Terry fit uses."""
    settings = (r.manifest["config"].get("rating") or {}).get(_REFITTABLE_METHOD, {})
    orders: Orders = settings.get("orders", "both")
    return orders


def _measure_overlap(
    *sides: tuple[FinishedRun, Battles], dimension: str
) -> tuple[Row, tuple[PromptInfluence, PromptInfluence] | None]:
    """Return what two runs share, and their fits if the shifts can be tested.

    verdicts     same, nested (all of one are in the other) or other
    no_interval  why the shifts have none
    """
    before, after = (battles for _, battles in sides)
    verdicts_before, verdicts_after = count_verdicts(before), count_verdicts(after)
    relation, reason = "other", None
    if verdicts_before == verdicts_after and len(before):
        relation = "same"
    elif verdicts_before <= verdicts_after or verdicts_after <= verdicts_before:
        relation = "nested"
        varying = (
            "draws" if _list_prompts(before) == _list_prompts(after) else "prompts"
        )
        reason = (
            f"all verdicts of one run are in the other, so only the {varying} differ"
        )
    elif may_be_nested(verdicts_before, verdicts_after):
        relation = "nested"
        reason = "apart from blank cells, all verdicts of one run are in the other"
    fits = []
    for r, battles in sides:
        if fit := _refit_ratings(r, battles, dimension):
            fits.append(fit)
        else:
            file = battles_file(r.folder)
            name = file.name if file else "battles.jsonl"
            reason = (
                f"{name} of {r.name} does not give its Bradley-Terry ratings by prompt"
            )
    for r, _ in sides:
        if _is_lost_to_failures(r.conclusions.get(dimension)):
            reason = f"{r.name} loses its lead if its missing answers and verdicts count against it"
    names = sides[0][0].name, sides[1][0].name
    shared = agreement.kappa(before, after, names=names, dimension=dimension)
    prompts = [_list_prompts(battles) for battles in (before, after)]
    overlap: Row = {
        "n_prompts_before": len(prompts[0]),
        "n_prompts": len(prompts[1]),
        "n_shared_prompts": len(prompts[0] & prompts[1]),
        "verdicts": relation,
        "agreement": shared,
        "no_interval": reason,
    }
    return overlap, None if reason else (fits[0], fits[1])


def _is_lost_to_failures(conclusion: Mapping[str, Any] | None) -> bool:
    """Whether a run's own conclusion is undecided because answers or verdicts are missing."""
    reasons = (conclusion or {}).get("reasons", ())
    return any(reason["name"] == "failures" for reason in reasons)


def _list_prompts(battles: Battles) -> set[str]:
    """List the prompts of one dimension; the battles of all dimensions share one list of prompts."""
    named_questions = battles.question[battles.question < len(battles.questions)]
    return {battles.questions[i] for i in np.unique(named_questions).tolist()}


def _refit_ratings(
    r: FinishedRun, battles: Battles, dimension: str
) -> PromptInfluence | None:
    """Split a run's Bradley-Terry ratings by prompt; None if its battles do not reproduce the ratings."""
    stored = _read_ratings(r, _REFITTABLE_METHOD, dimension)
    if not stored or not len(battles):
        return None
    fit = split_fit_by_prompt(battles, orders=_read_orders(r))
    if fit is None or set(fit.models) != set(stored):
        return None
    refit_shifts = compute_shifts(
        stored, dict(zip(fit.models, fit.ratings.tolist(), strict=True))
    )
    return (
        fit
        if all(abs(row.shift) <= _MAX_REFIT_ERROR_POINTS for row in refit_shifts)
        else None
    )


def _make_run_row(r: FinishedRun, battles: Mapping[str, Battles]) -> Row:
    row = {name: r.manifest.get(name) for name in _RUN_FIELDS}
    prompts = {
        prompt
        for dimension_battles in battles.values()
        for prompt in dimension_battles.questions
    }
    bill = None
    if row["usage"] is not None:
        bill = total_dollars(
            sum_usages([r.manifest.get("usage"), r.manifest.get("paid_before")])
        )
    location = {"run": r.name, "folder": str(r.folder)}
    n = len(prompts) + sum(
        dimension_battles.n_unnamed()
        for dimension_battles in battles.values()
        if dimension_battles.is_alone
    )
    return {**location, **row, "n_prompts": n, "dollars": bill}


def _compare_answers(runs: Sequence[FinishedRun]) -> Iterator[Row]:
    baseline, *other_runs = runs
    for entrant in baseline.manifest.get("entrants", ()):
        before = baseline.responses(entrant)
        for run in other_runs:
            after = run.responses(entrant)
            is_same = [
                before[prompt] == after[prompt] for prompt in before if prompt in after
            ]
            if is_same:
                counts = {"n_shared": len(is_same), "n_same": sum(is_same)}
                yield {"run": run.name, "entrant": entrant, **counts}


def _collect_settings(runs: Sequence[FinishedRun]) -> dict[str, dict[str, Any]]:
    """Return settings, input files and, if all runs know them, versions, to list those that differ."""
    settings_by_run = {}
    is_versioned = all(r.manifest["versions"] for r in runs)
    for r in runs:
        hashes = r.manifest["input_hashes"].items()
        settings_by_run[r.name] = {
            **summarise_manifest(r.manifest)["config"],
            "input": {name: digest[:12] for name, digest in hashes},
        }
        if is_versioned:
            commit = {"git_commit": r.manifest.get("git_commit")}
            settings_by_run[r.name]["version"] = {**commit, **r.manifest["versions"]}
    return settings_by_run
