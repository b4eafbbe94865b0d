"""Sentences about the number of independent votes that several judges are worth."""

from elo_exp.analysis.effective_votes import (
    MIN_COMPARISONS,
    MIN_DIFFERING_PROMPTS,
    MIN_ERRORS_PER_JUDGE,
    MIN_PROMPTS,
    EffectiveVotes,
)
from elo_exp.formatting import format_number


def votes(estimate: EffectiveVotes) -> str:
    """Return the worth of judges together, or why it is unknown: "3 judges make the same errors (rho 0.48 [0.35, 0.60]):
    they are worth 1.5 [1.4, 1.8] independent votes"."""
    n = len(estimate.judges)
    if estimate.refusal is not None and estimate.refusal.name != "wide":
        return f"it is not known whether {n} judges make the same errors: {_explain_refusal(estimate)}"
    rho = (
        f"rho {format_number(estimate.rho, 2)} [{format_number(estimate.rho_low, 2)}, "
        f"{format_number(estimate.rho_high, 2)}]"
    )
    between = f"[{format_number(estimate.low, 1)}, {format_number(estimate.high, 1)}]"
    if estimate.refusal is not None:
        return (
            f"too few answers are known to tell whether {n} judges make the same errors ({rho}): {between} independent "
            "votes"
        )
    if estimate.rho_low > 0.0:
        return (
            f"{n} judges tend to make the same errors ({rho}): they are worth {format_number(estimate.votes, 1)} {between} "
            "independent votes, on "
            f"{estimate.n} comparisons"
        )
    return (
        f"it is not shown that {n} judges make the same errors ({rho}): they are worth "
        f"{format_number(estimate.votes, 1)} {between} independent votes, on {estimate.n} comparisons"
    )


def _explain_refusal(estimate: EffectiveVotes) -> str:
    assert estimate.refusal is not None
    about = estimate.refusal.about
    if estimate.refusal.name == "few":
        return (
            f"{about['n']} comparisons on {about['n_prompts']} prompts have a known answer and verdicts of all judges; at "
            f"least {MIN_COMPARISONS} on {MIN_PROMPTS} prompts are needed"
        )
    if estimate.refusal.name == "errors":
        wrong = format_number(about["wrong"], 0 if about["wrong"].is_integer() else 1)
        return (
            f"{about['judge']} is wrong on {wrong} of {about['n']} comparisons; each judge needs at least "
            f"{MIN_ERRORS_PER_JUDGE} wrong and {MIN_ERRORS_PER_JUDGE} right verdicts"
        )
    return (
        f"their errors differ on only {about['n_prompts']} prompts; at least {MIN_DIFFERING_PROMPTS} are needed to tell by "
        "how much"
    )
