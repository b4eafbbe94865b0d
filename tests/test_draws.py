"""Several answers of an entrant to a prompt: draw i meets draw i, prompts stay the observations, and more draws later
pay for the new ones alone."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp import pipeline
from elo_exp.analysis.agreement import kappa
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.analysis.sequential_tests import comparison_key
from elo_exp.data import identical_answers
from elo_exp.data.battle_lines import encode_battles
from elo_exp.data.battles import Battles, battles_from_judgments
from elo_exp.data.pairing import Responses, pair_up, reconcile
from elo_exp.data.writing_style import add_style
from elo_exp.entrants import draws_of
from elo_exp.entrants.recorded import RecordedEntrant
from elo_exp.files import write_jsonl
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.records import Battle, Comparison, Judgment, Prompt, Response, Verdict
from elo_exp.report import artifacts, viewer
from elo_exp.store.answer_store import Store
from tests.commands import LOCAL, QUICK, Ran, attempt, run
from tests.data import PROBES, prompt, shipped
from tests.openai_server import OpenAiServer

UTILITY = shipped("rubric", "clinical_utility")
HERE = {"NO_PROXY": "127.0.0.1"}


def answered(**draws: Sequence[Sequence[str]]) -> Responses:
    """The draws of each entrant to p1, p2, ..."""
    return {
        name: {
            (f"p{i}", draw): Response(entrant_id=name, prompt_id=f"p{i}", response_text=text, draw_idx=draw)
            for i, texts in enumerate(some, start=1)
            for draw, text in enumerate(texts)
        }
        for name, some in draws.items()
    }  # fmt: skip


def recorded(folder: Path, name: str, *texts: Sequence[str]) -> RecordedEntrant:
    """An entrant with these draws to p1, p2, ..."""
    rows = [
        {"prompt_id": f"p{i}", "response_text": text, "draw_idx": draw}
        for i, some in enumerate(texts, start=1)
        for draw, text in enumerate(some)
    ]
    path = write_jsonl(folder / f"{name}.jsonl", rows)
    return RecordedEntrant(entrant_id=name, path=str(path))


def asked(n_prompts: int, n_draws: int) -> list[Prompt]:
    return pipeline.repeat_prompts(
        [prompt(i) for i in range(1, n_prompts + 1)], n_draws
    )


def judgment(one: Comparison, ab: str, ba: str) -> Judgment:
    """Of both orders, in the letters that the judge gave."""
    verdicts = [
        Verdict(cache_key="k", rubric_version="v1", judge_model="j", position_swap=swap, verdict=letter)
        for letter, swap in ((ab, False), (ba, True))
    ]  # fmt: skip
    return reconcile(one, verdicts)


# Who meets whom


def test_draw_i_meets_draw_i_and_a_single_answer_each_of_the_others():
    """All prompts once before any of them again; two that have one answer each meet once."""
    said = answered(
        ann=[["a", "aa"], ["A", "AA"]], bob=[["b", "bb"], ["B", "BB"]], one=[["1"], ["2"]], two=[["3"], ["4"]]
    )  # fmt: skip
    pairs = pair_up(asked(2, 2), said, UTILITY)
    first = ["a v b", "a v 1", "a v 3", "b v 1", "b v 3", "1 v 3"]
    second = ["aa v bb", "aa v 1", "aa v 3", "bb v 1", "bb v 3"]
    met = [f"{c.response_a} v {c.response_b}" for c in pairs if c.prompt_id == "p1"]
    assert met == first + second
    drawn = [(c.prompt_id, max(c.draw_a, c.draw_b)) for c in pairs]
    assert list(dict.fromkeys(drawn)) == [("p1", 0), ("p2", 0), ("p1", 1), ("p2", 1)]
    assert pairs[:12] == pair_up(
        asked(2, 1), {n: {s: r for s, r in own.items() if not s[1]} for n, own in said.items()}, UTILITY
    )  # fmt: skip
    assert len({comparison_key(c) for c in pairs}) == len(pairs)


def test_a_draw_without_an_answer_leaves_the_other_draws_of_its_prompt():
    said = answered(ann=[["a", "aa"], ["A"]], bob=[["b", "bb"], ["B", "BB"]])
    pairs = pair_up(asked(2, 2), said, UTILITY)
    assert [(c.prompt_id, c.draw_a) for c in pairs] == [("p1", 0), ("p2", 0), ("p1", 1)]


# Who is asked how often


@pytest.mark.parametrize(
    ("name", "settings", "varies"),
    [
        ("huggingface", {"model": "m", "temperature": None}, False),
        ("huggingface", {"model": "m", "temperature": 0.7}, True),
        ("openai_compatible", {"model": "m", "base_url": "http://localhost:1/v1", "temperature": 0}, False),
        ("openai_compatible", {"model": "m", "base_url": "http://localhost:1/v1", "temperature": None}, True),
        ("claude", {}, True),
    ],
)  # fmt: skip
def test_an_entrant_says_whether_it_varies(name, settings, varies):
    entrant = shipped("entrant", name, entrant_id="x", **settings)
    assert (entrant.varies, draws_of(entrant, 3)) == (varies, 3 if varies else 1)


def test_a_probe_has_one_draw():
    assert draws_of(shipped("entrant", "probe_reference"), 3) == 1


def test_of_recorded_answers_the_least_number_counts(tmp_path: Path):
    """Numbered from 0 in the order of draw_idx, whichever these are."""
    three = recorded(tmp_path, "ann", ["a", "b", "c"], ["d", "e"])
    assert [draws_of(three, n) for n in (1, 2, 3)] == [1, 2, 2]
    rows = [{"prompt_id": "p1", "response_text": t, "draw_idx": i} for t, i in (("late", 7), ("early", 2))]  # fmt: skip
    path = write_jsonl(tmp_path / "gaps.jsonl", rows)
    found = RecordedEntrant(entrant_id="x", path=str(path)).generate(asked(1, 2))
    assert [(r.draw_idx, r.response_text) for r in found] == [(0, "early"), (1, "late")]


def test_only_entrants_that_vary_are_asked_again(tmp_path: Path):
    entrants = {
        "ann": recorded(tmp_path, "ann", ["a", "aa"], ["b", "bb"]),
        "one": recorded(tmp_path, "one", ["1"], ["2"]),
    }
    with Store(tmp_path / "store.sqlite") as store:
        made = pipeline.generate(asked(2, 2), entrants, store, allow_missing=False)
        assert pipeline.has_all_responses(asked(2, 2), entrants, store)
        assert not pipeline.has_all_responses(
            asked(2, 2), {"new": recorded(tmp_path, "new", ["x"], ["y"])}, store
        )
    assert list(made["ann"]) == [("p1", 0), ("p2", 0), ("p1", 1), ("p2", 1)]
    assert list(made["one"]) == [("p1", 0), ("p2", 0)]


# What is counted by prompt, and what by answer


def battles(n_draws: int, n_prompts: int = 40) -> Battles:
    """Two entrants whose draws all end as the first."""
    rng = np.random.default_rng(1)
    winners = rng.choice(["model_a", "model_b", "tie"], n_prompts, p=[0.5, 0.3, 0.2])
    rows = [
        Battle(
            model_a="ann", model_b="bob", winner=winner, question_id=f"p{q}",
            verdict_ab=winner, verdict_ba=winner, draw_a=draw, draw_b=draw,
        )
        for draw in range(n_draws)
        for q, winner in enumerate(winners.tolist())
    ]  # fmt: skip
    return Battles.from_rows(rows)


def test_law_draws_that_say_nothing_new_make_no_interval_narrower():
    fit = BradleyTerry(
        initial_rating=1400.0, orders="both", interval="sandwich", n_bootstraps=1, seed=1
    )  # fmt: skip
    once, thrice = (fit.rate({"d": battles(n)})["d"] for n in (1, 3))
    np.testing.assert_allclose(thrice.rating, once.rating)
    np.testing.assert_allclose(thrice.std_error, once.std_error)
    assert thrice.n_clusters == once.n_clusters == 40
    assert thrice.n_battles.tolist() == [120, 120]


def test_two_judges_are_compared_on_the_same_draw():
    """They agree on both draws of a prompt, whose winners differ; turned round, too."""
    rows = [
        Battle(model_a="ann", model_b="bob", winner=winner, question_id=f"p{q}", draw_a=draw, draw_b=draw)
        for q in range(10)
        for draw, winner in enumerate(("model_a", "model_b"))
    ]  # fmt: skip
    turned = [
        replace(b, model_a="bob", model_b="ann", winner={"model_a": "model_b", "model_b": "model_a"}[b.winner])
        for b in rows
    ]  # fmt: skip
    for other in (rows, turned):
        sides = Battles.from_rows(rows), Battles.from_rows(other)
        row = kappa(*sides, names=("one", "other"), dimension="d")
        assert (row["agreement"], row["kappa"]) == (1.0, 1.0)
        assert (row["n_comparisons"], row["n_prompts"]) == (20, 10)


def test_style_is_that_of_the_draw():
    one, two = pair_up(asked(1, 2), answered(ann=[["a", "aaaa"]], bob=[["bb", "bbb"]]), UTILITY)  # fmt: skip
    rows = battles_from_judgments([judgment(c, "A", "B") for c in (two, one)])
    styled = add_style(rows, [one, two])
    lengths = [(b.style_a[0], b.style_b[0]) for b in styled if b.style_a and b.style_b]
    assert lengths == [(4, 3), (1, 2)]


def test_entrants_are_equal_on_a_prompt_where_all_draws_are():
    """The one answer of an entrant that does not vary equals draws that are all like it."""
    said = answered(ann=[["x", "x"], ["y", "z"]], bob=[["x"], ["y"]], cid=[["x", "x"], ["y", "z"]])  # fmt: skip
    for found in (
        identical_answers.count_equal_in_responses(said),
        identical_answers.count_equal_in_comparisons(
            pair_up(asked(2, 2), said, UTILITY)
        ),
    ):
        counts = {(p.first, p.second): (p.n_equal, p.n_prompts) for p in found}
        assert counts == {("ann", "cid"): (2, 2), ("ann", "bob"): (1, 2), ("bob", "cid"): (1, 2)}  # fmt: skip


def test_draws_of_one_prompt_that_are_alike_are_no_boilerplate():
    """One text for every prompt is; the same to one prompt again is what a steady entrant says."""
    texts = [f"Of all answers this is number {i}, and it says so in {i} words." for i in range(9)]  # fmt: skip
    steady = answered(ann=[[text] * 3 for text in texts])["ann"]
    row = check_responses("ann", steady)
    assert (row["repeated"], row["flags"]) == (0, [])
    assert check_responses("ann", answered(ann=[["No."] * 3] * 9)["ann"])["repeated"] == 1  # fmt: skip


# Files, tables and the viewer have draws where there are several


def test_rows_have_a_draw_where_it_is_not_the_first():
    pairs = pair_up(asked(1, 2), answered(ann=[["a", "aa"]], bob=[["b"]]), UTILITY)
    judged = [judgment(c, "A", "B") for c in pairs]
    rows = [
        json.loads(line)
        for line in "".join(
            encode_battles(Battles.from_rows(battles_from_judgments(judged)))
        ).splitlines()
    ]
    assert [(r.get("draw_a"), r.get("draw_b")) for r in rows] == [(None, None), (1, None)]  # fmt: skip
    again = [
        b.to_dict() for b in Battles.from_rows(battles_from_judgments(judged)).rows()
    ]
    assert rows == [{k: row[k] for k in row if row[k] is not None} for row in again]
    compared, judgments = {"d": pairs}, {"d": judged}
    table = artifacts.verdict_rows(compared, judgments)
    assert [(r["draw"], r["answer_a"], r["answer_b"]) for r in table] == [(1, "a", "b"), (2, "aa", "b")]  # fmt: skip
    assert "draw" not in artifacts.verdict_rows({"d": pairs[:1]}, {"d": judged[:1]})[0]
    every = viewer.pair_judgments(compared, judgments)
    assert [c.response_a for c, _ in every] == ["a", "aa"]


# Whole runs


def rows_of(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.system
def test_probes_have_one_draw_each_whatever_is_asked_for(tmp_path: Path):
    ran = [run(*QUICK, *more, folder=tmp_path) for more in ((), ("draws=3",))]
    assert (
        "draws: 3 answers per prompt were asked for, but no entrant varies its answers: one each"
        in ran[1].err
    )
    names = [
        *(f"responses/responses_{name}.jsonl" for name in PROBES),
        "matches/matches.jsonl", "verdicts/factuality.jsonl", "battles.jsonl", "ratings.json", "elo_results.json",
        "pairwise_winrates.csv",
    ]  # fmt: skip
    for name in names:
        first, second = ((one.run_dir / name).read_bytes() for one in ran)
        assert first == second, name


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    numbers = Counter[str]()

    def answer(model: str, text: str) -> str:
        numbers[model] += 1
        said = f"{model} says {numbers[model]} words. "
        return said * (1 + zlib.crc32(said.encode()) % 5)

    with OpenAiServer(answer=answer) as server:
        yield server


def hosted(server: OpenAiServer, folder: Path, *more: str) -> Ran:
    """Two models behind an API and a probe, on five prompts."""
    given = (
        "entrant=[api:small,api:large,probe_reference]", f"api.base_url={server.url}", "prompts.n=5",
        "entrant.small.concurrency=1", "entrant.large.concurrency=1",  # answers are numbered as they are asked for
        "rubric=[clinical_utility]", "figures=false", "elo.n_perms=5", *LOCAL[2:],
    )  # fmt: skip
    return attempt(*given, *more, folder=folder, **HERE)


@pytest.mark.system
def test_more_draws_later_pay_for_the_new_ones_alone(server: OpenAiServer, tmp_path: Path):  # fmt: skip
    one = hosted(server, tmp_path)
    assert (one.code, len(server.asked)) == (0, 10)
    three = hosted(server, tmp_path, "draws=3")
    assert len(server.asked) == 30
    assert (
        "draws: one answer per prompt of probe_reference, compared with each answer of the others"
        in three.err
    )
    again = hosted(server, tmp_path, "draws=3")
    assert len(server.asked) == 30
    assert "answers: 0 new, 35 from cache" in again.err
    first, every = (
        {(r["prompt_id"], r.get("draw_idx", 0)): r["response_text"] for r in ran.rows("responses/responses_small.jsonl")}
        for ran in (one, three)
    )  # fmt: skip
    assert first.items() <= every.items()
    assert Counter(draw for _, draw in every) == {0: 5, 1: 5, 2: 5}
    board = again.read("ratings.json")["dimensions"]["clinical_utility"]
    assert {row["n_prompts"] for row in board["bradley_terry"]["ratings"]} == {5}
    assert len(again.rows("battles.jsonl")) == 5 * 3 * 3
    assert again.read("manifest.json")["selected_prompt_count"] == 5


@pytest.mark.system
def test_a_plan_says_what_a_pilot_is_made_of_and_what_the_next_dollar_buys(server: OpenAiServer, tmp_path: Path):  # fmt: skip
    """As much money again: as many prompts more, or as many draws of these, which buys less."""
    judge = (
        "judge=openai_compatible", f"judge.base_url={server.url}", "judge.model=large",
        "judge.input_usd_per_million=1", "judge.output_usd_per_million=1", "judging.budget_usd=1",
    )  # fmt: skip
    assert hosted(server, tmp_path, *judge, "draws=2").code == 0
    plan = hosted(server, tmp_path, *judge, "plan=true")
    variance, prompts, draws = plan.out.rstrip().splitlines()[-3:]
    words = (
        r"variance      prompts .*, samples .*, judge .*  lead known to ± \d+ points"
    )
    assert re.fullmatch(words, variance), variance
    bought = r"next dollar   10 prompts, 2 samples +\d+ points   \$0.\d+ +the prompt file has \d+ more"
    assert re.match(bought, prompts)
    assert re.match(r" {14}5 prompts, 4 samples +\d+ points   \$0.\d+", draws)
    half, more, again = (int(re.findall(r"(\d+) points", line)[0]) for line in (variance, prompts, draws))  # fmt: skip
    assert more == pytest.approx(half / 2**0.5, abs=1)
    assert more <= again <= half
    without = hosted(server, tmp_path, *judge, "prompts.n=1", "plan=true")
    assert "next dollar" not in without.out


@pytest.mark.system
def test_verdicts_of_draws_are_replayed_draw_by_draw(server: OpenAiServer, tmp_path: Path):  # fmt: skip
    ran = hosted(server, tmp_path, "draws=2")
    again = hosted(
        server, tmp_path, "draws=2", "judge=replay", f"judge.path={ran.run_dir}"
    )
    assert again.code == 0, again.err
    outcomes = [
        [
            [r.get(name) for name in ("question_id", "model_a", "model_b", "draw_a", "draw_b", "winner", "verdict_ab")]
            for r in one.rows("battles.jsonl")
        ]
        for one in (ran, again)
    ]  # fmt: skip
    assert outcomes[0] == outcomes[1]


@pytest.mark.system
def test_a_gate_takes_the_mean_of_a_prompt_s_draws(server: OpenAiServer, tmp_path: Path):  # fmt: skip
    base = attempt(
        "entrant=[api:small,api:large]", f"api.base_url={server.url}", "prompts.n=25", "rubric=[clinical_utility]",
        "figures=false", "elo.n_perms=5", "draws=2", *LOCAL[2:], folder=tmp_path, **HERE,
    )  # fmt: skip
    baseline = base.run_dir / "responses/responses_large.jsonl"
    ran = attempt(
        "experiment=gate", f"gate.baseline={baseline}", "entrant=[api:small]", f"api.base_url={server.url}",
        "prompts.n=25", "rubric=[clinical_utility]", "draws=2", *LOCAL[2:], folder=tmp_path, **HERE,
    )  # fmt: skip
    gate = ran.read("gate.json")["dimensions"][0]
    assert (gate["n_prompts"], gate["n_invalid"]) == (25, 0)
    judged = ran.rows("verdicts/clinical_utility.jsonl")
    assert Counter(one.get("draw_a", 0) for one in judged) == {0: 25, 1: 25}
    wins = [1.0 if one["winner"] == "small" else 0.0 if one["winner"] == "baseline" else 0.5 for one in judged]  # fmt: skip
    assert gate["share"] == pytest.approx(np.mean(wins))


@pytest.mark.system
def test_battles_of_draws_are_read_back_and_compared_draw_by_draw(server: OpenAiServer, tmp_path: Path):  # fmt: skip
    """A run of one draw and one of two have the first in common, on which nothing differs."""
    one, two = (hosted(server, tmp_path, f"draws={n}") for n in (1, 2))
    written = f"battles={two.run_dir}/battles.jsonl"
    again = run(
        "experiment=rate", written, *LOCAL[1:], "figures=false", folder=tmp_path
    )
    assert again.rows("battles.jsonl") == two.rows("battles.jsonl")
    boards = [ran.read("ratings.json")["dimensions"]["clinical_utility"] for ran in (two, again)]  # fmt: skip
    assert boards[0]["bradley_terry"]["ratings"] == boards[1]["bradley_terry"]["ratings"]  # fmt: skip
    assert boards[0]["variance"] == boards[1]["variance"]
    compared = run(
        "experiment=compare", f"runs=[{one.run_dir},{two.run_dir}]", "tracker=local", "figures=false", folder=tmp_path
    )  # fmt: skip
    said = " ".join(compared.out.split())
    assert "he winner is the same in 100% of 15 shared comparisons" in said
    assert "one run contains the verdicts of another, so no change is tested" in said


def test_a_draw_that_is_no_number_is_malformed(tmp_path: Path):
    row = {"model_a": "a", "model_b": "b", "winner": "tie", "question_id": "p", "draw_a": "two"}  # fmt: skip
    path = write_jsonl(tmp_path / "battles.jsonl", [row])
    ran = attempt("experiment=rate", f"battles={path}", *LOCAL[1:], folder=tmp_path)
    assert ran.code == 2
    assert (
        'battles.jsonl:1: draw_a must be a whole number of 0 or more; got "two".'
        in ran.err
    )


@pytest.mark.parametrize(
    ("experiment", "said"),
    [
        (
            ("experiment=oracle",),
            "draws must be 1 with experiment=oracle; got 3. Give several answers to a prompt in "
            "oracle.fresh_dir, numbered by draw_idx.",
        ),
        (
            ("experiment=arena", "arena=simulated"),
            "draws must be 1 with experiment=arena; got 3. People compared one answer per model, and the judge "
            "does the same.",
        ),
        (("experiment=tournament",), None),
        (
            ("experiment=audit",),
            "draws is not a setting of experiment=audit: an audit asks about answers of known quality that it makes itself. "
            "Leave draws out. audit.retest_share repeats questions",
        ),
    ],
)  # fmt: skip
def test_experiments_of_one_answer_refuse_several(experiment, said, tmp_path: Path):
    ran = attempt(*experiment, "draws=3", "tracker=local", "plan=true", folder=tmp_path)
    assert (ran.code, said is None or said in ran.err) == (2 if said else 0, True)
    assert said is None or not list(tmp_path.glob("outputs/[aot]*"))


def test_recorded_draws_limit_those_of_all(tmp_path: Path):
    bank = [{"prompt_id": f"p{i}", "text": f"Why {i}?", "source": "s", "subject": "x"} for i in (1, 2)]  # fmt: skip
    write_jsonl(tmp_path / "bank.jsonl", bank)
    recorded(tmp_path, "responses_a", ["one", "two", "three"], ["four", "five"])
    recorded(tmp_path, "responses_b", ["1", "2", "3"], ["4", "5", "6"])
    given: dict[str, Any] = {"folder": tmp_path}
    ran = run(
        "entrant=[a,b]", f"recorded_dir={tmp_path}", f"prompts.bank_path={tmp_path}/bank.jsonl", "draws=3",
        "rubric=[clinical_utility]", "judge=lexical", "figures=false", "elo.n_perms=5", *LOCAL[2:],
        "--config-dir", str(_yamls(tmp_path)), **given,
    )  # fmt: skip
    assert "draws: 2 answers per prompt instead of 3, because a has no more recorded answers" in ran.err  # fmt: skip
    drawn = [(r["prompt_id"], r.get("draw_a", 0)) for r in ran.rows("matches/matches.jsonl")]  # fmt: skip
    assert drawn == [("p1", 0), ("p2", 0), ("p1", 1), ("p2", 1)]


def _yamls(folder: Path) -> Path:
    for name in "ab":
        text = f"# @package entrant.{name}\ndefaults: [recorded@_here_, _self_]\nentrant_id: {name}\npath: .\n"  # fmt: skip
        place = folder / "conf" / "entrant"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "conf"
