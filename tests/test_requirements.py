"""What a value must be, read from the type of its field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field, StringConstraints

from elo_exp.requirements import describe_requirement, find_type
from elo_exp.types import Count, Device, Dollars, K, Share


@dataclass
class Inner:
    share: Share
    names: list[str]


WORDS = [
    (Count, "be a whole number of 1 or more"),
    (Count | None, "be a whole number of 1 or more, or null"),
    (K, "be a number above 0 and at most 1,000"),
    (Share, "be a number between 0 and 1"),
    (Annotated[int, Field(le=8)], "be a whole number of at most 8"),
    (Dollars | None, "be 0 or more (US dollars), or null"),
    (bool, "be true or false"),
    (bool | None, "be true, false or null"),
    (Literal["drop", "half"], "be drop or half"),
    (Device, "be auto, cpu, mps, cuda or cuda:N"),
    (list[str], "be a list, such as [A,B]"),
    (Annotated[list[str], Field(max_length=1)], "be a list with at most 1 item"),
    (dict[str, str], "be a mapping, such as {A:VALUE}"),
    (str, "be text"),
    (Inner, "be a mapping, such as {A:VALUE}"),
]


@pytest.mark.parametrize(("hint", "words"), WORDS)
def test_a_type_is_described_in_words(hint: Any, words: str):
    assert describe_requirement(hint, "Input should be a frog") == words


@pytest.mark.parametrize("hint", [None, object])
def test_a_type_without_words_has_those_of_the_finding(hint: Any):
    assert describe_requirement(hint, "Input should be a frog") == "be a frog"


@dataclass
class Outer:
    inner: Inner | None
    parts: dict[str, Inner]


class Row(TypedDict):
    n: Count


class Model(BaseModel):
    text: Annotated[str, StringConstraints(min_length=1)]


def test_the_type_of_a_value_is_found_inside_of_others():
    assert find_type(Outer, ["inner", "share"]) == Share
    assert find_type(Outer, ["parts", "any", "names", 2]) is str
    assert find_type(Row, ["n"]) == Count
    assert find_type(list[Row], [3, "n"]) == Count
    text = find_type(Model, ["text"])
    assert describe_requirement(text, "") == "be text that is not empty"


def test_a_path_that_leads_nowhere_has_no_type():
    assert find_type(Outer, ["absent"]) is None
    assert find_type(Outer, ["inner", "share", "more"]) is None
