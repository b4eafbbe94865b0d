"""What may be said of a candidate beside a baseline: pass, fail or cannot tell."""

from collections.abc import Sequence
from dataclasses import replace

from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.analysis.gate import MIN_PROMPTS, Share, decide


def gate_conclusion(
    shares: Sequence[Share],
    *,
    margin: float,
    candidate: str,
    baseline: str,
    scope: Scope,
    is_checked: bool = True,
    is_same: bool = False,
) -> Conclusion:
    """Return what a gate says, by its one table; the first that applies.

    same answers every answer is the baseline's (`is_same`), and none is missing
    pass         every lower bound is above 1/2 - margin
    fail         an upper bound is below 1/2; `others` are the dimensions in which
    cannot tell  all else, and the reason is
                 few      under 20 prompts
                 invalid  without invalid verdicts it would pass or fail, or they leave no number of
                          prompts that would tell
                 power    the prompts would pass an equal candidate with less than 80 %
                 close    none of these

    The effect is the share of the dimension that decides: of a fail the one with the lowest upper bound,
    else the one with the lowest lower bound. Its bounds are one-sided. The scope names it where there are
    several.
    """
    is_whole = not any(share.n_invalid for share in shares)
    state = "same answers" if is_same and is_whole else decide(shares, margin)
    worse = [one.dimension for one in shares if one.high is not None and one.high < 0.5]
    deciding = _least(shares, by="high" if state == "fail" else "low")
    return Conclusion(
        state=state,
        subject=candidate,
        rival=baseline,
        effect=Effect(
            value=deciding.share, low=deciding.low, high=deciding.high, unit="share"
        ),
        others=tuple(worse) if state == "fail" else (),
        reasons=(_reason(shares, margin),) if state == "cannot tell" else (),
        is_checked=is_checked,
        scope=scope
        if len(shares) == 1
        else replace(scope, dimension=deciding.dimension),
    )


def _least(shares: Sequence[Share], *, by: str) -> Share:
    """The share whose bound is lowest; one without it goes before all."""
    return min(
        shares, key=lambda one: -1.0 if getattr(one, by) is None else getattr(one, by)
    )


def _reason(shares: Sequence[Share], margin: float) -> Reason:
    fewest = min(one.n_prompts for one in shares)
    if fewest < MIN_PROMPTS:
        return Reason(name="few", value=fewest)
    would = decide([one.of_valid() for one in shares], margin)
    invalid = [one for one in shares if one.n_invalid]
    if would == "pass":
        return _invalid(_least(invalid, by="low"), would)
    if would == "fail":
        return _invalid(_least(invalid, by="high_of_valid"), would)
    hopeless = [one for one in invalid if one.n_needed is None]
    if hopeless:
        return _invalid(_least(hopeless, by="low"), None)
    lacking = [one.n_needed for one in shares if (one.n_needed or 0) > one.n_prompts]
    if lacking:
        return Reason(name="power", value=max(n or 0 for n in lacking))
    return Reason(name="close")


def _invalid(one: Share, would: str | None) -> Reason:
    """Invalid verdicts on a dimension. would: the state without them, if they hide one."""
    about = {
        "dimension": one.dimension,
        "n_invalid": one.n_invalid,
        "n_prompts": one.n_prompts,
        "low": one.low,
        "high": one.high,
        "would": would,
    }
    share = one.n_invalid / one.n_prompts
    return Reason(name="invalid", value=share, about=about, judges=True)
