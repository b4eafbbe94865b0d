"""A comparison of finished runs: its metrics, and what page and console show."""

from collections.abc import Mapping
from typing import Any

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.figures.style import grouped
from elo_exp.report.formats import NONE, between, count, number, p_value

Row = Mapping[str, Any]
Found = Mapping[str, Any]  # as compare.json has it
Table = tuple[list[str], list[list[str]]]  # head and rows


def metrics(found: Found) -> dict[str, float]:
    """Return shift/<number of the run>/<dimension>/<model>, difference/<number>/<policy>."""
    numbers = _numbers(found)
    values = {
        f"shift/{numbers[row['run']]}/{row['dimension']}/{row['model']}": row["shift"]
        for row in found["ratings"]
        if row["method"] == found["method"]
    }
    values |= {
        f"difference/{numbers[row['run']]}/{row['policy']}": row["difference"]
        for row in found["estimates"]
    }
    return {name: value for name, value in values.items() if value is not None}


def context(found: Found) -> dict[str, Any]:
    """Return what page and console show.

    shifts, tested  ratings of the leading method with a shift, and those rows whose shift or
                    difference is tested
    leaders         numbers of the runs by dimension and by who is first there
    """
    numbers = _numbers(found)
    leading = [row for row in found["ratings"] if row["method"] == found["method"]]
    leaders: dict[str, dict[tuple[str, ...], list[int]]] = {}
    first = [row for row in leading if row["rank"] == 1]
    for (dimension, run), rows in grouped(first, "dimension", "run").items():
        models = tuple(sorted(row["model"] for row in rows))
        leaders.setdefault(dimension, {}).setdefault(models, []).append(numbers[run])
    tested = [row for row in leading if row["shift_p_holm"] is not None]
    differences = [r for r in found["estimates"] if r["difference_p_holm"] is not None]
    return {
        "found": found,
        "numbers": numbers,
        "shifts": [row for row in leading if row["shift"] is not None],
        "tested": tested,
        "moved": [row for row in tested if row["shift_p_holm"] <= ALPHA],
        "differences": differences,
        "differing": [r for r in differences if r["difference_p_holm"] <= ALPHA],
        "leaders": leaders,
        "estimates": _estimate_table(found, numbers),
        "ratings": {
            dimension: _rating_table(found, numbers, rows)
            for dimension, rows in grouped(found["ratings"], "dimension").items()
        },
    }


def _numbers(found: Found) -> dict[str, int]:
    """Return the number of each run, from 1."""
    return {row["run"]: n for n, row in enumerate(found["runs"], start=1)}


def _rating_table(found: Found, numbers: Mapping[str, int], rows: list[Row]) -> Table:
    """Return entrant by entrant, best first, a row for each run."""
    head = ["Entrant", "Run", found["label"], "95 % CI", "Ranks"]
    head += ["Shift", "95 % CI", "p (Holm)"]
    digits = 3 if found["method"] == "mean_score" else 0
    by_method = grouped(rows, "method")
    leading = by_method.pop(found["method"], [])
    elo = {(r["model"], r["run"]): r["rating"] for r in by_method.get("elo", ())}
    cells = []
    for model, some in grouped(leading, "model").items():
        for row in some:
            low, high = row["rank_low"] or row["rank"], row["rank_high"]
            value = number(row["rating"], digits)
            own = [
                model if row is some[0] else "",
                str(numbers[row["run"]]),
                row["flag"] or NONE if row["rating"] is None else value,
                between(row["ci_low"], row["ci_high"], digits),
                str(low or NONE) if high in (None, low) else between(low, high),
                number(row["shift"], digits, sign=True),
                between(row["shift_ci_low"], row["shift_ci_high"], digits),
                p_value(row["shift_p_holm"]),
            ]
            if elo:
                own.append(number(elo.get((model, row["run"]))))
            cells.append(own)
    return [*head, "Elo"] if elo else head, cells


def _estimate_table(found: Found, numbers: Mapping[str, int]) -> Table:
    """Return policy by policy, a row for each run."""
    head = ["Policy", "Run", "Value", "95 % CI", "Status", "Rests on"]
    head += ["Difference", "95 % CI", "p (Holm)", "Pairs"]
    cells = [
        [
            row["policy"],
            str(numbers[row["run"]]),
            number(row["value"], 3),
            between(row["ci_low"], row["ci_high"], 3),
            row["status"],
            row["rests_on"] or NONE,
            number(row["difference"], 3, sign=True),
            between(row["difference_ci_low"], row["difference_ci_high"], 3),
            p_value(row["difference_p_holm"]),
            "unpaired"
            if row["n_shared_prompts"] == 0
            else count(row["n_shared_prompts"]),
        ]
        for row in sorted(found["estimates"], key=lambda row: row["policy"])
    ]
    return head, cells
