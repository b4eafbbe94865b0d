"""The files of an oracle experiment: answers with scores and labels, and the truth."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.experiments.answer_files import warn_of_look_alikes
from elo_exp.experiments.oracle_analysis import SOURCE_SETTINGS, OracleSettings
from elo_exp.oracle.data import (
    Dataset,
    Scale,
    Truth,
    read_dataset,
    read_truth,
    sample_prompts,
    split_truth_from_labels,
)


@dataclass(frozen=True, kw_only=True)
class OracleSources:
    """How answers and the truth are read.

    needs_labels   whether the truth is made from labels of all answers
    with_clusters  whether prompts of one cluster are one observation
    columns        the columns of the files, by role
    """

    settings: OracleSettings
    needs_labels: bool
    with_clusters: bool
    columns: Mapping[str, Any]

    @cached_property
    def recorded(self) -> tuple[Dataset, Mapping[str, Truth]]:
        """The recorded answers and the truth, as they are analysed. Raises UserError for files that cannot be."""
        settings = self.settings
        data, truth = self.read_all(
            {name: getattr(settings, name) for name in SOURCE_SETTINGS}
        )
        if not settings.grid:
            rng = np.random.default_rng(settings.seed)
            data = sample_prompts(
                data, settings.n_prompts, settings.label_fraction, rng
            )
        return data, truth

    def read_all(
        self, sources: Mapping[str, Any]
    ) -> tuple[Dataset, Mapping[str, Truth]]:
        """Read answers and, if there is one, the truth.

        sources  the arguments of `read_dataset` that name them, and `truth`
        """
        settings, scale = self.settings, Scale(*self.settings.scale)
        files = {name: source for name, source in sources.items() if name != "truth"}
        data = read_dataset(
            **files,
            columns=self.columns,
            scale=scale,
            covariates=settings.covariates,
            seed=settings.seed,
            with_clusters=self.with_clusters,
        )
        warn_of_look_alikes(data.policies, "policies")
        if self.needs_labels:
            return split_truth_from_labels(data)
        path = sources.get("truth", settings.truth)
        return data, {} if path is None else read_truth(Path(path), scale)
