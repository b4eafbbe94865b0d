# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How much of an Elo rating is the order of the battles?
#
# Elo goes through the battles one by one, and where it ends depends on the order. So it is averaged over many orders.
# This notebook looks at the single orders, at what is left after averaging, and at K.
#
# Set `ELO_EXP_RUN` to the folder of a tournament of yours, or of an `experiment=rate`; without it, the demo is run.
# Boubdir et al., *Elo Uncovered* (2023), asked these questions first.

# %%
import json
import os
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, Markdown, display

from elo_exp import runs

folder = os.environ.get("ELO_EXP_RUN")
if folder is None:
    folder = tempfile.mkdtemp()
    made = [
        f"hydra.run.dir={folder}",
        f"cache_dir={folder}/cache",
        "tracker=local",
        "judge.position_effect=0.2",
    ]
    subprocess.run(
        [sys.executable, "-m", "elo_exp", *made], check=True, capture_output=True
    )
(run,) = runs.read([folder]).runs


def table(head, lines):
    cells = [head, ["---"] * len(head), *lines]
    text = "\n".join(f"| {' | '.join(map(str, line))} |" for line in cells)
    display(Markdown(text if lines else "*This run has none of these.*"))


def figure(name):
    path = run.folder / "figures" / f"{name}.png"
    display(
        Image(filename=path, width=940)
        if path.is_file()
        else Markdown(f"*This run has no figure `{name}`.*")
    )


def number(value, form):
    return "-" if value is None else f"{value:{form}}"


results = json.loads((run.folder / "elo_results.json").read_text(encoding="utf-8"))
orders = np.load(run.folder / "elo_per_perm.npz")
print(f"K = {results['default_k']:g}, {run.manifest['n_perms']} orders")

# %% [markdown]
# ## Had you played the battles once
#
# Each count is an order of the same battles. Where two entrants overlap, some orders put the worse one first.

# %%
played = [dimension for dimension in run.dimensions if f"{dimension}__data" in orders]
for dimension in run.dimensions:
    if dimension not in played:
        display(Markdown(f"*{dimension} has no Elo: there was no match to play.*"))

if played:
    drawn, axes = plt.subplots(
        1, len(played), figsize=(3.6 * len(played), 3), squeeze=False
    )
    for axis, dimension in zip(axes[0], played, strict=True):
        data = orders[f"{dimension}__data"]
        bins = np.linspace(data.min(), data.max(), 60)
        for column, entrant in enumerate(orders[f"{dimension}__entrants"]):
            axis.hist(data[:, column], bins, alpha=0.6, label=entrant)
        axis.set(title=dimension, xlabel="Elo in one order", yticks=[])
    axes[0][0].legend(fontsize=7)
    drawn.tight_layout()
    plt.show()

# %%
lines = []
for dimension in played:
    for column, entrant in enumerate(orders[f"{dimension}__entrants"]):
        one = orders[f"{dimension}__data"][:, column]
        mean = results["primary"][dimension][entrant]
        lines.append(
            (
                dimension,
                entrant,
                f"{one.min():.0f} .. {one.max():.0f}",
                f"{mean['mean']:.1f}",
                f"{mean['sem']:.2f}",
            )
        )
table(["dimension", "entrant", "single orders", "their mean", "± SEM"], lines)

# %% [markdown]
# ## The mean settles
#
# The SEM shrinks with the root of the number of orders: it is the error of averaging, and you may make it as small as
# you like.

# %%
figure("permutation_traces")

# %% [markdown]
# ## What more orders cannot shrink
#
# Other prompts would have given other battles. That error is many times the SEM, and only more prompts make it
# smaller: never publish the SEM as if it were the error of a rating.

# %%
table(
    ["dimension", "entrant", "error of averaging", "error over prompts"],
    [
        (
            dimension,
            r.model,
            number(r.ordering_error, ".2f"),
            number(r.std_error, ".1f"),
        )
        for dimension in run.dimensions
        for r in run.board("elo", dimension).values()
    ],
)

# %% [markdown]
# ## K
#
# A small K has not left the start when the battles end: the gaps are too small. A large K forgets all but the last
# battles: single orders scatter. The order of the entrants should not depend on it.

# %%
figure("k_sensitivity")

# %%
lines = []
for dimension in run.dimensions:
    for k, board in results["k_sensitivity"][dimension].items():
        best = sorted(board, key=lambda name: -board[name]["mean"])
        gap = board[best[0]]["mean"] - board[best[-1]]["mean"]
        lines.append((dimension, k, " > ".join(best), f"{gap:.0f}"))
table(["dimension", "K", "order", "first to last, points"], lines)
