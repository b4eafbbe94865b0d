"""An audit of several judges: each as it would be audited alone, side by side, one plan, one cap, and nothing asked twice."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import elo_exp
from elo_exp.analysis.agreement import gold_errors
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.audit_conclusion import conclude_judges
from elo_exp.data.labelled_pairs import GoldPair
from elo_exp.data.pairing import reconcile
from elo_exp.files import write_jsonl
from elo_exp.records import Judgment, Verdict
from elo_exp.report.sentences import audit_sentences as words
from tests.commands import Ran, attempt, run
from tests.data import BANK, COMPARISON
from tests.openai_server import JSON, OpenAiServer, Says, alone

AUDIT = ("experiment=audit", "tracker=local", "figures=false", "probe=[ladder,twin]")
PAID = (*AUDIT, "audit.n_prompts=12", "judging.budget_usd=5")
TWO = "judge=[small:openai_compatible,large:openai_compatible]"
VAGUE = "Both are fine."


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)


def at(server: OpenAiServer, part: str, model: str) -> list[str]:
    """A judge's settings."""
    return [
        f"{part}.base_url={server.url}",
        f"{part}.model={model}",
        f"{part}.input_usd_per_million=2",
        f"{part}.output_usd_per_million=8",
    ]


def both(server: OpenAiServer, *words: str) -> Ran:
    each = [word for name in ("small", "large") for word in at(server, f"judges.{name}", name)]  # fmt: skip
    return attempt(TWO, *each, *PAID, *words, folder=Path.cwd())


def alone_with(server: OpenAiServer, name: str) -> Ran:
    return attempt("judge=openai_compatible", *at(server, "judge", name), *PAID, folder=Path.cwd())  # fmt: skip


def asked(server: OpenAiServer) -> Counter[str]:
    """How often each model was asked."""
    return Counter(params["model"] for params in server.asked)


def vague(model: str) -> Callable[[JSON, int], Says | None]:
    """One model says nothing of use."""
    return lambda params, n: Says(VAGUE) if params["model"] == model else None


# One plan, one cap, nothing twice


@pytest.mark.system
def test_a_judge_that_has_been_audited_is_not_asked_again_and_the_other_way_round():
    """Each audit lies where that of one judge lies."""
    with OpenAiServer() as server:
        assert alone_with(server, "small").code == 0
        n = asked(server)
        ran = both(server)
        assert ran.code == 0, ran.err
        assert asked(server)["small"] == n["small"] == asked(server)["large"]
        again, single = both(server), alone_with(server, "large")
        assert (again.code, single.code) == (0, 0)
        assert asked(server).total() == 2 * n["small"]
    usage = [json.loads(Path(r.run_dir, "manifest.json").read_text("utf-8"))["usage"] for r in (ran, again)]  # fmt: skip
    assert [one["judge_calls"] for one in usage] == [n["small"], 0]
    of_run = json.loads((ran.run_dir / "judges/large/audit.json").read_text("utf-8"))
    kept = [
        json.loads(path.read_text("utf-8"))
        for path in Path("outputs/cache/audits").glob("*.json")
    ]
    assert {one["judge_model"] for one in kept} == {"small", "large"}
    mine = next(one for one in kept if one["judge_model"] == "large")
    assert mine["results"] == of_run["factuality"]["results"]
    assert single.read("audit.json")["factuality"]["results"] == mine["results"]


def test_the_plan_has_a_block_a_judge_and_their_sum_and_is_free():
    with OpenAiServer() as server:
        ran = both(server, "plan=true")
        assert ran.code == 0 and server.asked == []
    lines = [re.split(r"\s{2,}", line.strip()) for line in ran.out.splitlines()]
    queries = {row[0]: row[2] for row in lines if row[0] in ("small", "large", "total")}
    assert queries["small"] == queries["large"]
    assert int(queries["total"].replace(",", "")) == 2 * int(queries["small"])
    assert "2 judges, one after the other, one budget of $5.00" in ran.out
    assert ran.out.count("can be ok  whether 80% of judges") == 1


@pytest.mark.system
def test_one_cap_holds_for_all_before_any_is_paid():
    with OpenAiServer() as server:
        whole = re.search(r"\ntotal +.* ([\d.]+)\n", re.sub(r"\n +", "\n", both(server, "plan=true").out))  # fmt: skip
        assert whole is not None
        cap = 0.75 * float(whole[1])  # more than either alone
        ran = both(server, f"judging.budget_usd={cap}")
        assert ran.code == 2 and server.asked == []
    assert "audit verdicts by small, large are expected to cost" in ran.err


# One that cannot be audited


@pytest.mark.system
def test_a_judge_that_says_nothing_hides_no_other_and_is_asked_again_alone():
    """As a single one is: once more by the same command, for the server may have been mended, and then no more."""
    with OpenAiServer(outcomes=vague("small")) as server:
        ran = both(server)
        assert ran.code == 2
        assert asked(server)["small"] == 20
        n = asked(server)["large"]
        assert n > 60
        for n_small in (40, 40):
            again = both(server)
            assert again.code == 2
            assert asked(server) == {"small": n_small, "large": n}
    assert "warning: judge small was not audited: 20 of the first 20 replies hold no verdict" in ran.err  # fmt: skip
    found = ran.read("judges.json")["factuality"]
    assert list(found["judges"]) == ["large"] and list(found["not_audited"]) == ["small"]  # fmt: skip
    assert "small is not audited" in ran.page.text
    assert (ran.run_dir / "judges/large/report.html").is_file()
    assert not (ran.run_dir / "judges/small").exists()


@pytest.mark.system
def test_where_none_can_be_audited_the_first_says_why():
    with OpenAiServer(outcomes=lambda params, n: Says(VAGUE)) as server:
        ran = both(server)
        assert asked(server) == {"small": 20, "large": 20}
    assert ran.code == 2
    assert (
        "\nelo_exp: 20 of the first 20 replies hold no verdict (judge small" in ran.err
    )
    assert "warning: judge large was not audited: " in ran.err


# What is said


@pytest.fixture(scope="module")
def words_alone(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two judges that compare words: one prefers what stands first."""
    return run(
        "judge=[fair:lexical,first:lexical]",
        "judges.first.position_effect=0.5",
        "experiment=audit",
        "tracker=local",
        "figures=false",
        "audit.n_prompts=40",
        folder=tmp_path_factory.mktemp("audits"),
    )


@pytest.mark.system
def test_what_each_check_says_of_each_judge_stands_side_by_side(words_alone):
    found = words_alone.read("judges.json")["factuality"]
    assert found["judges"]["first"]["probes"]["position"] == "biased"
    assert found["judges"]["fair"]["probes"]["position"] != "biased"
    (row,) = [one for one in words_alone.out.splitlines() if one.startswith("  position ")]  # fmt: skip
    assert re.search(r"± 0\.05 +cannot tell 0\.00 +biased \+0\.\d\d$", row)
    for name in ("fair", "first"):
        folder = words_alone.run_dir / "judges" / name
        alone = json.loads((folder / "audit.json").read_text("utf-8"))["factuality"]
        assert found["judges"][name]["sentence"] == alone["conclusion"]["sentence"]
        assert (folder / "manifest.json").is_file()
    (kappa,) = found["agreement"]
    assert (kappa["first"], kappa["second"]) == ("fair", "first")
    assert kappa["n_comparisons"] == alone["n_questions"] and 0 < kappa["kappa"] < 1
    assert "kappa         fair and first 0." in words_alone.out
    page = words_alone.page
    assert "Tests on factuality" in page.given("aria-label")
    assert {"judges/fair/report.html", "judges/first/report.html"} <= {*page.links}


@pytest.mark.system
def test_gold_pairs_say_how_many_votes_the_judges_are_worth(tmp_path):
    """Every third label is wrong, so that judges who go by the words err together; the third goes by position, too."""
    pair = {"reference": "Since it rains.", "response_a": "It rains.", "response_b": "No."}  # fmt: skip
    rows = [{**pair, "prompt": f"Why {n}?", "label": "aab"[n % 3]} for n in range(60)]
    write_jsonl(tmp_path / "gold.jsonl", rows)
    ran = run(
        "judge=[near:lexical,wide:lexical,first:lexical]",
        "judges.wide.margin=0.1",
        "judges.first.position_effect=0.9",
        *AUDIT,
        "audit.n_prompts=2",
        "audit.gold=gold.jsonl",
        folder=tmp_path,
    )
    near_wide_and_first = ran.read("judges.json")["factuality"]["votes"]
    assert near_wide_and_first["n"] == near_wide_and_first["n_prompts"] == 60
    assert near_wide_and_first["errors"]["near"] == pytest.approx(1 / 3)
    assert 0.3 < near_wide_and_first["rho"] < 0.9
    assert 1.0 < near_wide_and_first["votes"] < 2.0
    said = "3 judges tend to make the same errors (rho "
    assert said in " ".join(ran.out.split()) and said in ran.page.text
    logged = (ran.run_dir / "tracker/log.jsonl").read_text("utf-8")
    assert '"audit/factuality/votes"' in logged


def test_the_errors_of_judges_on_pairs_by_hand():
    """One order of two that is wrong is half an error; a pair without a valid verdict is no error."""
    pairs = [GoldPair(pair_id=i, prompt=f"q{i}", response_a="x", response_b="y", label="a") for i in "12"]  # fmt: skip
    said = {
        "j": [judged("1", "A", "A"), judged("2", "A", "INVALID")],
        "k": [judged("1", "A", "B")],
    }
    errors, prompts = gold_errors(pairs, said)
    assert prompts == ["prompt q1", "prompt q2"]
    np.testing.assert_array_equal(errors["j"], [0.5, np.nan])
    np.testing.assert_array_equal(errors["k"], [0.0, np.nan])


def judged(name: str, *letters: str) -> Judgment:
    """A judgment of x against y in both orders, in the letters that the judge saw."""
    comparison = replace(COMPARISON, prompt_id=name)
    verdicts = [
        Verdict(cache_key="", rubric_version="v1", judge_model="j", verdict=letter, position_swap=swap)
        for letter, swap in zip(letters, (False, True), strict=True)
    ]  # fmt: skip
    return reconcile(comparison, verdicts)


def of(**states: str) -> Conclusion:
    """What several judges have shown."""
    failed = [name for name, state in states.items() if state == "failed"]
    own = {
        name: Conclusion(
            state=state.replace("_", " "),
            is_checked=True,
            scope=Scope(judge=name, dimension="d", n_prompts=93),
        )
        for name, state in states.items()
        if state != "failed"
    }
    return conclude_judges(own, failed)


@pytest.mark.parametrize(
    ("states", "state", "sentence"),
    [
        ({"a": "ok", "b": "ok"}, "ok", "on d: both judges are ok"),
        ({"a": "ok", "b": "ok", "c": "ok"}, "ok", "on d: all 3 judges are ok"),
        (
            {"a": "ok", "b": "biased", "c": "cannot_tell"},
            "biased",
            "on d: b is biased, c is undecided with so few prompts, a is ok",
        ),
        (
            {"a": "ok", "b": "failed", "c": "ok"},
            "not audited",
            "on d: b is not audited, a and c are ok",
        ),
    ],
)
def test_several_are_as_good_as_the_worst_of_them(states, state, sentence):
    found = of(**states)
    assert (found.state, words.describe_judges(found)) == (state, sentence)
    assert found.is_checked == ("failed" not in states.values())


@pytest.mark.parametrize("judge", ["lexical", "[near:lexical,wide:lexical]"])
def test_prompts_of_turns_are_counted_on_page_and_in_json(judge: str, tmp_path: Path):
    rows = [json.loads(line) for line in BANK.read_text("utf-8").splitlines()[:6]]
    turns = [{"role": "user", "content": text} for text in ("1+1?", "And 2 more?")]
    talk = {"prompt_id": "t", "source": "s", "subject": "x", "messages": turns}
    write_jsonl(tmp_path / "bank.jsonl", [*rows, talk])
    given = ("prompts.bank_path=bank.jsonl", "study=medical", f"judge={judge}")
    more = ("judges.wide.margin=0.2",) if judge[0] == "[" else ()
    ran = run(*AUDIT, *given, *more, folder=tmp_path)
    name = "judges.json" if more else "audit.json"
    found = ran.read(name)["factuality"]
    assert (found["n_of_turns"], found["n_bank"]) == (1, 7)
    said = "1 of 7 prompts is left out, because a conversation of several turns has no graded answers."
    assert said in ran.page.said and f"audit: {said}" in ran.err


@pytest.mark.system
def test_a_notebook_reads_what_all_have_shown(words_alone):
    (row,) = elo_exp.open_run(words_alone.run_dir).conclusions
    assert SimpleNamespace(**row).state == "biased"
    assert row["sentence"] in words_alone.out
    (alone,) = elo_exp.open_run(words_alone.run_dir / "judges/fair").conclusions
    assert alone["state"] == "cannot tell"
