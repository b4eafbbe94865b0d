"""The conclusion about an audited judge: ok, biased or cannot tell."""

from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.conclusions import Conclusion, Reason, Scope

# Worst first; a single judge is never "not audited"
STATES = ("biased", "cannot tell", "not audited", "ok")


def conclude_judge(
    results: Sequence[Mapping[str, Any]], *, judge: str, dimension: str, n_prompts: int
) -> Conclusion:
    """Return the conclusion about a judge on one dimension: the first state that applies.

    biased       a test found a bias
    cannot tell  a test has too few prompts to decide, or nothing was asked
    ok           every deciding test is ok

    Reasons are the tests that are not ok, biased ones first, with their estimates; `others` are the tests that are ok.

    results  rows of audit_decisions.decide, worst first
    """
    verdicts = [row["verdict"] for row in results]
    reasons = [
        _make_reason(row)
        for verdict in ("biased", "cannot tell")
        for row in results
        if row["verdict"] == verdict
    ]
    passed = tuple(row["probe"] for row in results if row["verdict"] == "ok")
    state = "ok" if passed else "cannot tell"
    if reasons:
        state = "biased" if "biased" in verdicts else "cannot tell"
    return Conclusion(
        state=state,
        subject=judge,
        others=passed,
        reasons=tuple(reasons),
        is_checked=any(row["probe"] == "position" and row["n"] for row in results),
        scope=Scope(judge=judge, dimension=dimension, n_prompts=n_prompts),
    )


def conclude_judges(
    by_judge: Mapping[str, Conclusion], failed: Sequence[str]
) -> Conclusion:
    """Return the conclusion about several judges on one dimension: the state of the worst judge.

    Reasons are the judges that are not ok, by the state of each; `others` are the judges that are ok.

    by_judge  the conclusion about each judge, by its name, in order
    failed    judges that could not be audited
    """
    state_by_judge = {
        name: conclusion.state for name, conclusion in by_judge.items()
    } | dict.fromkeys(failed, "not audited")
    present_states = [state for state in STATES if state in state_by_judge.values()]
    scope = next(iter(by_judge.values())).scope
    return Conclusion(
        state=present_states[0],
        others=tuple(name for name, state in state_by_judge.items() if state == "ok"),
        reasons=tuple(
            Reason(name=state, about={"judge": name}, judges=True)
            for name, state in state_by_judge.items()
            if state != "ok"
        ),
        is_checked=all(conclusion.is_checked for conclusion in by_judge.values())
        and not failed,
        scope=Scope(
            judge=", ".join(state_by_judge),
            dimension=scope.dimension,
            n_prompts=scope.n_prompts,
        ),
    )


def _make_reason(row: Mapping[str, Any]) -> Reason:
    about = {
        key: row[key] for key in ("verdict", "kind", "bound", "low", "high", "need")
    }
    return Reason(name=row["probe"], value=row["estimate"], about=about, judges=True)
