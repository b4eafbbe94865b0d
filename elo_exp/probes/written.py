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
        found: dict[Question, None] = {}  # a form without {text} is asked once
        for form, written in self.forms.items():
            wording = case.pick(written.x)
            tool = case.pick(written.x_tool) if written.x_tool else ""
            for text in case.levels:
                texts = {"first": case.levels[0], "text": text}
                texts["bullets"] = re.sub(r"^|(?<=[.!?])\s+", "\n- ", text).strip()
                ranked = case.levels[: case.n_ranked]
                texts |= zip(("best", "middle", "worst"), ranked, strict=False)
                try:
                    x, y = wording.format_map(texts), written.y.format_map(texts)
                except KeyError:
                    continue
                question = Question(
                    form=form,
                    x=x,
                    y=y,
                    x_tool=tool,
                    is_control=written.is_control,
                    both_orders=self.both_orders,
                )
                found[question] = None
        return found
