"""Shares of the work: answers of one entrant or many, verdicts, and the run that finds all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elo_exp.files import write_jsonl
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import QUICK, attempt, run

N_PROMPTS = 6
TINY = "entrant.tiny_base.max_new_tokens=3"


def bank(folder: Path) -> str:
    """An override that chooses some questions of our own."""
    about = {"source": "test", "subject": "test", "gold_answer": "Because."}
    some = [
        {**about, "prompt_id": f"p{n}", "text": f"Why {n}?"} for n in range(N_PROMPTS)
    ]
    return f"prompts.bank_path={write_jsonl(folder / 'bank.jsonl', some)}"


def words(folder: Path) -> list[str]:
    return ["study=medical", "mode=demo", bank(folder), *QUICK]


def answers(folder: Path, name: str) -> list[str]:
    """The answers of one entrant, and nothing else."""
    kept = ["study=medical", "mode=demo", bank(folder), "tracker=local"]
    return ["experiment=answer", f"entrant=[{name}]", *kept]


@pytest.mark.system
def test_one_entrant_is_answered_in_shares_and_the_tournament_makes_no_answer(
    tmp_path: Path,
):
    """Two jobs of three prompts; a plan counts; a share of the verdicts needs all answers first."""
    alone = [*answers(tmp_path, "tiny_base"), TINY]
    both = ["entrant=[tiny_base,probe_reference]", TINY, *words(tmp_path)]
    early = attempt(*both, "shard=0/2", folder=tmp_path)
    assert early.code == 2
    assert (
        "judges a share of the prompts, and tiny_base has not answered all" in early.err
    )
    sweep = run("-m", *alone, "shard=0/2,1/2", folder=tmp_path)
    shares = re.findall("shard ./2: .*", sweep.out)
    end = "3 generated. To judge them, use experiment=tournament."
    assert shares == [f"shard {i}/2: {end}" for i in range(2)]
    plan = run(*alone, "plan=true", folder=tmp_path)
    assert "tiny_base: 6 of 6 answers in cache" in plan.out
    again = run(*alone, folder=tmp_path)
    assert again.out.startswith("answers: 0 generated, 6 from cache. ")
    tournament = run(*both, folder=tmp_path)
    assert "answers: 6 new, 6 from cache" in tournament.err  # new ones of the probe
    assert "loading" not in tournament.err


@pytest.mark.system
def test_two_shares_of_verdicts_and_a_run_that_makes_none_pay_for_each_once(
    tmp_path: Path,
):
    """Twelve queries on one rubric in both orders, six a share, also of the first pairs alone."""
    with AnthropicServer(verdicts=longer, seconds_to_end=0.1) as server:
        paid = (
            "entrant=[probe_reference,probe_hedged]",
            "rubric=[factuality]",
            "judge=haiku",
            f"judge.base_url={server.url}",
            "judge.poll_initial_seconds=0.05",
            "judge.poll_max_seconds=0.1",
            "judging.budget_usd=1",
            *words(tmp_path),
        )
        here = {"ANTHROPIC_API_KEY": server.key, "NO_PROXY": "127.0.0.1"}
        few = run(*paid, "judging.limit_pairs=3", "shard=1/2", folder=tmp_path, **here)
        assert (
            "shard 1/2: 2 new verdicts. To rate all verdicts, leave out shard."
            in few.out
        )
        plan = run(*paid, "shard=1/2", "plan=true", folder=tmp_path, **here)
        assert re.search(r"factuality +3 +6 +2 +4 ", plan.out)
        for i, made in enumerate(("6 new verdicts", "4 new verdicts, 2 from cache")):
            share = run(*paid, f"shard={i}/2", folder=tmp_path, **here)
            assert f"shard {i}/2: {made}. To rate all verdicts" in share.out
        whole = run(*paid, folder=tmp_path, **here)
    assert "verdicts: 0 new from claude-haiku-5-5, 12 from cache" in whole.err
    assert sorted(server.meter.billed.values()) == [1] * 12
    assert (whole.run_dir / "ratings.json").exists()
    assert not (share.run_dir / "ratings.json").exists()


@pytest.mark.system
def test_shares_of_what_verdicts_decide_and_of_too_few_prompts_are_refused(
    tmp_path: Path,
):
    given = ("entrant=[probe_reference,probe_hedged]", *words(tmp_path))
    looks = attempt(*given, "judging.looks=3", "shard=0/2", folder=tmp_path)
    assert (looks.code, looks.out) == (2, "")
    assert (
        "shard=0/2 cannot be combined with judging.looks=3, where verdicts decide"
        in looks.err
    )
    empty = attempt(*answers(tmp_path, "probe_hedged"), "shard=8/9", folder=tmp_path)
    assert "shard=8/9 holds no prompt: there are only 6." in empty.err
    none = attempt(*answers(tmp_path, ""), folder=tmp_path)
    assert "experiment=answer needs at least one entrant. Set entrant" in none.err
