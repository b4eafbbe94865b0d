"""The page, the console and the plan of a placement, as they were last agreed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import golden
from tests.arena_files import Placed, TheJudge, World, placed
from tests.commands import run

RATINGS = {f"m{i}": 1000 + 40.0 * (i - 4.5) for i in range(10)}
ONE = World(anchors=RATINGS, placed={"mine": 1100.0})
TWO = World(anchors=RATINGS, placed={"mine": 1100.0, "other": 900.0})
HELD_OUT = World(anchors=RATINGS, placed={"m7": RATINGS["m7"]})
UNBEATEN = World(anchors=RATINGS, placed={"mine": 99_000.0}, n_battles=400)
RAW = ("arena.n_calibration=0", "arena.placement=raw")
MANY = ("arena.n_battles=200", "arena.n_calibration=200")
KIN = "+judging.families={mine: Us, our: Us}"


def same(name: str, found: Placed) -> None:
    """Compare the page and the console with their golden files."""
    golden.same(f"arena_{name}.txt", found.report.text)
    config = {"config": {"arena": {"seed": 7}}}
    page = found.report.page("run", {**found.report.facts, **config}, [])
    golden.same(f"arena_{name}.html", page)


@pytest.mark.parametrize(
    ("name", "world", "settings", "judge"),
    [
        ("two", TWO, MANY, TheJudge()),
        ("raw", ONE, (*RAW, "arena.n_battles=60"), TheJudge(spoilt="?", every=5)),
        ("held_out", HELD_OUT, (*MANY, "arena.hold_out=[m7]"), TheJudge()),
        ("unbeaten", UNBEATEN, ("arena.n_battles=40",), TheJudge()),
        ("few", ONE, ("arena.n_battles=30",), TheJudge()),
        ("no_calibration", ONE, ("judging.limit_pairs=20",), TheJudge()),
        ("kin", ONE, (*MANY, KIN), TheJudge(model="our-judge")),
    ],
)
def test_a_placement(
    name: str, world: World, settings: tuple[str, ...], judge: TheJudge, tmp_path: Path
) -> None:
    same(name, placed(world, world.write(tmp_path), *settings, judge=judge))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("simulated", ("rubric=[preference_scores]", "arena.soft=calibrated")),
        ("refused", ("judge.default_signal=hedging",)),
    ],
)
def test_simulated_voters(name: str, settings: tuple[str, ...], tmp_path: Path) -> None:
    few = ("experiment=arena", "figures=false", "tracker=local", "arena.n_battles=150")
    ran = run(*few, *settings, folder=tmp_path)
    page = (ran.run_dir / "report.html").read_text(encoding="utf-8")
    golden.same(f"arena_{name}.html", page)
    golden.same(f"arena_{name}.txt", ran.out.partition("\n\nfiles ")[0])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("free", ()),
        ("paid", ("judge=haiku", "+judging.families.newcomer=Anthropic")),
        ("raw", ("arena.n_calibration=0", "arena.placement=raw")),
    ],
)
def test_a_plan(name: str, settings: tuple[str, ...], tmp_path: Path) -> None:
    few = ("experiment=arena", "arena.n_battles=20", "plan=true")
    golden.same(f"arena_plan_{name}.txt", run(*few, *settings, folder=tmp_path).out)
