"""The stages that spend money and GPU hours: each makes only what the store does not have.

Calling a stage twice gives the same result, and costs nothing the second time.
"""

from elo_exp.pipeline.answer_plans import AnswerPlan, plan_answers
from elo_exp.pipeline.forcing import (
    LogprobCheck,
    compare_logprobs,
    count_forced,
    require_policies,
    teacher_force,
)
from elo_exp.pipeline.generating import (
    assume_responses,
    find_known_responses,
    generate,
    has_all_responses,
    needs_paid_answers,
    read_stored_responses,
    repeat_prompts,
)
from elo_exp.pipeline.judging import (
    JudgingSettings,
    Subjects,
    check_before_answers,
    collect,
    count_new_queries,
    count_scored,
    estimate_price,
    get_replies,
    has_all_replies,
    identify,
    judge_pairs,
    plan_anew,
    plan_judging,
    plan_replies,
    plan_scores,
    read_other_judgments,
    read_stored_judgments,
    recover,
    refuse_missing_replies,
    score_responses,
)
from elo_exp.pipeline.paying import cancel
from elo_exp.pipeline.plan_table import (
    answers_table,
    describe_sweep_cost,
    describe_total,
    looks_table,
    plan_of_judges,
    plan_table,
    spend,
)
from elo_exp.pipeline.planning import Plan
from elo_exp.pipeline.run_plan import RunPlan, SweepCost
from elo_exp.pipeline.waves import judge_in_waves
