"""The figure of an audit: every bias with the band of what is ok."""

from collections.abc import Sequence

import matplotlib

from elo_exp.figures import figure_kinds, style
from elo_exp.figures.style import GREEN, SOFT, Row, grouped, make_panels, render_plot
from elo_exp.records import Plot

# In the order of the palette: blue, vermilion, green
_VERDICTS = ("cannot tell", "biased", "ok")


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def plots(rows: Sequence[Row], delta: float) -> list[Plot]:
    """Draw a line for each bias, the worst on top. A row is one of audit.csv."""
    bias_rows = [row for row in rows if row["kind"] == "bias" and row["n"]]
    if not bias_rows:
        return []
    names = {row["probe"]: row["probe"] for row in bias_rows}
    by_dimension, size = (
        grouped(bias_rows, "dimension"),
        figure_kinds.panel_size(len(names)),
    )
    figure, axes = make_panels(by_dimension, "how far x is preferred", size=size)
    numbers = "estimate", "low", "high"
    for ax, panel_rows in axes:
        ax.axvspan(-delta, delta, color=GREEN, alpha=0.12, lw=0)
        ax.axvline(0, color=SOFT, lw=0.8)
        figure_kinds.draw_intervals(
            ax,
            panel_rows,
            names,
            "verdict",
            _VERDICTS,
            line_column="probe",
            numbers=numbers,
        )
    caption = "Preference for x beyond a half, or beyond the control, with its 90% interval over prompts. The band is ok."
    return [
        render_plot(
            "audit", figure, bias_rows, "How far can the judge be trusted?", caption
        )
    ]
