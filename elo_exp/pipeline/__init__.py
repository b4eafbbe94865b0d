"""The stages that spend money and GPU hours: each makes only what the store does not have.

Calling a stage twice gives the same result, and costs nothing the second time.
"""

from elo_exp.pipeline.forcing import (
    LogprobCheck,
    as_policies,
    generation_check,
    n_forced,
    teacher_force,
)
from elo_exp.pipeline.generating import (
    all_generated,
    assume_responses,
    draws,
    generate,
    known_responses,
    needs_paid_answers,
    stored_responses,
)
from elo_exp.pipeline.judging import (
    Asking,
    all_judged,
    ask,
    check_before_answers,
    collect,
    identify,
    judge_pairs,
    n_new,
    n_scored,
    other_judges,
    plan_pairs,
    plan_replies,
    plan_scores,
    price,
    recover,
    score_responses,
    stored_judgments,
)
from elo_exp.pipeline.paying import cancel
from elo_exp.pipeline.plan_table import looks_table, plan_of_judges, plan_table, spend
from elo_exp.pipeline.planning import Plan
from elo_exp.pipeline.waves import judge_in_waves
