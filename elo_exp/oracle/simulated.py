"""The oracle experiment's demonstration: policies whose values and log-probabilities are known.

Each policy draws one of six answers to a prompt: those of the four probes, the question itself with
a flourish, and a refusal. The judge, who does not see the reference, loves the question; the oracle
compares answers with the reference. So cheap scores and labels rank the policies differently, and
what calibration can mend and what it cannot is seen at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.arrays import Array, Index
from elo_exp.data import bank
from elo_exp.entrants.probe import ProbeEntrant, Style
from elo_exp.files import write_json, write_jsonl
from elo_exp.judges.lexical import letter_similarity, overlap, specificity
from elo_exp.records import Item, Prompt

_STYLES: tuple[Style, ...] = ("reference", "hedged", "partial", "swapped")
# Shares of reference, hedged, partial, swapped, the question and a refusal. The first one logs.
_SHARES = {
    "base": (0.25, 0.25, 0.22, 0.20, 0.05, 0.03),
    "clone": (0.25, 0.25, 0.22, 0.20, 0.05, 0.03),
    "tuned": (0.36, 0.26, 0.20, 0.13, 0.03, 0.02),
    "terse": (0.10, 0.05, 0.75, 0.07, 0.02, 0.01),
    "poser": (0.10, 0.10, 0.08, 0.15, 0.56, 0.01),  # flatters the judge
    "shrug": (0.005, 0.005, 0.005, 0.005, 0.01, 0.97),
}
_TILT = 0.4  # standard deviation of the log odds of an answer between prompts
_N_DRAWS = 7  # answers to each prompt
_LABELLED = 0.25  # of the logged answers
_SCORE_STEP = 0.02


def write(
    folder: Path, bank_path: Path, *, seed: int, all_labelled: bool = False
) -> dict[str, Any]:
    """Draw answers of all policies, and write them with the policies' true values.

    all_labelled  also those that are no part of the logged slice
    Returns the arguments of `read_dataset` and the path of the true values, `truth`.
    """
    prompts = [prompt for prompt in bank.load(bank_path) if prompt.gold_answer]
    answers = _answers(prompts, bank_path)
    score = _values(prompts, answers, shows_reference=False)
    label = _values(prompts, answers, shows_reference=True)
    rng = np.random.default_rng(seed)
    tilt = rng.normal(0.0, _TILT, label.shape)
    logp = {name: _log_shares(shares, tilt) for name, shares in _SHARES.items()}
    prompt = np.repeat(np.arange(len(prompts)), _N_DRAWS)
    logging_policy, *targets = _SHARES

    def rows(policy: str) -> tuple[Index, list[dict[str, Any]]]:
        chances = np.exp(logp[policy][prompt]).cumsum(axis=1)
        chosen = (chances < rng.random((len(prompt), 1))).sum(axis=1)
        chosen = np.minimum(chosen, len(_STYLES) + 1)
        step = np.round(score[prompt, chosen] / _SCORE_STEP) * _SCORE_STEP
        return chosen, [
            {
                "prompt_id": prompts[i].prompt_id,
                "prompt": prompts[i].text,
                "response": answers[i][k],
                "policy": policy,
                "judge_score": round(float(s), 2),
                "draw_idx": n % _N_DRAWS,
            }
            for n, (i, k, s) in enumerate(zip(prompt, chosen, step, strict=True))
        ]

    chosen, logged = rows(logging_policy)
    is_labelled = rng.random(len(logged)) < _LABELLED
    for i, row in enumerate(logged):
        at = prompt[i], chosen[i]
        has_label = all_labelled or is_labelled[i]
        row["oracle_label"] = float(label[at]) if has_label else None
        row["total_logprob"] = float(logp[logging_policy][at])
        row["target_logps"] = {name: float(logp[name][at]) for name in targets}
    write_jsonl(folder / "logged.jsonl", logged)
    for name in targets:
        chosen, draws = rows(name)
        for row, value in zip(draws, label[prompt, chosen].tolist(), strict=True):
            if all_labelled:
                row["oracle_label"] = value
        write_jsonl(folder / "fresh" / f"{name}.jsonl", draws)
    truth = {}
    for name in _SHARES:
        value = (np.exp(logp[name]) * label).sum(axis=1).mean()
        truth[name] = {"mean": float(value), "std_error": 0.0}
    return {
        "logged": folder / "logged.jsonl",
        "fresh_dir": folder / "fresh",
        "truth": write_json(folder / "truth.json", truth),
    }


def _answers(prompts: Sequence[Prompt], bank_path: Path) -> list[list[str]]:
    """Six answers to each prompt."""
    by_style = [
        ProbeEntrant(
            entrant_id=style,
            style=style,
            lapse_style=style,
            lapse_rate=0.0,
            bank_path=str(bank_path),
        ).generate(prompts)
        for style in _STYLES
    ]
    return [
        [
            *(made.response_text for made in probes),
            f"Certainly. {prompt.text}",
            _REFUSAL,
        ]
        for prompt, *probes in zip(prompts, *by_style, strict=True)
    ]


_REFUSAL = "I cannot say."


def _values(
    prompts: Sequence[Prompt],
    answers: Sequence[Sequence[str]],
    *,
    shows_reference: bool,
) -> Array:
    """(prompts, answers) scores in [0, 1] of a judge that compares words, as `lexical` gives them."""
    signal = overlap if shows_reference else specificity

    def value(prompt: Prompt, text: str) -> float:
        item = Item(
            prompt_id=prompt.prompt_id,
            dimension="factuality",
            source=prompt.source,
            prompt_text=prompt.text,
            entrant_id="",
            response_text=text,
            gold_answer=prompt.gold_answer if shows_reference else None,
        )
        return (signal(item, text) + letter_similarity(item, text)) / 2

    return np.array(
        [
            [value(prompt, text) for text in texts]
            for prompt, texts in zip(prompts, answers, strict=True)
        ]
    )


def _log_shares(shares: Sequence[float], tilt: Array) -> Array:
    """(prompts, answers) log-probabilities; a policy of one answer alone is never tilted."""
    logits = np.log(shares) + (tilt if max(shares) < 0.9 else 0.0 * tilt)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
