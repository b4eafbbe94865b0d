"""The pages on which people label comparisons blind."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from elo_exp.analysis import human_agreement
from elo_exp.data import labels
from elo_exp.data.labels import Key
from elo_exp.errors import SettingError, format_value
from elo_exp.experiments.label_evidence import LabelledRun
from elo_exp.files import write_whole
from elo_exp.report.label_page import label_page
from elo_exp.report.sentences import label_sentences as words
from elo_exp.types import Count, Natural, Share

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class LabelSettings:
    """The number of labels and annotators."""

    dimension: str | None
    half_width: Annotated[float, Field(strict=True, gt=0, le=1000)]
    n: Count | None
    annotators: Annotated[int, Field(strict=True, ge=1, le=100)]
    overlap: Share
    seed: Natural


@dataclass(frozen=True, kw_only=True)
class LabelPages:
    """The pages of a run, one for each annotator."""

    run: LabelledRun
    settings: LabelSettings

    @property
    def dimension(self) -> str:
        """The dimension whose comparisons are labelled. Raises SettingError if it is not clear."""
        dimension, dimensions = self.settings.dimension, [*self.run.comparisons]
        if dimension is None and len(dimensions) == 1:
            return dimensions[0]
        if dimension not in dimensions:
            raise SettingError(
                f"label.dimension must be a rubric on which {self.run.folder} has comparisons; got "
                f"{format_value(dimension)}. "
                "Choose one:",
                *(f"  label.dimension={name}" for name in dimensions),
            )
        return dimension

    def check(self) -> None:
        """Raise UserError for a run whose comparisons cannot be labelled, and for a damaged key."""
        _ = self.run.comparisons[self.dimension]
        if self._key_path.is_file():
            Key.read(self._key_path)

    @property
    def _key_path(self) -> Path:
        return self.run.labels_folder / "key.json"

    def write(self) -> str:
        """Write a page for each annotator and the key; return the lines about them."""
        label, dimension = self.settings, self.dimension
        comparisons = self.run.comparisons[dimension]
        n_entrants = len(
            {entrant for comparison in comparisons for entrant in comparison.entrants}
        )
        n_wanted = label.n or human_agreement.labels_needed(
            n_entrants, label.half_width
        )
        sample = labels.draw_comparisons(comparisons, n_wanted, seed=label.seed)
        key = Key.read_or_create(self._key_path)
        rubric = self.run.read_rubric(dimension)
        if rubric is None:
            logger.warning(
                "warning: the rubric file of %s is missing or has changed, so the page shows only the name of the rubric.",
                dimension,
            )
        paths, shares = (
            [],
            labels.assign_to_annotators(sample, label.annotators, label.overlap),
        )
        for number, share in enumerate(shares, start=1):
            annotator = number if label.annotators > 1 else None
            name = "label.html" if annotator is None else f"label_{number}.html"
            text = label_page(
                share, key, dimension=dimension, rubric=rubric, annotator=annotator
            )
            paths.append(write_whole(self.run.labels_folder / name, text))
        return words.describe_pages(
            [len(share) for share in shares],
            n_shown=len(sample),
            n_there=len(comparisons),
            n_prompts=len({comparison.prompt_id for comparison in sample}),
            dimension=dimension,
            half_width=None if label.n else label.half_width,
            is_short=label.n is None and n_wanted > len(comparisons),
            pages=paths,
            folder=self.run.folder,
        )
