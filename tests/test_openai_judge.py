"""A judge behind an OpenAI-compatible API: what it is sent, what its verdict depends on, what it costs, and that it is
asked once.

The real SDK talks to a real server on 127.0.0.1, which keeps the bill.
"""

import json
from typing import Any

import pytest

from elo_exp.analysis.judge_quality import judge_quality
from elo_exp.errors import UserError
from elo_exp.judges.openai_compatible import OpenAiCompatibleJudge
from tests.anthropic_verdicts import longer
from tests.commands import QUICK, run
from tests.data import shipped
from tests.openai_server import OpenAiServer, Says, alone
from tests.paying import RUBRIC, comparisons, judged, request
from tests.test_key import PIECES, SECRET, found

PRICES = {
    "input_usd_per_million": 2.0,
    "cached_input_usd_per_million": 0.5,
    "output_usd_per_million": 8.0,
}


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch, tmp_path) -> None:
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


# What is sent


def test_the_request_is_the_system_text_the_message_and_the_schema():
    with OpenAiServer() as server:
        judged(judge(server.url), 1)
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
    # in the order in which they are to be generated
    assert list(properties) == ["evidence_a", "evidence_b", "verdict"]


@pytest.mark.parametrize("structured", ["json_schema", "json_object", "none"])
def test_a_verdict_is_read_as_json_or_as_the_last_line(structured):
    """The longer response wins here, in both orders; without a format the server answers in prose."""
    with OpenAiServer(verdicts=longer) as server:
        judgments, _ = judged(judge(server.url, structured=structured))
    assert [(judgment.winner, judgment.inconsistent) for judgment in judgments] == [
        ("ann", False)
    ] * 3


# What is no verdict

VERDICT = '{"evidence_a": "", "evidence_b": "", "verdict": "A"}'
NO_VERDICTS = [
    Says(None, beside={"refusal": "I cannot."}),
    Says(VERDICT, "content_filter"),
    Says('{"evidence_a": "Yes', "length"),
    Says("Yes. " * 4000 + "VERDICT: A", None),  # as long as it may be, and not said
    Says('{"evidence_a": "Yes", "verdict": A}'),
    Says(VERDICT.replace('"A"', '"BOTH"')),
    Says(None),
    Says(VERDICT, "tool_calls"),
]


def test_what_is_no_verdict_is_invalid_never_a_tie_and_not_asked_again():
    """Each comes of both queries about a comparison; two are refused, two cut off. The last comparison is judged."""

    def by_number(params: dict, n: int):
        number = int(params["messages"][1]["content"].split("Why ")[1][:3])
        return NO_VERDICTS[number] if number < len(NO_VERDICTS) else None

    n = len(NO_VERDICTS) + 1
    with OpenAiServer(outcomes=by_number) as server:
        judgments, usage = judged(judge(server.url), n)
        assert judged(judge(server.url), n)[0] == judgments
        assert len(server.asked) == usage.judge_calls == 2 * n
    assert [judgment.invalid for judgment in judgments] == [True] * (n - 1) + [False]
    found = judge_quality(judgments, dimension="factuality")
    counts = {"n_judgments": n, "n_invalid": n - 1, "n_refused": 2, "n_cut_off": 2}
    assert counts.items() <= found.to_dict().items()


# What it costs


def test_what_was_spent_agrees_with_the_servers_bill_to_the_token():
    """Of each prompt 64 tokens are in the server's cache, at a quarter of the price."""
    with OpenAiServer(cached=64) as server:
        _, usage = judged(judge(server.url, **PRICES))
    cached = 64 * usage.judge_calls
    assert usage.judge_calls == len(server.asked) == 6
    assert (usage.cache_read_tokens, usage.input_tokens) == (
        cached,
        server.usage["prompt_tokens"] - cached,
    )
    assert usage.output_tokens == server.usage["completion_tokens"]
    dollars = (usage.input_tokens * 2 + cached * 0.5 + usage.output_tokens * 8) * 1e-6
    assert usage.dollars == pytest.approx(dollars)
    assert sum(usage.dollars_by_dimension.values()) == pytest.approx(dollars)


def test_a_server_of_ones_own_needs_no_budget_and_one_that_is_paid_does():
    with OpenAiServer() as server:
        _, usage = judged(judge(server.url, budget_usd=0.0), 1)
        assert (usage.judge_calls, usage.dollars) == (2, 0)
        n_calls = len(server.calls)
        words = r"^judging\.budget_usd must be above 0 \(US dollars\), as large costs money; got 0\."
        with pytest.raises(UserError, match=words):
            judged(judge(server.url, budget_usd=0.0, **PRICES), 2)
        assert len(server.calls) == n_calls


# The whole command

ENTRANT = """\
# @package entrant.{name}
defaults: [openai_compatible@_here_, _self_]
entrant_id: {name}
base_url: {url}
model: {name}
key_variable: MY_KEY
"""


@pytest.mark.system
def test_the_key_of_judge_and_entrants_is_in_no_file_and_no_log(tmp_path):
    """Two models of a server compared by one of them, with debug logs. The longer answers win."""
    lengths = {"small": "Yes: ", "large": "Yes, and at once: "}
    (tmp_path / "mine" / "entrant").mkdir(parents=True)
    answer = lambda model, text: lengths[model] + text  # noqa: E731
    with OpenAiServer(answer=answer, key=SECRET) as server:
        for name in lengths:
            text = ENTRANT.format(name=name, url=server.url)
            path = tmp_path / "mine" / "entrant" / f"{name}.yaml"
            path.write_text(text, encoding="utf-8")
        ran = run(
            "--config-dir=mine",
            "entrant=[small,large]",
            "judge=openai_compatible",
            f"judge.base_url={server.url}",
            "judge.model=large",
            "judge.key_variable=MY_KEY",
            "+mode.strata.medqa=4",
            "hydra.verbose=true",
            *QUICK[2:],
            folder=tmp_path,
            **{"MY_KEY": SECRET, "OPENAI_LOG": "debug", "NO_PROXY": "127.0.0.1"},
        )
    # of 4 prompts two answers, and both orders of one pair
    assert server.billed.total() == 4 * 2 + 4 * 2
    assert {battle["winner"] for battle in ran.rows("battles.jsonl")} == {"model_b"}
    assert found(tmp_path) == []
    assert "Sending HTTP Request" in ran.err
    assert not any(piece in ran.out + ran.err for piece in PIECES)
