"""What may be said of a candidate beside a baseline: pass, fail or cannot tell."""

from collections.abc import Sequence

from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.analysis.gate import MIN_PROMPTS, Share, decide


def gate_conclusion(
    shares: Sequence[Share], *, margin: float, candidate: str, baseline: str, judge: str
) -> Conclusion:
    """Return what a gate says, by its one table.

    pass         every lower bound is above 1/2 - margin
    fail         an upper bound is below 1/2; `others` are the dimensions in which
    cannot tell  all else; the reason is `few` prompts, too little `power`, or neither: `close`

    The effect is the share of the dimension that decides: of a fail the one with the lowest upper bound,
    else the one with the lowest lower bound, which the scope names where there are several.
    """
    state = decide(shares, margin)
    by = "high" if state == "fail" else "low"
    deciding = min(shares, key=lambda one: getattr(one, by) or 0.0)
    worse = [one.dimension for one in shares if one.high is not None and one.high < 0.5]
    return Conclusion(
        state=state,
        subject=candidate,
        rival=baseline,
        effect=Effect(
            value=deciding.share, low=deciding.low, high=deciding.high, unit="share"
        ),
        others=tuple(worse) if state == "fail" else (),
        reasons=(_reason(shares),) if state == "cannot tell" else (),
        scope=Scope(
            judge=judge,
            dimension=deciding.dimension if len(shares) > 1 else None,
            n_prompts=deciding.n_prompts,
        ),
    )


def _reason(shares: Sequence[Share]) -> Reason:
    fewest = min(one.n_prompts for one in shares)
    if fewest < MIN_PROMPTS:
        return Reason(name="few", value=fewest)
    needed = [
        one.n_needed for one in shares if one.n_needed and one.n_needed > one.n_prompts
    ]
    if needed:
        return Reason(name="power", value=max(needed))
    return Reason(name="close")
