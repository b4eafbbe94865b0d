"""Blind labels by people for a judged run, and the leads of the judge that they confirm.

python -m elo_exp experiment=label run=outputs/pilot_...                                   # makes the page
python -m elo_exp experiment=label run=outputs/pilot_... 'labels=[anna.jsonl,ben.jsonl]'   # reads the labels back
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp.analysis import human_agreement
from elo_exp.data import column_roles, labels
from elo_exp.errors import SettingError
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.experiments.certification import LABELS_ONLY_METHOD, Certification
from elo_exp.experiments.label_evidence import LabelEvidence, LabelledRun
from elo_exp.experiments.label_pages import LabelPages, LabelSettings
from elo_exp.files import write_json
from elo_exp.formatting import join_names as listed
from elo_exp.pipeline import Plan
from elo_exp.ratings import EloMethod, RatingMethod
from elo_exp.report import artifacts, page, people_page
from elo_exp.runs.reading import manifest_path
from elo_exp.types import Orders

PAGES_PLAN = "plan: writes the label pages. It calls no judge and costs nothing."


@dataclass(kw_only=True)
class LabelJudgingOptions:
    """Whether the two orders of a comparison are one game or two."""

    orders: Orders


@dataclass(kw_only=True)
class LabelByPeople(Experiment):
    """A run that reads people's labels; without label files it only writes the label page.

    folder  folder of the judged run: the setting `run`
    """

    folder: str
    labels: list[str]
    columns: dict[str, str | list[str]]
    label: LabelSettings
    judging: LabelJudgingOptions
    elo: EloMethod
    rating: dict[str, RatingMethod]

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Return the configuration with the setting `run` as `folder`, because `run` is a method here."""
        columns = column_roles.parse_columns_setting(config["columns"])
        column_roles.refuse_unused_roles(columns, labels.COLUMNS, "label")
        settings = {name: value for name, value in config.items() if name != "run"}
        settings["columns"] = columns
        if config["run"] == "???":
            raise SettingError.no_value(
                "run",
                needed_for="experiment=label",
                value="the folder of a finished run whose comparisons people label",
                example="python -m elo_exp experiment=label run=outputs/RUN",
            )
        if LABELS_ONLY_METHOD not in config["rating"]:
            raise SettingError(
                f"rating must include {LABELS_ONLY_METHOD}, which tests the labels' differences; "
                f"got {listed([*config['rating']]) or 'none'}."
            )
        return {**settings, "folder": config["run"]}

    @functools.cached_property
    def evidence(self) -> LabelEvidence:
        """The labels and the verdicts."""
        return LabelEvidence(
            run=LabelledRun(folder=self.folder),
            labels=self.labels,
            columns=self.columns,
        )

    @functools.cached_property
    def certification(self) -> Certification:
        """The results of the labels."""
        return Certification(
            evidence=self.evidence,
            elo=self.elo,
            rating=self.rating,
            half_width=self.label.half_width,
        )

    @property
    def opening(self) -> str:
        rows, _ = self.evidence.labels_and_key
        annotators = listed(list(dict.fromkeys(name for name, _, _ in rows)))
        return f"{len(rows):,} comparisons of {self.folder}, labelled by {annotators}"

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {"people": human_agreement.LOGGED_NUMBERS}

    @property
    def input_files(self) -> Mapping[str, Path]:
        files = {f"labels {Path(name).stem}": Path(name) for name in self.labels}
        return {"run": manifest_path(Path(self.folder)), **files}

    def check_files(self) -> None:
        """Read the labels. Raises UserError for unusable files, before the run has a folder."""
        if self.labels:
            _ = self.certification.results

    @functools.cached_property
    def _pages(self) -> LabelPages:
        return LabelPages(run=self.evidence.run, settings=self.label)

    def dry_run(self, context: Context) -> str | None:
        if self.labels:
            return None
        self._pages.check()
        return None

    def describe_plan(self, context: Context, plans: Sequence[Plan]) -> str:
        return super().describe_plan(context, plans) if self.labels else PAGES_PLAN

    def act(self, context: Context) -> str | None:
        return None if self.labels else self._pages.write()

    def run(self, context: Context) -> Report:
        labels_only, board, certificates = self.certification.results
        run_dir = context.run_dir
        written_paths = [
            *artifacts.write_standings(run_dir, labels_only),
            write_json(
                run_dir / "certificate.json",
                {
                    certificate.dimension: certificate.to_dict()
                    for certificate in certificates
                },
            ),
        ]
        values = people_page.metrics(labels_only, certificates)
        return Report(
            headline=people_page.count_contradictions(certificates),
            text=people_page.format_console(board, certificates),
            facts={
                "labelled": self.folder,
                "labelled_judge": self.evidence.run.judge_name,
            },
            artifacts=written_paths,
            metrics=values,
            page=page.make_page_renderer(
                functools.partial(
                    people_page.build_document, labels_only, board, certificates
                )
            ),
        )
