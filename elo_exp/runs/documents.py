"""The JSON files of a run folder, with the types of all that others read of them.

A folder is as foreign as any file: it may be cut, edited, or made by another program. A file is data of these types or
is refused in one line, so that nobody who reads it meets a text in place of a number.
"""

import functools
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from elo_exp.errors import FileError, format_value
from elo_exp.files import read_json
from elo_exp.ratings.leaderboard import Rating
from elo_exp.requirements import describe_requirement, find_type
from elo_exp.store.usage import Usage
from elo_exp.types import Orders

_MAX_LEVELS = 100
# Its square is a finite number, too
_MAX_NUMBER = 1e100


class _Section(BaseModel):
    model_config = ConfigDict(defer_build=True)  # most commands read no run


class _JudgeRates(_Section):
    """How a judge did on a dimension."""

    dimension: str
    flip_rate: float | None = None
    first_shown_rate: float | None = None
    tie_rate: float | None = None
    invalid_rate: float | None = None
    n_one_order: int | None = None


class Manifest(_Section):
    """manifest.json; every field may be absent."""

    token: str | None = None
    experiment: str | None = None
    group: str | None = None
    config: dict[str, Any] = {}
    overrides: list[str] = []
    n_perms: int | None = None
    finished_at: str | None = None
    started_at: str | None = None
    error: str | None = None
    headline: float | None = None
    judge_model: str | None = None
    entrants: list[str] = []
    usage: Usage | None = None
    paid_before: Usage | None = None
    git_commit: str | None = None
    versions: dict[str, str | None] = {}
    files: list[str] = []
    input_paths: dict[str, str] = {}
    input_hashes: dict[str, str] = {}
    weights: dict[str, dict[str, str]] = {}
    judge_quality: list[_JudgeRates] = []
    judges: dict[str, str] = {}  # the models of several, by name


class _EloSettings(_Section):
    k: float = Field(gt=0)


class _MethodSettings(_Section):
    orders: Orders = "both"


class _RatingSettings(_Section):
    elo: _EloSettings
    rating: dict[str, _MethodSettings] | None = None
    sweep_pair: list[str] | None = None


class RatingsManifest(Manifest):
    """manifest.json of a run that ends in ratings."""

    config: _RatingSettings  # type: ignore[assignment]
    n_perms: int


class _SettingGroups(_Section):
    """The settings that a rating anew takes from a run; their values are checked where they are used."""

    elo: dict[str, Any] | None = None
    rating: dict[str, dict[str, Any]] | None = None
    arena: dict[str, Any] | None = None


class SettingsManifest(Manifest):
    """manifest.json of a run whose rating settings are taken."""

    config: _SettingGroups  # type: ignore[assignment]


class _Reason(_Section):
    name: str


class _Conclusion(_Section):
    state: str
    sentence: str
    ci_low: float | None
    whose: str
    first: str | None = None
    second: str | None = None
    difference: float | None = None
    ci_high: float | None = None
    p_holm: float | None = None
    one_sided: bool = False
    n_prompts: int | None = None
    judge: str | None = None
    reasons: list[_Reason] = []


class _Difference(_Section):
    """A row of the differences, of which a pair is read by name."""

    dimension: str
    higher: str
    lower: str
    difference: float | None = None
    std_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_holm: float | None = None
    significant: bool | None = None
    one_sided: bool = False
    n_prompts: int | None = None


class _EloProgress(_Section):
    """Of the parameters of Elo, those that are read by name."""

    convergence: float | None = None
    converged: bool | None = None


class _EloLimit(_Section):
    """What the Elo of a model converges to."""

    model: str
    rating: float


class _Board(_Section):
    label: str = ""
    interval: str | None = None
    unit: Literal["points", "score"] = "points"
    parameters: _EloProgress | None = None
    limit: list[_EloLimit] = []
    order: dict[str, float] = {}
    ratings: list[Rating]


def _drop_variance(content: Any) -> Any:
    """Drop the variance components, which stand next to the leaderboards of a dimension."""
    if not isinstance(content, dict):
        return content
    return {name: board for name, board in content.items() if name != "variance"}


class Ratings(_Section):
    """ratings.json."""

    dimensions: dict[str, Annotated[dict[str, _Board], BeforeValidator(_drop_variance)]]
    conclusions: dict[str, _Conclusion] = {}
    result: dict[str, dict[str, float]] = {}
    differences: dict[str, list[_Difference]] = {}


class _LabelMean(_Section):
    influence: dict[str, float]
    beside: dict[str, float]
    lowest: float
    highest: float


class _Influence(_Section):
    value: float
    influence: dict[str, float]  # empty where nothing varies
    labels: _LabelMean | None = None


class Estimate(_Section):
    """A row of estimates.json."""

    policy: str
    estimator: str = ""
    value: float | None = None
    std_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int = 0
    ess: float | None = None
    status: str = ""
    reason: str = ""
    std_error_labels: float | None = None
    n_labels: int = 0
    degrees_of_freedom: float | None = None
    ci_clipped: bool = False
    headline: bool = False
    rests_on: str = ""
    effective_labels: float | None = None


Estimates = list[Estimate]  # estimates.json
Influences = dict[str, _Influence]  # influences.json, by policy


class _Sentence(_Section):
    sentence: str
    whose: str | None = None


class _Audit(_Section):
    conclusion: _Sentence
    results: list[dict[str, Any]]


class Gate(_Section):
    """gate.json."""

    conclusion: _Sentence


class Conclusions(_Section):
    """compare.json, and manifest.json of an oracle's run."""

    conclusions: dict[str, _Sentence] = {}
    choice: _Sentence | None = None


class _BiasedProbe(_Section):
    """A probe by which a judge is biased."""

    probe: str
    kind: str
    verdict: Literal["biased"]
    estimate: float


class _OtherProbe(_Section):
    """Another probe."""

    probe: str
    kind: str
    verdict: Literal["ok", "cannot tell", "reported"]
    estimate: float | None = None


class _LabelAccuracy(_Section):
    """What a judge said of labelled pairs."""

    subset: str
    accuracy: float | None
    low: float | None
    high: float | None
    n: int
    n_invalid: int = 0


class StoredAudit(_Section):
    """The last audit of a judge under a rubric, as it lies beside the store."""

    date: str
    n_prompts: int
    results: list[Annotated[_BiasedProbe | _OtherProbe, Field(discriminator="verdict")]]
    gold: list[_LabelAccuracy] = []


class FetchedArtifact(_Section):
    """artifact.json of a leaderboard that was fetched."""

    name: str = Field(pattern=r"^[\w. -]+/[\w. -]+/[\w. -]+:[\w. -]+$", max_length=1000)


Audits = dict[str, _Audit]  # audit.json, by dimension
Judges = dict[str, Gate]  # judges.json, by dimension

# An adapter takes long to make
_get_adapter = functools.cache(TypeAdapter)


def read_document(kind: Any, path: Path) -> Any:
    """Return a JSON file of a run folder as data. Raises FileError where it is not of this type."""
    content = read_json(path)
    if fault := _find_excess(content):
        raise FileError.bad_file(path, f"is not as a run writes it: it holds {fault}")
    try:
        # As JSON, where a list is a tuple and nothing else is taken for what it is not
        _get_adapter(kind).validate_json(
            json.dumps(content, ensure_ascii=False).encode(errors="replace"),
            strict=True,
        )
    except ValidationError as error:
        first_error = error.errors()[0]
        location = ".".join(map(str, first_error["loc"])) or "the whole file"
        hint = find_type(kind, first_error["loc"])
        must = describe_requirement(hint, first_error["msg"])
        value = format_value(first_error["input"])
        raise FileError.bad_file(
            path,
            f"is not as a run writes it: {location:.120} must {must}; got {value}",
        ) from None
    return content


def _find_excess(content: Any) -> str | None:
    """Describe what no run writes and no type refuses: a number that is not finite, or too many levels."""
    level = [content]
    for _ in range(_MAX_LEVELS):
        inner = list[Any]()
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif (
                isinstance(value, int | float)
                and not -_MAX_NUMBER < value < _MAX_NUMBER
            ):
                return f"the number {value!r:.40}"
        if not inner:
            return None
        level = inner
    return f"more than {_MAX_LEVELS} levels"
