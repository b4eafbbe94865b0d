"""Checks of a judge's quality, and of the answers that it judged, by dimension."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from elo_exp.analysis.exact_shares import effective_number, exact_interval
from elo_exp.arrays import Mask
from elo_exp.data.battles import Battles
from elo_exp.records import WINNERS, Rows

MAX_FLIP_SHARE = 0.10
# share of comparisons with one and the same useless verdict, and the least end of its interval, from
# which a judge has compared nothing
MIN_SHARE_OF_ONE_VERDICT, MIN_LOW_OF_ONE_VERDICT = 0.95, 0.80
FIRST_SHOWN_LIMITS = 0.45, 0.55
MAX_INVALID_SHARE = 0.02
# Observed minus predicted
MAX_WIN_RATE_MISFIT = 0.10
# share of a pair's games in which the leader's answer is not longer, or not shorter, from which on equal
# length is within the data
MIN_SUPPORT = 0.05
ALPHA_OF_TRANSITIVITY = 0.05
MIN_PROMPTS_FOR_LEAD = 20
# Probes of an audit: a judge that is biased by one of these decides nothing
FATAL_PROBES = ("injection", "tool_injection", "constant", "ladder")
# States of a check: the data rule its fault out, show it, leave it open; nobody can know
PASSED, FAILED, CANNOT_TELL, NOT_DONE = "passed", "failed", "cannot tell", "not done"
STATES = PASSED, FAILED, CANNOT_TELL, NOT_DONE
# By the names of their checks
_FAULTS_FAVOURING_AN_ENTRANT = (
    "length",
    "responses",
    "audit",
    "kin",
    "invalid",
    "invalid_by_entrant",
)
_FAULTS_HIDING_A_DIFFERENCE = ("one_verdict", "flips", "first_shown", "invalid")
# By claim, the checks whose fault could by itself produce it. Position bias cancels if each pair was
# judged in both orders, and flips are noise: neither produces a lead then.
BLOCKS: Mapping[str, tuple[str, ...]] = {
    "leads": _FAULTS_FAVOURING_AN_ENTRANT,
    "level": (*_FAULTS_FAVOURING_AN_ENTRANT, *_FAULTS_HIDING_A_DIFFERENCE),
    "not worse": (
        "same_verdict",
        "control",
        *_FAULTS_HIDING_A_DIFFERENCE,
        *_FAULTS_FAVOURING_AN_ENTRANT,
    ),
    "agrees": ("people",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of one dimension.

    state  passed (the data rule the fault out), failed, cannot tell, or not done
    value  None where it was not measured
    low, high  of a 95 % interval
    n, of  counts behind the value
    about  names or further numbers, by what they are
    is_notable  whether a reader is to notice what it found, which blocks nothing
    """

    name: str
    state: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    of: int | None = None
    about: Mapping[str, Any] | None = None
    is_notable: bool = False

    @property
    def is_failed_by_judge(self) -> bool:
        """Whether the judge failed it; odd answers are the entrant's."""
        return self.state == FAILED and self.name != "responses"

    @property
    def is_one_order(self) -> bool:
        """Whether flips are unknown because comparisons were judged in one order alone."""
        return self.name == "flips" and bool((self.about or {}).get("n_one_order"))

    def blocks(self, claim: str) -> bool:
        """Return whether it stands against a claim: its fault could produce it, and is not ruled out.

        A check that was not done does not: nobody can know. If each pair was judged in one order alone,
        or without a control, somebody could have.

        claim  a key of `BLOCKS`
        """
        if self.is_one_order:
            return True
        if self.name == "control":  # which anybody can have done
            return self.state != PASSED and self.name in BLOCKS[claim]
        return self.state in (FAILED, CANNOT_TELL) and self.name in BLOCKS[claim]


def check_judge(
    battles: Battles,
    diagnosis: Mapping[str, Any],
    quality: Mapping[str, Any] | None = None,
    leaders: Sequence[str] = (),
    responses: Rows = (),
) -> list[Check]:
    """Check a judge on one dimension.

    Parameters
    ----------
    battles : Battles
        Of the dimension.
    diagnosis : mapping
        Of this dimension, as in Standings.
    quality : mapping, optional
        A row of `judge_quality`; None where the judgments are not known.
    leaders : sequence of str, optional
        The two best entrants, if their difference is significant: it is to hold at equal length.
    responses : rows, optional
        What is odd about the entrants' answers; empty where they are not known.

    Returns
    -------
    list of Check
        In a fixed order; what could not be measured is "not done".
    """
    return [
        *_check_verdicts(battles, diagnosis, quality),
        *_check_answers(diagnosis, leaders, responses, has_battles=len(battles) > 0),
        *_check_family(diagnosis, leaders, has_battles=len(battles) > 0),
        *_check_fit(diagnosis),
    ]


def _check_verdicts(
    battles: Battles, diagnosis: Mapping[str, Any], quality: Mapping[str, Any] | None
) -> Iterator[Check]:
    """Check flips, position, invalid verdicts and ties.

    Judged in one order alone, flips cannot be measured: the result needs care.
    """
    yield from _check_one_verdict(battles, quality)
    masks = battles.is_inconsistent(), battles.both_orders(), battles.one_order()
    n, n_both, n_one_order = map(battles.total_of, masks)
    n_independent = effective_share(battles, masks[0], masks[1])
    if quality:
        n, n_both, n_one_order = (
            quality[name] for name in ("n_flips", "n_two_order", "n_one_order")
        )
    if n_both:
        low, high = exact_interval(n / n_both, n_independent * n_both)
        state = state_of_share(low, high, most=MAX_FLIP_SHARE)
        yield Check(
            name="flips",
            state=state,
            value=n / n_both,
            low=low,
            high=high,
            n=n,
            of=n_both,
        )
    elif n_one_order or quality:
        about = {"n_one_order": n_one_order}
        yield Check(name="flips", state=NOT_DONE, n=n, of=n_both, about=about)
    effect = diagnosis.get("position") or {}
    if (value := effect.get("p_first")) is not None:
        low, high = effect["ci_low"], effect["ci_high"]
        state = CANNOT_TELL
        if low is not None and high is not None:
            state = state_of_share(
                low, high, least=FIRST_SHOWN_LIMITS[0], most=FIRST_SHOWN_LIMITS[1]
            )
        yield Check(
            name="first_shown",
            state=state,
            value=value,
            low=low,
            high=high,
            n=effect["n_decisive"],
        )
    if quality and quality["n_judgments"]:
        share = quality["invalid_rate"]
        yield Check(
            name="invalid",
            state=PASSED if share <= MAX_INVALID_SHARE else FAILED,
            value=share,  # of these comparisons: no interval, for all of them are known
            n=quality["n_invalid"],
            of=quality["n_judgments"],
            about={"refused": quality["n_refused"], "cut off": quality["n_cut_off"]},
        )
        yield Check(
            name="ties",
            state=NOT_DONE if quality["tie_rate"] is None else PASSED,
            value=quality["tie_rate"],
            n=quality["n_equal_answers"],
        )
    rows = diagnosis.get("invalid") or ()
    if any(row["n_invalid"] for row in rows):  # on one entrant, they move its rating
        worst = max(rows, key=lambda row: row["share"] or 0.0)
        differing = [row for row in rows if row["differs"]]
        yield Check(
            name="invalid_by_entrant",
            state=FAILED if differing else PASSED,
            value=worst["share"],
            about={"worst": worst, "differing": differing},
        )


def _check_one_verdict(
    battles: Battles, quality: Mapping[str, Any] | None
) -> Iterator[Check]:
    """Check whether the judge compared at all, or gave one verdict whatever it was shown.

    Comparisons without a valid verdict count as that verdict: what is not known is no comparison. If a
    file names winners alone, nobody knows who was shown first. A judge that goes by the place of an answer
    then shows only if pairs were asked with each entrant as model_a: one column wins whoever is in it.
    """
    counts = battles.total_of
    is_asked = ~battles.equal_answers
    ab, ba = battles.verdict_ab, battles.verdict_ba
    in_both, in_one = battles.both_orders(), battles.one_order()
    names_first = np.where(ab >= 0, ab == 0, True) & np.where(ba >= 0, ba == 1, True)
    names_second = np.where(ab >= 0, ab == 1, True) & np.where(ba >= 0, ba == 0, True)
    n_by_kind = {
        "first": counts((in_both | in_one) & is_asked & names_first),
        "second": counts((in_both | in_one) & is_asked & names_second),
        "tie": counts(is_asked & (battles.winner >= _TIE)),
    }
    is_unplaced = is_asked & ~(in_both | in_one)
    if _has_both_places(battles, is_unplaced):
        n_by_kind["model_a"] = counts(is_unplaced & (battles.winner == 0))
        n_by_kind["model_b"] = counts(is_unplaced & (battles.winner == 1))
    n_invalid = quality["n_invalid"] if quality else 0
    n_asked = counts(is_asked) + n_invalid
    if not n_asked:
        return
    kind = max(n_by_kind, key=n_by_kind.__getitem__)  # the more telling of equal ones
    n = n_by_kind[kind] + n_invalid
    if n_invalid > n_by_kind[kind]:
        kind = "invalid"
    low, high = exact_interval(n / n_asked, n_asked)
    state = PASSED if high < MIN_SHARE_OF_ONE_VERDICT else CANNOT_TELL
    if n / n_asked >= MIN_SHARE_OF_ONE_VERDICT and low >= MIN_LOW_OF_ONE_VERDICT:
        state = FAILED
    yield Check(
        name="one_verdict",
        state=state,
        value=n / n_asked,
        low=low,
        high=high,
        n=n,
        of=n_asked,
        about={"kind": kind},
    )


_TIE = WINNERS.index("tie")


def _has_both_places(battles: Battles, chosen: Mask) -> bool:
    """Return whether pairs met with each entrant as model_a, so often that no order of the entrants could
    explain that one column wins nearly always."""
    a, b = battles.model_a.astype(np.int64), battles.model_b.astype(np.int64)
    pair = np.minimum(a, b) * len(battles.models) + np.maximum(a, b)
    count = np.ones(len(battles)) if battles.count is None else battles.count
    codes, number = np.unique(pair[chosen], return_inverse=True)
    is_swapped = (a > b)[chosen]
    weights = np.asarray(count, dtype=np.float64)[chosen]
    n_swapped = np.bincount(number, weights * is_swapped, len(codes))
    n_straight = np.bincount(number, weights * ~is_swapped, len(codes))
    n_rarer = float(np.minimum(n_swapped, n_straight).sum())
    return n_rarer > (1.0 - MIN_SHARE_OF_ONE_VERDICT) * float(weights.sum())


def state_of_share(low: float, high: float, *, most: float, least: float = 0.0) -> str:
    """Return the state of a check whose share has an interval and limits.

    Parameters
    ----------
    low, high : float
        The ends of the interval.
    most, least : float
        The limits.

    Returns
    -------
    str
        Passed if the whole interval is inside the limits, failed if it is outside, else cannot tell.
    """
    if least <= low and high <= most:
        return PASSED
    return FAILED if low > most or high < least else CANNOT_TELL


def effective_share(battles: Battles, is_hit: Mask, chosen: Mask) -> float:
    """Return how many independent comparisons each of the chosen is worth: those of a prompt or cluster go together.

    Parameters
    ----------
    battles : Battles
        n battles.
    is_hit : Mask, shape (n,)
        Those that the share counts.
    chosen : Mask, shape (n,)
        Those of which it is a share.

    Returns
    -------
    float
        In (0, 1]; 1 for battles that stand for several.
    """
    if battles.count is not None or not chosen.any():
        return 1.0
    hits = is_hit[chosen].astype(np.float64)
    return effective_number(hits, battles.units()[chosen].astype(np.int64)) / len(hits)


def _check_answers(
    diagnosis: Mapping[str, Any],
    leaders: Sequence[str],
    responses: Rows,
    *,
    has_battles: bool,
) -> Iterator[Check]:
    """Check what in an answer moves the judge besides its quality: length, odd texts, what an audit tried.

    Better entrants may also write more, so a preference for length alone is no failure. It is one if
    the largest effect of length that the data leave possible could by itself produce the lead, or if a
    significant one takes away more than half of its size. One answer to many prompts is no answer to
    any of them, however the judge ranks it. A judge that obeys an answer, or does not tell good from
    bad, decides nothing.
    """
    if "length" in diagnosis or has_battles:
        yield _check_length(diagnosis.get("length"), leaders)
    if responses:
        flagged = {
            row["model"]: {name: row[name] for name in row["flags"]}
            for row in responses
            if row["flags"]
        }
        is_of_leader = bool(flagged.keys() & set(leaders[:1]))
        yield Check(
            name="responses",
            state=FAILED if is_of_leader else PASSED,
            is_notable=bool(flagged) and not is_of_leader,
            value=len(flagged) / len(responses),
            about={
                "flagged": flagged,
                "cut off": sum(row["n_cut_off"] for row in responses),
            },
        )
    elif has_battles:
        yield Check(name="responses", state=NOT_DONE)
    if pairs := diagnosis.get("equal_answers"):  # of half of the prompts or more
        top_pair = pairs[0]
        yield Check(
            name="equal_answers",
            state=PASSED,
            is_notable=True,
            value=top_pair["n_equal"] / top_pair["n_prompts"],
            n=top_pair["n_equal"],
            of=top_pair["n_prompts"],
            about={"pairs": pairs},
        )
    audit = diagnosis.get("audit")
    if audit is not None:
        results = audit.get("results", ())
        biased = [row["probe"] for row in results if row["verdict"] == "biased"]
        is_fatal = any(probe.partition(":")[0] in FATAL_PROBES for probe in biased)
        state = FAILED if is_fatal else PASSED
        yield Check(
            name="audit",
            state=state if audit else NOT_DONE,
            is_notable=bool(biased) and not is_fatal,
            value=float(len(biased)) if audit else None,
            about=audit,
        )


def _check_length(control: Mapping[str, Any] | None, leaders: Sequence[str]) -> Check:
    """Check whether the length of answers could by itself produce the leader's lead.

    It could not if the lead is above zero at the largest effect that the data leave possible: the
    one-sided 95 % bound of the lead at equal length. If one side's answer is the longer one nearly
    always, equal length is extrapolated and nothing is known there. If no fit bounds that effect, as of a leader that
    won every prompt, the leader has to win where its answers are not longer, and where they are not
    shorter.
    """
    effect = control["effect"] if control else {}
    if control is None or not effect.get("n_games"):
        return Check(name="length", state=NOT_DONE)
    value = low = high = None
    if effect["effect"] is not None:
        # The win rate of the longer of two equals whose lengths differ by the scale
        value, low, high = (
            None if end is None else float(scipy.special.expit(end * math.tanh(1)))
            for end in (effect["effect"], effect["ci_low"], effect["ci_high"])
        )
    is_effect = low is not None and high is not None and not low <= 0.5 <= high
    leader = leaders[0] if leaders else None
    leads = [row for row in control.get("weakest_leads", ()) if row["first"] == leader]
    tests = [row for row in control.get("sign_tests", ()) if row["first"] == leader]
    state, is_notable = PASSED, is_effect
    about = {"scale": effect["scale"], "second": None, "gap": None, "least": None}
    about["gap_at_equal_length"] = None
    if leads:
        lead = leads[0]
        about |= {name: lead[name] for name in ("second", "gap", "least")}
        about["gap_at_equal_length"] = lead["difference"]
        n_one_sided = max(lead["n_longer"], lead["n_shorter"])
        is_within = n_one_sided <= (1.0 - MIN_SUPPORT) * lead["n_games"]
        about["is_extrapolated"] = not is_within
        holds = is_within and lead["least"] is not None and lead["least"] > 0.0
        if is_effect and lead["difference"] < lead["gap"] / 2:
            holds = False
        if not holds:
            state, is_notable = FAILED if is_effect else CANNOT_TELL, False
    elif leader is not None and effect["scale"]:
        p_values = [max(t["p_not_longer"], t["p_not_shorter"]) for t in tests]
        state = (
            PASSED
            if p_values and max(p_values) <= ALPHA_OF_TRANSITIVITY
            else CANNOT_TELL
        )
    return Check(
        name="length",
        state=state,
        value=value,
        low=low,
        high=high,
        about=about,
        is_notable=is_notable,
    )


def _check_family(
    diagnosis: Mapping[str, Any], leaders: Sequence[str], *, has_battles: bool
) -> Iterator[Check]:
    """Check whether the best is of the judge's family and a rival is not: then a lead may be the judge's
    preference for its own (self-preference). An audit by labelled pairs may have found none."""
    if (kin := diagnosis.get("kin")) is None:
        if has_battles:
            yield Check(name="kin", state=NOT_DONE)
        return
    results = (diagnosis.get("audit") or {}).get("results", ())
    kin_verdicts = [
        r["verdict"] for r in results if r["probe"].partition(":")[0] == "self"
    ]
    is_unbiased = bool(kin_verdicts) and set(kin_verdicts) == {"ok"}
    is_favoured = bool(kin["others"] and {*kin["models"]} & {*leaders[:1]})
    is_blocking = is_favoured and not kin["is_allowed"] and not is_unbiased
    yield Check(
        name="kin",
        state=FAILED if is_blocking else PASSED,
        is_notable=not is_blocking and not is_unbiased,
        value=len(kin["models"]) / (len(kin["models"]) + len(kin["others"])),
        about={
            "family": kin["family"],
            "models": kin["models"],
            "first": leaders[0] if leaders else None,
        },
    )


def _check_fit(diagnosis: Mapping[str, Any]) -> Iterator[Check]:
    if residuals := diagnosis.get("pair_residuals"):
        worst = max(residuals, key=lambda row: abs(row["observed"] - row["expected"]))
        value = worst["observed"] - worst["expected"]
        yield Check(
            name="fit",
            state=PASSED,
            is_notable=abs(value) > MAX_WIN_RATE_MISFIT,
            value=value,
            about={"first": worst["model_a"], "second": worst["model_b"]},
        )
    test, cycles = diagnosis.get("transitivity"), diagnosis.get("cycles")
    if test and test["df"] > 0:
        p = test["p_value"]
        yield Check(
            name="transitivity",
            state=NOT_DONE if p is None else PASSED,
            value=p,
            about=test,
            is_notable=p is not None and p <= ALPHA_OF_TRANSITIVITY,
        )
    if cycles and cycles["n_triples"]:
        n, n_prompts = cycles["n_cyclic_prompts"], cycles["n_prompts"]
        yield Check(
            name="cycles",
            state=PASSED,
            value=n / n_prompts if n_prompts else None,
            n=n,
            of=n_prompts,
        )
