"""What a gate says, on the console, in gate.md and on its page."""

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.gate import MIN_PROMPTS
from elo_exp.report.formats import count, names, number


def verdict(conclusion: Conclusion) -> str:
    """Say what a gate concluded, and what would help where it cannot tell."""
    subject, has_several = conclusion.subject, conclusion.scope.dimension is not None
    if conclusion.state == "pass":
        where = " in any dimension" if has_several else ""
        return (
            f"{subject} is not worse than the baseline by more than the margin{where}."
        )
    if conclusion.state == "fail":
        where = f" in {names(conclusion.others)}" if has_several else ""
        return f"{subject} is worse than the baseline{where}."
    (reason,) = conclusion.reasons
    help_by = {
        "few": f"A verdict takes at least {MIN_PROMPTS} prompts in each dimension.",
        "power": f"{count(int(reason.value or 0))} prompts would pass an equal candidate with 80 % power in "
        "each dimension.",
        "close": "These prompts would pass an equal candidate with over 80 % power in each dimension: it may be "
        "somewhat worse.",
    }
    return (
        f"It cannot be told whether {subject} is worse than the baseline by more than the margin.\n"
        f"{help_by[reason.name]}"
    )


def terms(
    *,
    judge: str,
    orders: str,
    margin: float,
    margin_elo: float | None,
    alpha: float,
    dollars: float,
) -> list[str]:
    """Say who judged, how much worse a candidate may be, and what it cost."""
    elo = "" if margin_elo is None else f" ({margin_elo:g} Elo points)"
    return [
        f"Judge {judge}, orders: {orders}.",
        f"Margin {number(margin, 3)} of the share of points{elo}, one-sided bounds, alpha {alpha:g}.",
        f"Cost ${dollars:.2f}.",
    ]


def left_out(n_invalid: int) -> str:
    return (
        f"Comparisons without a valid verdict, which are left out: {count(n_invalid)}."
    )


def rules(margin: float) -> list[str]:
    """Say what a share of points is, and which shares pass and fail."""
    return [
        "Share of points: 1 for a win, 1/2 for a tie, the mean over prompts; 0.500 is as good as the baseline.",
        f"Pass: every lower bound above {number(0.5 - margin, 3)}. Fail: an upper bound below 0.500.",
    ]
