"""What may be said of a candidate beside a baseline: pass, fail or cannot tell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from elo_exp.analysis.checks import Check
from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.analysis.gate import MIN_PROMPTS, Share, decide
from elo_exp.analysis.gate_checks import blocking_checks
from elo_exp.analysis.repeated_gates import EarlierGates

# Checks that a judge fails only if it cannot have seen a worse candidate: reasons before all numbers
_BLIND = ("same_verdict", "control")
# Checks that weaken a fail but do not stop it: a wrong fail costs a second look at the answers, a wrong pass a merge
_CAUTIONS_OF_FAIL = ("length", "responses")


def gate_conclusion(
    shares: Sequence[Share],
    *,
    margin: float,
    candidate: str,
    baseline: str,
    scope: Scope,
    checks: Mapping[str, Sequence[Check]],
    checks_of_fail: Mapping[str, Sequence[Check]] | None = None,
    earlier: Mapping[str, EarlierGates] | None = None,
    alpha: float | None = None,
    is_checked: bool = True,
    is_same: bool = False,
) -> Conclusion:
    """Return what a gate says, by its one table; the first that applies.

    same answers every answer is the baseline's (`is_same`), and none is missing
    pass         every lower bound is above 1/2 - margin, and no check stands against "not worse"
    fail         an upper bound is below 1/2, and neither family nor audit stands against a lead of the baseline
                 there; `others` are the dimensions in which. If length or unusual answers of the baseline could
                 explain the loss in each of them, these checks are the reasons
    cannot tell  in all other cases. The first reasons are
                 few           under 20 prompts, or groups of prompts
                 same_verdict  the judge gave one verdict to all comparisons
                 control       the judge did not find degraded copies of the baseline's answers, or was
                               not asked
                 If the bounds alone would pass, the next reasons are the other checks (flips in one order,
                 length, responses, kin, audit) and
                 looked        results with fewer prompts were shown before, and no alpha is left
                 If there is no reason yet, the reason is one of
                 invalid       without invalid verdicts it would pass or fail, or they leave no number of
                               prompts that would tell
                 lost          with so many missing or empty answers no number of prompts would tell
                 flips         without the judge's disagreement between the orders it would pass
                 power         the prompts would pass an equal candidate with less than 80 %
                 close         none of these

    The effect is the share of the dimension that decides: of a fail the one with the lowest upper bound,
    else the one with the lowest lower bound. Its bounds are one-sided. The scope names it where there are
    several.

    If all upper bounds below 1/2 are stood against, the reasons are these checks.

    checks          by dimension: what stands for and against "not worse"
    checks_of_fail  by dimension: what stands against a lead of the baseline
    earlier         by dimension: results that were shown before prompts were added; None: nobody counts them
    alpha           level of all results together
    """
    earlier, alpha = earlier or {}, alpha or 0.0
    is_whole = not any(share.n_invalid for share in shares)
    bounds = decide(shares, margin)
    blocking = [  # the baseline's own answers take no judge
        _check_reason(check, dimension if len(shares) > 1 else None)
        for dimension in [share.dimension for share in shares]
        for check in blocking_checks(checks.get(dimension, ()))
        if not is_same
    ]
    has_several = len(shares) > 1
    blocking += [*_looked(earlier, alpha, "pass", has_several=has_several)]
    worse = [one.dimension for one in shares if one.high is not None and one.high < 0.5]
    favouring = {
        name: [
            _check_reason(check, name if len(shares) > 1 else None, favours="baseline")
            for check in (checks_of_fail or {}).get(name, ())
            if check.blocks("leads")
        ]
        + [
            reason
            for reason in _looked(earlier, alpha, "fail", has_several=has_several)
            if reason.about["of"] == name
        ]
        for name in worse
    }
    worse = [
        name
        for name in worse
        if all(reason.name in _CAUTIONS_OF_FAIL for reason in favouring[name])
    ]
    worse = [name for name in worse if not favouring[name]] or worse
    state, reasons = bounds, tuple[Reason, ...]()
    if is_same and is_whole:
        state = "same answers"
    elif bounds == "fail" and not worse:
        state = "cannot tell"
        reasons = tuple(reason for some in favouring.values() for reason in some)
    elif bounds == "fail":
        reasons = tuple(reason for name in worse for reason in favouring[name])
    else:
        blind = [reason for reason in blocking if reason.name in _BLIND]
        others = [reason for reason in blocking if reason.name not in _BLIND]
        if few := _few(shares):
            reasons = (few,)
        elif bounds == "pass":
            reasons = (*blind, *others)
        elif any(reason.about["state"] == "failed" for reason in blind):
            reasons = tuple(blind)
        else:
            numeric = _numeric(shares, margin, others)
            reasons = (*blind, *(_with_advice(one, earlier, alpha) for one in numeric))
        state = "cannot tell" if reasons else "pass"
    failing = [one for one in shares if one.dimension in worse]
    deciding = (
        _least(failing, by="high") if state == "fail" else _least(shares, by="low")
    )
    return Conclusion(
        state=state,
        subject=candidate,
        rival=baseline,
        effect=Effect(
            value=deciding.share, low=deciding.low, high=deciding.high, unit="share"
        ),
        others=tuple(worse) if state == "fail" else (),
        reasons=reasons,
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


def _few(shares: Sequence[Share]) -> Reason | None:
    fewest = min(shares, key=lambda one: one.n_units)
    if fewest.n_units >= MIN_PROMPTS:
        return None
    return Reason(
        name="few", value=fewest.n_units, about={"n_prompts": fewest.n_prompts}
    )


def _numeric(
    shares: Sequence[Share], margin: float, others: Sequence[Reason]
) -> Iterator[Reason]:
    """Why the bounds do not pass, and the checks that would stand against a pass all the same."""
    would = decide([one.of_valid() for one in shares], margin)
    invalid = [one for one in shares if one.n_invalid]
    hopeless = [one for one in invalid if one.n_needed is None]
    unmeasured = [reason for reason in others if reason.name == "flips"]
    if would == "pass":
        yield _invalid(_least(invalid, by="low"), would)
    elif would == "fail":
        yield _invalid(_least(invalid, by="high_of_valid"), would)
    elif unmeasured:
        yield unmeasured[0]
    elif lost := [one for one in shares if one.n_lost and one.n_needed is None]:
        worst = _least(lost, by="low")
        about = {
            "dimension": worst.dimension,
            "n_lost": worst.n_lost,
            "n_prompts": worst.n_prompts,
            "low": worst.low,
        }
        yield Reason(name="lost", value=worst.n_lost / worst.n_prompts, about=about)
    elif hopeless:
        yield _invalid(_least(hopeless, by="low"), None)
    else:
        yield _power(shares, margin)


def _looked(
    earlier: Mapping[str, EarlierGates],
    alpha: float,
    would: str,
    *,
    has_several: bool,
) -> Iterator[Reason]:
    """Yield the dimensions of which earlier results have used all of alpha."""
    for name, looks in earlier.items():
        if looks.n_looks and not looks.level(would, alpha):
            about = {
                "dimension": name if has_several else None,
                "of": name,
                "would": would,
                "spent": looks.spent[would],
                "next_alpha": _next_alpha(earlier, alpha, would),
            }
            yield Reason(name="looked", value=float(looks.n_looks), about=about)


def _with_advice(
    reason: Reason, earlier: Mapping[str, EarlierGates], alpha: float
) -> Reason:
    """Add which alpha a gate with more prompts needs, if results are counted."""
    next_alpha = _next_alpha(earlier, alpha, "pass")
    about = {**reason.about, "spent": alpha, "next_alpha": next_alpha}
    return replace(reason, about=about) if earlier else reason


def _next_alpha(earlier: Mapping[str, EarlierGates], alpha: float, claim: str) -> float:
    """The alpha of all results with which a further one is tested at the level of this one."""
    spent = max((one.spent.get(claim, 0.0) for one in earlier.values()), default=0.0)
    level = alpha - spent if alpha > spent else alpha
    return round(max(alpha, spent) + level, 9)


def _power(shares: Sequence[Share], margin: float) -> Reason:
    """What more prompts would do."""
    needed = [one.n_needed for one in shares]
    most = max((n for n in needed if n is not None), default=None)
    if decide([one.of_points() for one in shares], margin) == "pass":
        deciding = _least(shares, by="low")
        about = {
            "dimension": deciding.dimension,
            "low": deciding.low,
            "low_of_points": deciding.low_of_points,
            "n_needed": None if None in needed else most,
        }
        return Reason(name="flips", about=about, judges=True)
    if any(
        n is None or n > one.n_prompts for n, one in zip(needed, shares, strict=True)
    ):
        return Reason(name="power", value=None if None in needed else most)
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


def _check_reason(
    check: Check, dimension: str | None, *, favours: str = "candidate"
) -> Reason:
    about = {
        "dimension": dimension,
        "favours": favours,
        "state": check.state,
        "n": check.n,
        "of": check.of,
        "low": check.low,
        "high": check.high,
        **(check.about or {}),
    }
    return Reason(
        name=check.name,
        value=check.value,
        about=about,
        judges=check.name != "responses",
    )
