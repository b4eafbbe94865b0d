"""What is unusual about an entrant's answers, seen without any judge.

The limits lie above all but gamed systems among 227 that answered the 805 prompts of AlpacaEval.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.formatting import format_percent
from elo_exp.records import Response

# The share of answers from which on a check is flagged; that of three, where they are few.
MIN_FLAGGED_SHARES: Mapping[str, float] = {
    "one_text": 0.02,
    "repeated": 0.05,
    "phrases": 0.05,
    "loops": 0.05,
    "short": 0.10,
    "refused": 0.20,
}
# What each is called in a sentence
ODD_ANSWER_KINDS = {
    "one_text": "the same text",
    "repeated": "repeated texts",
    "phrases": "boilerplate",
    "loops": "repetition loops",
    "short": "under three words",
    "refused": "refusals",
}
_MIN_ANSWERS = 3
_MIN_WORDS = 3
_WORDS_PER_RUN = 8
# An answer repeats itself if it has so many runs and such a share of them occurred before in it
_MIN_REPEATED_SHARE, _MIN_RUNS = 0.5, 16
# Runs are compared between answers only in the beginning of each
_MAX_WORDS_COMPARED = 120
_REFUSAL = re.compile(
    r"(i'?m sorry,? but i|i apologi[sz]e,? but i|sorry,? i|i)"
    r" (can'?t|can ?not|am unable to|am not able to|won'?t)"
    r" (help|assist|answer|provide|comply|respond|do that|discuss|fulfil|give)",
    re.IGNORECASE,
)


def _repeats_itself(answer: Sequence[str]) -> bool:
    """Return whether an answer, given as words, repeats itself."""
    runs = list(zip(*(answer[i:] for i in range(_WORDS_PER_RUN)), strict=False))
    n_repeated = len(runs) - len(set(runs))
    return len(runs) >= _MIN_RUNS and n_repeated >= _MIN_REPEATED_SHARE * len(runs)


def check_responses(model: str, responses: Mapping[Any, Response]) -> dict[str, Any]:
    """Check what an entrant's answers have in common; texts are compared without case and punctuation.

    What several answers to one prompt have in common says nothing against them: it counts once.

    Parameters
    ----------
    model : str
        The entrant's name.
    responses : mapping to Response
        By prompt and draw.

    Returns
    -------
    dict
        A row of `responses` of ratings.json:

        one_text   share of the answers that are its most frequent text, which begins with `text`
        repeated   share of the answers whose text occurs twice or more
        phrases    share of the runs of eight words that stand in 5% of its answers, and three at least
        loops      share of the answers that repeat themselves: half of their runs of eight words, or more,
                   occurred before in the same answer
        short      share of the answers of fewer than three words
        refused    share of the answers that the API calls a refusal, or that begin as refusals do
        n_cut_off  answers at the limit of their length
        flags      the checks whose limit, in `MIN_FLAGGED_SHARES`, is reached, and by three answers at least
    """
    words = [re.findall(r"\w+", r.response_text.lower()) for r in responses.values()]
    prompt_ids = [r.prompt_id for r in responses.values()]
    distinct_answers = dict.fromkeys(zip(prompt_ids, map(" ".join, words), strict=True))
    texts = Counter(text for _, text in distinct_answers if text)
    ((text, n_one_text),) = texts.most_common(1) or [("", 0)]
    n, n_texts = max(len(responses), 1), max(len(distinct_answers), 1)
    min_answers = max(
        _MIN_ANSWERS, MIN_FLAGGED_SHARES["phrases"] * len(set(prompt_ids))
    )
    prompt_runs = {
        (prompt, run)
        for prompt, answer in zip(prompt_ids, words, strict=True)
        for run in zip(
            *(answer[i:_MAX_WORDS_COMPARED] for i in range(_WORDS_PER_RUN)),
            strict=False,
        )
    }
    runs = Counter(run for _, run in prompt_runs)
    n_common = sum(count for count in runs.values() if count >= min_answers)
    is_refused = [
        r.finish_reason == "refusal" or bool(_REFUSAL.match(r.response_text.strip()))
        for r in responses.values()
    ]
    shares = {
        "one_text": n_one_text / n_texts,
        "repeated": sum(count for count in texts.values() if count > 1) / n_texts,
        "phrases": n_common / max(runs.total(), 1),
        "loops": sum(map(_repeats_itself, words)) / n,
        "short": sum(len(answer) < _MIN_WORDS for answer in words) / n,
        "refused": sum(is_refused) / n,
    }
    n_answers = {"one_text": n_texts, "repeated": n_texts}
    return {
        "model": model,
        "n_responses": len(responses),
        **shares,
        "n_cut_off": sum(r.finish_reason == "length" for r in responses.values()),
        "text": text[:80] if n_one_text > 1 else None,
        "flags": [
            name
            for name, limit in MIN_FLAGGED_SHARES.items()
            if shares[name] >= max(limit, _MIN_ANSWERS / n_answers.get(name, n))
        ],
    }


def describe_odd_answers(odd: Mapping[str, Mapping[str, float]]) -> str:
    """Say what is unusual about the answers of models, and about what share of them.

    Parameters
    ----------
    odd : mapping of str to mapping of str to float
        Shares by model and kind, such as {"c": {"refused": 0.26}}.

    Returns
    -------
    str
        Such as "refusals: c 26%"; empty if nothing is unusual.
    """
    kinds = []
    for kind, label in ODD_ANSWER_KINDS.items():
        shares = [
            f"{model} {format_percent(flags[kind])}"
            for model, flags in odd.items()
            if kind in flags
        ]
        if shares:
            kinds.append(f"{label}: {', '.join(shares)}")
    return "; ".join(kinds)
