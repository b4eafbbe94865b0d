"""The stored audits of a judge, and the command for a missing audit."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp import pipeline
from elo_exp.analysis import audit_decisions
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.data.rubrics import Rubric
from elo_exp.errors import FileError, UserError
from elo_exp.experiments import Context
from elo_exp.judges import ApiJudge, Judge
from elo_exp.paths import CONF
from elo_exp.runs import documents
from elo_exp.store.answer_store import Store

_MAX_PRINTED_CHARS = 80


def load_stored_audits(
    judge: Judge, rubrics: Sequence[Rubric], store: Store
) -> dict[str, Diagnosis]:
    """Return the diagnosis `audit` of each dimension: the last audit of this judge and rubric, or {}.

    Raises FileError for a file that is not an audit.
    """
    key, diagnoses = pipeline.identify(judge).key, dict[str, Diagnosis]()
    for rubric in map(judge.instruct, rubrics):
        path = audit_decisions.audit_path(store.folder, key, rubric.key)
        diagnoses[rubric.dimension] = {
            "audit": _read_audit(path) if path.exists() else {}
        }
    return diagnoses


def _read_audit(path: Path) -> dict[str, Any]:
    try:
        audit: dict[str, Any] = documents.read_document(documents.StoredAudit, path)
    except UserError as error:
        raise FileError(
            error.line,
            *error.below,
            "  Audit the judge again, or remove the file. Without the file, the judge counts as not audited.",
        ) from None
    return audit


def suggest_audit_command(
    judge: Judge, rubrics: Mapping[str, Rubric], context: Context
) -> str | None:
    """Return the command that plans the missing audits of a paid judge.

    rubrics  by the name in the group rubric

    Returns None if no audit is missing, or if the command does not name its judge.
    """
    stored_audits = load_stored_audits(judge, [*rubrics.values()], context.store)
    names = [
        name
        for name, rubric in rubrics.items()
        if not stored_audits[rubric.dimension]["audit"]
    ]
    judge_words = [word for word in context.overrides if re.match(r"judge[=.]", word)]
    judge_words = [
        word for word in judge_words if not word.startswith("judge.budget_usd=")
    ]
    if not any(word.startswith("judge=") for word in judge_words):  # a mode's
        models = (
            f"judge={path.stem}"
            for path in sorted((CONF / "judge").glob("*.yaml"))
            if f"\nmodel: {judge.model}\n" in path.read_text(encoding="utf-8")
        )
        judge_words = [*filter(None, [next(models, None)]), *judge_words]
    if not (isinstance(judge, ApiJudge) and names and judge_words):
        return None
    rubric_words = [
        word for word in context.overrides if re.match(r"\+*rubric\.", word)
    ]
    if judge.header is not None:
        is_short = _is_short(judge.header)
        judge_words.append(
            f"judge.system_prompt={judge.header if is_short else '@FILE'}"
        )
    items = [_format_rubric(name, rubrics[name]) for name in names]
    words = [
        "experiment=audit",
        *judge_words,
        f"rubric=[{','.join(items)}]",
        *rubric_words,
    ]
    return (
        "Test how far this judge can be trusted. This command shows the price and is free:\n"
        f"elo-exp {shlex.join([*words, 'plan=true'])}"
    )


def _format_rubric(name: str, rubric: Rubric) -> str:
    """Return how a command names a rubric: a short text as it is, a long text by its file."""
    if rubric.text is None:
        return name
    return f'"{rubric.text}"' if _is_short(rubric.text) else f"{name}=@FILE"


def _is_short(text: str) -> bool:
    """Return whether a text can stand in a command that is printed."""
    return len(text) <= _MAX_PRINTED_CHARS and not re.search(r'^@|[\n"\\]', text)
