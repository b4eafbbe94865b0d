"""One run of an experiment: its manifest, page and figures, and what the tracker is told."""

import contextlib
import dataclasses
import logging
import math
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp import pipeline
from elo_exp.api.costs import format_dollars
from elo_exp.api.jobs import describe_spending
from elo_exp.arrays import none_if_nan
from elo_exp.errors import RunNeeds, SettingError
from elo_exp.experiments import Context, Report, judge_folder
from elo_exp.files import forbid_writing, utc_now, write_json, write_whole
from elo_exp.launching import composing
from elo_exp.launching.sweep_objective import choose_objective
from elo_exp.masking import mask_text
from elo_exp.pipeline import RunPlan, SweepCost
from elo_exp.progress import listen
from elo_exp.records import Plot
from elo_exp.report.artifacts import write_plots
from elo_exp.runs.lineage import collect_files
from elo_exp.runs.manifest import (
    claim_run_id,
    count_answers_ever,
    record_files,
    run_manifest,
    set_aside_other_run,
)
from elo_exp.runs.reading import manifest_if_any, read_manifest
from elo_exp.store.caps import Account, Spending
from elo_exp.store.usage import Usage
from elo_exp.trackers import RunInfo, describe_uploaded_texts, track_run

logger = logging.getLogger(__name__)

# Stands for the sweep or run folder of a plan, in which nothing was spent
_PLANNED = "planned"


@dataclasses.dataclass(kw_only=True)
class PreparedRun:
    """A run that can begin: its job, whose settings are checked, and its context, whose store is open.

    plan  what it would pay for, after `dry_run` if only a plan is wanted
    """

    job: composing.Job
    context: Context
    plan: RunPlan = dataclasses.field(default_factory=RunPlan)

    def dry_run(self) -> str | None:
        """Check a job before it has a folder; return what stands in its place, such as its plan. Raises UserError.

        A plan is the same checks, up to the first side effect of the run.
        """
        context = self.context
        if context.is_plan:
            with forbid_writing():
                return self._check() or self._describe_plan()
        context.store.import_unsaved()
        return self._check()

    def _check(self) -> str | None:
        job, context = self.job, self.context
        job.check_files(context.needs)
        _warn_of_lost_answers(context)
        token = manifest_if_any(context.run_dir).get("token")
        context.store.account = Account(
            caps=job.settings.caps,
            folder=token or (_PLANNED if context.is_plan else None),
            sweep=_PLANNED if context.is_plan and context.in_sweep else None,
        )
        text = job.experiment.dry_run(context)
        # a mistake in the settings comes first, and then a missing file
        if text is None:
            job.refuse_absent()
        return text

    def _describe_plan(self) -> str:
        """Plan the run. Add the caps, the needs and the places of texts, which every plan has."""
        context, experiment = self.context, self.job.experiment
        self.plan = RunPlan(
            answers=experiment.answer_plans(context.store),
            judges=experiment.plans(context.store),
        )
        lines = [
            pipeline.answers_table(self.plan.answers),
            experiment.describe_plan(context, self.plan.judges),
            *pipeline.describe_total(self.plan),
        ]
        cost = SweepCost.add_up([self.plan])
        lines += describe_caps(context.store.list_spending(), cost)
        lines += [f"  {line}" for line in context.needs.describe()]
        if note := describe_uploaded_texts(self.job.settings.tracker):
            lines.append(f"{'tracked':<14}online {note}")
        return "\n".join(filter(None, lines))

    def act(self) -> str | None:
        """Do what the experiment does in place of a run, and return what to print of it.

        None: the run can begin. A store that cannot be written is refused before the run has a folder.
        """
        text = self.job.experiment.act(self.context)
        if text is None:
            self.context.store.begin_writing()
        return text

    def run(self, info: RunInfo) -> tuple[Report, str | None]:
        """Run the experiment, and hand what it concluded to run folder and tracker.

        Returns the report, and where the tracker has the run.
        """
        job, context = self.job, self.context
        settings, experiment = job.settings, job.experiment
        usage = context.store.usage
        draws = info.group is None if settings.figures is None else settings.figures
        if opening := experiment.opening or _summary(info.labels):
            logger.info("%s: %s", settings.name, opening)
        files = experiment.list_input_files()
        if moved_to := set_aside_other_run(info.run_dir, info.config, files):
            logger.warning(
                "warning: %s held a finished run with other settings or inputs. It is now in %s",
                info.run_dir,
                moved_to,
            )
        info = dataclasses.replace(
            info,
            id=claim_run_id(info.run_dir, info.config),
            holds_weights=bool(experiment.list_weight_files()),
        )
        context.store.account = Account(
            caps=settings.caps,
            sweep=info.group,
            folder=info.id.partition("-")[0],
            command=_format_resume_command(info),
        )
        with track_run(settings.tracker, info) as tracked:
            started = time.monotonic()

            def log_progress() -> None:
                seconds = round(time.monotonic() - started, 1)
                tracked.log(usage.progress(), ("progress/seconds", seconds))

            weights = experiment.list_weight_files()
            with run_manifest(info, usage, files, weights, context.store) as manifest:
                manifest.update(experiment.describe_judge())
                with listen(log_progress):
                    report = experiment.run(context)
                if not isinstance(report, Report):
                    raise SettingError(
                        f"{type(experiment).__name__}.run must return a Report; got {report!r:.60}."
                    )
                results = {**report.metrics, **_measure_spend(usage, started)}
                name, value = choose_objective(
                    report,
                    results,
                    wanted=settings.headline,
                    swept=composing.read_swept_keys() if info.group else (),
                )
                report = dataclasses.replace(report, headline=value, headline_is=name)
                manifest |= {
                    **report.facts,
                    "headline": none_if_nan(value),
                    "headline_is": name,
                }
                plots = report.figures() if draws else []
                written = [
                    info.run_dir / "manifest.json",
                    *report.artifacts,
                    *write_plots(info.run_dir, plots),
                ]
                if report.page is not None:
                    manifest["usage"] = dataclasses.asdict(usage)
                    page = report.page(info.run_dir.name, manifest, plots)
                    written.append(write_whole(info.run_dir / "report.html", page))
                written += _write_judge_folders(report, info, manifest)
                record_files(manifest, info.run_dir, written)
            log_progress()
            for n_perms, means in report.traces.items():
                tracked.log(means, ("n_perms", n_perms), is_charted=True)
            figures = {f"figures/{plot.name}": plot for plot in plots}
            for name, judge_report in report.of_judges.items():
                tracked.log(
                    {
                        f"by_{name}/{key}": v
                        for key, v in _collect_tracked_values(judge_report).items()
                    }
                )
            tracked.log(
                {
                    **_measure_spend(usage, started),
                    **_collect_tracked_values(report),
                    **figures,
                }
            )
            for files_to_log in collect_files(
                info,
                manifest,
                written,
                inputs=files,
                recorded=experiment.list_recorded_answers(),
            ):
                tracked.log_files(files_to_log)
            tracked.notes = _write_notes(report, info)
        return report, tracked.where


def describe_caps(spending: Sequence[Spending], cost: SweepCost) -> list[str]:
    """Describe what was spent within each cap, and whether the planned cost passes it."""
    lines = []
    for scope in spending:
        line = f"  {scope.setting}: {describe_spending(scope)}."
        if cost.dollars > scope.remaining:
            at_most = "at most " * cost.is_upper_bound
            needed, left = (
                format_dollars(round(cost.dollars, 2)),
                format_dollars(max(0.0, scope.remaining)),
            )
            line += (
                f" It is too low: {at_most}{needed} are needed, and {left} are left."
            )
        lines.append(line)
    return lines


@contextlib.contextmanager
def open_run(
    job: composing.Job,
    run_dir: Path,
    overrides: Sequence[str],
    *,
    in_sweep: bool = False,
) -> Iterator[PreparedRun]:
    """Open the store of a job; it is closed in the end."""
    with job.open_store() as store:
        context = Context(
            run_dir=run_dir,
            store=store,
            tracker=job.settings.tracker,
            overrides=overrides,
            with_texts=bool(job.settings.figures) or not in_sweep,
            in_sweep=in_sweep,
            needs=RunNeeds(is_plan=job.settings.plan),
        )
        yield PreparedRun(job=job, context=context)


def _warn_of_lost_answers(context: Context) -> None:
    """Warn if the store has gone back to an earlier state, before anything is paid for again."""
    store = context.store
    n_before, n_now = count_answers_ever(context.run_dir, store)
    if n_before <= n_now or store.has_lost_answers:
        return
    store.has_lost_answers = True
    logger.warning(
        "warning: %s: this store had %s answers and has %s. It was restored from a copy, or its last commits were "
        "lost. The run looks for batches on the server before it submits anything, but pays for other answers again. To "
        "import them from a copy: experiment=store store.action=merge store.file=FILE",
        store.name,
        f"{n_before:,}",
        f"{n_now:,}",
    )


def _write_judge_folders(
    report: Report, info: RunInfo, manifest: Mapping[str, Any]
) -> list[Path]:
    """Write page and manifest of each of several judges, so that its folder reads as a run's. Return all of their files."""
    written = []
    for name, judge_report in report.of_judges.items():
        folder = judge_folder(info.run_dir, name)
        config = {**info.config, **judge_report.settings}
        if isinstance(asked := config.get("judges"), Mapping):
            config = {key: v for key, v in config.items() if key != "judges"}
            config["judge"] = asked[name]
        content = {
            **manifest,
            **judge_report.facts,
            "token": None,  # no tracker knows it
            "headline": none_if_nan(judge_report.headline),
            "headline_is": judge_report.headline_is,
            "config": config,
            "usage": None,
            "paid_before": None,
            "finished_at": utc_now(),
            "files": sorted(
                path.relative_to(folder).as_posix() for path in judge_report.artifacts
            ),
        }
        written += [
            *judge_report.artifacts,
            write_json(folder / "manifest.json", content),
        ]
        if judge_report.page is not None:
            page = judge_report.page(f"{info.run_dir.name}, {name}", content, [])
            written.append(write_whole(folder / "report.html", page))
    return written


def _collect_tracked_values(report: Report) -> dict[str, Any]:
    """What a tracker is told of what was concluded."""
    tables = {name: rows for name, rows in report.tables.items() if rows}
    known_headline = (
        {} if math.isnan(report.headline) else {"headline": report.headline}
    )
    return {**report.metrics, **known_headline, **tables}


def _write_notes(report: Report, info: RunInfo) -> str:
    """What a run concluded, as far as it says so in sentences, and its command."""
    sentence_by_subject = {
        match[1]: str(value)
        for name, value in report.metrics.items()
        if (match := re.fullmatch("conclusion/(.*)/sentence", name))
    }
    sentences = [
        f"{subject}: {text}" if len(sentence_by_subject) > 1 else text
        for subject, text in sentence_by_subject.items()
    ]
    first_line = report.text.strip().partition("\n")[0].strip()
    return "\n".join(
        [*map(mask_text, sentences or [first_line]), _format_command(info)]
    )


def _format_command(info: RunInfo, *more: str) -> str:
    words = ["python", "-m", "elo_exp", *info.overrides, *more]
    return shlex.join(map(mask_text, words))


def _format_resume_command(info: RunInfo) -> str:
    """The command that goes on with a run in its folder; a job of a sweep by itself, in a folder of its own."""
    folder = str(info.run_dir)
    is_given = info.group is None and re.fullmatch(r"[\w./-]+", folder)
    return _format_command(info, *([f"hydra.run.dir={folder}"] if is_given else []))


def draw_later(report: Report, run_dir: Path) -> list[Plot]:
    """Draw the figures of a run that had none, and write its page anew with them."""
    plots = list(report.figures())
    content = read_manifest(run_dir)
    written = [run_dir / name for name in content["files"]]
    written += write_plots(run_dir, plots)
    if report.page is not None:
        page = report.page(run_dir.name, content, plots)
        write_whole(run_dir / "report.html", page)
    record_files(content, run_dir, written)
    write_json(run_dir / "manifest.json", content)
    return plots


def _measure_spend(usage: Usage, started: float) -> dict[str, float]:
    spend = {f"usage/{name}": n for name, n in usage.metrics().items()}
    return spend | {"usage/seconds": round(time.monotonic() - started, 1)}


def _summary(labels: Mapping[str, str]) -> str:
    """Return counts of a run: "4 entrants, 3 rubrics, judge lexical"."""
    counts = []
    for name, noun in (("entrants", "entrant"), ("dimensions", "rubric")):
        if name in labels:
            n = len(labels[name].split(", "))
            counts.append(f"{n} {noun}{'s' if n > 1 else ''}")
    judge = [f"judge {labels['judge_model']}"] if "judge_model" in labels else []
    return ", ".join([*counts, *judge])


def format_places(report: Report, info: RunInfo, tracked_at: str | None) -> list[str]:
    """The last lines of a run: where its files, its page and its tracked run are."""
    page = (info.run_dir / "report.html").resolve()
    places = {
        "files": str(info.run_dir),
        "report": page.as_uri() if report.page else None,
        "tracked": tracked_at,
        "next": report.follow_up,
    }
    return format_labelled_lines(places)


def format_labelled_lines(places: Mapping[str, str | None]) -> list[str]:
    """Return a line for each label that has a text; further lines of a text stand below its first one."""
    indent = "\n" + " " * 14
    return [
        f"{label:<14}{text.replace(chr(10), indent)}"
        for label, text in places.items()
        if text
    ]
