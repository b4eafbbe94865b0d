"""The stages on which money and hours are spent: each asks only for what the store does not have yet.

Calling a stage twice gives the same result, and costs nothing the second time.
"""

from elo_exp.stages.generating import all_generated, assumed, generate, sharded
from elo_exp.stages.judging import ask, judge_pairs, other_judges, plan_pairs

__all__ = ["all_generated", "ask", "assumed", "generate", "judge_pairs", "other_judges", "plan_pairs", "sharded"]
