"""How it is said what changed between runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.report.formats import (
    between,
    count,
    names,
    number,
    p_equals,
    percent,
)

Row = Mapping[str, Any]

_SPACE = "\N{NO-BREAK SPACE}"
_ROUNDING = 0.01  # rating points: smaller shifts are none

PAIRED = (
    "Differences from run 1, of what the headlines rest on. Pairs: prompts of both runs, each one "
    "observation; unpaired where no prompt is shared or influences.json is missing."
)


def of_estimates(tested: Sequence[Row], differing: Sequence[Row]) -> str:
    """Say whether policies have other values in other runs.

    tested, differing  rows whose difference is tested, and is significant
    """
    if differing:
        policies = list(dict.fromkeys(row["policy"] for row in differing))
        return f"{names(policies)} differs significantly between runs"
    return (
        f"No difference between runs {'is significant' if tested else 'can be tested'}"
    )


def of_ratings(
    tested: Sequence[Row],
    moved: Sequence[Row],
    shifts: Sequence[Row],
    relations: Sequence[str],
) -> str:
    """Say whether entrants have other ratings in other runs.

    tested, moved  rows whose shift is tested, and is significant
    shifts         rows that have one
    relations      how the verdicts of each run are related to those of the first
    """
    if moved:
        models = list(dict.fromkeys(row["model"] for row in moved))
        return f"{names(models)} moved significantly"
    if tested:
        return "No entrant moved significantly"
    if relations and set(relations) == {"same"}:
        is_refitted = any(abs(row["shift"]) > _ROUNDING for row in shifts)
        other = ", rated by another fit: no shift is tested"
        return f"Same verdicts{other if is_refitted else ': no shift'}"
    if "other" not in relations:
        return "Same verdicts, other prompts: no shift"
    return "Ratings side by side: no shift can be tested"


def facts(found: Mapping[str, Any]) -> str:
    """Say what is compared."""
    text = f"{len(found['runs'])} runs, compared with the first."
    if not found["ratings"]:
        return text
    interval = found["interval"]
    kind = f"95 % intervals: {interval}" if interval else "without intervals"
    return f"{text} Rating: {found['label']}, {kind}."


def overlap(row: Row, run: int) -> str:
    """Say what a run shares with the first; `run` is its number."""
    if row["verdicts"] == "same":
        return f"Run {run} has the same verdicts as run 1: only their fit can differ."
    text = (
        f"Run {run} shares {count(row['n_shared_prompts'])} of its {count(row['n_prompts'])} "
        f"prompts with the {count(row['n_prompts_before'])} of run 1"
    )
    shared = row["agreement"]
    if shared["agreement"] is not None:
        text += (
            f"; the winner is the same in {percent(shared['agreement'])} of "
            f"{count(shared['n_comparisons'])} shared comparisons (kappa "
            f"{number(shared['kappa'], 2)})"
        )
    if row["no_interval"]:
        text += f". No shift is tested: {row['no_interval']}"
    return f"{text}."


def first(models: Sequence[str], runs: Sequence[int], *, is_alone: bool) -> str:
    """Say who has the highest rating in which runs; `is_alone`: nobody else in any."""
    verb = "has" if len(models) == 1 else "have"
    where = f"run{'s' if len(runs) > 1 else ''} {', '.join(map(str, runs))}"
    return (
        f"{names(models)} {verb} the highest rating in "
        f"{'every run' if is_alone else where}."
    )


def moved(row: Row, run: int) -> str:
    interval = between(row["shift_ci_low"], row["shift_ci_high"])
    return (
        f"{row['model']} moved by {number(row['shift'], sign=True)} points in run {run} "
        f"(95{_SPACE}% CI {interval}; Holm {p_equals(row['shift_p_holm'])})."
    )


def run_line(row: Row, run: int) -> str:
    """Say what a run is and what it cost."""
    usage = row["usage"] or {}
    judge = f", judge {row['judge_model']}" if row["judge_model"] else ""
    counts = [
        (row["n_prompts"], "prompts"),
        (usage.get("judge_calls"), "new verdicts"),
        (usage.get("verdicts_stored"), "cached"),
    ]
    parts = "".join(f", {count(n)} {what}" for n, what in counts if n)
    dollars = f"${row['dollars']:,.2f}"
    return f"run {run}  {row['run']}: {row['experiment']}{judge}{parts}, {dollars}"


def answers(run: int, changed: Sequence[str]) -> str:
    """Say which entrants answered otherwise than in the first run."""
    if changed:
        return f"Run {run}: {names(changed)} answered some prompts otherwise than in run 1."
    return f"Run {run}: the same answers as in run 1 to every shared prompt."
