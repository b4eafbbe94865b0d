"""Types of settings and of cache keys. Numbers are strict: pydantic would take true for 1 and "5" for 5.

A description says what a value must be, if the bounds do not say it well: error messages show it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

Integer = Annotated[int, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1)]
Natural = Annotated[int, Field(strict=True, ge=0)]
Number = Annotated[float, Field(strict=True)]
Positive = Annotated[float, Field(strict=True, gt=0)]
NonNegative = Annotated[float, Field(strict=True, ge=0)]
Dollars = Annotated[
    float, Field(strict=True, ge=0, description="be 0 or more (US dollars)")
]
Share = Annotated[
    float, Field(strict=True, ge=0, le=1, description="be a number between 0 and 1")
]
PositiveShare = Annotated[
    float,
    Field(strict=True, gt=0, le=1, description="be a number above 0 and at most 1"),
]

TopP = PositiveShare
RatingPoints = Annotated[float, Field(strict=True, ge=-1e6, le=1e6)]
# Far beyond, an update overflows
K = Annotated[float, Field(strict=True, gt=0, le=1000)]

Effort = Literal["low", "medium", "high", "xhigh", "max"]  # of a Claude model
DType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Annotated[
    str,
    Field(
        pattern=r"^(auto|cuda(:\d+)?|mps|cpu)$",
        description="be auto, cpu, mps, cuda or cuda:N",
    ),
]
MaxTokensName = Literal["max_tokens", "max_completion_tokens"]
# In which orders a comparison is judged, and its games: each order, the winner of both, the only one
Orders = Literal["both", "reconciled", "one"]
# Of models, by a part of their names: judging.families
Families = dict[
    Annotated[str, Field(pattern=r"[^\W_]")], Annotated[str, Field(min_length=1)]
]
# What judges: a language model, a comparison of words, people who vote, or scores of items
JudgeKind = Literal["model", "words", "people", "scores"]
# What is read of a verdict: the label that the judge gives, or how likely it holds each
VerdictForm = Literal["label", "probabilities"]
# All that can change an answer, as JSON: equal keys share one
CacheKey = Mapping[str, Any]
