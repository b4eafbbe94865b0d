"""The standard error of Elo: how much it would move with other prompts."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from elo_exp.ratings.elo import PermutationElo
from elo_exp.records import Battle, UserError
from elo_exp.statistics import permutations
from elo_exp.statistics.permutations import Matches, replay, replay_resamples
from tests.simulation import Tournament

MATCHES = Matches(
    n_models=3,
    first=np.array([0, 1, 2, 0]),
    second=np.array([1, 2, 0, 2]),
    tied=np.array([False, True, False, False]),
)
EACH = np.arange(4)  # every match is drawn by itself

ENDS = ("low", "high")


def elo(*, n_perms: int = 20, **changes: object) -> PermutationElo:
    arguments = {
        "k": 16,
        "k_sweep": [4],
        "seed": 7,
        "initial_rating": 1400,
        "ties": "drop",
        "shuffle": True,
    }
    arguments |= {"n_bootstraps": 200, "perms_per_bootstrap": 10}
    return PermutationElo(n_perms=n_perms, **{**arguments, **changes})  # type: ignore[arg-type]


def std_errors(method: PermutationElo, battles: Sequence[Battle]) -> dict[str, float | None]:
    return {r.model: r.std_error for r in method.rate({"d": battles})["d"].ratings}


def simulated(seed: int, n_prompts: int = 143) -> list[Battle]:
    return Tournament().battles(n_prompts, np.random.default_rng(seed))


def test_a_resample_that_takes_every_match_once_is_the_plain_replay():
    rules = {"n_perms": 5, "seed": 3, "initial_rating": 1400.0, "shuffle": False}
    whole = replay([MATCHES], ks=[16.0], **rules)[0][:, :, 0]
    assert replay_resamples(MATCHES, np.ones((1, 4), dtype=np.intp), EACH, k=16.0, **rules)[
        0
    ] == pytest.approx(whole)


def test_matches_are_played_as_often_as_they_are_drawn():
    counts = np.array([[2, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 3]])
    rules = {"n_perms": 1, "seed": 3, "initial_rating": 1400.0, "shuffle": False}
    found = replay_resamples(MATCHES, counts, EACH, k=16.0, **rules)
    for row, ratings in zip(counts, found, strict=True):
        played = np.repeat(np.arange(4), row)
        if not len(played):
            assert ratings == pytest.approx(1400.0)
            continue
        some = Matches(
            n_models=3,
            first=MATCHES.first[played],
            second=MATCHES.second[played],
            tied=MATCHES.tied[played],
        )
        assert ratings == pytest.approx(replay([some], ks=[16.0], **rules)[0][:, :, 0])


def test_the_matches_of_a_cluster_are_drawn_together():
    rules = {"k": 16.0, "n_perms": 5, "seed": 3, "initial_rating": 1400.0}
    cluster, times = np.array([0, 1, 1, 0]), np.array([[2, 0], [1, 1], [0, 3]])
    found = replay_resamples(MATCHES, times, cluster, **rules)
    np.testing.assert_array_equal(
        found, replay_resamples(MATCHES, times[:, cluster], EACH, **rules)
    )


def test_blocks_of_resamples_are_rated_as_all_at_once(monkeypatch: pytest.MonkeyPatch):
    told: list[float] = []
    times = np.random.default_rng(1).integers(3, size=(20, 4)).astype(np.uint8)
    rules = {"k": 16.0, "n_perms": 5, "seed": 3, "initial_rating": 1400.0}
    whole = replay_resamples(MATCHES, times, EACH, **rules)
    monkeypatch.setattr(permutations, "_BLOCK_BYTES", 0)
    monkeypatch.setattr(permutations, "_BLOCK_ORDERS", 15)
    np.testing.assert_array_equal(
        whole, replay_resamples(MATCHES, times, EACH, **rules, tell=told.append)
    )
    assert sum(told) == pytest.approx(20 * 5)


def test_shuffled_resamples_average_to_what_many_permutations_average_to():
    counts = np.array([[1, 1, 1, 2], [3, 0, 1, 0]])
    found = replay_resamples(
        MATCHES, counts, EACH, k=32.0, n_perms=4000, seed=3, initial_rating=0.0
    )
    for row, ratings in zip(counts, found, strict=True):
        played = np.repeat(np.arange(4), row)
        some = Matches(
            n_models=3,
            first=MATCHES.first[played],
            second=MATCHES.second[played],
            tied=MATCHES.tied[played],
        )
        expected = replay([some], ks=[32.0], n_perms=4000, seed=11, initial_rating=0.0)[0][:, :, 0]
        error = np.hypot(ratings.std(axis=0), expected.std(axis=0)) / np.sqrt(4000)
        assert np.abs(ratings.mean(axis=0) - expected.mean(axis=0)).max() < 4 * error.max()


def test_the_standard_error_is_the_scatter_over_data_sets():
    """60 data sets give their own scatter within 9 %; the bootstrap of each is within 7 % of its mean."""
    boards = [elo(n_perms=100).rate({"d": simulated(seed)})["d"] for seed in range(60)]
    ratings = np.array([[b.rating(m).rating for m in b.models] for b in boards])
    errors = np.array([[b.rating(m).std_error for m in b.models] for b in boards])
    ratio = np.sqrt((errors**2).mean(axis=0).sum() / ratings.var(axis=0, ddof=1).sum())
    assert ratio == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
def test_the_interval_covers_what_elo_would_find_on_many_prompts(record_property):
    """Of 600 data sets of 143 prompts; the mean over all of them stands for the truth of Elo's own estimand."""
    boards = [elo(n_perms=100).rate({"d": simulated(seed)})["d"] for seed in range(600)]
    ratings = np.array([[b.rating(m).rating for m in b.models] for b in boards])
    low, high = (
        np.array([[getattr(b.rating(m), f"ci_{end}") for m in b.models] for b in boards])
        for end in ENDS
    )
    truth = ratings.mean(axis=0)
    coverage = ((low <= truth) & (truth <= high)).mean()
    errors = np.array([[b.rating(m).ordering_error for m in b.models] for b in boards])
    of_ordering = (np.abs(ratings - truth) < 1.96 * errors).mean()
    print(
        f"\ncoverage of Elo's 95 % interval over prompts {coverage:.3f}; of mean ± 1.96 SEM {of_ordering:.3f}"
    )
    assert 0.93 <= coverage <= 0.97


def test_few_orders_of_each_draw_do_not_widen_the_interval():
    battles = simulated(1)
    few, many = (
        std_errors(elo(n_perms=1, n_bootstraps=2000, perms_per_bootstrap=n), battles)
        for n in (2, 30)
    )
    assert few == pytest.approx(many, rel=0.1)


def test_verdicts_on_one_prompt_are_drawn_together():
    """Fifty copies of each battle on its own prompt say nothing new; on fifty prompts they would."""
    battles = [
        Battle(model_a="a", model_b="b", winner=f"model_{'aab'[i % 3]}", question_id=f"q{i}")
        for i in range(30)
    ]
    once = std_errors(elo(k=0.02), battles)
    copies = [b for b in battles for _ in range(10)]
    together = std_errors(elo(k=0.02), copies)
    assert together["a"] == pytest.approx(
        10 * (once["a"] or 0.0), rel=0.02
    )  # K small: Elo is K times a sum


@pytest.mark.parametrize(
    ("battles", "changes"),
    [
        ([Battle(model_a="a", model_b="b", winner="model_a", question_id="q")] * 5, {}),
        ([dataclasses.replace(battle, question_id="q") for battle in simulated(1, 20)], {}),
        (
            [
                dataclasses.replace(battle, question_id=q)
                for battle in simulated(1, 1) * 2
                for q in "pqr"
            ],
            {},
        ),
        (simulated(1, 20), {"n_bootstraps": 0}),
    ],
    ids=["one prompt of one battle", "one prompt", "prompts that say the same", "n_bootstraps=0"],
)
def test_where_prompts_do_not_differ_or_are_not_drawn_there_is_no_interval(
    battles: list[Battle], changes: dict
):
    board = elo(**changes).rate({"d": battles})["d"]
    assert {(r.std_error, r.ci_low, r.ci_high) for r in board.ratings} == {(None, None, None)}


def test_a_model_that_only_ties_has_a_rating_and_no_interval():
    battles = [*simulated(1, 30), Battle(model_a="a", model_b="z", winner="tie", question_id="q0")]
    board = elo().rate({"d": battles})["d"]
    assert board.rating("z").rating == 1400
    assert board.rating("z").std_error is None
    assert board.rating("a").std_error is not None


def test_only_the_primary_k_has_an_interval_and_the_samples_are_those_without_it():
    battles = {"d": simulated(1, 30)}
    with_it, without = (elo(n_bootstraps=n).sweep(battles)["d"] for n in (50, 0))
    assert with_it[4.0].ratings == without[4.0].ratings
    assert np.array_equal(with_it[16.0].samples, without[16.0].samples)
    assert with_it[16.0].ratings[0].std_error is not None


@pytest.mark.parametrize(
    "changes", [{"n_bootstraps": 1}, {"n_bootstraps": -1}, {"perms_per_bootstrap": 0}]
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, int]):
    (name,) = changes
    with pytest.raises(UserError, match=f"^{name}: found"):
        elo(**changes)


@pytest.mark.parametrize("ties", ["drop", "half"])
@pytest.mark.parametrize("winner", ["model_a", "model_b", "tie"])
def test_who_only_wins_loses_or_ties_has_no_interval_and_the_others_have(winner: str, ties: str):
    """d against each of the others on every prompt; with ties dropped, d that only ties does not play."""
    battles = [battle for battle in simulated(1, 40) if "d" not in (battle.model_a, battle.model_b)]
    battles += [
        Battle(model_a="d", model_b="abc"[q % 3], winner=winner, question_id=f"{q}")
        for q in range(40)
    ]
    found = std_errors(elo(ties=ties), battles)
    assert {model for model, error in found.items() if error is None} == {"d"}
