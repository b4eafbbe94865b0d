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
# # Who is better, and how sure may I be?
#
# Set `ELO_EXP_RUN` to the folder of a tournament of yours. Without it, the demo is run: four probes, whose right
# order is known, judged by a baseline that counts words and, on a fifth of the comparisons, prefers whatever is shown
# first.
#
# Every number here is in the run's `ratings.json`.

# %%
import os
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
from IPython.display import Image, Markdown, display

from elo_exp import runs

folder = os.environ.get("ELO_EXP_RUN")
if folder is None:
    folder = tempfile.mkdtemp()
    made = [f"hydra.run.dir={folder}", f"cache_dir={folder}/cache", "tracker=local", "judge.position_effect=0.2"]
    subprocess.run([sys.executable, "-m", "elo_exp", *made], check=True, capture_output=True)
(run,) = runs.read([folder]).runs


def table(head, lines):
    cells = [head, ["---"] * len(head), *lines]
    display(Markdown("\n".join(f"| {' | '.join(map(str, line))} |" for line in cells)))


def figure(name):
    display(Image(filename=run.folder / "figures" / f"{name}.png", width=940))


ran = run.manifest
print(f"{len(ran['entrants'])} entrants, {ran['selected_prompt_count']} prompts, judge {ran['judge_model']}")

# %% [markdown]
# ## The leaderboard
#
# Bradley-Terry does not depend on the order of the battles. The interval says how far another draw of prompts might
# move the rating; the ranks are those that the prompts leave possible, for all entrants at once.

# %%
for dimension in run.dimensions:
    display(Markdown(f"**{dimension}**"))
    table(
        ["entrant", "rating", "95 %", "ranks", "chance to be best"],
        [
            (
                r.model,
                f"{r.rating:.0f}",
                f"{r.ci_low:.0f} .. {r.ci_high:.0f}",
                f"{r.rank_low} .. {r.rank_high}",
                f"{r.p_best:.0%}",
            )
            for r in run.board("bradley_terry", dimension).values()
            if r.rating is not None
        ],
    )

# %%
figure("ratings")

# %% [markdown]
# ## Which differences hold?
#
# Bars that overlap say nothing: ratings vary together, so a difference has an error of its own. *p* is adjusted for
# having looked at every pair in every dimension (Holm).

# %%
table(
    ["dimension", "better", "than", "by", "95 %", "p", "holds"],
    [
        (
            *(d["dimension"], d["higher"], d["lower"], f"{d['difference']:.0f}"),
            *(f"{d['ci_low']:.0f} .. {d['ci_high']:.0f}", f"{d['p_holm']:.1g}", "yes" if d["significant"] else "no"),
        )
        for d in run.ratings["differences"]["bradley_terry"]
    ],
)

# %%
figure("differences")

# %% [markdown]
# ## Did I ask enough?
#
# What this run would have found four times in five, by its own scatter over prompts, and how many prompts a
# difference of 40 points takes. A difference that is smaller and does not hold has not been shown to be absent.

# %%
table(
    ["dimension", "prompts", "finds a difference of", "prompts for 40 points"],
    [
        (p["dimension"], p["n_prompts"], f"{p['detectable']:.0f} points", p["prompts_needed"]["40"])
        for p in run.ratings["precision"]["bradley_terry"]
    ],
)

# %% [markdown]
# ## Who beats whom?

# %%
figure("pairwise_winrates")

# %% [markdown]
# ## The same by Elo
#
# Elo plays only what both orders agree on, which stretches the gaps of a noisy judge. The two should agree on the
# order.

# %%
start = ran["config"]["elo"]["initial_rating"]
drawn, axes = plt.subplots(1, len(run.dimensions), figsize=(3.2 * len(run.dimensions), 3.2), squeeze=False)
for axis, dimension in zip(axes[0], run.dimensions, strict=True):
    elo = run.board("elo", dimension)
    both = [
        (r, elo[r.model]) for r in run.board("bradley_terry", dimension).values() if r.rating and elo[r.model].rating
    ]
    for bradley_terry, by_elo in both:
        axis.errorbar(
            bradley_terry.rating, by_elo.rating, 1.96 * by_elo.std_error, 1.96 * bradley_terry.std_error, fmt="o"
        )
    axis.set(title=dimension, xlabel="Bradley-Terry", ylabel="Elo" if axis is axes[0][0] else "")
    axis.axline((start, start), slope=1, color="grey", linewidth=0.8)
drawn.tight_layout()
plt.show()
