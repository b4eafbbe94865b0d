"""The oracle experiment's demonstration: policies whose values and log-probabilities are known.

Each policy draws one of six answers to a prompt: those of the four probes, the question itself with
a flourish, and a refusal. The judge, who does not see the reference, loves the question; the oracle
compares answers with the reference. So cheap scores and labels rank the policies differently, and
what calibration can mend and what it cannot is seen at once.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from elo_exp import arrays
from elo_exp.arrays import Array
from elo_exp.data import bank
from elo_exp.entrants.probe import ProbeEntrant, Style
from elo_exp.files import write_json, write_jsonl
from elo_exp.judges.lexical import letter_similarity, overlap, specificity
from elo_exp.records import Item, Prompt

_PROBE_STYLES: tuple[Style, ...] = ("reference", "hedged", "partial", "swapped")
# Shares of reference, hedged, partial, swapped, the question and a refusal. The first one logs.
_ANSWER_SHARES_BY_POLICY = {
    "base": (0.25, 0.25, 0.22, 0.20, 0.05, 0.03),
    "clone": (0.25, 0.25, 0.22, 0.20, 0.05, 0.03),
    "tuned": (0.36, 0.26, 0.20, 0.13, 0.03, 0.02),
    "terse": (0.10, 0.05, 0.75, 0.07, 0.02, 0.01),
    "poser": (0.10, 0.10, 0.08, 0.15, 0.56, 0.01),  # flatters the judge
    "shrug": (0.005, 0.005, 0.005, 0.005, 0.01, 0.97),
}
# Between prompts
_TILT_SD_LOG_ODDS = 0.4
_N_DRAWS_PER_PROMPT = 7
_LABEL_SHARE_OF_LOGGED = 0.25
_SCORE_STEP = 0.02


def write_demo(
    folder: Path, bank_path: str, *, seed: int, all_labelled: bool = False
) -> dict[str, Any]:
    """Draw answers of all policies, and write them with the policies' true values.

    all_labelled  also those that are no part of the logged slice
    Returns the arguments of `read_dataset` and the path of the true values, `truth`.
    """
    prompts = bank.load_referenced_texts(Path(bank_path), "oracle")
    answer, score, label = _make_answers(prompts, bank_path)
    rng = np.random.default_rng(seed)
    tilt = rng.normal(0.0, _TILT_SD_LOG_ODDS, label.shape)
    logp = {  # (prompts, answers); a policy of one answer alone is never tilted
        name: scipy.special.log_softmax(
            np.log(shares) + tilt * (max(shares) < 0.9), axis=1
        )
        for name, shares in _ANSWER_SHARES_BY_POLICY.items()
    }
    prompt = np.repeat(np.arange(len(prompts)), _N_DRAWS_PER_PROMPT)
    logging_policy, *targets = _ANSWER_SHARES_BY_POLICY
    for name in _ANSWER_SHARES_BY_POLICY:
        chances = np.exp(logp[name][prompt]).cumsum(axis=1)
        answer_index = (chances < rng.random((len(prompt), 1))).sum(axis=1)
        index = prompt, np.minimum(answer_index, label.shape[1] - 1)
        file, logprobs = f"fresh/{name}.jsonl", {}
        labelled = np.full(len(prompt), all_labelled)
        if name == logging_policy:
            file = "logged.jsonl"
            labelled |= rng.random(len(prompt)) < _LABEL_SHARE_OF_LOGGED
            logp_by_target = {target: logp[target][index] for target in targets}
            logprobs["total_logprob"] = logp[name][index]
            logprobs["target_logps"] = arrays.make_rows(**logp_by_target)
        rows = arrays.make_rows(
            prompt_id=[prompts[i].prompt_id for i in prompt],
            prompt=[prompts[i].text for i in prompt],
            response=answer[index],
            policy=name,
            judge_score=np.round(np.round(score[index] / _SCORE_STEP) * _SCORE_STEP, 2),
            draw_idx=np.arange(len(prompt)) % _N_DRAWS_PER_PROMPT,
            oracle_label=np.where(labelled, label[index], np.nan),
            **logprobs,
        )
        write_jsonl(folder / file, rows)
    truth = {
        name: {"mean": (np.exp(lp) * label).sum(axis=1).mean(), "std_error": 0.0}
        for name, lp in logp.items()
    }
    return {
        "logged": folder / "logged.jsonl",
        "fresh_dir": folder / "fresh",
        "truth": write_json(folder / "truth.json", truth),
    }


def _make_answers(
    prompts: Sequence[Prompt], bank_path: str
) -> tuple[NDArray[np.object_], Array, Array]:
    """Return texts, scores and labels in [0, 1], each (prompts, answers).

    The answers are those of the probes, the question and a refusal; judge and oracle compare words,
    as `lexical` does.
    """
    probes = [
        ProbeEntrant(
            entrant_id=style,
            style=style,
            lapse_style=style,
            lapse_rate=0.0,
            bank_path=bank_path,
        )
        for style in _PROBE_STYLES
    ]
    rows = []
    for prompt in prompts:
        texts = [probe.answer(prompt) for probe in probes]
        item = Item(
            prompt_id=prompt.prompt_id,
            dimension="factuality",
            source=prompt.source,
            prompt_text=prompt.text,
            entrant_id="",
            response_text="",
        )
        item_with_gold = replace(item, gold_answer=prompt.gold_answer)
        rows += [
            (
                text,
                (specificity(item, text) + letter_similarity(item, text)) / 2,
                (
                    overlap(item_with_gold, text)
                    + letter_similarity(item_with_gold, text)
                )
                / 2,
            )
            for text in (*texts, f"Certainly. {prompt.text}", "I cannot say.")
        ]
    table = np.array(rows, dtype=object).reshape(len(prompts), -1, 3)
    text, score, label = np.moveaxis(table, -1, 0)
    return text, score.astype(float), label.astype(float)
