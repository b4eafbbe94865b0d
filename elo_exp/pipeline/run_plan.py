"""What a run, or the jobs of a sweep, would cost in all: answers and judge calls."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elo_exp.pipeline.answer_plans import AnswerPlan
from elo_exp.pipeline.planning import Plan


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What one run would pay for.

    answers  of the entrants that have still to make some
    judges   of each judge
    """

    answers: Sequence[AnswerPlan] = ()
    judges: Sequence[Plan] = ()

    @property
    def answer_dollars(self) -> float:
        return math.fsum(plan.dollars or 0.0 for plan in self.answers)

    @property
    def judge_dollars(self) -> float:
        return math.fsum(plan.dollars for plan in self.judges)

    @property
    def dollars(self) -> float:
        return self.answer_dollars + self.judge_dollars

    @property
    def is_upper_bound(self) -> bool:
        """Whether answers that nobody knows yet are counted at their limit."""
        return any(plan.is_upper_bound for plan in self.answers) or any(
            plan.is_upper_bound for plan in self.judges
        )


@dataclass(frozen=True, kw_only=True)
class SweepCost:
    """The price of several jobs. A call that several of them need is paid for once.

    n_answers, n_calls  to be paid for
    """

    n_answers: int
    n_calls: int
    dollars: float
    is_upper_bound: bool

    @classmethod
    def add_up(cls, plans: Iterable[RunPlan]) -> "SweepCost":
        """Add up the plans of jobs; each answer and each call counts once, at the mean price of its row."""
        counted_keys, n_answers, n_calls = set[str](), 0, 0
        dollars, is_upper_bound = 0.0, False
        for plan in plans:
            is_upper_bound |= plan.is_upper_bound
            for answers in plan.answers:
                n_new = len(answers.keys - counted_keys)
                n_answers += n_new
                dollars += (answers.dollars or 0.0) * n_new / max(1, len(answers.keys))
                counted_keys |= answers.keys
            for row in (row for judge in plan.judges for row in judge.rows):
                n_new = len(row.new_keys - counted_keys)
                n_calls += n_new
                dollars += row.dollars * n_new / max(1, row.new)
                counted_keys |= row.new_keys
        return cls(
            n_answers=n_answers,
            n_calls=n_calls,
            dollars=dollars,
            is_upper_bound=is_upper_bound,
        )
