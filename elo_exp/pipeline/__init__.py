"""The stages on which money and hours are spent: each asks only for what the store does not have
yet.

Calling a stage twice gives the same result, and costs nothing the second time.
"""

from elo_exp.pipeline.forcing import (
    LogprobCheck,
    as_policies,
    clone_check,
    generation_check,
    n_forced,
    teacher_force,
)
from elo_exp.pipeline.generating import (
    all_generated,
    api_is_to_answer,
    assumed,
    generate,
    sharded,
    stored_responses,
)
from elo_exp.pipeline.judging import (
    check_before_answers,
    judge_pairs,
    other_judges,
    plan_pairs,
)
from elo_exp.pipeline.replies import ask, cancel, collect
from elo_exp.pipeline.scoring import n_scored, plan_scores, score_responses

__all__ = [
    "LogprobCheck",
    "all_generated",
    "api_is_to_answer",
    "as_policies",
    "ask",
    "assumed",
    "cancel",
    "check_before_answers",
    "clone_check",
    "collect",
    "generate",
    "generation_check",
    "judge_pairs",
    "n_forced",
    "n_scored",
    "other_judges",
    "plan_pairs",
    "plan_scores",
    "score_responses",
    "sharded",
    "stored_responses",
    "teacher_force",
]
