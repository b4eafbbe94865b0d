"""How far a placed model's style lies outside the anchors' styles: caution if it is far, nothing if it is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from elo_exp.arena.placement import Placement
from elo_exp.arena.style_distance import (
    MAX_STYLE_DISTANCE,
    StyleDistance,
    measure_style_distance,
)
from elo_exp.files import read_json, read_jsonl, write_jsonl
from elo_exp.report.sentences import arena_sentences as words
from tests.arena_files import Placed, World, placed
from tests.arena_worlds import JudgedWorld

RATINGS = {f"m{i}": 1000 + 40.0 * (i - 4.5) for i in range(10)}
ONE = World(anchors=RATINGS, placed={"mine": 1050.0})
# Of logarithms of counts: means, standard deviations between models, and between a model's answers
MEANS, BETWEEN, WITHIN = (7.0, 0.0, 1.5, 1.0), (0.3, 0.5, 0.6, 0.6), (0.5, 0.8, 0.8, 0.8)  # fmt: skip


def distance_in_world(
    seed: int, z: float | None, *, n_anchors: int = 20, n_answers: int = 40
) -> StyleDistance:
    """z: of the placed model's length; None: its whole style is drawn as the anchors' styles are."""
    rng = np.random.default_rng(seed)
    at = rng.normal(size=(n_anchors + 1, 4))
    if z is not None:
        at[-1] = 0.0
        at[-1, 0] = z * rng.choice([-1, 1])
    styles: dict[str, Sequence[tuple[int, ...]]] = {}
    for i, of_model in enumerate(at):
        noise = rng.normal(size=(250 if i == n_anchors else n_answers, 4))
        mean = np.exp(MEANS + np.multiply(BETWEEN, of_model) + WITHIN * noise)
        styles[f"m{i}"] = [tuple(row) for row in rng.poisson(mean).tolist()]
    anchors = [f"m{i}" for i in range(n_anchors)]
    return measure_style_distance(styles, f"m{n_anchors}", anchors)


def share_of_cautions(z: float | None, n: int, **world: int) -> float:
    found = [distance_in_world(seed, z, **world) for seed in range(n)]
    return float(np.mean([one.state == "failed" for one in found]))


def test_caution_is_for_styles_far_outside_and_rare_inside():
    assert share_of_cautions(0.0, 60) <= 0.05
    assert share_of_cautions(0.5, 60) <= 0.05
    assert share_of_cautions(2.0, 60) >= 0.85
    assert share_of_cautions(3.0, 60) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("world", [{}, {"n_anchors": 8}, {"n_answers": 8}])
def test_cautions_by_distance(
    world: Mapping[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    places = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, None)
    shares = {z: share_of_cautions(z, 400, **world) for z in places}
    with capsys.disabled():
        print(world, {z: round(share, 3) for z, share in shares.items()})
    assert shares[0.0] <= 0.05
    assert shares[0.5] <= 0.075
    assert shares[2.0] >= 0.8
    assert shares[3.0] >= 0.98


def coverage(taste: float, n: int) -> float:
    """Share of placements whose interval covers the truth if the judge likes the placed model's style so much."""
    world = JudgedWorld(placed_taste=taste, n_votes=4000)
    n_covered = 0
    for seed in range(n):
        drawn = world.draw(seed)
        fit = drawn.fit()
        contrast = np.where(fit.is_anchor, -1.0 / world.n_anchors, 1.0)
        error = np.sqrt(contrast @ fit.covariance @ contrast)
        n_covered += abs(contrast @ fit.theta - drawn.truth) <= fit.t_quantile * error
    return n_covered / n


@pytest.mark.slow
@pytest.mark.parametrize(("taste", "least", "most"), [(1.0, 0.94, 1.0), (1.5, 0.86, 1.0), (3.0, 0.0, 0.6)])  # fmt: skip
def test_intervals_cover_up_to_the_limit(
    taste: float, least: float, most: float, capsys: pytest.CaptureFixture[str]
) -> None:
    share = coverage(taste, 60)
    with capsys.disabled():
        print(f"taste {taste}: covers {share:.3f}")
    assert least <= share <= most


def test_few_answers_do_not_hide_a_distance():
    few = [abs(distance_in_world(s, 2.0, n_answers=4).distance["length"]) for s in range(100)]  # fmt: skip
    many = [abs(distance_in_world(s, 2.0, n_answers=100).distance["length"]) for s in range(100)]  # fmt: skip
    assert np.median(few) == pytest.approx(np.median(many), rel=0.15)


def test_equal_styles_are_no_distance_and_a_tenth_is_no_other_style():
    styles = {f"m{i}": [(1000, 0, 0, 0)] * 3 for i in range(4)}
    own = {"same": (1000, 0, 0, 0), "near": (1100, 0, 0, 0), "far": (1000, 2, 0, 0)}
    found = {
        name: measure_style_distance(styles | {name: [style]}, name, list(styles))
        for name, style in own.items()
    }
    assert found["same"].distance == {"length": 0.0, "markdown": 0.0}
    assert found["near"].state == "passed"
    assert (found["far"].state, found["far"].farthest) == ("failed", "markdown")


def rewrite(folder: Path, times: int) -> None:
    """Say what the placed model says so many times."""
    path = folder / "responses_mine.jsonl"
    rows = [
        row | {"response_text": " ".join([row["response_text"]] * times)}
        for _, row in read_jsonl(path)
    ]
    write_jsonl(path, rows)


def run_world(folder: Path, *, times: int) -> Placed:
    ONE.write(folder)
    rewrite(folder, times)
    return placed(ONE, folder, "arena.n_battles=200", "arena.n_calibration=200")


@pytest.mark.system
def test_a_model_inside_is_placed_and_one_far_outside_is_caution(tmp_path: Path):
    inside = run_world(tmp_path / "inside", times=1)
    outside = run_world(tmp_path / "outside", times=3)
    (of_inside, of_outside) = (
        read_json(one.run_dir / "ratings.json")["conclusions"]["mine"]
        for one in (inside, outside)
    )
    assert of_inside["style_distance"]["state"] == "passed"
    assert "style" not in {reason["name"] for reason in of_inside["reasons"]}
    assert (
        "mine: style distance from the anchors in standard deviations: length "
        in inside.report.text
    )
    assert of_outside["state"] == "caution"
    assert of_outside["style_distance"]["state"] == "failed"
    assert of_outside["rating"] == of_inside["rating"]
    (reason,) = (row for row in of_outside["reasons"] if row["name"] == "style")
    assert reason["value"] == of_outside["style_distance"]["distance"]["length"]
    assert reason["value"] > MAX_STYLE_DISTANCE
    said = "its answers are longer than the anchors' answers, by "
    page = outside.report.page("run", outside.report.facts | {"config": {"arena": {"seed": 7}}}, [])  # fmt: skip
    assert said in " ".join(outside.report.text.split())
    assert said in page.replace("&#39;", "'")
    files = read_json(outside.run_dir / "elo_ratings.json")
    row = next(row for row in files["ratings"] if row["model"] == "mine")
    assert row["status"] == "caution" and said in row["reason"]


@pytest.mark.system
def test_an_unknown_style_is_named_and_does_not_block(tmp_path: Path):
    found = run_world(tmp_path, times=1).placement
    unknown = measure_style_distance({"mine": [(900, 0, 0, 0)]}, "mine", list(RATINGS))
    assert (unknown.state, unknown.list_reasons()) == ("not done", [])
    found.style = {"mine": unknown}
    assert words.style_distance(found, "mine") == (
        "mine: style distance not measured. It needs 4 anchors with known answers and has 0."
    )


@pytest.mark.system
def test_a_placement_with_too_few_anchors_for_styles_is_never_placed(tmp_path: Path):
    """A distance is not known of fewer than four anchors, and nor is the judge calibrated by them."""
    few = World(anchors=dict([*RATINGS.items()][:3]), placed={"mine": 850.0})
    raw = ("arena.n_calibration=0", "arena.placement=raw")
    found = placed(few, few.write(tmp_path), *raw)
    placement: Placement = found.placement
    assert placement.style["mine"].state == "not done"
    said = read_json(found.run_dir / "ratings.json")["conclusions"]["mine"]
    assert said["state"] == "caution"
    assert said["style_distance"]["state"] == "not done"
    assert "It needs 4 anchors with known answers and has 3." in found.report.text
