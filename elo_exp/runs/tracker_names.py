"""What trackers call what runs have made."""

import re
from collections.abc import Mapping
from pathlib import Path

from elo_exp.records import make_fingerprint
from elo_exp.runs import documents

ARTIFACT_FILE = (
    "artifact.json"  # of a leaderboard that was fetched: the name of its version
)
# The longest name or alias that trackers take
MAX_NAME_CHARS = 128


def safe_tracker_name(text: str) -> str:
    """Return a name that all trackers take; a hash keeps texts with other characters apart."""
    safe_text = re.sub(r"[^A-Za-z0-9._-]+", "-", text)
    if safe_text == text and len(text) <= MAX_NAME_CHARS:
        return text
    return f"{safe_text[: MAX_NAME_CHARS - 9]}-{make_fingerprint(text)[:8]}"


def name_judges(models: Mapping[str, str]) -> dict[str, str]:
    """Return by name what each of several judges is called: its model, or its name where two have one model."""
    all_models = [*models.values()]
    return {
        name: model if all_models.count(model) == 1 else name
        for name, model in models.items()
    }


def leaderboard_name(judge_name: str) -> str:
    """Return what the leaderboard of one of several judges is called."""
    return safe_tracker_name(f"leaderboard-{judge_name}")


def artifact_version(folder: Path) -> str | None:
    """Return the name of the version, ENTITY/PROJECT/NAME:VERSION, of a leaderboard that was fetched into a folder; None of
    any other. Raises FileError."""
    path = folder / ARTIFACT_FILE
    if not path.is_file():
        return None
    name: str = documents.read_document(documents.FetchedArtifact, path)["name"]
    return name
