"""The baseline of a gate: the file of its answers, and the run that wrote it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

from pydantic import Field

from elo_exp.analysis import families
from elo_exp.data.rubrics import Rubric
from elo_exp.errors import SettingError
from elo_exp.files import escape_name
from elo_exp.runs.manifest import input_hashes
from elo_exp.runs.reading import read_manifest
from elo_exp.types import Positive

# The baseline's name in the run, whatever its own file calls it
BASELINE_NAME = "baseline"

BelowHalf = Annotated[float, Field(strict=True, gt=0, lt=0.5)]


@dataclass(kw_only=True)
class GateSettings:
    """Settings of a gate.

    baseline    run folder, or file of its responses/
    margin      loss in win rate that is tolerated
    margin_elo  the same in Elo points, instead of `margin`
    alpha       level of the one-sided bounds
    control     whether the judge also compares degraded copies of the baseline's answers
    comment     further file for the text of gate.md
    junit       file for the result as JUnit XML
    """

    baseline: str
    margin: BelowHalf
    margin_elo: Positive | None
    alpha: BelowHalf
    control: bool
    comment: str | None
    junit: str | None = None

    def __post_init__(self) -> None:
        if self.margin_elo is not None:
            self.margin = 0.5 - 1.0 / (1.0 + 10.0 ** (self.margin_elo / 400.0))


@dataclass(frozen=True, kw_only=True)
class GateBaseline:
    """The file of the baseline's answers.

    path  path of the given file, or of the only entrant's file in a run
    """

    path: Path

    @property
    def is_from_run(self) -> bool:
        """Whether a run has written this file."""
        folder = self.path.parent
        return folder.name == "responses" and (folder.parent / "manifest.json").exists()

    def is_joined(self, answers: object, bank_path: str | None) -> bool:
        """Return whether its answers are joined to the prompts like files of answers."""
        return bool(answers) or bank_path is None or not self.is_from_run

    @property
    def model_names(self) -> list[str]:
        """The names of the baseline's model, as the run that recorded its answers was set."""
        if not self.is_from_run:
            return []
        entrants = (
            read_manifest(self.path.parent.parent).get("config", {}).get("entrant", {})
        )
        return [
            model_name
            for name, settings in entrants.items()
            if self.path.stem == f"responses_{escape_name(name)}"
            for model_name in families.list_family_hints(SimpleNamespace(**settings))
        ]

    def refuse_changed_inputs(
        self, files: Mapping[str, Path], rubrics: Mapping[str, Rubric]
    ) -> None:
        """Raise SettingError for a bank or a rubric that the baseline's run did not have.

        files    of the experiment, by part and role
        rubrics  whose texts may be in the settings instead of in files
        """
        if not self.is_from_run:
            return
        manifest = read_manifest(self.path.parent.parent)
        inputs = {
            name: str(path)
            for name, path in files.items()
            if name.split()[0] in ("bank", "rubric")
        }
        changed_inputs = [
            f"{name} ({inputs[name]})"
            for name, digest in input_hashes(inputs).items()
            if digest not in manifest.get("input_hashes", {}).values()
        ]
        recorded = manifest.get("config", {}).get("rubric") or {}
        texts = [node.get("text") for node in recorded.values()]
        changed_inputs += [
            f"rubric {name} (a text)"
            for name, rubric in rubrics.items()
            if rubric.text is not None and rubric.text not in texts
        ]
        if changed_inputs:
            raise SettingError(
                f"gate.baseline was recorded with another {', '.join(changed_inputs)}. Use the prompts and rubrics of "
                f"{self.path}, "
                "or run the baseline again."
            )


def find_baseline(location: Path) -> GateBaseline:
    """Find the file of the baseline's answers: the given file, or the file of the only entrant of a run."""
    if not location.is_dir():
        return GateBaseline(path=location)
    names: Sequence[str] = read_manifest(location).get("entrants", [])
    if len(names) != 1:
        raise SettingError(
            f"gate.baseline must name the answers of one entrant; {location} has those of {len(names)}. Choose one:",
            *(
                f"  gate.baseline={location}/responses/responses_{escape_name(name)}.jsonl"
                for name in names[:3] or ["NAME"]
            ),
        )
    path = location / "responses" / f"responses_{escape_name(names[0])}.jsonl"
    return GateBaseline(path=path)
