"""Results that were shown before verdicts were added: looks of the store, and the error of claims after them."""

from __future__ import annotations

import numpy as np
import pytest

from elo_exp.analysis.conclusions.tournament_conclusion import earlier_look_reasons
from elo_exp.analysis.repeated_files import EarlierLook
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.store.answer_store import Store
from elo_exp.store.database import SCHEMA_VERSION
from elo_exp.store.looks import EarlierInterimAnalyses, PairResult, record_looks
from tests.stores import Place, place, rows, write

__all__ = ["place"]  # a fixture

PILOT, WHOLE = (
    [f"{q:03d}" for q in range(20)],
    [f"{q:03d}" for q in range(60)],
)


def look(
    store: Store, verdicts: list[str], leader: str | None = None
) -> EarlierInterimAnalyses:
    (found,) = record_looks(store, [PairResult(verdicts=verdicts, leader=leader)])
    return found


def none() -> EarlierInterimAnalyses:
    return EarlierInterimAnalyses(n_looks=0, first_leader=None)


def test_a_look_is_a_result_that_was_shown_before_verdicts_were_added(place: Place):
    with Store(place) as store:
        assert look(store, PILOT) == none()
        assert look(store, PILOT[::-1]) == none()  # rated again
        assert look(store, WHOLE).n_looks == 1
        assert look(store, WHOLE).n_looks == 1  # rated again, it has the same past
        assert look(store, PILOT) == none()  # and so has the pilot
        assert look(store, WHOLE[:40]).n_looks == 1  # it adds to the pilot
        assert (
            look(store, WHOLE[20:]) == none()
        )  # a subset of what was shown adds nothing
        assert look(store, ["other"]) == none()
    with Store(place) as store:  # a look does not end with its run
        assert look(store, [*WHOLE, "060"]).n_looks == 4


def test_a_lead_that_the_first_look_had_claimed_is_named(place: Place):
    with Store(place) as store:
        look(store, PILOT, "new")
        assert look(store, WHOLE) == EarlierInterimAnalyses(
            n_looks=1, first_leader="new"
        )
        later = look(store, [*WHOLE, "060"], "new")
        assert later == EarlierInterimAnalyses(n_looks=2, first_leader="new")


def test_a_store_of_before_gets_the_table_of_looks(place: Place):
    """Version 8, of either engine; what it holds stays."""
    with Store(place) as store:
        look(store, PILOT)
    write(place, "DROP TABLE looks")
    write(place, "INSERT INTO spending VALUES ('month 2026-11', 1.5)")
    version = "UPDATE elo_exp_store SET version = 8"
    write(place, version if isinstance(place, str) else "PRAGMA user_version = 8")
    with Store(place) as store:
        assert look(store, PILOT) == none()
        assert look(store, WHOLE).n_looks == 1
    assert rows(place, "SELECT * FROM spending") == [("month 2026-11", 1.5)]
    version = "SELECT version FROM elo_exp_store"
    version = version if isinstance(place, str) else "PRAGMA user_version"
    assert rows(place, version) == [(SCHEMA_VERSION,)]


def row(first_leader: str | None = None, n_looks: int = 2) -> EarlierLook:
    return EarlierLook(
        first="a", second="b", n_looks=n_looks, first_leader=first_leader
    )


def test_only_looks_at_the_leader_count_unless_its_lead_was_claimed_at_the_first():
    (found,) = earlier_look_reasons([row()], "b")
    assert (found.name, found.value) == ("looked", 2.0)
    assert not [*earlier_look_reasons([row(first_leader="b")], "b")]
    assert [*earlier_look_reasons([row(first_leader="a")], "b")]
    assert not [*earlier_look_reasons([row()], "c")]


# Pilot, look, continue


def claimed(
    looks: tuple[int, ...], repeats: int, rng: np.random.Generator, gap: float = 0.0
) -> tuple[float, float, float]:
    """The shares of studies that claim at any look if none is counted, by the rule, and at the last look alone."""
    u = gap + 1.2 * np.sqrt(2) * rng.standard_normal((repeats, looks[-1]))
    points = rng.binomial(2, 1 / (1 + np.exp(-1.5 * u))) / 2 - 0.5
    leaders = []
    for n in looks:
        x = points[:, :n]
        t = x.mean(axis=1) / (x.std(axis=1, ddof=1) / np.sqrt(n))
        leaders.append(np.where(np.abs(t) > t_quantile(n - 1.0), np.sign(t), 0.0))
    found = np.array(leaders)
    names = {1: "a", -1: "b"}
    cleared = np.array(
        [
            [
                not [
                    *earlier_look_reasons(
                        [row(first_leader=names.get(first), n_looks=k)], names[now]
                    )
                ]
                if now and k
                else bool(now)
                for first, now in zip(found[0], found[k], strict=True)
            ]
            for k in range(len(looks))
        ]
    )  # fmt: skip
    return (
        float((found != 0).any(axis=0).mean()),
        float(cleared.any(axis=0).mean()),
        float((found[-1] != 0).mean()),
    )


@pytest.mark.parametrize("looks", [(20, 60), (20, 40, 60, 80, 100), (50, 143)])
def test_claims_after_looks_err_no_more_than_one_test(looks: tuple[int, ...]):
    rng, repeats = np.random.default_rng(12), 2000
    uncounted, by_rule, _ = claimed(looks, repeats, rng)
    print(f"{looks}: {uncounted:.3f} uncounted, {by_rule:.3f} by the rule")
    assert uncounted > 0.07
    assert by_rule <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / repeats)


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.5, 1.0])
def test_what_a_pilot_costs(gap: float):
    """A lead after a pilot that showed nothing is caution."""
    for looks in ((20, 60), (20, 40, 60, 80, 100), (30, 90)):
        found = claimed(looks, 10_000, np.random.default_rng(3), gap)
        print(f"gap {gap}, {looks}: uncounted {found[0]:.3f}, rule {found[1]:.3f}, one test {found[2]:.3f}")  # fmt: skip
        assert gap or found[1] <= 0.06
