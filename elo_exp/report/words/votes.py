"""How many independent votes several judges are worth, in a sentence."""

from elo_exp.analysis.effective_votes import (
    MIN_COMPARISONS,
    MIN_DIFFERING,
    MIN_ERRORS,
    MIN_PROMPTS,
    EffectiveVotes,
)
from elo_exp.report.formats import number


def votes(one: EffectiveVotes) -> str:
    """Say what judges are worth together, or why nothing is claimed: "3 judges err together (rho 0.48 [0.35, 0.60]):
    they are worth 1.5 [1.4, 1.8] independent votes"."""
    n = len(one.judges)
    if one.refusal is not None and one.refusal.name != "wide":
        return f"not known how far {n} judges err together: {_why(one)}"
    rho = f"rho {number(one.rho, 2)} [{number(one.rho_low, 2)}, {number(one.rho_high, 2)}]"
    between = f"[{number(one.low, 1)}, {number(one.high, 1)}]"
    if one.refusal is not None:
        return f"too few answers are known to say how far {n} judges err together ({rho}): {between} independent votes"
    if one.rho_low > 0.0:
        return (
            f"{n} judges err together ({rho}): they are worth {number(one.votes, 1)} {between} independent votes, on "
            f"{one.n} comparisons"
        )
    return (
        f"the errors of {n} judges are not known to go together ({rho}): they are worth {number(one.votes, 1)} {between} "
        f"independent votes, on {one.n} comparisons"
    )


def _why(one: EffectiveVotes) -> str:
    assert one.refusal is not None
    about = one.refusal.about
    if one.refusal.name == "few":
        return (
            f"{about['n']} comparisons on {about['n_prompts']} prompts have an answer that is known and verdicts of all, "
            f"and {MIN_COMPARISONS} on {MIN_PROMPTS} are needed"
        )
    if one.refusal.name == "errors":
        wrong = number(about["wrong"], 0 if about["wrong"].is_integer() else 1)
        return (
            f"{about['judge']} is wrong on {wrong} of {about['n']} comparisons, and {MIN_ERRORS} wrong and right ones of "
            "each are needed"
        )
    return (
        f"they err on the same comparisons but for {about['n_prompts']} prompts, and {MIN_DIFFERING} are needed to say "
        "by how much they differ"
    )
