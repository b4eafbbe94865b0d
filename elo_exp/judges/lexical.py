"""A deterministic judge that compares words: a baseline, and the judge of offline runs.

It is shallow by design: it takes a correct paraphrase for an error, and rewards any text that
repeats the reference's words or lists plausible terms. It shows that the machinery works and what
a real judge must beat; its verdicts say nothing about medicine.
"""

import dataclasses
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from elo_exp.data.conversations import own_words
from elo_exp.files import utc_now
from elo_exp.judges import LEXICAL_MODEL, Judge
from elo_exp.records import Comparison, Item, JudgeReply, JudgeRequest, make_fingerprint
from elo_exp.types import CacheKey, Integer, JudgeKind, Share

Signal = Literal["overlap", "hedging", "specificity"]
# Part of every cache key: raise it when a signal changes
SIGNALS_VERSION = 1

_WORD_PATTERN = re.compile(r"[a-z0-9]+(?:[.'/%-][a-z0-9]+)*%?")
_STOP_WORDS = """
a about after all also an and are as at be because been before but by can could do does for from had
has have he her his how i if in into is it its may might more most my no not of on or our should so
such than that the their them then there these they this to was we were what when which while who
will with would you your
"""
_STOP_WORD_SET = frozenset(_STOP_WORDS.split())
_HEDGES = re.compile(
    r"\b(?:it depends|depends on|uncertain|not certain|hard to be certain|might|may|perhaps|"
    r"possibly|possible|opinions|unclear|conflicting|if these|likely|could be|reasonable)\b"
)
_REFUSALS = re.compile(
    r"\b(?:cannot (?:be )?answer|can't answer|unable to answer|cannot say|information is missing|"
    r"not enough information|would need|i do not know)\b"
)
_STOCK_PHRASES = re.compile(
    r"\b(?:consult (?:a|your) (?:doctor|physician|professional)|see your doctor|this may not apply "
    r"to everyone|opinions may differ|as an ai|other explanations are possible|before relying on "
    r"it)\b"
)
_COMMITMENT_BY_BEHAVIOR = {"answer": 0.0, "hedge": 0.5, "abstain": 1.0}


@dataclass(kw_only=True)
class LexicalJudge(Judge):
    """signals          dimension -> overlap, hedging or specificity
    default_signal   the signal of every other dimension
    margin           scores closer than this are a TIE, in [0, 1]
    position_effect  share of comparisons, drawn by hash, that the response shown first always wins

    A single response is scored by the mean of two signals: that of its dimension, or overlap where
    the reference is shown, and the similarity of its letters, which also scores random models'
    texts. A rubric that shows the reference therefore makes a better judge: an oracle.
    """

    kind: JudgeKind
    signals: dict[str, Signal]
    default_signal: Signal
    margin: Share
    position_effect: Share
    seed: Integer

    model = LEXICAL_MODEL
    key_fields = ("prompt_id",)  # for the draw of the position effect
    is_instant = True
    answers_criteria = False

    def cache_key(self) -> CacheKey:
        settings = dataclasses.asdict(self)
        del settings["kind"]  # which changes no verdict
        return {"judge": "lexical", "version": SIGNALS_VERSION, **settings}

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        return map(self._make_reply, requests)

    def _make_reply(self, request: JudgeRequest) -> JudgeReply:
        subject = request.subject
        signal = self.signals.get(subject.dimension, self.default_signal)
        if isinstance(subject, Item):
            answer = _score_response(
                request, signal if subject.gold_answer is None else "overlap"
            )
        else:
            answer = self._compare(subject, signal)
            if "score_a" not in request.schema:
                del answer["score_a"], answer["score_b"]
        return JudgeReply(
            key=request.key,
            text=json.dumps(answer),
            timestamp=utc_now(),
            judge_model=self.model,
            **request.names,
        )

    def _compare(self, comparison: Comparison, signal: str) -> dict[str, str | float]:
        texts = [
            own_words(comparison, x)
            for x in (comparison.response_a, comparison.response_b)
        ]
        a, b = (SIGNALS[signal](comparison, text) for text in texts)
        verdict = "A" if a > b else "B"
        if a == b or abs(a - b) < self.margin:
            verdict = "TIE"
        # drawn for the comparison, not for the order, so that both orders are affected
        key = [self.seed, comparison.dimension, comparison.prompt_id, sorted(texts)]
        if int(make_fingerprint(key)[:8], 16) / 2**32 < self.position_effect:
            verdict = "A"
        return {
            "score_a": 10 * a,
            "score_b": 10 * b,
            "evidence_a": f"score {a:.3f}",
            "evidence_b": f"score {b:.3f}",
            "verdict": verdict,
        }


def _score_response(request: JudgeRequest, signal: str) -> dict[str, str | float]:
    """Score on the request's scale, with an interval that narrows with the number of words: the
    whole scale for an empty response, a fifth of it at 64 words."""
    assert isinstance(request.subject, Item) and request.scale is not None
    (low, high), text = request.scale, request.subject.response_text
    likeness = letter_similarity(request.subject, text)
    value = (SIGNALS[signal](request.subject, text) + likeness) / 2
    half_width = 1 / (2 + math.sqrt(len(_WORD_PATTERN.findall(text.lower()))))
    start = min(max(value - half_width, 0.0), 1.0 - 2 * half_width)
    numbers = {"score": value, "low": start, "high": start + 2 * half_width}
    return {"evidence": f"{signal} and likeness {value:.3f}"} | {
        name: low + x * (high - low) for name, x in numbers.items()
    }


def overlap(subject: Comparison | Item, text: str) -> float:
    """Return F3 of the response's words against the reference's: recall counts nine times.

    Without a reference, the question takes its place.
    """
    reference_words = content_words(subject.gold_answer or subject.prompt_text)
    response_words = content_words(text)
    n_shared = len(reference_words & response_words)
    return (
        10 * n_shared / (9 * len(reference_words) + len(response_words))
        if n_shared
        else 0.0
    )


def hedging_score(subject: Comparison | Item, text: str) -> float:
    """Return how near the response's commitment is to the expected one, by default an answer."""
    degree = 1.0 if _REFUSALS.search(text.lower()) else is_hedged(text) / 2
    return 1.0 - abs(
        degree - _COMMITMENT_BY_BEHAVIOR[subject.expected_behavior or "answer"]
    )


def specificity(subject: Comparison | Item, text: str) -> float:
    """Return how much content there is on the question's topic, less for each stock phrase."""
    n_stock = len(_STOCK_PHRASES.findall(text.lower()))
    words = content_words(remove_hedges(text))
    n_on_topic = len(words & content_words(subject.prompt_text))
    return (
        len(words) / (len(words) + 15) * n_on_topic / (3 + n_on_topic) * 0.95**n_stock
    )


def letter_similarity(item: Item, text: str) -> float:
    """Return the cosine similarity of the counts of letter pairs in response and reference.

    Without a reference, the question takes its place.
    """
    texts = item.gold_answer or item.prompt_text, text
    letters_of_texts = [" ".join(re.findall("[a-z]+", text.lower())) for text in texts]
    reference_pairs, response_pairs = (
        Counter(itertools.pairwise(letters)) for letters in letters_of_texts
    )
    lengths = math.hypot(*reference_pairs.values()) * math.hypot(
        *response_pairs.values()
    )
    if not lengths:
        return 0.0
    return min(
        sum(n * response_pairs[pair] for pair, n in reference_pairs.items()) / lengths,
        1.0,
    )


SIGNALS: Mapping[str, Callable[[Comparison | Item, str], float]] = {
    "overlap": overlap,
    "hedging": hedging_score,
    "specificity": specificity,
}


def is_hedged(text: str) -> bool:
    return _HEDGES.search(text.lower()) is not None


def remove_hedges(text: str) -> str:
    """Return a text in lower case without its hedges and stock phrases."""
    return _HEDGES.sub(" ", _STOCK_PHRASES.sub(" ", text.lower()))


def content_words(text: str) -> frozenset[str]:
    """Return the distinct words in lower case, without stop words and without a plural s."""
    words = _WORD_PATTERN.findall(text.lower())
    return frozenset(
        w[:-1] if len(w) > 3 and w.endswith("s") else w
        for w in words
        if w not in _STOP_WORD_SET
    )
