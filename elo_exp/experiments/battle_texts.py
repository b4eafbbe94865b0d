"""The texts of drawn battles, and the prompts made of them."""

import logging
from collections import Counter
from collections.abc import Sequence

from elo_exp.arena import sources
from elo_exp.arena.placement import DrawnBattle
from elo_exp.arena.sources import ArenaSettings, RowLocation, Texts
from elo_exp.errors import FileError, format_value
from elo_exp.records import Prompt

logger = logging.getLogger(__name__)


class BattleTexts:
    """The texts of battles, read when they are drawn.

    unusable  why battles cannot be judged
    """

    def __init__(self, settings: ArenaSettings, source: str) -> None:
        self.settings, self.source = settings, source
        self.unusable = dict[RowLocation, str]()
        self._texts, self._prompts = dict[RowLocation, Texts](), dict[str, Prompt]()

    def get(self, draw: DrawnBattle) -> Texts:
        """Return the texts of a usable battle."""
        return self._texts[draw.location]

    def select_usable(self, draws: Sequence[DrawnBattle]) -> list[DrawnBattle]:
        """Read the texts of battles, and leave out those that cannot be judged."""
        new_locations = (
            {draw.location for draw in draws}
            - self._texts.keys()
            - self.unusable.keys()
        )
        texts, unusable = sources.read_texts(self.settings, new_locations)
        self._texts |= texts
        self.unusable |= unusable
        if unusable:
            reasons = Counter(unusable.values()).most_common()
            counts = ", ".join(f"{n} {reason}" for reason, n in reasons)
            logger.info(
                "some of the %d sampled battles cannot be judged: %s",
                len(new_locations),
                counts,
            )
        return [draw for draw in draws if draw.location in self._texts]

    def make_prompt(self, draw: DrawnBattle) -> Prompt:
        """Return the prompt of a battle. Raises FileError for one name of two prompts."""
        text, source = self._texts[draw.location].prompt, self.source
        prompt = Prompt(
            prompt_id=draw.question_id, text=text, source=source, subject=""
        )
        if self._prompts.setdefault(draw.question_id, prompt) != prompt:
            raise FileError(
                f"Two different prompts have the name {format_value(draw.question_id)}. Set arena.columns.question_id "
                f"to a column "
                "with different names, or to null."
            )
        return prompt
