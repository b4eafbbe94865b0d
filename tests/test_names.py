"""What entrants are called in figures: names that fit are left alone, and no two labels are alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.figures.names import labels, short

MODELS = [f"organisation-{n % 5}/some-model-{n:02d}-70b-instruct-v{n % 2 + 1}" for n in range(25)]


def test_a_name_that_fits_is_its_label():
    assert labels(["a", "a-model-of-7-billion"]) == {
        "a": "a",
        "a-model-of-7-billion": "a-model-of-7-billion",
    }


def test_a_long_name_keeps_both_its_ends():
    assert short("organisation/a-model-of-7-billion") == "organisation/…-of-7-billion"


def test_long_names_that_differ_at_an_end_keep_their_ends_too():
    apart = [
        "organisation/a-model-of-7-billion",
        "organisation/a-model-of-70-billion",
        "another/model-of-7-billions",
    ]
    assert labels(apart) == {name: short(name) for name in apart}


def test_where_the_ends_are_the_same_the_words_are_shown_in_which_names_part():
    """These are the numbers of the organisation and of the model; there is room for what lies between."""
    called = labels(MODELS)
    assert short(MODELS[0]) == short(MODELS[2])
    assert called[MODELS[0]] == "…0/some-model-00…instruct-v1"
    assert called[MODELS[23]] == "…3/some-model-23…instruct-v2"
    assert max(map(len, called.values())) == 28


def test_those_that_begin_like_them_are_shown_in_the_same_way():
    """Only the first and the last have both ends in common."""
    called = labels(MODELS[:3])
    assert short(MODELS[1]) not in {short(MODELS[0]), short(MODELS[2])}
    assert [called[model] for model in MODELS[:3]] == [
        f"…{n}…-model-0{n}-70b-instruct-v{n % 2 + 1}" for n in range(3)
    ]


def test_of_names_that_differ_in_the_middle_the_middle_is_shown():
    sizes = [f"organisation/a-model-of-{n}-billion-parameters" for n in (7, 70)]
    assert labels(sizes) == {
        sizes[0]: "…-of-7-billion-parameters",
        sizes[1]: "…-of-70-billion-parameters",
    }
    vendors = [
        f"{vendor}-official/some-model-{n}-70b-instruct"
        for vendor in ("meta", "mistral")
        for n in ("08", "10")
    ]
    assert labels(vendors)[vendors[-1]] == "mistral…10-70b-instruct"


@pytest.mark.parametrize("same", ["x" * 60, "x-" * 30, "模型" * 30])
def test_names_that_are_the_same_for_sixty_characters_are_told_apart(same: str):
    names = [*(f"{same}{n}{same}" for n in range(12)), *(f"{same}{n}" for n in range(12))]
    found = labels(names)
    assert len(set(found.values())) == 24
    assert max(map(len, found.values())) <= 32


def test_one_name_that_begins_another_is_told_apart():
    assert len(set(labels(["a" * 40, "a" * 41, "a" * 42]).values())) == 3


@given(
    st.sets(
        st.text("ab-/", max_size=12).map(
            lambda middle: f"organisation/{middle}a-{middle}-instruct-tuned"
        )
    )
)
def test_law_no_two_names_have_one_label(names: set[str]):
    assert len(set(labels(names).values())) == len(names)


@given(st.sets(st.text("ab…", max_size=60)))
def test_law_also_names_that_hold_an_ellipsis(names: set[str]):
    found = labels(names)
    assert set(found) == names
    assert len(set(found.values())) == len(names)
    assert all(found[name] == name for name in names if len(name) <= 28)
