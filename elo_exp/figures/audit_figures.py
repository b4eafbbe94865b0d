"""The figure of an audit: every bias, with a band for the accepted range."""

from collections.abc import Sequence

import matplotlib

from elo_exp.figures import figure_kinds, style
from elo_exp.figures.style import GREEN, SOFT, Row, grouped, make_panels, render_plot
from elo_exp.records import Plot

# In the order of the palette: blue, vermilion, green
_VERDICTS = ("cannot tell", "biased", "ok")


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def plots(rows: Sequence[Row], delta: float) -> list[Plot]:
    """Draw a line for each bias, worst on top. Rows are those of audit.csv."""
    bias_rows = [row for row in rows if row["kind"] == "bias" and row["n"]]
    if not bias_rows:
        return []
    names = {row["probe"]: row["probe"] for row in bias_rows}
    by_dimension, size = (
        grouped(bias_rows, "dimension"),
        figure_kinds.panel_size(len(names)),
    )
    figure, axes = make_panels(by_dimension, "preference for x (0: none)", size=size)
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
    caption = (
        "Share of verdicts for x, minus a half or minus the share for its control, with the 90% interval over prompts. "
        "The band is the accepted range."
    )
    return [render_plot("audit", figure, bias_rows, "Biases of the judge", caption)]
