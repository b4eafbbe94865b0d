"""A judge behind an OpenAI-compatible API: what it is sent, what its verdict depends on, what it costs, and that it is
asked once.

The real SDK talks to a real server on 127.0.0.1, which keeps the bill.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.analysis.judge_quality import JudgeQuality, judge_quality
from elo_exp.data.rubrics import Rubric
from elo_exp.judges import PaidJudge
from elo_exp.judges.openai_compatible import OpenAiCompatibleJudge
from elo_exp.pipeline import planning
from elo_exp.records import Comparison, JudgeRequest, Judgment, UserError, fingerprint
from elo_exp.store.store import Store
from elo_exp.store.usage import Usage
from tests.anthropic_server import AcceptThenStatus
from tests.anthropic_verdicts import longer
from tests.commands import Ran, run, start
from tests.data import COMPARISON, DIMENSIONS, shipped
from tests.openai_server import Call, OpenAiServer, Says, Stage, alone
from tests.stores import process
from tests.test_key import PIECES, SECRET, found

RUBRIC: Rubric = shipped("rubric", "factuality")
PRICES = {
    "input_usd_per_million": 2.0,
    "cached_input_usd_per_million": 0.5,
    "output_usd_per_million": 8.0,
}


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone(monkeypatch, tmp_path)


def judge(
    base_url: str = "http://127.0.0.1:9/v1", **changes: Any
) -> OpenAiCompatibleJudge:
    """conf/judge/openai_compatible.yaml with an address and a model."""
    free = {"input_usd_per_million": 0.0, "cached_input_usd_per_million": 0.0}
    given = {
        "base_url": base_url,
        "model": "large",
        "budget_usd": 50.0,
        **free,
        **changes,
    }
    made: OpenAiCompatibleJudge = shipped("judge", "openai_compatible", **given)
    return made


def comparisons(n: int, *, dimension: str = "factuality") -> list[Comparison]:
    return [
        dataclasses.replace(
            COMPARISON,
            prompt_id=f"p{number:02}",
            dimension=dimension,
            prompt_text=f"Why {number:02}?",
            response_a=f"Yes {number:02}, at once.",
            gold_answer="Yes.",
        )
        for number in range(n)
    ]


def request(
    made: OpenAiCompatibleJudge,
    comparison: Comparison = COMPARISON,
    *,
    swap: bool = False,
) -> JudgeRequest:
    """A query as the pipeline makes it."""
    judge_key = fingerprint([made.model, made.cache_key()])
    return RUBRIC.request(
        comparison, judge=judge_key, position_swap=swap, key_fields=made.key_fields
    )


def judged(
    made: OpenAiCompatibleJudge,
    path: Path,
    n: int = 3,
    *,
    rubrics: Sequence[Rubric] = (RUBRIC,),
    **how: Any,
) -> tuple[list[Judgment], Usage]:
    """So many comparisons, judged in both orders on each rubric; and what that cost."""
    asked = {
        rubric.dimension: comparisons(n, dimension=rubric.dimension)
        for rubric in rubrics
    }
    with Store(path) as store:
        found = pipeline.judge_pairs(asked, rubrics, made, store, **how)
        return [judgment for some in found.values() for judgment in some], store.usage


# What is sent


def test_the_request_is_the_system_text_the_message_and_the_schema(tmp_path: Path):
    with OpenAiServer() as server:
        judged(judge(server.url), tmp_path / "store.sqlite", 1)
    first = server.asked[0]
    expected = request(judge(server.url), comparisons(1)[0])
    assert first == {
        "model": "large",
        "messages": [
            {"role": "system", "content": expected.system},
            {"role": "user", "content": expected.user},
        ],
        "max_tokens": 1024,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "verdict",
                "strict": True,
                "schema": json.loads(RUBRIC.schema),
            },
        },
    }
    properties = first["response_format"]["json_schema"]["schema"]["properties"]
    assert list(properties) == [
        "evidence_a",
        "evidence_b",
        "verdict",
    ]  # as they are to be generated


def test_what_is_chosen_beside_it_is_sent_too():
    made = judge(
        structured="json_object",
        temperature=0.0,
        max_tokens_name="max_completion_tokens",
    )
    sent = made.params(request(made), None)
    assert (sent["response_format"], sent["temperature"]) == (
        {"type": "json_object"},
        0.0,
    )
    assert ("max_tokens" in sent, sent["max_completion_tokens"]) == (False, 1024)
    made = judge(structured="none", extra_body={"seed": 1})
    sent = made.params(request(made), None)
    assert ("response_format" in sent, sent["extra_body"]) == (False, {"seed": 1})


@pytest.mark.parametrize("structured", ["json_schema", "json_object", "none"])
def test_a_verdict_is_read_as_json_or_as_the_last_line(structured: str, tmp_path: Path):
    """The longer response wins here, in both orders; without a format the server answers in prose."""
    with OpenAiServer(verdicts=longer) as server:
        judgments, _ = judged(
            judge(server.url, structured=structured), tmp_path / "store.sqlite"
        )
    assert [(judgment.winner, judgment.inconsistent) for judgment in judgments] == [
        ("ann", False)
    ] * 3


# What a verdict depends on

CHANGES_THE_KEY: dict[str, dict[str, Any]] = {
    "address": {"base_url": "http://127.0.0.1:8/v1"},
    "model": {"model": "small"},
    "structured": {"structured": "none"},
    "max_tokens": {"max_tokens": 7},
    "temperature": {"temperature": 0.0},
    "extra_body": {"extra_body": {"seed": 1}},
}
KEEPS_THE_KEY: dict[str, dict[str, Any]] = {
    "budget": {"budget_usd": 1.0},
    "prices": PRICES,
    "concurrency": {"concurrency": 1},
    "timeout": {"timeout_seconds": 1.0},
    "key": {"key_variable": "MY_KEY"},
    "what the plan expects": {"expected_output_tokens": 1, "chars_per_token": 1.0},
    "a slash at the end of the address": {"base_url": "http://127.0.0.1:9/v1/"},
}


@pytest.mark.parametrize("changes", CHANGES_THE_KEY.values(), ids=list(CHANGES_THE_KEY))
def test_what_is_sent_and_where_to_is_in_the_key(changes: dict[str, Any]):
    assert request(judge(**changes)).key != request(judge()).key


@pytest.mark.parametrize("changes", KEEPS_THE_KEY.values(), ids=list(KEEPS_THE_KEY))
def test_how_it_is_asked_and_paid_for_is_not(changes: dict[str, Any]):
    assert request(judge(**changes)).key == request(judge()).key


# What is no verdict

NO_VERDICTS: dict[str, tuple[Says, int, int]] = {
    "refused": (Says(None, refusal="I cannot."), 1, 0),
    "filtered": (
        Says('{"evidence_a": "", "evidence_b": "", "verdict": "A"}', "content_filter"),
        1,
        0,
    ),
    "cut off": (Says('{"evidence_a": "Yes', "length"), 0, 1),
    "malformed": (Says('{"evidence_a": "Yes", "verdict": A}'), 0, 0),
    "another verdict": (
        Says('{"evidence_a": "", "evidence_b": "", "verdict": "BOTH"}'),
        0,
        0,
    ),
    "empty": (Says(None), 0, 0),
    "unfinished": (
        Says('{"evidence_a": "", "evidence_b": "", "verdict": "A"}', "tool_calls"),
        0,
        0,
    ),
    "cut off, and not said": (Says('{"evidence_a": "Yes', None), 0, 0),
    "as long as it may be, and not said": (
        Says("Yes. " * 4000 + "VERDICT: A", None),
        0,
        1,
    ),
}


def quality(outcome: Says, path: Path) -> JudgeQuality:
    """How the judge is reported to have behaved where this comes of the two queries about the first comparison."""

    def about_the_first(params: dict, n: int):
        return outcome if "Why 00?" in params["messages"][1]["content"] else None

    with OpenAiServer(outcomes=about_the_first) as server:
        judgments, usage = judged(judge(server.url), path)
        assert judged(judge(server.url), path)[0] == judgments
        assert (
            len(server.asked) == usage.judge_calls == 6
        )  # what was paid for is not asked again, though no verdict
    return judge_quality(judgments, dimension="factuality")


@pytest.mark.parametrize(
    ("outcome", "n_refused", "n_cut_off"), NO_VERDICTS.values(), ids=list(NO_VERDICTS)
)
def test_what_is_no_verdict_is_invalid_and_never_a_tie(
    outcome: Says, n_refused: int, n_cut_off: int, tmp_path: Path
):
    found = quality(outcome, tmp_path / "store.sqlite")
    assert (found.n_judgments, found.n_invalid, found.n_ties) == (3, 1, 0)
    assert (found.n_refused, found.n_cut_off) == (n_refused, n_cut_off)


@pytest.mark.parametrize(
    "text", ['{"evidence_a": "", "evidence_b": "", "verdict": "A"}', "Yes.\nVERDICT: A"]
)
def test_a_verdict_of_a_server_that_does_not_say_why_it_ended_is_one(
    text: str, tmp_path: Path
):
    with OpenAiServer(outcomes=lambda params, n: Says(text, None)) as server:
        judgments, _ = judged(judge(server.url), tmp_path / "store.sqlite", 1)
    assert [(verdict.verdict, verdict.stop_reason) for verdict in judgments[0].raw] == [
        ("A", "end_turn")
    ] * 2


def test_the_whole_answer_is_kept(tmp_path: Path):
    """With the name that the server gives the model that answered: a hosted model's name may move."""
    with OpenAiServer() as server:
        judged(judge(server.url), tmp_path / "store.sqlite", 1)
    with Store(tmp_path / "store.sqlite") as store:
        rows = [
            json.loads(value) for (value,) in store.read("SELECT value FROM answers")
        ]
    assert {row["judge_model"] for row in rows} == {"large"}
    assert {json.loads(row["message"])["model"] for row in rows} == {"large-2026-11"}


# What it costs


def test_what_was_spent_agrees_with_the_servers_bill_to_the_token(tmp_path: Path):
    """Of each prompt 64 tokens are in the server's cache, at a quarter of the price."""
    rubrics = [shipped("rubric", dimension) for dimension in DIMENSIONS]
    with OpenAiServer(cached=64) as server:
        _, usage = judged(
            judge(server.url, **PRICES), tmp_path / "store.sqlite", rubrics=rubrics
        )
    cached = 64 * usage.judge_calls
    assert usage.judge_calls == len(server.asked) == 18
    assert (usage.cache_read_tokens, usage.input_tokens) == (
        cached,
        server.usage["prompt_tokens"] - cached,
    )
    assert usage.output_tokens == server.usage["completion_tokens"]
    dollars = (usage.input_tokens * 2 + cached * 0.5 + usage.output_tokens * 8) * 1e-6
    assert usage.dollars == pytest.approx(dollars)
    assert sum(usage.dollars_by_dimension.values()) == pytest.approx(dollars)


def test_the_plan_is_by_the_length_of_the_texts_and_asks_nobody():
    made = judge(**PRICES)
    some = [request(made, one) for one in comparisons(2)]
    n_chars = sum(len(one.system) + len(one.user) for one in some)
    estimate = planning.estimate(some, made)
    assert (estimate.input_tokens, estimate.output_tokens, estimate.counted) == (
        round(n_chars / 3),
        500,
        0,
    )
    assert (
        estimate.dollars
        == estimate.dollars_plain
        == pytest.approx((n_chars / 3 * 2 + 500 * 8) * 1e-6)
    )
    assert isinstance(made, PaidJudge)


def test_a_server_of_ones_own_needs_no_budget_and_one_that_is_paid_does(tmp_path: Path):
    with OpenAiServer() as server:
        assert (
            judged(judge(server.url, budget_usd=0.0), tmp_path / "store.sqlite", 1)[
                1
            ].dollars
            == 0
        )
        n_calls = len(server.calls)
        with pytest.raises(
            UserError,
            match=r"^judging\.budget_usd: is \$0, and large is paid for\. Set a cap",
        ):
            judged(
                judge(server.url, budget_usd=0.0, **PRICES),
                tmp_path / "another.sqlite",
                1,
            )
        assert len(server.calls) == n_calls


def test_a_key_without_prices_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("MY_KEY", "k")
    with OpenAiServer(key="k") as server:
        judged(judge(server.url, key_variable="MY_KEY"), tmp_path / "store.sqlite", 1)
    warnings = [
        line
        for line in caplog.messages
        if line.startswith("warning: judge.input_usd_per_million: the prices")
    ]
    assert len(warnings) == 1


# What goes wrong


def test_a_cap_that_lost_answers_have_used_up_says_so_and_why(tmp_path: Path):
    """A thousandth of a dollar for each token of an answer: room for six that are lost."""
    with OpenAiServer() as server:
        server.fault(AcceptThenStatus(500), nth=None)
        dear = {
            "input_usd_per_million": 0.0,
            "output_usd_per_million": 1000.0,
            "expected_output_tokens": 1,
        }
        made = judge(server.url, max_tokens=100, budget_usd=0.65, concurrency=1, **dear)
        with pytest.raises(UserError) as refusal:
            judged(made, tmp_path / "store.sqlite")
    assert str(refusal.value) == (
        "judging.budget_usd: $0.00 of $0.65 are spent, $0.60 are held for answers that were lost or do not say what "
        "they cost; the last error: Failed after it was done, and the next request may cost $0.1000. Every answer so "
        "far is stored; the same command with a higher cap goes on."
    )
    assert server.billed.total() == 6


def test_a_server_that_cannot_do_the_format_says_so_and_nothing_is_a_verdict(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with (
        OpenAiServer(refuses=("response_format",)) as server,
        pytest.raises(UserError, match="verdicts are missing"),
    ):
        judged(judge(server.url), tmp_path / "store.sqlite", 2)
    assert "4 of them: Unsupported parameter: 'response_format'" in caplog.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"model": "gone"},
            r"^the judge's API refuses \(404\): The model `gone` does not exist\. Check judge\.model",
        ),
        (
            {"key_variable": "MY_KEY"},
            r"^MY_KEY: not set, and judge\.key_variable names it",
        ),
        (
            {"base_url": "http://127.0.0.1:9/v1"},
            r"^http://127\.0\.0\.1:9/v1 cannot be reached",
        ),
    ],
    ids=["model", "key", "address"],
)
def test_what_cannot_work_is_one_line_at_the_first_request(
    changes: Mapping[str, Any], words: str, tmp_path: Path
):
    with OpenAiServer() as server, pytest.raises(UserError, match=words):
        judged(
            judge(**{"base_url": server.url, "concurrency": 1, **changes}),
            tmp_path / "store.sqlite",
        )
    assert len(server.asked) <= 1


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "past the limit": (
        {"extra_body": {"seed": 1, "max_completion_tokens": 20_000}},
        "extra_body: found max_completion_tokens, which goes past the settings. Set max_tokens, and max_tokens_name",
    ),
    "many answers": (
        {"extra_body": {"n": 20}},
        "extra_body: found n, which goes past the settings. One answer is read",
    ),
}


@pytest.mark.parametrize(("changes", "words"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_setting_out_of_range_is_named_with_what_was_found_and_expected(
    changes: dict[str, Any], words: str
):
    with pytest.raises(UserError) as refusal:
        judge(**changes)
    assert words in str(refusal.value)


# Several processes

JUDGING = """
import json, sys
from pathlib import Path
from elo_exp import pipeline
from elo_exp.pipeline import planning
from elo_exp.judges.openai_compatible import OpenAiCompatibleJudge
from elo_exp.records import Comparison
from elo_exp.data.rubrics import Rubric
from elo_exp.store.store import Store
path, judge, rubric, asked = sys.argv[1], *map(json.loads, sys.argv[2:])
rubric, asked = Rubric(**rubric), [Comparison(**one) for one in asked]
with Store(Path(path)) as store:
    pipeline.judge_pairs({"factuality": asked}, [rubric], OpenAiCompatibleJudge(**judge), store)
    print(store.usage.judge_calls)
"""


def test_two_processes_at_once_ask_each_query_once(tmp_path: Path):
    """Nothing is answered before both are there: each asks for the list of models before it claims its queries."""

    def watch(stage: Stage, call: Call) -> None:
        while sum(call.method == "GET" for call in server.calls) < 2:
            time.sleep(0.01)

    with OpenAiServer(on_call=watch) as server:
        parts = [
            dataclasses.asdict(part)
            for part in (judge(server.url, concurrency=3), RUBRIC)
        ]
        given = [
            json.dumps(part)
            for part in (*parts, [one.to_dict() for one in comparisons(10)])
        ]
        path = tmp_path / "store.sqlite"
        with (
            process(JUDGING, path, *given) as one,
            process(JUDGING, path, *given) as other,
        ):
            asked = [int(each.communicate(timeout=60)[0]) for each in (one, other)]
    assert sum(asked) == server.billed.total() == 20
    assert set(server.billed.values()) == {1}


# The whole command

ENTRANT = """\
# @package entrant.{name}
defaults: [openai_compatible@_here_, _self_]
entrant_id: {name}
base_url: {url}
model: {name}
concurrency: 3
key_variable: MY_KEY
"""
N_ANSWERS, N_VERDICTS = 8, 8  # of 4 prompts: two entrants; both orders of one pair
BEARER = {"MY_KEY": SECRET, "OPENAI_LOG": "debug", "NO_PROXY": "127.0.0.1"}


def words(server: OpenAiServer, folder: Path) -> list[str]:
    """The command that has two models of the server compared by one of them; all libraries say what they do."""
    (folder / "mine" / "entrant").mkdir(parents=True, exist_ok=True)
    for name in ("small", "large"):
        text = ENTRANT.format(name=name, url=server.url)
        (folder / "mine" / "entrant" / f"{name}.yaml").write_text(
            text, encoding="utf-8"
        )
    asks = (
        f"judge.base_url={server.url}",
        "judge.model=large",
        "judge.concurrency=3",
        "judge.key_variable=MY_KEY",
    )
    small = (
        "rubric=[factuality]",
        "elo.n_perms=5",
        "+mode.strata.medqa=4",
        "tracker=local",
        "hydra.verbose=true",
    )
    return [
        "--config-dir=mine",
        "entrant=[small,large]",
        "judge=openai_compatible",
        *asks,
        *small,
    ]


def broken_off(server: OpenAiServer, folder: Path, *, by: int, at: int) -> Ran:
    """The command, sent a signal when so many completions have been billed."""
    begun: list[subprocess.Popen[str]] = []
    sent: list[int] = []

    def watch(stage: Stage, call: Call) -> None:
        if stage == "answered" and server.billed.total() >= at and not sent:
            sent.append(by)
            begun[0].send_signal(by)

    server.on_call = watch
    begun.append(start(*words(server, folder), folder=folder, **BEARER))
    out, err = begun[0].communicate(timeout=60)
    server.on_call = None
    return Ran(folder, begun[0].returncode, out, err)


@dataclasses.dataclass
class Story:
    """The same command four times: interrupted while the entrants answer, killed while the judge compares, and twice to
    its end; and what had been billed, and asked, after each."""

    folder: Path
    ran: list[Ran]
    billed: list[Counter[str]]
    n_calls: list[int]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    told = Story(tmp_path_factory.mktemp("story"), [], [], [])
    lengths = {"small": "Yes: ", "large": "Yes, and at once: "}
    with OpenAiServer(
        answer=lambda model, text: lengths[model] + text, key=SECRET
    ) as server:
        for number in range(4):
            if number < 2:
                by, at = (
                    (signal.SIGINT, 3),
                    (signal.SIGKILL, N_ANSWERS + N_VERDICTS // 2),
                )[number]
                told.ran.append(broken_off(server, told.folder, by=by, at=at))
            else:
                told.ran.append(
                    run(*words(server, told.folder), folder=told.folder, **BEARER)
                )
            told.billed.append(server.billed.copy())
            told.n_calls.append(len(server.calls))
    return told


def test_at_ctrl_c_what_is_on_its_way_is_waited_for_and_stored(story: Story):
    """No answer is asked for again."""
    assert story.ran[0].code == 130
    assert "interrupted. Every answer so far is stored" in story.ran[0].err
    interrupted = story.billed[0]
    assert 3 <= interrupted.total() < N_ANSWERS
    assert all(story.billed[-1][body] == 1 for body in interrupted)


def test_a_killed_command_goes_on_and_loses_what_was_on_its_way_at_most(story: Story):
    killed, finished = story.billed[1:3]
    assert story.ran[1].code == -signal.SIGKILL
    assert killed.total() >= N_ANSWERS + N_VERDICTS // 2
    assert len(finished) == N_ANSWERS + N_VERDICTS
    assert finished.total() - len(finished) <= 3
    assert len(story.ran[2].rows("verdicts/factuality.jsonl")) == 4


def test_a_command_that_is_given_again_asks_nobody_and_concludes_the_same(story: Story):
    assert story.n_calls[3] == story.n_calls[2]
    assert story.ran[3].rows("battles.jsonl") == story.ran[2].rows("battles.jsonl")
    assert {row["winner"] for row in story.ran[2].rows("battles.jsonl")} == {"model_b"}
    assert {
        row["diagnostics"]["model"]
        for row in story.ran[2].rows("responses/responses_small.jsonl")
    } == {"small-2026-11"}


def test_the_key_is_in_no_file_and_in_nothing_that_was_said(story: Story):
    """Every byte that is left is searched, debug logs among them."""
    assert found(story.folder) == []
    assert "Sending HTTP Request" in story.ran[2].err
    assert not any(piece in ran.out + ran.err for piece in PIECES for ran in story.ran)
