"""How many independent votes several judges are worth, in a sentence."""

from elo_exp.analysis.effective_votes import (
    MIN_COMPARISONS,
    MIN_DIFFERING_PROMPTS,
    MIN_ERRORS_PER_JUDGE,
    MIN_PROMPTS,
    EffectiveVotes,
)
from elo_exp.formatting import format_number


def votes(estimate: EffectiveVotes) -> str:
    """Say what judges are worth together, or why nothing is claimed: "3 judges err together (rho 0.48 [0.35, 0.60]):
    they are worth 1.5 [1.4, 1.8] independent votes"."""
    n = len(estimate.judges)
    if estimate.refusal is not None and estimate.refusal.name != "wide":
        return (
            f"not known how far {n} judges err together: {_explain_refusal(estimate)}"
        )
    rho = (
        f"rho {format_number(estimate.rho, 2)} [{format_number(estimate.rho_low, 2)}, "
        f"{format_number(estimate.rho_high, 2)}]"
    )
    between = f"[{format_number(estimate.low, 1)}, {format_number(estimate.high, 1)}]"
    if estimate.refusal is not None:
        return f"too few answers are known to say how far {n} judges err together ({rho}): {between} independent votes"
    if estimate.rho_low > 0.0:
        return (
            f"{n} judges err together ({rho}): they are worth {format_number(estimate.votes, 1)} {between} "
            "independent votes, on "
            f"{estimate.n} comparisons"
        )
    return (
        f"the errors of {n} judges are not known to go together ({rho}): they are worth "
        f"{format_number(estimate.votes, 1)} {between} independent votes, on {estimate.n} comparisons"
    )


def _explain_refusal(estimate: EffectiveVotes) -> str:
    assert estimate.refusal is not None
    about = estimate.refusal.about
    if estimate.refusal.name == "few":
        return (
            f"{about['n']} comparisons on {about['n_prompts']} prompts have an answer that is known and verdicts of all, "
            f"and {MIN_COMPARISONS} on {MIN_PROMPTS} are needed"
        )
    if estimate.refusal.name == "errors":
        wrong = format_number(about["wrong"], 0 if about["wrong"].is_integer() else 1)
        return (
            f"{about['judge']} is wrong on {wrong} of {about['n']} comparisons, and {MIN_ERRORS_PER_JUDGE} "
            "wrong and right ones of "
            "each are needed"
        )
    return (
        f"they err on the same comparisons but for {about['n_prompts']} prompts, and "
        f"{MIN_DIFFERING_PROMPTS} are needed to say "
        "by how much they differ"
    )
