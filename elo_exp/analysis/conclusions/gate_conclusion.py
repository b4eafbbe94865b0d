"""The conclusion of a gate, and its result on each rubric: pass, fail or cannot tell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from elo_exp.analysis.checks import Check
from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.analysis.gate_checks import gate_check_definitions, list_blocking_checks
from elo_exp.analysis.noninferiority import (
    MIN_PROMPTS_FOR_VERDICT,
    PointShare,
    decide_gate,
)
from elo_exp.analysis.repeated_gates import EarlierGates


def conclude(
    shares: Sequence[PointShare],
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
    """Return the conclusion of a gate: the first state of this list that applies.

    same answers every answer is the baseline's (`is_same`), and none is missing
    pass         every lower bound is above 1/2 - margin, and no check stands against "not worse"
    fail         an upper bound is below 1/2, and neither family nor audit stands against a lead of the baseline
                 there; `others` are the dimensions in which. If length or unusual answers of the baseline could
                 explain the loss in each of them, these checks are the reasons
    cannot tell  in all other cases, for reasons in this order:

                 First, for any bounds:
                 few           there are under 20 prompts, or under 20 groups of prompts
                 same_verdict  the judge gave one verdict to all comparisons
                 control       the judge did not find degraded copies of the baseline's answers, or did not see them

                 Then, if the bounds alone would pass, the other checks (flips in one order, length, responses, kin,
                 audit) and:
                 looked        earlier results with fewer prompts have used all of alpha

                 If there is no reason yet, one of these:
                 invalid       without the invalid verdicts the gate would pass or fail, or they are so many that more
                               prompts cannot decide
                 lost          missing or empty answers are so many that more prompts cannot decide
                 flips         the gate would pass if the judge agreed with itself in both orders
                 power         the power for an equal candidate is below 80% on these prompts
                 close         no other reason applies

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
    definitions = gate_check_definitions()
    blind_names = {d.name for d in definitions.values() if d.shows_blind_judge}
    cautioning_names = {d.name for d in definitions.values() if d.is_caution_of_fail}
    is_whole = not any(share.n_invalid for share in shares)
    bounds = decide_gate(shares, margin)
    blocking = [  # the baseline's own answers take no judge
        _make_check_reason(check, dimension if len(shares) > 1 else None)
        for dimension in [share.dimension for share in shares]
        for check in list_blocking_checks(checks.get(dimension, ()))
        if not is_same
    ]
    has_several = len(shares) > 1
    blocking += [*_list_used_looks(earlier, alpha, "pass", has_several=has_several)]
    worse_dimensions = [
        share.dimension
        for share in shares
        if share.high is not None and share.high < 0.5
    ]
    reasons_against_fail = {
        name: [
            _make_check_reason(
                check, name if len(shares) > 1 else None, favours="baseline"
            )
            for check in (checks_of_fail or {}).get(name, ())
            if definitions[check.name].blocks(check)
        ]
        + [
            reason
            for reason in _list_used_looks(
                earlier, alpha, "fail", has_several=has_several
            )
            if reason.about["of"] == name
        ]
        for name in worse_dimensions
    }
    worse_dimensions = [
        name
        for name in worse_dimensions
        if all(reason.name in cautioning_names for reason in reasons_against_fail[name])
    ]
    worse_dimensions = [
        name for name in worse_dimensions if not reasons_against_fail[name]
    ] or worse_dimensions
    state, reasons = bounds, tuple[Reason, ...]()
    if is_same and is_whole:
        state = "same answers"
    elif bounds == "fail" and not worse_dimensions:
        state = "cannot tell"
        reasons = tuple(
            reason
            for dimension_reasons in reasons_against_fail.values()
            for reason in dimension_reasons
        )
    elif bounds == "fail":
        reasons = tuple(
            reason for name in worse_dimensions for reason in reasons_against_fail[name]
        )
    else:
        blind_reasons = [reason for reason in blocking if reason.name in blind_names]
        other_reasons = [
            reason for reason in blocking if reason.name not in blind_names
        ]
        if few_reason := _find_few_prompts(shares):
            reasons = (few_reason,)
        elif bounds == "pass":
            reasons = (*blind_reasons, *other_reasons)
        elif any(reason.about["state"] == "failed" for reason in blind_reasons):
            reasons = tuple(blind_reasons)
        else:
            bound_reasons = _explain_bounds(shares, margin, other_reasons)
            reasons = (
                *blind_reasons,
                *(_add_next_alpha(reason, earlier, alpha) for reason in bound_reasons),
            )
        state = "cannot tell" if reasons else "pass"
    failing_shares = [share for share in shares if share.dimension in worse_dimensions]
    deciding_share = (
        _find_lowest(failing_shares, bound="high")
        if state == "fail"
        else _find_lowest(shares, bound="low")
    )
    return Conclusion(
        state=state,
        subject=candidate,
        rival=baseline,
        effect=Effect(
            value=deciding_share.share,
            low=deciding_share.low,
            high=deciding_share.high,
            unit="share",
        ),
        others=tuple(worse_dimensions) if state == "fail" else (),
        reasons=reasons,
        is_checked=is_checked,
        scope=scope
        if len(shares) == 1
        else replace(scope, dimension=deciding_share.dimension),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricResult:
    """The result of a gate on one rubric.

    state   "same answers", "pass", "fail" or "cannot tell"
    causes  names of checks that block a pass or could explain a loss; "few" and "looked" as in `conclude`
    """

    state: str
    causes: tuple[str, ...] = ()


def decide_rubric(
    share: PointShare,
    *,
    margin: float,
    checks: Sequence[Check],
    checks_of_fail: Sequence[Check] = (),
    earlier: EarlierGates | None = None,
    alpha: float | None = None,
) -> RubricResult:
    """Return the result of a gate on one rubric, by the bounds and the checks of this rubric alone.

    Parameters
    ----------
    share : PointShare
        Share of points on this rubric.
    margin : float
        Loss that is tolerated, as share of points.
    checks, checks_of_fail : sequence of Check
        Checks of the claims that the candidate is not worse, and that it is worse.
    earlier : EarlierGates, optional
        Results that were shown before prompts were added.
    alpha : float, optional
        Level of all results together.

    Returns
    -------
    RubricResult
    """
    if share.n_units < MIN_PROMPTS_FOR_VERDICT:
        return RubricResult(state="cannot tell", causes=("few",))
    bounds = decide_gate([share], margin)
    if bounds == "cannot tell":
        return RubricResult(state=bounds)
    blocking = list_blocking_checks(checks if bounds == "pass" else checks_of_fail)
    causes = [check.name for check in blocking]
    if earlier and earlier.n_looks and not earlier.claim_alpha(bounds, alpha or 0.0):
        causes.append("looked")
    definitions = gate_check_definitions()
    if not causes or (
        bounds == "fail"
        and all(
            name in definitions and definitions[name].is_caution_of_fail
            for name in causes
        )
    ):
        return RubricResult(state=bounds, causes=tuple(causes))
    return RubricResult(state="cannot tell", causes=tuple(causes))


def _find_lowest(shares: Sequence[PointShare], *, bound: str) -> PointShare:
    """Return the share whose bound is lowest; one without a bound goes before all."""
    return min(
        shares,
        key=lambda share: (
            -1.0 if getattr(share, bound) is None else getattr(share, bound)
        ),
    )


def _find_few_prompts(shares: Sequence[PointShare]) -> Reason | None:
    fewest = min(shares, key=lambda share: share.n_units)
    if fewest.n_units >= MIN_PROMPTS_FOR_VERDICT:
        return None
    return Reason(
        name="few", value=fewest.n_units, about={"n_prompts": fewest.n_prompts}
    )


def _explain_bounds(
    shares: Sequence[PointShare], margin: float, other_reasons: Sequence[Reason]
) -> Iterator[Reason]:
    """Yield why the bounds do not pass."""
    state_if_valid = decide_gate([share.without_invalid() for share in shares], margin)
    invalid_shares = [share for share in shares if share.n_invalid]
    hopeless_shares = [share for share in invalid_shares if share.n_needed is None]
    flips = [reason for reason in other_reasons if reason.name == "flips"]
    if state_if_valid == "pass":
        yield _make_invalid_reason(
            _find_lowest(invalid_shares, bound="low"), state_if_valid
        )
    elif state_if_valid == "fail":
        yield _make_invalid_reason(
            _find_lowest(invalid_shares, bound="high_of_valid"), state_if_valid
        )
    elif flips:
        yield flips[0]
    elif lost_shares := [
        share for share in shares if share.n_lost and share.n_needed is None
    ]:
        worst = _find_lowest(lost_shares, bound="low")
        about = {
            "dimension": worst.dimension,
            "n_lost": worst.n_lost,
            "n_prompts": worst.n_prompts,
            "low": worst.low,
        }
        yield Reason(name="lost", value=worst.n_lost / worst.n_prompts, about=about)
    elif hopeless_shares:
        yield _make_invalid_reason(_find_lowest(hopeless_shares, bound="low"), None)
    else:
        yield _explain_power(shares, margin)


def _list_used_looks(
    earlier: Mapping[str, EarlierGates],
    alpha: float,
    would: str,
    *,
    has_several: bool,
) -> Iterator[Reason]:
    """Yield a reason for each dimension whose earlier results have used all of alpha."""
    for name, looks in earlier.items():
        if looks.n_looks and not looks.claim_alpha(would, alpha):
            about = {
                "dimension": name if has_several else None,
                "of": name,
                "would": would,
                "spent": looks.spent[would],
                "next_alpha": _next_alpha(earlier, alpha, would),
            }
            yield Reason(name="looked", value=float(looks.n_looks), about=about)


def _add_next_alpha(
    reason: Reason, earlier: Mapping[str, EarlierGates], alpha: float
) -> Reason:
    """Add which alpha a gate with more prompts needs, if results are counted."""
    next_alpha = _next_alpha(earlier, alpha, "pass")
    about = {**reason.about, "spent": alpha, "next_alpha": next_alpha}
    return replace(reason, about=about) if earlier else reason


def _next_alpha(earlier: Mapping[str, EarlierGates], alpha: float, claim: str) -> float:
    """Return the alpha of all results at which a further one is tested at the level of this one."""
    spent = max(
        (gates.spent.get(claim, 0.0) for gates in earlier.values()), default=0.0
    )
    level = alpha - spent if alpha > spent else alpha
    return round(max(alpha, spent) + level, 9)


def _explain_power(shares: Sequence[PointShare], margin: float) -> Reason:
    """Return what more prompts would change, or that the judge's disagreement alone prevents a pass."""
    n_needed = [share.n_needed for share in shares]
    max_needed = max((n for n in n_needed if n is not None), default=None)
    if decide_gate([share.without_penalty() for share in shares], margin) == "pass":
        deciding_share = _find_lowest(shares, bound="low")
        about = {
            "dimension": deciding_share.dimension,
            "low": deciding_share.low,
            "low_of_points": deciding_share.low_of_points,
            "n_needed": None if None in n_needed else max_needed,
        }
        return Reason(name="flips", about=about, judges=True)
    if any(
        n is None or n > share.n_prompts
        for n, share in zip(n_needed, shares, strict=True)
    ):
        return Reason(name="power", value=None if None in n_needed else max_needed)
    return Reason(name="close")


def _make_invalid_reason(share: PointShare, would: str | None) -> Reason:
    """Make the reason of invalid verdicts on a dimension. would: the state without them, if they hide one."""
    about = {
        "dimension": share.dimension,
        "n_invalid": share.n_invalid,
        "n_prompts": share.n_prompts,
        "low": share.low,
        "high": share.high,
        "would": would,
    }
    invalid_share = share.n_invalid / share.n_prompts
    return Reason(name="invalid", value=invalid_share, about=about, judges=True)


def _make_check_reason(
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
        judges=gate_check_definitions()[check.name].is_about_judge,
    )
