"""What a gate says, on the console, in gate.md and on its page."""

from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.gate import MIN_PROMPTS
from elo_exp.report.formats import count, names, number, percent


def verdict(conclusion: Conclusion) -> str:
    """Say what a gate concluded, and where it cannot tell, why and what would help."""
    subject, has_several = conclusion.subject, conclusion.scope.dimension is not None
    by = "By shared words " if conclusion.scope.kind == "words" else ""
    if conclusion.state == "same answers":
        return (
            f"{subject} gave the baseline's answer to all {count(conclusion.scope.n_prompts)} prompts: nothing to "
            "compare, and no judge was asked. Was the change applied?"
        )
    if conclusion.state == "pass":
        where = " in any dimension" if has_several else ""
        return f"{by}{subject} is not worse than the baseline by more than the margin{where}."
    if conclusion.state == "fail":
        where = f" in {names(conclusion.others)}" if has_several else ""
        return f"{by}{subject} is worse than the baseline{where}."
    (reason,) = conclusion.reasons
    if reason.name == "invalid":
        where = f"In {reason.about['dimension']}, " if has_several else ""
        return f"{where}{_invalid(reason, str(subject))}"
    help_by = {
        "few": f"A verdict takes at least {MIN_PROMPTS} prompts in each dimension.",
        "power": f"{count(int(reason.value or 0))} prompts would pass an equal candidate with 80 % power in "
        "each dimension.",
        "close": "These prompts would pass an equal candidate with over 80 % power in each dimension: it may be "
        "somewhat worse.",
    }
    return (
        f"It cannot be told whether {subject} is worse than the baseline by more than the margin. "
        f"{help_by[reason.name]}"
    )


def _invalid(reason: Reason, subject: str) -> str:
    about = reason.about
    share = percent(reason.value).replace("\N{NO-BREAK SPACE}", " ")
    told = f"{count(about['n_invalid'])} of {count(about['n_prompts'])} prompts ({share}) have no valid verdict."
    as_lost = f"Counted as lost, the share may be as low as {number(about['low'], 3)}"
    if about["would"] == "pass":
        return f"{told} {as_lost}; without them {subject} would pass."
    if about["would"] == "fail":
        as_won = (
            f"Counted as won, the share may be as high as {number(about['high'], 3)}"
        )
        return f"{told} {as_won}; without them {subject} would fail."
    return f"{told} {as_lost}; with so many, no number of prompts would pass an equal candidate."


def margin(share: float, elo: float | None, alpha: float) -> str:
    """Say how much worse a candidate may be. elo: the margin in points, where it was given so."""
    points = "" if elo is None else f" ({elo:g} Elo points)"
    return f"Margin {number(share, 3)} of the share of points{points}, one-sided bounds, alpha {alpha:g}."


def invalid(n_invalid: int) -> str:
    """Say what becomes of comparisons that have no valid verdict."""
    return (
        f"Comparisons without a valid verdict: {count(n_invalid)}, counted as lost in lower bounds and as won in "
        "upper ones."
    )


def rules(margin: float) -> list[str]:
    """Say what a share of points is, and which shares pass and fail."""
    return [
        "Share of points: 1 for a win, 1/2 for a tie, the mean over prompts with valid verdicts; 0.500 is as good as "
        "the baseline.",
        f"Pass: every lower bound above {number(0.5 - margin, 3)}. Fail: an upper bound below 0.500.",
    ]
