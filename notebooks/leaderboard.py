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
# Set `ELO_EXP_RUN` to the folder of a tournament of yours, or of an `experiment=rate`. Without it, the demo is run:
# four probes, whose right order is known, judged by a baseline that counts words and, on a fifth of the comparisons,
# prefers whatever is shown first.
#
# Every number here is in the run's `ratings.json`; one that is not known is shown as `-`.

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


def number(value, form=".0f"):
    return "-" if value is None else f"{value:{form}}"


def between(low, high):
    return "-" if low is None else f"{number(low)} .. {number(high)}"


ran = run.manifest
if "judge_model" in ran:
    print(
        f"{len(ran['entrants'])} entrants, {ran['selected_prompt_count']} prompts, judge {ran['judge_model']}"
    )
else:
    print(f"{ran['n_battles']} recorded battles; this run asked no judge")

# %% [markdown]
# ## The leaderboard
#
# Bradley-Terry does not depend on the order of the battles. The interval says how far another draw of prompts might
# move the rating; the ranks are those that the prompts leave possible, for all entrants at once. Where there is
# no rating, the reason stands in its place, such as `winless`.

# %%
for dimension in run.dimensions:
    display(Markdown(f"**{dimension}**"))
    table(
        ["entrant", "rating", "95 %", "ranks", "chance to be best"],
        [
            (
                r.model,
                r.flag or number(r.rating),
                between(r.ci_low, r.ci_high),
                between(r.rank_low, r.rank_high),
                number(r.p_best, ".0%"),
            )
            for r in run.board("bradley_terry", dimension).values()
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
            *(
                d["dimension"],
                d["higher"],
                d["lower"],
                number(d["difference"]),
                between(d["ci_low"], d["ci_high"]),
            ),
            *(
                number(d["p_holm"], ".1g"),
                {True: "yes", False: "no", None: "-"}[d["significant"]],
            ),
        )
        for d in run.ratings["differences"].get("bradley_terry", ())
    ],
)

# %% [markdown]
# ## Did I ask enough?
#
# The difference that this run detects with 80 % power, by its own variance over prompts, and how many
# prompts a difference of 40 points takes where all pairs are tested, as in the report. A smaller
# difference that is not significant has not been shown to be absent.

# %%
table(
    ["dimension", "prompts", "finds a difference of, points", "prompts for 40 points"],
    [
        (
            p["dimension"],
            number(p["n_prompts"]),
            number(p["detectable"]),
            number(p["prompts_needed_corrected"].get("40")),
        )
        for p in run.ratings["precision"].get("bradley_terry", ())
    ],
)

# %%
figure("power")

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
drawn, axes = plt.subplots(
    1, len(run.dimensions), figsize=(3.2 * len(run.dimensions), 3.2), squeeze=False
)
for axis, dimension in zip(axes[0], run.dimensions, strict=True):
    elo = run.board("elo", dimension)
    for fitted in run.board("bradley_terry", dimension).values():
        if fitted.rating is not None and fitted.model in elo:
            played = elo[fitted.model]
            half = [
                error and 1.96 * error for error in (played.std_error, fitted.std_error)
            ]
            axis.errorbar(fitted.rating, played.rating, *half, fmt="o")
    axis.set(
        title=dimension,
        xlabel="Bradley-Terry",
        ylabel="Elo" if axis is axes[0][0] else "",
    )
    axis.axline((start, start), slope=1, color="grey", linewidth=0.8)
drawn.tight_layout()
plt.show()
