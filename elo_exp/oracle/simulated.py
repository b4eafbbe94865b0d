"""The oracle experiment's demonstration: policies whose values and log-probabilities are known.

Each policy draws one of six answers to a prompt: those of the four probes, the question itself with
a flourish, and a refusal. The judge, who does not see the reference, loves the question; the oracle
compares answers with the reference. So cheap scores and labels rank the policies differently, and
what calibration can mend and what it cannot is seen at once.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elo_exp import arrays
from elo_exp.arrays import Array
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
    for name in _SHARES:
        chances = np.exp(logp[name][prompt]).cumsum(axis=1)
        chosen = (chances < rng.random((len(prompt), 1))).sum(axis=1)
        at = prompt, np.minimum(chosen, len(_STYLES) + 1)
        is_logging = name == logging_policy
        logprobs: dict[str, Any] = {}
        labelled = np.full(len(prompt), all_labelled)
        if is_logging:
            labelled |= rng.random(len(prompt)) < _LABELLED
            by_policy = {target: logp[target][at] for target in targets}
            logprobs["total_logprob"] = logp[name][at]
            logprobs["target_logps"] = arrays.rows(**by_policy)
        rows = arrays.rows(
            prompt_id=[prompts[i].prompt_id for i in prompt],
            prompt=[prompts[i].text for i in prompt],
            response=answers[at],
            policy=name,
            judge_score=np.round(np.round(score[at] / _SCORE_STEP) * _SCORE_STEP, 2),
            draw_idx=np.arange(len(prompt)) % _N_DRAWS,
            oracle_label=np.where(labelled, label[at], np.nan),
            **logprobs,
        )
        file = "logged.jsonl" if is_logging else f"fresh/{name}.jsonl"
        write_jsonl(folder / file, rows)
    value = {name: (np.exp(lp) * label).sum(axis=1).mean() for name, lp in logp.items()}
    truth = {name: {"mean": float(v), "std_error": 0.0} for name, v in value.items()}
    return {
        "logged": folder / "logged.jsonl",
        "fresh_dir": folder / "fresh",
        "truth": write_json(folder / "truth.json", truth),
    }


def _answers(prompts: Sequence[Prompt], bank_path: Path) -> NDArray[np.object_]:
    """(prompts, answers) texts: those of the probes, the question and a refusal."""
    probes = [
        ProbeEntrant(
            entrant_id=style,
            style=style,
            lapse_style=style,
            lapse_rate=0.0,
            bank_path=str(bank_path),
        )
        for style in _STYLES
    ]
    columns = [[r.response_text for r in probe.generate(prompts)] for probe in probes]
    columns.append([f"Certainly. {prompt.text}" for prompt in prompts])
    columns.append(["I cannot say."] * len(prompts))
    return np.array(columns, dtype=object).T


def _values(
    prompts: Sequence[Prompt],
    answers: NDArray[np.object_],
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
