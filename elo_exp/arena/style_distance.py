"""The distance between the style of a placed model's answers and the styles of the anchors' answers."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from elo_exp.analysis.conclusions import Reason
from elo_exp.arrays import Array
from elo_exp.data.conversations import own_words
from elo_exp.data.writing_style import FEATURES, count_style
from elo_exp.records import Comparison, Record

# In standard deviations between anchors. If the judge likes the style, intervals still cover the truth in 95% of
# simulations at 1.5, and in 73 to 81% at 2. The distance is an estimate (± 0.3 with 20 anchors), so a limit of 2 would
# miss half of the models at 2, and 1.5 finds 94% of them: tests/test_style_distance.py
MAX_STYLE_DISTANCE = 1.5
# Anchors with known answers. Fewer give no standard deviation, and calibrate no judge
MIN_ANCHORS_WITH_STYLE = 4
# Smallest standard deviation between anchors, in logarithms: a difference of a tenth is not another style
MIN_STYLE_SD = 0.1

# Headers, list items and bold spans are counted together: a model that likes one of them likes the others, and each
# further feature makes a false caution more likely
StyleFeature = Literal["length", "markdown"]
STYLE_FEATURES: tuple[StyleFeature, ...] = get_args(StyleFeature)

Styles = Mapping[str, Sequence[tuple[int, ...]]]  # counts of each answer, by model


@dataclass(frozen=True, slots=True, kw_only=True)
class StyleDistance(Record):
    """The distance between a model's mean style and the anchors' mean styles.

    distance   in standard deviations between anchors, by feature; positive if the model has more; empty if it is not known
    n_answers  answers of the model with a known style
    n_anchors  anchors with a known style
    """

    distance: Mapping[StyleFeature, float]
    n_answers: int
    n_anchors: int

    @property
    def farthest(self) -> StyleFeature | None:
        """Return the feature with the largest distance; None if no distance is known."""
        return max(
            self.distance, key=lambda name: abs(self.distance[name]), default=None
        )

    @property
    def state(self) -> str:
        """Return passed, failed or not done, like a check."""
        if self.farthest is None:
            return "not done"
        is_far = abs(self.distance[self.farthest]) > MAX_STYLE_DISTANCE
        return "failed" if is_far else "passed"

    def list_reasons(self) -> list[Reason]:
        """Return the reason `style` if the model is too far from the anchors."""
        if self.farthest is None or self.state != "failed":
            return []
        about = {"feature": self.farthest, "needed": MAX_STYLE_DISTANCE}
        return [Reason(name="style", value=self.distance[self.farthest], about=about)]


def count_styles(comparisons: Iterable[Comparison]) -> Styles:
    """Count the style of each answer that a judge compared, once, by model."""
    texts = defaultdict[str, dict[tuple[str, int], str]](dict)
    for c in comparisons:
        texts[c.entrant_a][c.prompt_id, c.draw_a] = own_words(c, c.response_a)
        texts[c.entrant_b][c.prompt_id, c.draw_b] = own_words(c, c.response_b)
    return {
        model: [count_style(text) for text in answers.values()]
        for model, answers in texts.items()
    }


def measure_style_distance(
    styles: Styles, model: str, anchors: Collection[str]
) -> StyleDistance:
    """Return the distance between a model's mean style and the anchors' mean styles.

    Parameters
    ----------
    styles : mapping of str to sequence of tuple of int
        Counts of `data.writing_style.FEATURES` in each answer, by model.
    model : str
        The placed model.
    anchors : collection of str
        The models that it is compared with.

    Returns
    -------
    StyleDistance
        Distances of the mean logarithms of 1 + count. The variance of single answers is subtracted from the
        variance between anchors, so that few answers do not hide a distance.
    """
    anchors_with_style = [anchor for anchor in anchors if styles.get(anchor)]
    model_answers = styles.get(model, ())
    distance: dict[StyleFeature, float] = {}
    if model_answers and len(anchors_with_style) >= MIN_ANCHORS_WITH_STYLE:
        logs = [_compute_log_counts(styles[anchor]) for anchor in anchors_with_style]
        means = np.array([anchor_logs.mean(axis=0) for anchor_logs in logs])
        between = means.var(axis=0, ddof=1) - _compute_error_variance(logs)
        sd = np.sqrt(np.maximum(between, MIN_STYLE_SD**2))
        gap = _compute_log_counts(model_answers).mean(axis=0) - means.mean(axis=0)
        distance = dict(zip(STYLE_FEATURES, (gap / sd).tolist(), strict=True))
    return StyleDistance(
        distance=distance,
        n_answers=len(model_answers),
        n_anchors=len(anchors_with_style),
    )


def _compute_log_counts(answers: Sequence[tuple[int, ...]]) -> Array:
    """Return the logarithms of 1 + characters and of 1 + marks of each answer (n, 2)."""
    table = np.array(answers, dtype=float)
    length = table[:, FEATURES.index("length")]
    logs: Array = np.log1p(np.stack([length, table.sum(axis=1) - length], axis=1))
    return logs


def _compute_error_variance(logs: Sequence[Array]) -> Array:
    """Return the mean variance of an anchor's mean that single answers cause, by feature."""
    n = np.array([len(anchor_logs) for anchor_logs in logs])
    squares = sum(((x - x.mean(axis=0)) ** 2).sum(axis=0) for x in logs)
    within_variance: Array = squares / max(int((n - 1).sum()), 1)
    return within_variance * float((1.0 / n).mean())
