"""A tournament of two paid judges that is killed, and its command given again: nothing is paid twice, and the first judge,
who has judged all, is asked nothing."""

from __future__ import annotations

import re
import signal
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from subprocess import Popen

import pytest

from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import attempt, start
from tests.http_server import Call, Stage
from tests.killing import metered, replies
from tests.test_several_judges import KEY, SMALL, TWO, at

N_PAIRS = 8 * 3  # prompts, pairs of entrants
BATCHES, RESULTS = r"/batches$", r"/results$"


def model_of(server: AnthropicServer, call: Call) -> str:
    """Whose batch a call submits or fetches; empty of any other."""
    if call.method == "POST" and re.search(BATCHES, call.path):
        return str(call.json()["requests"][0]["params"]["model"])
    named = re.search(r"/batches/([^/]+)", call.path)
    of = [batch for batch in server.batches if named and batch.id == named[1]]
    return str(of[0].requests[0]["params"]["model"]) if of else ""


@pytest.mark.system
@pytest.mark.parametrize(
    ("stage", "path", "nth"),
    [
        pytest.param("accepted", BATCHES, 1, id="before the second judge's first verdict"),
        pytest.param("accepted", BATCHES, 2, id="in the middle of the second judge"),
        pytest.param("halfway", RESULTS, 2, id="in the middle of its last rows", marks=pytest.mark.faults),
    ],
)  # fmt: skip
def test_after_a_kill_nothing_is_paid_twice_and_the_first_judge_is_asked_nothing(
    stage: Stage, path: str, nth: int, tmp_path: Path
):
    victim, seen = Future[Popen[str]](), Counter[str]()

    def perhaps_kill(now: Stage, call: Call) -> None:
        is_such = now == stage and re.search(path, call.path) is not None
        if is_such and "haiku" in model_of(server, call):
            seen[path] += 1
            if seen[path] == nth:
                victim.result().kill()

    with AnthropicServer(verdicts=longer, polls_to_end=0) as server:
        server.on_call = perhaps_kill
        given = (TWO, *SMALL, "mode.strata.medqa=8", *at(server), "judging.budget_usd=5", "hydra.run.dir=run")  # fmt: skip
        process = start(*given, folder=tmp_path, **KEY)
        victim.set_result(process)
        _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, err
        assert (tmp_path / "run/judges/sonnet/ratings.json").is_file()
        assert not (tmp_path / "run/judges/haiku/ratings.json").exists()

        server.on_call, n_calls = None, len(server.calls)
        ran = attempt(*given, folder=tmp_path, **KEY)
        assert ran.code == 0, ran.err
        later = list(server.calls)[n_calls:]
        assert not [call for call in later if "sonnet" in model_of(server, call)]
        assert not [call for call in later if "sonnet" in f"{call.path} {call.body!r}"]
        assert server.meter.paid_twice == set()
        assert set(server.meter.billed_bodies.values()) == {1}
        _, dollars = metered(server)
    usage = ran.read("manifest.json")["usage"]
    assert server.meter.billed.total() == usage["verdicts_distinct"]
    stored = replies(tmp_path / "outputs/cache/store.sqlite")
    paid = [one for one in stored if "dollars" in one]
    assert len(paid) == usage["verdicts_distinct"]
    assert sum(one["dollars"] for one in paid) == pytest.approx(dollars, abs=1e-9)
    assert list(ran.read("judges.json")["factuality"]["judges"]) == ["sonnet", "haiku"]
    for name in ("sonnet", "haiku"):
        rows = (ran.run_dir / f"judges/{name}/verdicts/factuality.jsonl").read_text("utf-8")  # fmt: skip
        assert len(rows.splitlines()) == N_PAIRS
