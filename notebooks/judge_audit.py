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
# # May the judge be believed?
#
# Look at the judge before the ratings. Every comparison was asked in both orders: a judge that names the other
# response when they change places has been deciding by something else.
#
# Set `ELO_EXP_RUN` to the folder of a tournament of yours. Without it, the demo is run with a judge that is spoilt on
# purpose: on a fifth of the comparisons it prefers whatever is shown first.

# %%
import os
import subprocess
import sys
import tempfile
from collections import Counter

import matplotlib.pyplot as plt
from IPython.display import Image, Markdown, display

from elo_exp import runs
from elo_exp.files import read_jsonl

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


def share(value):
    return number(value, ".0%")


quality = run.manifest.get("judge_quality", [])
if not quality:
    display(
        Markdown(
            "*This run asked no judge: it has battles, but neither verdicts nor responses.*"
        )
    )


# %% [markdown]
# ## In numbers
#
# *first shown* should be 50 %. A tie is an answer; an invalid verdict is none, and counts nowhere.

# %%
table(
    ["dimension", "comparisons", "flipped", "first shown wins", "ties", "invalid"],
    [
        (
            *(q["dimension"], q["n_judgments"], share(q["flip_rate"])),
            *(
                share(q["first_shown_rate"]),
                share(q["tie_rate"]),
                share(q["invalid_rate"]),
            ),
        )
        for q in quality
    ],
)

# %% [markdown]
# ## The pull of the first place
#
# Between two equal responses the first shown should win half of the decisive verdicts.

# %%
table(
    ["dimension", "decisive verdicts", "first shown wins, of equals", "95 %"],
    [
        (
            *(
                dimension,
                found["position"]["n_decisive"],
                share(found["position"]["p_first"]),
            ),
            f"{share(found['position']['ci_low'])} to {share(found['position']['ci_high'])}",
        )
        for dimension, found in run.ratings["judge"].items()
    ],
)

# %% [markdown]
# ## The pull of length
#
# How often the longer response wins says little by itself: it may be the better one. The table has the ratings as
# they would be at equal length.

# %%
figure("length_effect")

# %%
table(
    ["dimension", "entrant", "characters", "rating", "at equal length"],
    [
        (
            *(row["dimension"], row["model"], number(row["mean_length"], ".0f")),
            *(
                number(row["rating"], ".0f"),
                number(row["rating_at_equal_length"], ".0f"),
            ),
        )
        for found in run.ratings["judge"].values()
        for row in found.get("length", {}).get("ratings", ())
    ],
)

# %% [markdown]
# ## Which prompts does it waver on?
#
# A judge that flips on some prompts and not on others finds these hard; one that flips everywhere alike has a habit.

# %%
dimensions = [q["dimension"] for q in quality]
judgments = {
    d: [row for _, row in read_jsonl(run.folder / "verdicts" / f"{d}.jsonl")]
    for d in dimensions
}
flips = {
    d: Counter(row["prompt_id"] for row in some if row["inconsistent"])
    for d, some in judgments.items()
}

if flips:
    drawn, axes = plt.subplots(
        1, len(flips), figsize=(3.2 * len(flips), 2.6), squeeze=False, sharey=True
    )
    for axis, (dimension, by_prompt) in zip(axes[0], flips.items(), strict=True):
        prompts = {row["prompt_id"] for row in judgments[dimension]}
        counts = Counter(by_prompt[prompt] for prompt in prompts)
        axis.bar(list(counts), list(counts.values()))
        axis.set(title=dimension, xlabel="flipped comparisons of a prompt")
    axes[0][0].set_ylabel("prompts")
    drawn.tight_layout()
    plt.show()

# %%
every = sum(flips.values(), Counter())
table(["prompt", "flipped comparisons"], every.most_common(8))

# %% [markdown]
# ## The most contested comparisons
#
# Of the prompt with the most flips, what the judge saw and what it said in either order. Read them: is it the judge,
# or are the responses equally good?

# %%
worst = every.most_common(1)[0][0] if every else None
contested = [
    row
    for some in judgments.values()
    for row in some
    if row["prompt_id"] == worst and row["inconsistent"]
]
if not contested:
    display(Markdown("*This run has none of these.*"))
for row in contested[:3]:
    one, other = row["entrant_a"], row["entrant_b"]
    display(Markdown(f"### {row['dimension']}, {worst}: {one} against {other}"))
    for entrant in (one, other):
        display(Markdown(f"**{entrant}**\n\n> {run.responses(entrant)[worst]}"))
    for verdict in row["raw"]:
        first = other if verdict["position_swap"] else one
        display(
            Markdown(
                f"{first} first: **{verdict['verdict']}** — {verdict['reasoning']}"
            )
        )

# %% [markdown]
# ## Does any ranking explain it?
#
# Where the ratings fit, the win rates lie on the diagonal; a test says whether they do but for chance. Intransitive
# triples: a beats b, b beats c, and c beats a.

# %%
figure("predicted_and_observed")

# %%
table(
    [
        "dimension",
        "p of the pairs, if a ranking explains them",
        "prompts with an intransitive triple",
    ],
    [
        (
            dimension,
            number(said["transitivity"]["p_value"], ".2g"),
            share(said["cycles"]["share"]),
        )
        for dimension, said in run.ratings["judge"].items()
    ],
)
