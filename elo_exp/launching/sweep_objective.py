"""The objective (`headline`): the number by which a sweeper compares jobs, named as in trackers."""

import difflib
import logging
import math
from collections.abc import Mapping, Sequence

from elo_exp.errors import SettingError
from elo_exp.experiments import Experiment, Report
from elo_exp.trackers import Value

logger = logging.getLogger(__name__)

# If only Elo's settings are swept: it adds the bias of a small K and the noise of few orders, while the main ratings
# cannot change.
_ELO_OBJECTIVE = "order_mean/distance"
_EXAMPLES = ("headline/gap", "result_mean/gap_se", "order_mean/distance")


def check_name(name: str | None, experiment: Experiment) -> None:
    """Raise SettingError if the experiment never logs a number of this name."""
    numbers = experiment.numbers
    if name is None or numbers is None:
        return
    table, _, path = name.partition("/")
    middle, _, last = path.rpartition("/")
    if table in numbers and (not numbers[table] or last in numbers[table]):
        return
    names = [
        "/".join(filter(None, (kind, *between, number)))
        for between in ((), (middle,))  # as means have none
        for kind, columns in numbers.items()
        for number in columns or [last]
    ]
    raise SettingError(_explain_unknown(name, names))


def choose_objective(
    report: Report,
    results: Mapping[str, Value],
    *,
    wanted: str | None,
    swept: Sequence[str],
) -> tuple[str, float]:
    """Return the name and the value of the objective of a job; NaN if it is not defined there.

    The default is the experiment's own objective. If only Elo's settings are swept, it is Elo's mean distance to its
    final values.

    results  all metrics of the job
    wanted   name of the objective that the user set
    swept    keys of the swept settings
    """
    numbers = {
        name: float(value)
        for name, value in results.items()
        if isinstance(value, int | float)
    }
    if wanted is None:
        is_of_elo = bool(swept) and all(map(_is_elo_setting, swept))
        if is_of_elo and any(name.startswith("order_mean/") for name in numbers):
            return _ELO_OBJECTIVE, numbers.get(_ELO_OBJECTIVE, math.nan)
        return report.headline_is, report.headline
    if wanted in numbers:
        return wanted, numbers[wanted]
    table, _, path = wanted.partition("/")
    of_kind = [name for name in numbers if name.startswith(f"{table}/")]
    places = {name.partition("/")[2].rpartition("/")[0] for name in of_kind}
    if table.startswith(("order", "result")) and path.rpartition("/")[0] in places:
        # `check_name` knows the last part: it is not defined here
        logger.warning(
            "warning: the objective %s (headline) is not defined in this run.", wanted
        )
        return wanted, math.nan
    raise SettingError(_explain_unknown(wanted, list(numbers)))


def _is_elo_setting(key: str) -> bool:
    return key == "elo" or key.startswith("elo.")


def _explain_unknown(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    examples = [example for example in _EXAMPLES if example in names] or names[:1]
    hint = f"Did you mean {close[0]}?" if close else f"Examples: {', '.join(examples)}."
    return f"headline names a number that this run does not have: {name}. {hint}"
