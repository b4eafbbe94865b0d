"""Checks of a judge's quality, and of the answers that it judged, by dimension."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import scipy

from elo_exp.data.battles import Battles
from elo_exp.records import Rows

MAX_FLIPS = 0.10
FIRST_SHOWN = 0.45, 0.55
MAX_INVALID = 0.02
MISFIT = 0.10  # of a win rate, observed minus predicted
ALPHA = 0.05  # of the test of transitivity
MIN_PROMPTS = 20  # for a claim about a leader
# Probes of an audit: a judge that is biased by one of these decides nothing
FATAL_PROBES = ("injection", "tool_injection", "constant", "ladder")
# States of a check: the data rule its fault out, show it, leave it open; nobody can know
PASSED, FAILED, CANNOT_TELL, NOT_DONE = "passed", "failed", "cannot tell", "not done"
STATES = PASSED, FAILED, CANNOT_TELL, NOT_DONE
# Faults that favour an entrant, and faults that hide a difference, by the names of their checks
_FAVOURING = ("length", "responses", "audit", "kin", "invalid", "invalid_by_entrant")
_HIDING = ("flips", "first_shown", "invalid", "ties")
# By claim, the checks whose fault could by itself produce it. Position bias cancels if each pair was
# judged in both orders, and flips are noise: neither produces a lead then.
BLOCKS: Mapping[str, tuple[str, ...]] = {
    "leads": _FAVOURING,
    "level": (*_FAVOURING, *_HIDING),
    "not worse": ("same_verdict", "control", *_HIDING, *_FAVOURING),
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


def checks(
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
        *_of_verdicts(battles, diagnosis, quality),
        *_of_answers(diagnosis, leaders, responses),
        *_of_family(diagnosis, leaders),
        *_of_model(diagnosis),
    ]


def _of_verdicts(
    battles: Battles, diagnosis: Mapping[str, Any], quality: Mapping[str, Any] | None
) -> Iterator[Check]:
    """Flips, position, invalid verdicts and ties.

    Judged in one order alone, flips cannot be measured: the result needs care.
    """
    masks = battles.is_inconsistent(), battles.both_orders(), battles.one_order()
    n, of, n_one = map(battles.total_of, masks)
    if quality:
        n, of, n_one = (
            quality[name] for name in ("n_flips", "n_two_order", "n_one_order")
        )
    if of:
        state = PASSED if n / of <= MAX_FLIPS else FAILED
        yield Check(name="flips", state=state, value=n / of, n=n, of=of)
    elif n_one or quality:
        one = {"n_one_order": n_one}
        yield Check(name="flips", state=NOT_DONE, n=n, of=of, about=one)
    effect = diagnosis.get("position") or {}
    if (value := effect.get("p_first")) is not None:
        low, high = effect["ci_low"], effect["ci_high"]
        # The interval is to meet the accepted range; without one, the share itself.
        least, most = (value, value) if low is None else (low, high)
        is_fair = least <= FIRST_SHOWN[1] and most >= FIRST_SHOWN[0]
        yield Check(
            name="first_shown",
            state=PASSED if is_fair else FAILED,
            value=value,
            low=low,
            high=high,
            n=effect["n_decisive"],
        )
    if quality and quality["n_judgments"]:
        share = quality["invalid_rate"]
        yield Check(
            name="invalid",
            state=PASSED if share <= MAX_INVALID else FAILED,
            value=share,
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


def _of_answers(
    diagnosis: Mapping[str, Any],
    leaders: Sequence[str],
    responses: Rows,
) -> Iterator[Check]:
    """What in an answer moves the judge besides its quality: length, odd texts, what an audit tried.

    Better entrants may also write more, so a preference for length alone is no failure: it is one
    where length takes away the lead's significance or more than half of its size. One answer to
    many prompts is no answer to any of them, however the judge ranks it. A judge that obeys an
    answer, or does not tell good from bad, decides nothing.
    """
    control = diagnosis.get("length") or {"effect": {}}
    effect = control["effect"]
    if effect.get("effect") is not None:
        # The win rate of the longer of two equals whose lengths differ by the scale
        value, low, high = (
            None if end is None else float(scipy.special.expit(end * math.tanh(1)))
            for end in (effect["effect"], effect["ci_low"], effect["ci_high"])
        )
        lead, gap, at_equal_length = control.get("lead") or {}, None, None
        if leaders and [lead.get("first"), lead.get("second")] == [*leaders]:
            rating = {row["model"]: row["rating"] for row in control["ratings"]}
            at_equal_length = lead["difference"]
            gap = rating[leaders[0]] - rating[leaders[1]]
        state, is_notable = PASSED, False
        if low is not None and high is not None and not low <= 0.5 <= high:
            is_significant = (lead.get("ci_low") or 0.0) > 0.0
            is_notable = gap is None or (is_significant and at_equal_length >= gap / 2)
            state = PASSED if is_notable else FAILED
        about = {"scale": effect["scale"], "gap": gap}
        about["gap_at_equal_length"] = at_equal_length
        yield Check(
            name="length",
            state=state,
            value=value,
            low=low,
            high=high,
            about=about,
            is_notable=is_notable,
        )
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
    if pairs := diagnosis.get("equal_answers"):  # of half of the prompts or more
        most = pairs[0]
        yield Check(
            name="equal_answers",
            state=PASSED,
            is_notable=True,
            value=most["n_equal"] / most["n_prompts"],
            n=most["n_equal"],
            of=most["n_prompts"],
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


def _of_family(diagnosis: Mapping[str, Any], leaders: Sequence[str]) -> Iterator[Check]:
    """Whether the best is of the judge's family and a rival is not: then a lead may be the judge's
    preference for its own (self-preference). An audit by labelled pairs may have found none."""
    if (kin := diagnosis.get("kin")) is None:
        return
    results = (diagnosis.get("audit") or {}).get("results", ())
    on_kin = [r["verdict"] for r in results if r["probe"].partition(":")[0] == "self"]
    is_unbiased = bool(on_kin) and set(on_kin) == {"ok"}
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


def _of_model(diagnosis: Mapping[str, Any]) -> Iterator[Check]:
    if residuals := diagnosis.get("pair_residuals"):
        worst = max(residuals, key=lambda row: abs(row["observed"] - row["expected"]))
        value = worst["observed"] - worst["expected"]
        yield Check(
            name="fit",
            state=PASSED,
            is_notable=abs(value) > MISFIT,
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
            is_notable=p is not None and p <= ALPHA,
        )
    if cycles and cycles["n_triples"]:
        n, of = cycles["n_cyclic_prompts"], cycles["n_prompts"]
        yield Check(
            name="cycles", state=PASSED, value=n / of if of else None, n=n, of=of
        )
