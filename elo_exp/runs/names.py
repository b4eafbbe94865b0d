"""What trackers call what runs have made."""

import re
from collections.abc import Mapping
from pathlib import Path

from elo_exp.records import fingerprint
from elo_exp.runs import documents

KEPT_AS = "artifact.json"  # of a leaderboard that was fetched: the name of its version
MOST = 128  # characters of a name or an alias that trackers take


def plain(text: str) -> str:
    """Return a name that all trackers take; a hash keeps texts with other characters apart."""
    safe_text = re.sub(r"[^A-Za-z0-9._-]+", "-", text)
    if safe_text == text and len(text) <= MOST:
        return text
    return f"{safe_text[: MOST - 9]}-{fingerprint(text)[:8]}"


def of_judges(models: Mapping[str, str]) -> dict[str, str]:
    """Return by name what each of several judges is called: its model, or its name where two have one model."""
    all_models = [*models.values()]
    return {
        name: model if all_models.count(model) == 1 else name
        for name, model in models.items()
    }


def leaderboard(judge_name: str) -> str:
    """Return what the leaderboard of one of several judges is called."""
    return plain(f"leaderboard-{judge_name}")


def kept_as(folder: Path) -> str | None:
    """Return the name of the version, ENTITY/PROJECT/NAME:VERSION, of a leaderboard that was fetched into a folder; None of
    any other. Raises UserError."""
    path = folder / KEPT_AS
    if not path.is_file():
        return None
    name: str = documents.read(documents.Kept, path)["name"]
    return name
