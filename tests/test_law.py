"""The law: less information never makes a stronger claim.

Blanking a cell of a known row (an answer, a verdict, a score, an annotator's name), or dropping a column of question
ids, verdicts or annotators, never raises the state of a conclusion. Blanking cells at random does not narrow an interval
or lower a p value beyond noise.

States rank as the tables of their conclusions list them, the weakest first: tournaments, votes and scores by
`tournament.STATES`, placements by `arena.STATES`, comparisons of runs by `compare.STATES`. The other tables rank so:

- gate: `cannot tell` is below `fail`, and `fail` is not above `pass` or `same answers`: a candidate may be worse and yet
  within the margin, so that a pass that is lost may leave a fail that was true before
- audit: `cannot tell` is below `biased` and `ok`
- people: `open` is below `confirmed` and `contradicted`
- oracle: `refuse`, `caution`, `report`; of the choice `nobody`, `unknown`, `labels`, `labelled`, `near`, `best`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from elo_exp.analysis.audit_decisions import Measure, decide
from elo_exp.analysis.checks import PASSED, Check
from elo_exp.analysis.checks.same_verdict_check import same_verdict_check
from elo_exp.analysis.comparisons import Difference, differences
from elo_exp.analysis.complete_separation import rate_with_unbeaten
from elo_exp.analysis.conclusions import Scope, arena_conclusion, tournament_conclusion
from elo_exp.analysis.conclusions import compare_conclusion as compare_conclusions
from elo_exp.analysis.conclusions.audit_conclusion import conclude_judge
from elo_exp.analysis.conclusions.gate_conclusion import conclude
from elo_exp.analysis.conclusions.labels_conclusion import conclude_lead
from elo_exp.analysis.gate_checks import gate_check_definitions
from elo_exp.analysis.human_agreement import count_skipped, pair_leads
from elo_exp.analysis.noninferiority import (
    order_points,
    point_range,
    prompt_points,
    share_of_points,
)
from elo_exp.arrays import Array, Mask
from elo_exp.data.battles import Battles
from elo_exp.experiments.compare import compare_runs
from elo_exp.files import read_json, write_jsonl
from elo_exp.oracle.data import Dataset, Rows
from elo_exp.records import Battle, MissingBattle
from elo_exp.report.compare_page import conclude_comparison
from elo_exp.runs.reading import FinishedRun
from tests.arena_files import TheJudge, placed
from tests.arena_files import World as Arena
from tests.commands import attempt
from tests.gates import candidate_evidence
from tests.law_worlds import (
    VERDICTS,
    WINNERS,
    Rater,
    Row,
    Said,
    battles,
    blank,
    judged_again,
    rater,
    scores,
    without,
)
from tests.oracle_simulation import World, analysed, several
from tests.simulated_audits import DELTA, FAULTS, JUDGES, contrasts
from tests.standings import BRADLEY_TERRY
from tests.test_pairs import COMPARISON, judged

GATE = {"cannot tell": 0, "fail": 1, "pass": 2, "same answers": 2}
AUDIT = {"cannot tell": 0, "ok": 1, "biased": 1}
POLICY = ("refuse", "caution", "report")
CHOICE = ("nobody", "unknown", "labels", "labelled", "near", "best")
SLOW = pytest.mark.slow


@dataclass
class Law:
    """What was taken away, how often that raised a state, and what it did to intervals and p values."""

    ranks: Sequence[str]
    n: Counter[str] = field(default_factory=Counter)
    raised: list[tuple[str, str, str]] = field(default_factory=list)
    wider: dict[str, list[float]] = field(default_factory=dict)  # logarithm of a ratio
    doubt: dict[str, list[float]] = field(default_factory=dict)  # the same of p values

    def hold(self, taken: str, full: Said, less: Said) -> None:
        """Compare a conclusion with the one from less."""
        self.n[taken] += 1
        if self.ranks.index(less.state) > self.ranks.index(full.state):
            words = (str(one.row["sentence"]) for one in (full, less))
            self.raised.append((taken, *words))
        if full.width and less.width:
            ratio = float(np.log(less.width / full.width))
            self.wider.setdefault(taken, []).append(ratio)
        before, after = full.row.get("p_holm"), less.row.get("p_holm")
        if None not in (before, after) and full.row["first"] == less.row["first"]:
            ratio = np.log(max(after, 1e-6) / max(before, 1e-6))
            self.doubt.setdefault(taken, []).append(float(ratio))

    def is_within_noise(self, taken: str) -> bool:
        """Whether intervals got no narrower and p values no smaller, by three standard errors of their means."""
        return all(
            np.mean(found) >= -3.0 * np.std(found) / np.sqrt(len(found)) - 1e-9
            for found in (self.wider[taken], self.doubt[taken])
        )


@pytest.fixture
def rate(tmp_path: Path) -> Iterator[Rater]:
    with rater(tmp_path, "battles_on_error=drop", "allow_missing=true") as one:
        yield one


def sizes(default: int, large: int) -> pytest.MarkDecorator:
    """Run on a few worlds, and on many as a slow test."""
    return pytest.mark.parametrize("n", [default, pytest.param(large, marks=SLOW)])


# Ratings of verdicts and votes


def columns_dropped(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    return {
        "ids": without("question_id")(rows),
        "verdicts": without("verdict_ab", "verdict_ba")(rows),
        "ids and verdicts": without("question_id", "verdict_ab", "verdict_ba")(rows),
        "judge": without("judge_model")(rows),
    }


def cells_blanked(
    rows: Sequence[Row], first: str | None, rng: np.random.Generator
) -> Mapping[str, list[Row]]:
    """Cells at random, of comparisons that the first lost, and of those that flip."""
    some = {i for i in range(len(rows)) if rng.random() < 0.15}
    lost = {
        i
        for i, row in enumerate(rows)
        if (first, row["winner"])
        in ((row["model_a"], "model_b"), (row["model_b"], "model_a"))
    }
    flips = {i for i, row in enumerate(rows) if row["winner"] == "tie"}
    return {
        "some ids": blank(rows, some, "question_id"),
        "some verdicts": blank(rows, some, *VERDICTS),
        "some second orders": blank(rows, some, "verdict_ba"),
        "verdicts that were lost": blank(rows, lost, *VERDICTS),
        "verdicts that flip": blank(rows, flips, *VERDICTS),
        "second orders that flip": blank(rows, flips, "verdict_ba"),
        "second orders that were lost": blank(rows, lost, "verdict_ba"),
        "orders that were lost": [
            {**row, **dict.fromkeys(lost_orders(row, first))} for row in rows
        ],
        "judge of some": blank(rows, some, "judge_model"),
    }


def lost_orders(row: Row, first: str | None) -> list[str]:
    """The columns of the orders in which the first lost; the winner is kept."""
    lost = {row["model_a"]: "model_b", row["model_b"]: "model_a"}.get(first)
    return [name for name in VERDICTS[1:] if row[name] == lost]


@pytest.mark.system
@sizes(3, 120)
@pytest.mark.parametrize("judge", ["opus", "human"])
def test_a_column_that_is_dropped_raises_no_claim_about_battles(
    rate: Rater, judge: str, n: int
):
    rng, law = np.random.default_rng(77), Law(tournament_conclusion.STATES)
    for _ in range(n):
        rows = battles(rng, judge)
        full = rate(rows)
        for taken, less in columns_dropped(rows).items():
            law.hold(taken, full, rate(less))
    assert law.n.total() == 4 * n and not law.raised


@pytest.mark.system
@sizes(2, 100)
@pytest.mark.parametrize("judge", ["opus", "human"])
def test_a_cell_that_is_blank_raises_no_claim_about_battles(
    rate: Rater, judge: str, n: int
):
    rng, law = np.random.default_rng(78), Law(tournament_conclusion.STATES)
    for world in range(n):
        rows = battles(rng, judge, ties=(0.0, 0.3)[world % 2])
        if judge == "human" and world % 4 > 1:
            rows = [{**row, "judge_model": f"person {rng.integers(4)}"} for row in rows]
        full = rate(rows)
        for taken, less in cells_blanked(rows, full.row.get("first"), rng).items():
            law.hold(taken, full, rate(less))
    assert not law.raised
    for taken in ("some ids", "some verdicts", "some second orders"):
        assert law.is_within_noise(taken), (taken, law.wider[taken], law.doubt[taken])


@pytest.mark.system
@sizes(3, 60)
def test_a_name_of_an_annotator_that_is_blank_raises_no_claim(rate: Rater, n: int):
    """One name, a third of them, or all. A file without any name does not say whether one person voted or many."""
    rng, law = np.random.default_rng(83), Law(tournament_conclusion.STATES)
    for _ in range(n):
        of = int(rng.choice([1, 2, 3, 5]))
        votes = [
            {**row, "source": "human", "judge_model": f"person {rng.integers(of)}"}
            for row in without("verdict_ab", "verdict_ba")(battles(rng))
        ]
        full = rate(votes)
        some = {i for i in range(len(votes)) if rng.random() < 0.3}
        law.hold("one", full, rate(blank(votes, {0}, "judge_model")))
        law.hold("some", full, rate(blank(votes, some, "judge_model")))
        law.hold("all", full, rate(without("judge_model")(votes)))
    assert law.n.total() == 3 * n and not law.raised


# A tournament of recorded answers and verdicts, by the command


def tournament_of(
    folder: Path, answers: Mapping[str, Sequence[Row]], verdicts: Sequence[Row]
) -> Said:
    """What a tournament says of answers and verdicts on file. If it refuses them, it says nothing."""
    folder.mkdir(parents=True)
    for model, rows in answers.items():
        write_jsonl(folder / f"{model}.jsonl", rows)
    write_jsonl(folder / "verdicts.jsonl", verdicts)
    ran = attempt(
        *(f"{model}.jsonl" for model in answers),
        *("judge=replay", "judge.path=verdicts.jsonl", "allow_missing=true"),
        *("tracker=local", "figures=false", "elo.n_perms=1", "elo.n_bootstraps=2"),
        "hydra.run.dir=run",
        folder=folder,
    )
    if ran.code:
        assert ran.code == 2
        return Said({"state": "none", "sentence": ran.err, "first": None})
    (said,) = ran.read("ratings.json")["conclusions"].values()
    return Said(said)


@pytest.mark.system
@sizes(1, 8)
def test_a_cell_that_is_blank_in_a_tournament_raises_no_claim(tmp_path: Path, n: int):
    """Answers, and recorded verdicts of one order or of both; columns of ids. The default has one world and two cells."""
    rng, law = np.random.default_rng(121), Law(tournament_conclusion.STATES)
    for world in range(n):
        rows = battles(rng, ties=(0.0, 0.25)[world % 2])
        prompts = list(dict.fromkeys(row["question_id"] for row in rows))
        models = sorted({row[side] for row in rows for side in ("model_a", "model_b")})
        answers = {
            model: [
                {
                    "id": prompt,
                    "prompt": f"Question {prompt}?",
                    "response": f"{model} on {prompt} {'word ' * int(rng.integers(3, 9))}",
                }
                for prompt in prompts
            ]
            for model in models
        }
        full = tournament_of(tmp_path / f"{world}", answers, rows)
        first = full.row.get("first") or models[0]
        rival = next(model for model in models if model != first)
        some = {i for i in range(len(rows)) if rng.random() < 0.15}
        lost = {i for i, row in enumerate(rows) if len(lost_orders(row, first)) == 2}
        where = {rows[i]["question_id"] for i in lost}
        by_chance = {rows[i]["question_id"] for i in some}
        kept = [row for i, row in enumerate(rows) if i not in lost]
        no_ids = {model: without("id")(own) for model, own in answers.items()}
        studies = {
            "second orders that were lost": (answers, blank(rows, lost, "verdict_ba")),
            "answers to prompts that were lost": (lacks(answers, first, where), rows),
            "verdicts that were lost": (answers, kept),
            "the rival's answers": (lacks(answers, rival, where), rows),
            "some answers": (lacks(answers, rival, by_chance), rows),
            "some orders": (answers, blank(rows, some, *VERDICTS[1:])),
            "some verdicts": (answers, blank(rows, some, *VERDICTS)),
            "ids of answers": (no_ids, rows),
            "ids of verdicts": (answers, without("question_id")(rows)),
            "judge": (answers, without("judge_model")(rows)),
        }
        for taken, less in [*studies.items()][: 2 if n == 1 else None]:
            law.hold(taken, full, tournament_of(tmp_path / f"{world} {taken}", *less))
    assert law.n.total() == (2 if n == 1 else 10 * n) and not law.raised


def lacks(
    answers: Mapping[str, Sequence[Row]], model: str, prompts: Collection[str]
) -> dict[str, Sequence[Row]]:
    """The answers without those of a model to these prompts."""
    own = answers[model]
    which = {i for i, row in enumerate(own) if row["id"] in prompts}
    return {**answers, model: blank(own, which, "response")}


# Two runs


def changed(first: FinishedRun, second: FinishedRun) -> Said:
    """What may be said of the change between two runs."""
    result = conclude_comparison(compare_runs([first, second]))
    (row,) = result.list_conclusion_rows().values()
    return Said({"state": row["state"], "sentence": row["sentence"]})


@pytest.mark.system
@sizes(1, 60)
def test_a_cell_that_is_blank_in_one_of_two_runs_raises_no_claim(rate: Rater, n: int):
    """A cell of either run is blank, at random or in the rows that an entrant won or lost."""
    rng, law = np.random.default_rng(84), Law(compare_conclusions.STATES)
    for world in range(n):
        rows = battles(rng, ties=(0.3, 0.0)[world // 2 % 2])
        again = judged_again(rows, rng, (0.1, 0.0, 0.3, 0.6)[world % 4])
        first = rate.finished(rows)
        full = changed(first, rate.finished(again))
        some, won, lost = (
            {
                i
                for i, row in enumerate(again)
                if rng.random() < share and row["winner"] in winners
            }
            for share, winners in (
                (0.15, WINNERS),
                (0.6, ("model_a",)),
                (0.6, ("model_b",)),
            )
        )
        cells: dict[str, tuple[Collection[int], Sequence[str]]] = {
            "ids": (some, ["question_id"]),
            "verdicts": (some, VERDICTS),
            "orders": (some, VERDICTS[1:]),
            "verdicts that were won": (won, VERDICTS),
            "second orders that were lost": (lost, ["verdict_ba"]),
            "judge": (some, ["judge_model"]),
        }
        for number, (taken, (which, columns)) in enumerate(cells.items()):
            if (world + number) % 3:
                pair = first, rate.finished(blank(again, which, *columns))
            else:
                pair = rate.finished(blank(rows, which, *columns)), rate.finished(again)
            law.hold(taken, full, changed(*pair))
    assert law.n.total() == 6 * n and not law.raised


# People's labels of a judge's comparisons


def said_of_lead(votes: Sequence[Battle], skipped: Sequence[MissingBattle]) -> str:
    """What people say of a judge's lead of m0 over m1."""
    own = {"d": Battles.from_rows(votes)}
    tested = differences(rate_with_unbeaten(BRADLEY_TERRY, own))
    tested = count_skipped(tested, own, {"d": skipped}, BRADLEY_TERRY)
    lead = Difference(
        dimension="d", higher="m0", lower="m1", difference=100.0, significant=True
    )
    ((_, people),) = pair_leads([lead], tested, dimension="d")
    n = len({vote.judge_model for vote in votes})
    return conclude_lead(lead, people, n_more=None, scope=Scope(), n_annotators=n).state


@sizes(4, 200)
def test_a_label_that_is_skipped_raises_no_claim_of_people(n: int):
    """At random, those for the judge's first, and those against it."""
    rng = np.random.default_rng(85)
    for _ in range(n):
        rows = battles(rng, "human")
        who = rng.integers(int(rng.integers(2, 6)), size=len(rows)).tolist()
        votes = [
            Battle(
                model_a=row["model_a"],
                model_b=row["model_b"],
                winner=row["winner"],
                question_id=row["question_id"],
                judge_model=f"person {person}",
                source="human",
                dimension="d",
            )
            for row, person in zip(rows, who, strict=True)
        ]
        full = said_of_lead(votes, [])
        for winners in (WINNERS, ["model_a"], ["model_b"]):
            gone = {
                i
                for i, vote in enumerate(votes)
                if vote.winner in winners and rng.random() < 0.3
            }
            less = said_of_lead(
                [vote for i, vote in enumerate(votes) if i not in gone],
                [missing_of(vote) for i, vote in enumerate(votes) if i in gone],
            )
            assert less in ("open", full)


def missing_of(vote: Battle) -> MissingBattle:
    names = ("model_a", "model_b", "question_id", "judge_model", "dimension")
    return MissingBattle(**{name: getattr(vote, name) for name in names})


# Scores


@pytest.mark.system
@sizes(4, 200)
def test_a_score_that_is_blank_raises_no_claim(rate: Rater, n: int):
    """At random, the leader's worst scores, its rival's best, or one."""
    rng, law = np.random.default_rng(79), Law(tournament_conclusion.STATES)
    for _ in range(n):
        given = scores(rng)
        full = rate.of_scores(given)
        first = full.row.get("first") or "m0"
        second = full.row.get("second") or next(name for name in given if name != first)
        size = len(given[first])
        k = max(1, size // 8)
        worst = np.argsort(given[first], kind="stable")[:k].tolist()
        best = np.argsort(given[second], kind="stable")[-k:].tolist()
        some = rng.choice(size, k, replace=False).tolist()
        for taken, name, which in (
            ("the leader's worst", first, worst),
            ("the leader's worst one", first, worst[:1]),
            ("the rival's best", second, best),
            ("some of the leader", first, some),
            ("some of the rival", second, some),
        ):
            less = dict(given)
            less[name] = [None if i in which else x for i, x in enumerate(given[name])]
            law.hold(taken, full, rate.of_scores(less))
    assert not law.raised
    for taken in ("some of the leader", "some of the rival"):
        assert law.is_within_noise(taken)


# Gate


SEES = Check(name="control", state=PASSED, value=1.0, n=10, of=10)


def gated(orders: Sequence[tuple[str, str]]) -> str:
    """The state of a gate whose judge found the degraded answers, by these verdicts on a prompt each."""
    judgments = [
        judged(ab, ba, replace(COMPARISON, prompt_id=f"q{i}"))
        for i, (ab, ba) in enumerate(orders)
    ]
    slots = {(f"q{i}", 0): order_points(one) for i, one in enumerate(judgments)}
    points, floor = prompt_points(slots, 0.1)
    share = share_of_points(
        [*points.values()], floor=floor, margin=0.1, alpha=0.05, dimension="d", n_dimensions=1
    )  # fmt: skip
    evidence = candidate_evidence(judgments)
    of_orders = ("flips", "first_shown", "ties", "invalid")
    checks = [
        same_verdict_check(judgments, sees_control=True),
        SEES,
        *(gate_check_definitions()[name].check_pass(evidence) for name in of_orders),
    ]
    given = {"candidate": "c", "baseline": "b", "scope": Scope()}
    return conclude([share], margin=0.1, checks={"d": checks}, **given).state


@pytest.mark.system
@sizes(5, 200)
def test_a_verdict_that_is_blank_raises_no_claim_of_a_gate(n: int):
    """In one order or in both; at random, those that the candidate lost, and those that it won."""
    rng = np.random.default_rng(80)
    for _ in range(n):
        k = int(rng.choice([15, 20, 25, 40, 80]))
        chances = rng.dirichlet(rng.choice([0.3, 1.0, 5.0]) * np.ones(3))
        ab = rng.choice(["A", "B", "TIE"], k, p=chances)
        ba = rng.choice(["B", "A", "TIE"], k, p=chances)
        orders = [*zip(ab.tolist(), ba.tolist(), strict=True)]
        full = gated(orders)
        least = [point_range(judged(*both))[0] for both in orders]
        for which in (
            {int(rng.integers(k))},
            {i for i in range(k) if rng.random() < 0.1},
            {i for i in range(k) if least[i] < 0.5},
            {i for i in range(k) if least[i] > 0.5},
        ):
            for gone in (("INVALID", None), ("INVALID", "INVALID")):
                less = [
                    (gone[0], gone[1] or b) if i in which else (a, b)
                    for i, (a, b) in enumerate(orders)
                ]
                assert GATE[gated(less)] <= GATE[full]


# Audit


def audited(measures: Sequence[Measure]) -> str:
    return conclude_judge(
        decide(measures, DELTA), judge="j", dimension="d", n_prompts=100
    ).state


@sizes(4, 200)
def test_a_verdict_that_is_blank_raises_no_claim_of_an_audit(n: int):
    """Prompts without a valid verdict: at random, and those with the highest, lowest and largest contrasts."""
    rng = np.random.default_rng(81)
    for seed in range(n):
        judge = list(JUDGES.values())[rng.integers(3)]
        fault = str(rng.choice(["", *FAULTS]))
        size = int(rng.choice([30, 60, 143]))
        found = contrasts(judge, fault, float(rng.choice([1, 2, 4])), size, seed)
        full = audited(found)
        for taken in ("some", "highest", "lowest", "largest"):
            state = audited([unanswered(one, taken, rng) for one in found])
            assert AUDIT[state] <= AUDIT[full]
            assert "cannot tell" in (state, full) or state == full


def unanswered(one: Measure, taken: str, rng: np.random.Generator) -> Measure:
    by = {
        "some": rng.random(len(one.values)),
        "highest": one.values,
        "lowest": -one.values,
        "largest": np.abs(one.values),
    }[taken]
    kept = np.sort(np.argsort(by, kind="stable")[: len(by) - len(by) // 10])
    return replace(
        one, values=one.values[kept], n_unanswered=len(one.values) - len(kept)
    )


# Oracle


def unlabelled(rows: Rows, which: Callable[[Array], Mask]) -> Rows:
    label = rows.label.copy()
    known = np.flatnonzero(~np.isnan(label))
    label[known[which(label[known])]] = np.nan
    return replace(rows, label=label)


def stated(data: Dataset) -> tuple[dict[str, int], int]:
    """The rank of each policy's state, and of the choice."""
    found = analysed(data, ["direct"])
    by_policy = {
        one.policy: POLICY.index(one.status) for one in found.estimates if one.headline
    }
    return by_policy, CHOICE.index(found.comparison.choice.state)


@pytest.mark.system
@sizes(3, 60)
def test_labels_that_are_taken_away_raise_no_claim_of_an_oracle(n: int):
    """All labels of one policy's own answers; without them nothing can be decided about it."""
    rng = np.random.default_rng(82)
    for seed in range(n):
        worlds = {
            f"p{i}": World(
                n=200, shift=0.3 * i, style=0.1 + 0.1 * i, labelled=0.5,
                n_own=int(rng.choice([25, 60])), dislike=float(rng.choice([0.0, 0.2])),
            )
            for i in range(2)
        }  # fmt: skip
        data = several(seed, **worlds)
        policies, choice = stated(data)
        for name in worlds:
            fresh = {
                **data.fresh_draws,
                name: unlabelled(data.fresh_draws[name], np.isfinite),
            }
            less, other = stated(replace(data, fresh_draws=fresh))
            assert all(less.get(one, 0) <= rank for one, rank in policies.items())
            assert other <= choice


# Arena


@pytest.mark.system
@sizes(1, 10)
def test_verdicts_that_are_unreadable_raise_no_claim_about_a_placed_model(
    tmp_path: Path, n: int
):
    names = {f"m{i}": 1000 + 40.0 * (i - 4.5) for i in range(10)}
    given = (
        "arena.n_battles=100",
        "arena.n_calibration=100",
        "figures=false",
        "judging.canary=0",
    )
    for seed in range(n):
        world = Arena(anchors=names, placed={"mine": 1100.0}, n_battles=300, seed=seed)
        states = []
        for every in (0, 7, 2):
            folder = tmp_path / f"{seed}_{every}"
            judge = TheJudge(spoilt="?", every=every)
            found = placed(world, world.write(folder), *given, judge=judge)
            (said,) = read_json(found.run_dir / "ratings.json")["conclusions"].values()
            states.append(arena_conclusion.STATES.index(said["state"]))
        assert states == sorted(states, reverse=True)
