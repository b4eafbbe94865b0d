"""Questions as they stand in a yaml, about the answers to a prompt."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from elo_exp.probes import Case, Kind, Question
from elo_exp.types import Number


@dataclass(kw_only=True)
class Form:
    x: list[str]  # wordings of a template, one of which is drawn
    x_tool: list[str] = field(default_factory=list)  # wordings of what a tool says
    y: str = "{middle}"
    is_control: bool = False


@dataclass(kw_only=True)
class Written:
    """Templates name {best}, {middle} and {worst}, and are left out where these have no known order.

    {first} is any answer; {text} each of the three, and {bullets} its sentences.
    """

    forms: dict[str, Form]
    kind: Kind
    bound: Number | None
    both_orders: bool
    not_for: dict[str, str]

    def questions(self, case: Case) -> Iterable[Question]:
        # A form without {text} is asked once
        unique_questions: dict[Question, None] = {}
        for form, templates in self.forms.items():
            wording = case.pick(templates.x)
            tool = case.pick(templates.x_tool) if templates.x_tool else ""
            for text in case.levels:
                texts = {"first": case.levels[0], "text": text}
                texts["bullets"] = re.sub(r"^|(?<=[.!?])\s+", "\n- ", text).strip()
                ranked_levels = case.levels[: case.n_ranked]
                texts |= zip(("best", "middle", "worst"), ranked_levels, strict=False)
                try:
                    x, y = wording.format_map(texts), templates.y.format_map(texts)
                except KeyError:
                    continue
                question = Question(
                    form=form,
                    x=x,
                    y=y,
                    x_tool=tool,
                    is_control=templates.is_control,
                    both_orders=self.both_orders,
                )
                unique_questions[question] = None
        return unique_questions
