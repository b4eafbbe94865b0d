"""One unit of observation: prompts with the same text, clusters, and prompts of unequal size."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from elo_exp.analysis.agreement import gold_results, kappa
from elo_exp.analysis.comparisons import differences
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.mean_scores import mean_scores
from elo_exp.analysis.standings import Standings, leaderboards
from elo_exp.analysis.win_rates import interval_by_prompt, wilson_interval
from elo_exp.data import (
    answer_joins,
    battle_columns,
    battle_files,
    labelled_pairs,
    labels,
)
from elo_exp.data.answer_joins import AnswerSet
from elo_exp.data.bank import merge_clusters
from elo_exp.data.battle_clusters import set_clusters
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battle_judges import find_annotators
from elo_exp.data.battle_lines import encode_battles
from elo_exp.data.battles import Battles
from elo_exp.data.labels import Label
from elo_exp.data.scores import Score
from elo_exp.errors import UserError
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.ratings.games import make_games
from elo_exp.records import Battle, Prompt
from elo_exp.report.sentences.tournament_sentences import sentence
from tests.data import battle, write_table
from tests.experiments import built
from tests.test_pairs import COMPARISON, judged

COLUMNS = {name: name for name in battle_columns.FIELDS} | {"score": None}
FIT = BradleyTerry(
    initial_rating=1400.0, orders="both", interval="sandwich", n_bootstraps=2, seed=0
)


def read(path: Path, **columns: str) -> Battles:
    found, _ = battle_files.read(path, columns={**COLUMNS, **columns}, filters={})
    return found


def vote(winner: str, **others: object) -> dict[str, object]:
    return {"model_a": "old", "model_b": "new", "winner": winner, **others}


def concluded(battles: Battles, kind: str = "people") -> Standings:
    by_dimension = {"d": battles}
    boards = leaderboards(
        by_dimension, {"bradley_terry": FIT}, one_sided_of="bradley_terry"
    )
    found = Standings(
        models=battles.models,
        battles=by_dimension,
        boards=boards,
        differences={name: differences(some) for name, some in boards.items()},
    )
    return add_conclusions(found, Scope(kind=kind, source="votes"))


# Files


@pytest.mark.parametrize("large", [0, 10**9], ids=["by columns", "by rows"])
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_the_text_of_a_question_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int, suffix: str
):
    """White space is no difference."""
    monkeypatch.setattr(battle_files, "MIN_DUCKDB_BYTES", large)
    texts = ("Why?", " Why?", "Why?\n", "Who  was it?", "Who was it?", "When?")
    rows = [vote("model_a", prompt=text) for text in texts]
    battles = read(write_table(tmp_path / f"votes.{suffix}", rows))
    assert battles.n_prompts() == 3
    assert battles.names_prompts()
    assert battles.n_unnamed() == 0


@pytest.mark.parametrize("large", [0, 10**9], ids=["by columns", "by rows"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_conversation_begins_with_its_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int, suffix: str
):
    """The answers in it say nothing about which question was asked."""
    monkeypatch.setattr(battle_files, "MIN_DUCKDB_BYTES", large)
    rows = [
        vote(
            "model_b",
            conversation_a=[
                {"role": "user", "content": f"Question {n % 2}"},
                {"role": "assistant", "content": f"Answer {n}"},
            ],
        )
        for n in range(6)
    ]
    assert read(write_table(tmp_path / f"votes.{suffix}", rows)).n_prompts() == 2


def test_questions_of_other_names_and_the_same_text_are_one_cluster(tmp_path: Path):
    texts = ("Why?", "Why? ", "Who?", "When?")
    rows = [
        vote("model_a", question_id=f"q{n}", prompt=text)
        for n, text in enumerate(texts)
    ]
    battles = read(write_table(tmp_path / "votes.jsonl", rows))
    assert battles.n_prompts() == 4
    assert len(np.unique(battles.units())) == 3


def test_a_column_names_clusters_and_one_that_is_not_there_is_refused(tmp_path: Path):
    rows = [
        vote("model_a", question_id=f"q{n}", family=f"f{n // 3}") for n in range(12)
    ]
    path = write_table(tmp_path / "votes.jsonl", rows)
    battles = read(path, cluster="family")
    assert (battles.n_prompts(), len(np.unique(battles.units()))) == (12, 4)
    with pytest.raises(UserError, match="has no column famly"):
        read(path, cluster="famly")
    written = tmp_path / "battles.jsonl"
    written.write_text("".join(encode_battles(battles)), "utf-8")
    assert json.loads(written.read_text("utf-8").splitlines()[3])["cluster"] == "f1"
    np.testing.assert_array_equal(read(written).units(), battles.units())


def test_battles_that_name_no_question_among_others_are_one_cluster(tmp_path: Path):
    """They may all be on one prompt: a name that is blanked adds no prompt."""
    rows = [
        vote("model_a", question_id=f"q{n}" if n % 2 else None, winner_of=n)
        for n in range(40)
    ]
    battles = read(write_table(tmp_path / "votes.jsonl", rows))
    assert battles.n_prompts() == 21
    assert len(np.unique(battles.units())) == 21


def test_clusters_are_kept_beside_other_battles():
    one = Battles.from_rows([battle("a", "b", "model_a", question_id="q", cluster="c")])
    other = Battles.from_rows([battle("a", "b", "model_b", question_id="r")])
    for joined in (concatenate_battles(one, other), concatenate_battles(other, one)):
        clusters = {row.question_id: row.cluster for row in joined.rows()}
        assert clusters == {"q": "c", "r": None}
        assert set_clusters(joined, {"r": "c"}).units().tolist() == [0, 0]


# Fits


def test_a_cluster_is_fitted_as_one_prompt_is():
    rng = np.random.default_rng(4)
    models = rng.permuted(np.tile(["a", "b", "c"], (120, 1)), axis=1)
    rows = [
        battle(
            str(a),
            str(b),
            "model_a" if rng.random() < 0.6 else "model_b",
            question_id=f"q{n}",
            cluster=f"c{n // 5}",
        )
        for n, (a, b, _) in enumerate(models)
    ]
    clustered = Battles.from_rows(rows)
    pooled = clustered.set_questions(clustered.clusters, clustered.units())
    boards = [FIT.rate({"d": some})["d"] for some in (clustered, pooled)]
    np.testing.assert_allclose(boards[0].covariance, boards[1].covariance)
    assert boards[0].n_clusters == boards[1].n_clusters == 24


def of_sizes(sizes: list[int], n_won: list[int]) -> Battles:
    return Battles.from_rows(
        [
            battle(
                "new", "old", "model_a" if i < won else "model_b", question_id=f"q{q}"
            )
            for q, (size, won) in enumerate(zip(sizes, n_won, strict=True))
            for i in range(size)
        ]
    )


def test_by_hand_three_prompts_of_unequal_size():
    """20 of 40 games are on one of three prompts: worth 40^2 / (20^2 + 10^2 + 10^2) = 2.67 of them."""
    board = FIT.rate({"d": of_sizes([20, 10, 10], [14, 5, 5])})["d"]
    assert board.n_effective == pytest.approx(1600 / 600)
    share = 24 / 40
    apart = [14 - 20 * share, 5 - 10 * share, 5 - 10 * share]
    left_out = [2 / 3 / (1 - size / 40) for size in (20, 10, 10)]
    squares = sum((x * w) ** 2 for x, w in zip(apart, left_out, strict=True))
    error = (
        POINTS_PER_LOG_ODDS * math.sqrt(3 / 2 * squares) / (40 * share * (1 - share))
    )
    (pair,) = differences({"d": board})
    assert pair.std_error == pytest.approx(error)
    half = scipy.stats.t.ppf(0.975, 1600 / 600 - 1) * error
    assert pair.ci_low == pytest.approx((pair.difference or 0.0) - half)


def test_prompts_of_equal_size_keep_their_digits():
    """n prompts of equal size are worth n, exactly, and hide nothing."""
    for size in (1, 3, 7):
        some = make_games(of_sizes([size] * 23, [*range(size), *[1] * (23 - size)]), orders="both")  # fmt: skip
        found = some.balance(some.sum_by_cluster(np.ones(len(some.score))))
        assert found.n_effective.tolist() == [23.0, 23.0]
        assert found.variance_factor.tolist() == [1.0, 1.0]
        assert found.n_effective_clusters == 23.0


def test_the_sentence_counts_the_prompts_of_the_pair_and_what_they_are_worth():
    """25 prompts, of which one has a third of the votes; a third entrant on 60 others is not in the claim."""
    few = of_sizes([200, *[16] * 24], [130, *[12] * 24]).rows()
    others = [
        battle("new", "far", "model_a" if n % 9 else "model_b", question_id=f"q{n}")
        for n in range(25)
    ]
    many = [
        battle("far", "off", "model_a" if n % 3 else "model_b", question_id=f"p{n}")
        for n in range(60)
    ]
    standings = concluded(Battles.from_rows([*few, *others, *many]))
    conclusion = standings.conclusions["d"]
    assert (conclusion.state, conclusion.subject) == ("few", "new")
    assert conclusion.scope.n_prompts == 25
    assert conclusion.scope.n_effective == pytest.approx(8, abs=1)


def test_law_a_name_less_never_says_more(tmp_path: Path):
    """Dropping the column of ids, or blanking any of its cells, raises no state."""
    from elo_exp.analysis.conclusions.tournament_conclusion import STATES

    rng = np.random.default_rng(1)
    for n in (12, 30, 80):
        rows = [
            vote("model_b" if rng.random() < 0.8 else "model_a", question_id=f"q{q}")
            for q in range(n)
            for _ in range(4)
        ]
        blanked = [
            {**row, "question_id": None} if rng.random() < 0.3 else row for row in rows
        ]
        dropped = [{**row, "question_id": None} for row in rows]
        state, *others = (
            STATES.index(
                concluded(read(write_table(tmp_path / "v.jsonl", some)))
                .conclusions["d"]
                .state
            )
            for some in (rows, blanked, dropped)
        )
        assert max(others) <= state


# Simulated studies

R = 400


def sizes_of(kind: str, n: int, total: int, rng: np.random.Generator) -> list[int]:
    weight = np.ones(n)
    if kind == "one":
        weight[0] = (n - 1) * 0.4 / 0.6
    elif kind == "two":  # a world of this test: two prompts with 60% of the votes
        weight[:2] = (n - 2) * 0.3 / 0.4
    elif kind == "zipf":
        weight = 1 / np.arange(1, n + 1) ** 1.2
    elif kind == "lognormal":
        weight = np.exp(1.5 * rng.standard_normal(n))
    return np.maximum(1, total * weight / weight.sum()).astype(int).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("n_models", [2, 4])
@pytest.mark.parametrize("kind", ["equal", "one", "two", "zipf", "lognormal"])
def test_equals_on_unequal_prompts_are_told_apart_as_rarely_as_promised(
    kind: str, n_models: int
):
    """docs/evidence.md has the table: wrong leads .13 to .34 by n - 1 degrees of freedom."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(R):
        sizes = sizes_of(kind, 25, 600, rng)
        prompt = np.repeat(np.arange(25), sizes)
        quality = 1.2 * rng.standard_normal((25, n_models))
        a = rng.integers(n_models, size=len(prompt))
        b = (a + rng.integers(1, n_models, size=len(prompt))) % n_models
        p = scipy.special.expit(quality[prompt, a] - quality[prompt, b])
        won = rng.random(len(prompt)) < p
        rows = [
            Battle(
                model_a=f"m{i}",
                model_b=f"m{j}",
                winner="model_a" if w else "model_b",
                question_id=f"q{q}",
            )
            for i, j, w, q in zip(a, b, won, prompt, strict=True)
        ]
        board = FIT.rate({"d": Battles.from_rows(rows)})["d"]
        wrong += any(d.significant for d in differences({"d": board}))
    assert wrong / R <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / R)


# Accuracy on labelled pairs


def test_pairs_of_one_prompt_are_one_observation():
    """One pair on each prompt: Wilson's interval to the digit. Three copies of each pair add nothing."""
    right = np.array([1.0] * 30 + [0.0] * 10)
    alone = interval_by_prompt(right, np.arange(40))
    assert alone == wilson_interval(0.75, 40)
    low, high = interval_by_prompt(np.repeat(right, 3), np.repeat(np.arange(40), 3))
    assert (low, high) == pytest.approx(alone, abs=0.012)
    assert high - low > alone[1] - alone[0]


def test_no_interval_of_an_accuracy_has_width_zero():
    low, high = interval_by_prompt(np.ones(60), np.repeat(np.arange(20), 3))
    assert (low, high) == (pytest.approx(0.82, abs=0.01), 1.0)
    assert interval_by_prompt(np.ones(60), np.zeros(60, dtype=np.intp)) == (0.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("n_prompts", "n_pairs"), [(240, 1), (80, 3), (20, 12)])
@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
def test_the_interval_of_an_accuracy_holds_as_often_as_promised(
    n_prompts: int, n_pairs: int, spread: float
):
    """Of 2,000 audits each; pairs of one prompt share its difficulty."""
    rng = np.random.default_rng(5)
    node, weight = np.polynomial.hermite_e.hermegauss(61)
    middle = 1.2 * math.sqrt(1 + 0.35 * spread**2)
    expected = scipy.special.expit(middle + spread * node) @ weight / weight.sum()
    prompt, held = np.repeat(np.arange(n_prompts), n_pairs), 0
    for _ in range(2_000):
        p = scipy.special.expit(middle + spread * rng.standard_normal(n_prompts))
        right = (rng.random(len(prompt)) < p[prompt]).astype(np.float64)
        low, high = interval_by_prompt(right, prompt)
        held += low <= expected <= high
    assert 0.925 <= held / 2_000 <= 0.985


# Scores


def test_a_mean_score_counts_clusters_by_their_size():
    """Half of the items are on one passage: worth 40^2 / (20^2 + 20) = 3.8 clusters; equal ones keep their digits."""
    rng = np.random.default_rng(3)
    values = rng.random((40, 2))
    sizes = {"equal": np.arange(40) // 2, "one": np.maximum(np.arange(40) - 19, 0)}
    board = {
        name: mean_scores(
            "quiz",
            [
                Score(
                    dimension="quiz",
                    entrant=who,
                    item=str(i),
                    value=float(values[i, j]),
                    cluster=f"c{cluster[i]}",
                )
                for i in range(40)
                for j, who in enumerate(("a", "b"))
            ],
            False,
        )
        for name, cluster in sizes.items()
    }
    assert board["equal"].n_effective_clusters == 20.0
    assert board["one"].n_clusters == 21
    assert board["one"].n_effective_clusters == pytest.approx(1600 / 420)


# Banks


def prompt(name: str, text: str) -> Prompt:
    return Prompt(prompt_id=name, text=text, source="s", subject="s")


def test_prompts_of_one_text_are_one_cluster_and_so_are_named_ones():
    texts = {"a": "Why?", "b": "Why? ", "c": "Who?", "d": "When?", "e": "Where?"}
    prompts = [prompt(name, text) for name, text in texts.items()]
    assert merge_clusters(prompts, {}) == {"a": "a", "b": "a"}
    found = merge_clusters(prompts, {"b": "paper", "c": "paper", "d": "book"})
    assert found == {"a": "paper", "b": "paper", "c": "paper", "d": "book"}


# People


def labels_of(
    n_annotators: int, taste: float, rng: np.random.Generator, n: int = 240
) -> Battles:
    """Of two equal entrants on 100 prompts, by annotators of whom each has a taste in log-odds."""
    quality, own = rng.standard_normal(100), taste * rng.standard_normal(n_annotators)
    prompt, person = rng.integers(100, size=n), rng.permutation(n) % n_annotators
    won = rng.random(n) < scipy.special.expit(1.3 * quality[prompt] + own[person])
    return Battles.from_rows(
        [
            battle(
                "new",
                "old",
                "model_a" if w else "model_b",
                question_id=f"q{q}",
                judge_model=f"person {p}",
            )
            for w, q, p in zip(won, prompt, person, strict=True)
        ]
    )


def test_by_hand_the_errors_of_three_annotators_are_over_prompts_and_people():
    """Each labels four prompts once: the variances by prompt and by person, less that by label."""
    won = {"anna": 4, "ben": 3, "cy": 1}
    rows = [
        battle("new", "old", "model_a" if i < n else "model_b", question_id=f"{name}{i}", judge_model=name)
        for name, n in won.items()
        for i in range(4)
    ]  # fmt: skip
    board = FIT.rate({"d": Battles.from_rows(rows)})["d"]
    (pair,) = differences({"d": board})
    share = 8 / 12
    by_label = 8 * (1 - share) ** 2 + 4 * share**2
    by_person = sum((n - 4 * share) ** 2 for n in won.values())
    variance = 12 / 11 * by_label + max(3 / 2 * by_person - by_label, 0.0)
    error = POINTS_PER_LOG_ODDS * math.sqrt(variance) / (12 * share * (1 - share))
    assert pair.std_error == pytest.approx(error)
    half = scipy.stats.t.ppf(0.975, 2) * error
    assert pair.ci_high == pytest.approx((pair.difference or 0.0) + half)


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_annotators_are_named(n: int):
    rows = [
        battle("new", "old", "model_a" if q % 8 else "model_b", question_id=f"q{q}", judge_model=f"p{q % n}")
        for q in range(80)
    ]  # fmt: skip
    conclusion = concluded(Battles.from_rows(rows)).conclusions["d"]
    assert conclusion.state == "undecided"
    who = "p0 prefers" if n == 1 else "p0 and p1 prefer"
    assert sentence(conclusion).startswith(f"{who} new to old by ")


@pytest.mark.slow
@pytest.mark.parametrize("n_annotators", [3, 5, 8])
@pytest.mark.parametrize("taste", [0.0, 0.5])
def test_equals_are_told_apart_by_few_people_as_rarely_as_promised(
    n_annotators: int, taste: float
):
    """The truth is that of all such people: without the annotators' errors .2 and more are told apart."""
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(R):
        board = FIT.rate({"d": labels_of(n_annotators, taste, rng)})["d"]
        wrong += any(d.significant for d in differences({"d": board}))
    assert wrong / R <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / R)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_votes_that_name_nobody_make_no_further_annotator(n: int):
    """Blanking a name does not turn off what is known of the others."""
    rows = [
        battle("new", "old", "model_a" if q % 8 else "model_b", question_id=f"q{q}",
               judge_model=f"p{q % n}" if q % 5 else "human")
        for q in range(80)
    ]  # fmt: skip
    battles = Battles.from_rows(rows)
    who = find_annotators(battles)
    assert who is not None and len(np.unique(who)) == n + 1
    (reasons,) = [concluded(battles).conclusions["d"].reasons]
    assert ("annotators" in {reason.name for reason in reasons}) == (n < 3)


# Answers, labelled pairs and people's labels


def answers(folder: Path, **clusters: Sequence[str | None]) -> Mapping[str, AnswerSet]:
    """A file of answers to q0, q1, ... for each entrant, with the cluster of each question."""
    files = [
        {
            "name": name,
            "file": str(
                write_table(
                    folder / f"{name}.jsonl",
                    [
                        {"id": f"q{q}", "question": f"What is {q}?", "answer": f"{name} {q}", "Cluster": cluster}
                        for q, cluster in enumerate(column)
                    ],
                )
            ),
        }
        for name, column in clusters.items()
    ]  # fmt: skip
    return answer_joins.read_answer_sets(answer_joins.parse_answers_setting(files))


def test_files_of_answers_name_clusters(tmp_path: Path):
    """In one file or in both; a prompt without a cluster is one by itself."""
    files = answers(tmp_path, old=["a", None, "b", None], new=["a", "a", None, None])
    joined = answer_joins.join(files, None)
    assert joined.clusters("cluster") == {"q0": "a", "q1": "a", "q2": "b"}
    assert joined.clusters("family") is None
    assert "cluster" in joined.columns
    files = answers(tmp_path, old=["a"], new=["b"])
    with pytest.raises(
        UserError, match=r"has prompt q0 in cluster b, and .* has it in a\."
    ):
        answer_joins.join(files, None).clusters("cluster")


def test_a_cluster_of_answers_that_no_file_has_is_refused(tmp_path: Path):
    answers(tmp_path, old=["a", "b"], new=["a", "b"])
    files = f"answers=[{tmp_path}/old.jsonl,{tmp_path}/new.jsonl]"
    given = (files, "prompts.bank_path=null", "judge=lexical", "rubric=[preference]")
    found = built(*given, "prompts.cluster=Cluster").experiment
    assert found.prompt_source.clusters == {"q0": "a", "q1": "b"}
    wrong = built(*given, "prompts.cluster=family").experiment
    with pytest.raises(
        UserError,
        match=r'be a column of the answer files .*; got "family".\n  The answer files have',
    ):
        _ = wrong.prompt_source.clusters


def test_labelled_pairs_of_one_cluster_are_one_observation(tmp_path: Path):
    """All pairs of a passage are right, or wrong: 40 of 80 pairs in 8 passages are known as 4 of 8 are."""
    rows = [
        {"prompt": f"p{n}", "response_a": f"a{n}", "response_b": "b", "label": "a", "cluster": f"c{n % 8}"}
        for n in range(80)
    ]  # fmt: skip
    pairs = labelled_pairs.read_pairs(write_table(tmp_path / "gold.jsonl", rows))
    shown = [replace(COMPARISON, prompt_id=pair.pair_id) for pair in pairs]
    given = [
        judged("A" if n % 8 < 4 else "B", "B" if n % 8 < 4 else "A", shown[n])
        for n in range(80)
    ]
    (found,) = gold_results(pairs, given)
    (alone,) = gold_results([replace(pair, cluster=None) for pair in pairs], given)
    assert found["accuracy"] == alone["accuracy"] == 0.5
    assert (found["low"], found["high"]) == pytest.approx((0.153, 0.847), abs=0.05)
    assert alone["low"] > 0.38


def test_kappa_counts_clusters_of_prompts():
    rng = np.random.default_rng(1)
    wins = rng.random(10) < 0.5
    sides = [
        [
            battle("new", "old", "model_a" if wins[q % 10] ^ (flip and q % 10 < 3) else "model_b",
                   question_id=f"q{q}", cluster=f"c{q % 10}")
            for q in range(100)
        ]
        for flip in (False, True)
    ]  # fmt: skip
    by_cluster, by_prompt = (
        kappa(
            *(
                Battles.from_rows([replace(b, **change) for b in side])
                for side in sides
            ),
            names=("one", "other"),
            dimension="d",
        )
        for change in ({}, {"cluster": None})
    )
    assert by_cluster["kappa"] == by_prompt["kappa"]
    assert by_cluster["n_prompts"] == by_prompt["n_prompts"] == 100
    assert by_cluster["std_error"] > 2.5 * by_prompt["std_error"]


def test_labels_of_people_are_in_the_clusters_of_their_prompts():
    rows = [
        (
            "anna",
            Label(page="", browser="", id=f"{q}", choice="1", cluster=cluster),
            replace(COMPARISON, prompt_id=f"p{q}"),
        )
        for q, cluster in enumerate([None, "b", None])
    ]
    found = labels.merge_clusters(rows, {"p0": "a"})
    assert [vote.cluster for vote in labels.votes_from_labels(rows, found)] == [
        "a",
        "b",
        None,
    ]
    with pytest.raises(UserError, match="have prompt p1 in cluster b, others in c"):
        labels.merge_clusters(rows, {"p1": "c"})
