"""Entrants of known quality, made from the bank's references: for the demo and to audit a judge.

Each probe answers in its style, and in a second style on a share of the prompts drawn by hash. So
the order of the probes is known and yet none wins every match. In factuality, all claims come before
half of them and none; in calibration, settled questions need a plain answer; in clinical utility,
boilerplate and the wrong topic help nobody.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from elo_exp.data import bank
from elo_exp.entrants import Entrant
from elo_exp.errors import SettingError
from elo_exp.files import utc_now
from elo_exp.records import Prompt, Response, make_fingerprint
from elo_exp.types import CacheKey, Share

Style = Literal["reference", "hedged", "partial", "swapped"]
_STYLES_BEST_FIRST: Mapping[str, tuple[Style, ...]] = {
    "factuality": ("reference", "hedged", "partial", "swapped"),
    "calibration": ("reference", "partial", "swapped", "hedged"),
    "clinical_utility": ("reference", "hedged", "partial", "swapped"),
}
# What each style shows where the prompt expects an answer, a hedge or an abstention
_BEHAVIORS: Mapping[Style, tuple[str, str, str]] = {
    "reference": ("answer", "hedge", "abstain"),
    "hedged": ("hedge", "hedge", "hedge"),
    "partial": ("hedge", "answer", "hedge"),
    "swapped": ("abstain", "abstain", "answer"),
}
GoldsByPrompt = Mapping[str, tuple[str, ...]]  # of each turn, by prompt_id
PROBE_ENTRANT_VERSION = (
    1  # part of every cache key: raise it when a style's wording changes
)


@dataclass(kw_only=True)
class ProbeEntrant(Entrant):
    """lapse_rate  share of prompts answered in the lapse style
    bank_path   the bank of whose prompts `swapped` takes another one's answer
    """

    turns = True
    is_instant = True
    is_probe = True

    entrant_id: str
    style: Style
    lapse_style: Style
    lapse_rate: Share
    bank_path: str

    def known_rank(self, dimension: str) -> int | None:
        """Return the place among probes in a dimension that ships, from 0, best first."""
        order = _STYLES_BEST_FIRST.get(dimension)
        return order.index(self.style) if order else None

    @cached_property
    def _golds(self) -> tuple[GoldsByPrompt, GoldsByPrompt]:
        """The bank's gold answers: each prompt's own, and in its place the next one's; the last prompt has
        the first's."""
        prompts = bank.load_bank(Path(self.bank_path))
        golds = {
            p.prompt_id: p.gold_turns or (p.gold_answer,)
            for p in prompts
            if p.gold_answer
        }
        texts = list(golds.values())
        return golds, dict(zip(golds, texts[1:] + texts[:1], strict=True))

    def _find_gold(self, prompt: Prompt, *, swapped: bool) -> str | None:
        """Return the gold answer of the bank to a turn, or that of another prompt; None if there is none."""
        golds, other_golds = self._golds
        turns = golds.get(prompt.prompt_id)
        if turns is None:
            return None
        gold_turns = other_golds[prompt.prompt_id] if swapped else turns
        gold = prompt.gold_answer
        turn = turns.index(gold) if gold in turns else 0
        return gold_turns[min(turn, len(gold_turns) - 1)]

    @property
    def input_files(self) -> Mapping[str, Path]:
        return {"bank": Path(self.bank_path)}

    def cache_key(self, prompt: Prompt) -> CacheKey:
        return {
            "loader": "probe",
            "version": PROBE_ENTRANT_VERSION,
            "text": self.answer(prompt),
        }

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        for prompt in prompts:
            yield Response(
                entrant_id=self.entrant_id,
                prompt_id=prompt.prompt_id,
                response_text=self.answer(prompt),
                finish_reason="stop",
                diagnostics={"style": self._choose_style(prompt)},
                timestamp=utc_now(),
            )

    @property
    def _hash_name(self) -> str:
        return self.style

    def _choose_style(self, prompt: Prompt) -> Style:
        key = make_fingerprint([self._hash_name, prompt.prompt_id])
        is_lapse = int(key[:8], 16) / 2**32 < self.lapse_rate
        return self.lapse_style if is_lapse else self.style

    def answer(self, prompt: Prompt) -> str:
        style, gold = self._choose_style(prompt), prompt.gold_answer
        if gold is None:
            expected = _BEHAVIORS["reference"].index(
                prompt.expected_behavior or "answer"
            )
            return _behave(_BEHAVIORS[style][expected], prompt)
        if style == "hedged":
            return (
                "It is hard to be certain, and opinions may differ. It might perhaps be the "
                f"following, although other explanations are possible: {gold} This may not apply "
                "to everyone, so please consult a doctor before relying on it."
            )
        if style == "partial":
            return _first_words(gold, (len(gold.split()) + 1) // 2)
        if style == "swapped":
            return f"Certainly. {self._find_gold(prompt, swapped=True) or ''}"
        return gold


@dataclass(kw_only=True)
class GradedProbe(ProbeEntrant):
    """Answers with the first words of the bank's reference, also where the prompt comes without.

    keep   share of the words
    style  reference, or hedged: between hedges. Where it is swapped, by lapse, another prompt's
           reference takes the place of the right one
    """

    keep: Share

    def known_rank(self, dimension: str) -> None:
        return None

    @property
    def _hash_name(self) -> str:
        return self.entrant_id

    def answer(self, prompt: Prompt) -> str:
        gold = self._find_gold(prompt, swapped=self._choose_style(prompt) == "swapped")
        if gold is None:
            raise SettingError(
                f"Prompt {prompt.prompt_id} has no reference in {self.bank_path}, and entrant.{self.entrant_id} answers "
                "with it. Choose another entrant, or arena=simulated."
            )
        text = _first_words(gold, max(1, math.ceil(self.keep * len(gold.split()))))
        if self.style != "hedged":
            return text
        return (
            "It is hard to be certain, and opinions may differ. It might perhaps be the following: "
            f"{text} Please consult a doctor before relying on it."
        )


def _first_words(text: str, n: int) -> str:
    return " ".join(text.split()[:n]).rstrip(".,;:") + "."


def _behave(behavior: str, prompt: Prompt) -> str:
    """Answer a prompt without a reference: the behaviour, on the prompt's tags."""
    topics = [tag.replace("-", " ") for tag in prompt.tags[:3]] or [prompt.subject]
    topic_list = ", ".join(topics)
    if behavior == "abstain":
        return (
            f"I cannot answer this as asked. Information is missing on {topic_list}; with it, an answer "
            "could be given."
        )
    if behavior == "hedge":
        return (
            f"It depends: the evidence is uncertain and turns on {topic_list}. If these favour it, it "
            "may be reasonable."
        )
    return f"Yes, this is settled. Act on {topic_list} now."
