"""What is printed does not depend on the last bits of a computation, which differ between processors."""

from __future__ import annotations

import re

import pytest

from elo_exp.formatting import format_number, format_percent, format_percent_floor
from elo_exp.ratings.leaderboard import Rating
from elo_exp.report.leaderboard_section import fit_scale
from tests.golden import FOLDER

NOISE = [-3e-12, -1e-13, 0.0, 1e-13, 3e-12]


@pytest.mark.parametrize("half", [0.5, 1.5, 98.5, 1400.5, -0.5, 12.25, 0.125])
def test_halves_are_rounded_alike(half: float):
    digits = len(f"{half:g}".partition(".")[2]) - 1
    assert len({format_number(half + noise, digits) for noise in NOISE}) == 1
    assert len({format_percent((half + noise) / 100, digits) for noise in NOISE}) == 1


@pytest.mark.parametrize("n", range(1, 100))
def test_a_share_that_is_reached_is_printed_in_full(n: int):
    for noise in NOISE:
        assert format_percent_floor((n + noise) / 100) == format_percent(n / 100)


@pytest.mark.parametrize("noise", NOISE)
def test_an_axis_does_not_show_a_range_of_noise(noise: float):
    equal = [
        Rating(model=model, rating=1400.0 + part * noise, ci_low=1400.0, ci_high=1400.0)
        for part, model in enumerate("ab")
    ]
    assert fit_scale(equal, digits=0).ticks == fit_scale(equal[:1], digits=0).ticks


def test_pages_hold_six_digits_of_a_number_by_which_they_sort():
    for page in FOLDER.glob("*.html"):
        for value in re.findall(r'data-value="([\d.]+)"', page.read_text("utf-8")):
            assert len(value.replace(".", "").lstrip("0")) <= 6, (page.name, value)
