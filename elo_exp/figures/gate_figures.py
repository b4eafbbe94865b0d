"""The figure of a gate: each win rate with its bounds, and the range that passes."""

from collections.abc import Sequence

import matplotlib

from elo_exp.figures import figure_kinds, style
from elo_exp.figures.style import GREEN, SOFT, Row, format_label, render_plot
from elo_exp.records import Plot

_N_TICKS = 6


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def plots(rows: Sequence[Row], margin: float) -> list[Plot]:
    """Draw a line for each rubric.

    Parameters
    ----------
    rows : sequence of Row
        Rows of gate.json, with `dimension`, `share`, `low` and `high`.
    margin : float
        Loss that is tolerated, as share of points.

    Returns
    -------
    list of Plot
        Empty if no rubric has a win rate.
    """
    drawn = [{**row, "series": ""} for row in rows if row["share"] is not None]
    if not drawn:
        return []
    names = {row["dimension"]: format_label(row["dimension"]) for row in drawn}
    figure, ((ax, _),) = style.make_panels({"": None}, "win rate of the candidate")
    figure.set_figheight(1.0 + 0.3 * len(names))
    ax.axvspan(0.5 - margin, 1.5, color=GREEN, alpha=0.12, lw=0)
    ax.axvline(0.5, color=SOFT, lw=0.8)
    figure_kinds.draw_intervals(
        ax,
        drawn,
        names,
        "series",
        ("",),
        line_column="dimension",
        numbers=("share", "low", "high"),
    )
    ends = [
        row[end] for row in drawn for end in ("low", "high") if row[end] is not None
    ]
    ax.set_xlim(min(0.45 - margin, *ends) - 0.02, max(0.6, *ends) + 0.02)
    caption = (
        f"Win rate by rubric with its one-sided bounds. The lower bound must lie in the shaded range, above "
        f"{0.5 - margin:.3f}. The line at 0.5 means as good as the baseline."
    )
    return [
        render_plot("gate", figure, drawn, "Win rate against the baseline", caption)
    ]
