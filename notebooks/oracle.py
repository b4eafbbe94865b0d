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
# # What cheap scores say of policies
#
# A logging policy has answered prompts. A cheap judge has scored its answers, an oracle has labelled half of them. What
# would the oracle say of other policies, and which of these numbers may be believed?
#
# The policies of this demo are language models of random weights. What they say is noise; how they differ is known:
#
# | policy | |
# |---|---|
# | `tiny_base` | the logging policy |
# | `tiny_clone` | the same |
# | `tiny_unhelpful` | the same model with another system prompt |
# | `tiny_premium` | another model |
#
# Set `ELO_EXP_RUN` to the folder of a run of yours to read the same of it. Nothing is computed here: every number and
# every picture is what `python -m elo_exp experiment=oracle` has written.

# %%
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from IPython.display import Image, Markdown, display

POLICIES = "tiny_base,tiny_clone,tiny_unhelpful,tiny_premium"

run = Path(os.environ.get("ELO_EXP_RUN", "absent"))
if not (run / "estimates.json").is_file():
    folder = Path(tempfile.mkdtemp())
    run = folder / "run"
    made = [
        f"entrant=[{POLICIES}]",
        f"cache_dir={folder}/cache",
        f"hydra.run.dir={run}",
        "tracker=local",
    ]
    subprocess.run(
        [sys.executable, "-m", "elo_exp", "experiment=oracle", *made],
        check=True,
        capture_output=True,
    )


def read(name):
    return json.loads((run / name).read_text(encoding="utf-8"))


def rows(name):
    return [
        json.loads(line)
        for line in (run / name).read_text(encoding="utf-8").splitlines()
    ]


def table(head, lines):
    cells = [head, ["---"] * len(head), *lines]
    text = "\n".join(f"| {' | '.join(map(str, line))} |" for line in cells)
    display(Markdown(text if lines else "*This run has none of these.*"))


def number(value):
    return "-" if value is None else f"{value:.3f}"


def between(low, high):
    return "-" if low is None else f"{number(low)} .. {number(high)}"


def figure(name):
    path = run / "figures" / f"{name}.png"
    display(
        Image(filename=path, width=760)
        if path.is_file()
        else Markdown(f"*This run has no figure `{name}`.*")
    )


ran = read("manifest.json")
print(
    f"{ran['n_logged']} logged answers of {ran['logging_policy']}, {ran['n_labels']} of them labelled"
)
collected = "collection" in ran
if not collected:
    display(
        Markdown(
            "*This run read recorded answers: neither they nor their counts are in its folder.*"
        )
    )


# %% [markdown]
# ## One answer
#
# The logging policy drew some tokens. Every policy says how likely *it* was to draw the same ones, in nats. The clone
# says exactly the same; a policy for which the answer is much less likely will hardly count it.

# %%
said = {}
if collected:
    answer = next(
        row for row in rows("logged.jsonl") if row["oracle_label"] is not None
    )
    said = {answer["policy"]: answer["total_logprob"], **answer["target_logps"]}
    print(f"score {answer['judge_score']:.3f}, label {answer['oracle_label']:.3f}")
table(
    ["policy", "log-probability of the answer"],
    [(policy, number(value)) for policy, value in said.items()],
)

# %% [markdown]
# ## May the log-probabilities be trusted?
#
# Two checks end a run that fails them: an answer is as likely when its tokens are forced as it was when they were
# drawn, and a clone's weights are exactly 1.

# %%
info = read("dataset_info.json") if collected else {"checks": [], "policies": []}
table(
    ["compared", "answers", "furthest apart, in nats", "allowed"],
    [
        (c["differences"], c["n_checked"], f"{c['max_difference']:.1e}", c["allowed"])
        for c in info["checks"]
    ],
)

# %% [markdown]
# ## What there is
#
# Weights beyond 1/5 .. 5 say that a policy would hardly have given those answers.

# %%
table(
    [
        "policy",
        "answers",
        "weight 1",
        "weight beyond 5",
        "mean score",
        "labels",
        "mean label",
    ],
    [
        (
            *(
                p["policy"],
                p["n_responses"],
                p["n_exactly_one"],
                p["n_extreme"],
                number(p["scores"]["mean"]),
            ),
            *(p["labels"]["n"], number(p["labels"]["mean"])),
        )
        for p in info["policies"]
    ],
)

# %% [markdown]
# ## From scores to labels
#
# The labelled answers say what a score is worth. The curve holds for a policy as far as its scores lie where labels
# are.

# %%
figure("calibration")

# %% [markdown]
# ## How many answers the weights rest on
#
# A clone weighs all logged answers equally. Where a handful holds all the weight, reweighting can say nothing.

# %%
figure("weights")

# %% [markdown]
# ## What may be reported
#
# Every estimator says a value, or why it must not be used. `ips` and `snips` reweight the logged answers and stand or
# fall with the weights; `dr_cpo` and `direct` start from what the policy itself has answered.

# %%
table(
    ["policy", "estimator", "value", "95 %", "use", "why not"],
    [
        (
            *(
                e["policy"],
                e["estimator"],
                number(e["value"]),
                between(e["ci_low"], e["ci_high"]),
            ),
            *(e["status"], e["reason"]),
        )
        for e in read("estimates.json")
        if e["estimator"] in ("ips", "snips", "dr_cpo", "direct")
    ],
)

# %%
figure("estimates")
