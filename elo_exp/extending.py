"""What a part of your own needs: the base class of each kind of part, the records that pass through it, and the errors.

These names are stable; the modules that they come from may change. CONTRIBUTING.md has a complete example of each part.
"""

from elo_exp.api.costs import Prices
from elo_exp.api.jobs import Completion
from elo_exp.data.bank import load_bank, sample_prompts
from elo_exp.data.battles import Battles
from elo_exp.data.pairing import Responses
from elo_exp.entrants import ApiEntrant, CheckpointEntrant, Entrant, Policy
from elo_exp.errors import (
    BudgetError,
    EvidenceError,
    FileError,
    ServerError,
    SettingError,
    UserError,
)
from elo_exp.estimators import Estimator
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.experiments.comparison_experiment import PairwiseExperiment
from elo_exp.experiments.settings import BankSettings
from elo_exp.files import write_json
from elo_exp.judges import ApiJudge, BatchJudge, Judge
from elo_exp.oracle.data import NotEstimableError
from elo_exp.oracle.evidence import (
    CALIBRATED_WEIGHTS,
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
    PolicyEvidence,
)
from elo_exp.pipeline import generate, judge_pairs
from elo_exp.probes import Case, Probe, Question
from elo_exp.ratings import RatingMethod
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import (
    Comparison,
    Item,
    JudgeReply,
    JudgeRequest,
    Message,
    Plot,
    Prompt,
    Response,
)
from elo_exp.report.viewer import Comparisons
from elo_exp.trackers import (
    Files,
    Histogram,
    Lines,
    RunInfo,
    TrackedRun,
    Tracker,
    Value,
)
from elo_exp.types import (
    CacheKey,
    Count,
    Dollars,
    Integer,
    JudgeKind,
    Natural,
    NonNegative,
    Number,
    Positive,
    Share,
)

__all__ = [
    "CALIBRATED_WEIGHTS",
    "FRESH_DRAWS",
    "RAW_WEIGHTS",
    "ApiEntrant",
    "ApiJudge",
    "BankSettings",
    "BatchJudge",
    "Battles",
    "BudgetError",
    "CacheKey",
    "Case",
    "CheckpointEntrant",
    "Comparison",
    "Comparisons",
    "Completion",
    "Context",
    "Count",
    "Dollars",
    "Entrant",
    "Estimate",
    "Estimator",
    "EvidenceError",
    "Experiment",
    "FileError",
    "Files",
    "Histogram",
    "Integer",
    "Item",
    "Judge",
    "JudgeKind",
    "JudgeReply",
    "JudgeRequest",
    "Leaderboard",
    "Lines",
    "Message",
    "Natural",
    "NonNegative",
    "NotEstimableError",
    "Number",
    "PairwiseExperiment",
    "Plot",
    "Policy",
    "PolicyEvidence",
    "Positive",
    "Prices",
    "Probe",
    "Prompt",
    "Question",
    "RatingMethod",
    "Report",
    "Response",
    "Responses",
    "RunInfo",
    "ServerError",
    "SettingError",
    "Share",
    "TrackedRun",
    "Tracker",
    "UserError",
    "Value",
    "generate",
    "judge_pairs",
    "load_bank",
    "sample_prompts",
    "write_json",
]
