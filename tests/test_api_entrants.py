"""Entrants behind an API: what they are sent, what is kept of their answers, and that nothing is paid for in vain.

The real SDKs talk to real servers on 127.0.0.1, which keep the bill.
"""

import logging
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.api.jobs import Completion
from elo_exp.entrants.openai_compatible import OpenAiCompatibleEntrant
from elo_exp.errors import UserError
from elo_exp.pipeline import generating
from elo_exp.records import Prompt, Response
from elo_exp.store.answer_store import Store
from tests import anthropic_verdicts
from tests.anthropic_server import AnthropicServer
from tests.commands import attempt, run
from tests.data import shipped
from tests.http_server import Call, Stage
from tests.openai_server import OpenAiServer, Says, alone
from tests.test_launchers import bank

NAME = "openai_compatible"
PRICES = {"input_usd_per_million": 3.0, "output_usd_per_million": 15.0}


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch, tmp_path) -> None:
    alone(monkeypatch, tmp_path)


def entrant(
    base_url: str = "http://127.0.0.1:9/v1", **changes: Any
) -> OpenAiCompatibleEntrant:
    """conf/entrant/openai_compatible.yaml with an address and a model."""
    made: OpenAiCompatibleEntrant = shipped(
        "entrant", NAME, **{"base_url": base_url, "model": "small", **changes}
    )
    return made


def prompts(n: int) -> list[Prompt]:
    return [
        Prompt(prompt_id=f"p{i:02}", text=f"Why {i:02}?", source="test", subject="test")
        for i in range(n)
    ]


def generated(
    made: Any, n: int, path: Path, *, allow_missing: bool = False
) -> dict[str, Response]:
    """Its responses to so many prompts, through the stage that stores them."""
    with Store(path) as store:
        return dict(
            pipeline.generate(
                prompts(n), {NAME: made}, store, allow_missing=allow_missing
            )[NAME]
        )


def answered(made: Any, some: Sequence[Prompt]) -> Iterator[Response]:
    """Its responses as they come, in a store of their own."""
    with TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as store:
        wanted = {prompt.prompt_id: prompt for prompt in some}
        first = generating._FirstAnswers(NAME, 0, len(wanted))
        yield from generating._make_answers(made, wanted, store, first, False)


def stored(path: Path) -> list[str]:
    """The prompts of which the store holds a response."""
    with Store(path) as store:
        rows = store.query(
            "SELECT json_extract(value, '$.prompt_id') FROM answers ORDER BY 1"
        )
    return [prompt_id for (prompt_id,) in rows]


# What is sent and kept


def test_a_prompt_is_sent_as_the_user_says_and_nothing_that_is_null():
    with OpenAiServer() as server:
        list(answered(entrant(server.url), prompts(1)))
        chosen = {
            "system_prompt": "Be brief.",
            "temperature": 0.0,
            "top_p": 0.9,
            "seed": 7,
            "extra_body": {"top_k": 20},
        }
        named = {"max_tokens": 99, "max_tokens_name": "max_completion_tokens"}
        list(answered(entrant(server.url, **chosen, **named), prompts(1)))
    plain, full = server.asked
    assert plain == {
        "model": "small",
        "messages": [{"role": "user", "content": "Why 00?"}],
        "max_tokens": 1024,
    }
    assert full == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Why 00?"},
        ],
        "max_completion_tokens": 99,
        "temperature": 0.0,
        "top_p": 0.9,
        "seed": 7,
        "top_k": 20,
    }


def test_a_response_says_who_answered_and_what_it_took():
    """The prompt has 7 characters, two tokens; the answer 20, five. Without prices no dollars are counted."""
    with OpenAiServer() as server:
        (response,) = answered(
            entrant(server.url, entrant_id="mine", **PRICES), prompts(1)
        )
        (unpriced,) = answered(entrant(server.url), prompts(1))
    assert (response.entrant_id, response.prompt_id) == ("mine", "p00")
    assert response.response_text == "About Why 00?: yes."
    assert response.finish_reason == "stop"
    tokens = {"model": "small-2026-11", "input_tokens": 2, "output_tokens": 5}
    tokens["thought"] = "none"
    dollars = pytest.approx((2 * 3 + 5 * 15) * 1e-6)
    assert response.diagnostics == {**tokens, "dollars": dollars}
    assert unpriced.diagnostics == tokens
    assert response.timestamp is not None


ODD_ANSWERS: list[tuple[Says, tuple[str, str, str]]] = [
    (Says(None, beside={"refusal": "I cannot."}), ("", "refusal", "none")),
    (Says("Never", "content_filter"), ("Never", "refusal", "none")),
    (Says("Because", "length"), ("Because", "length", "none")),
    (Says(""), ("", "stop", "none")),
    (Says("Because", None), ("Because", "stop", "none")),
    (Says("Yes.", beside={"reasoning": "hm"}), ("Yes.", "stop", "closed")),
    (Says("<think>hm</think>\nYes."), ("Yes.", "stop", "closed")),
    (Says(None, "length", {"reasoning_content": "hm"}), ("", "length", "unclosed")),
    (Says("<think>hm"), ("", "length", "unclosed")),
]


def test_what_is_no_full_answer_is_paid_for_once_and_a_thought_is_kept_and_not_judged(
    tmp_path, caplog
):
    """Whether the server splits a thought off (vLLM, llama.cpp) or not; one without an end is no answer."""

    def by_number(params: Any, n: int) -> Says:
        return ODD_ANSWERS[int(params["messages"][-1]["content"][4:6])][0]

    n = len(ODD_ANSWERS)
    with OpenAiServer(outcomes=by_number) as server:
        made = entrant(server.url, chat_template_kwargs={"enable_thinking": True})
        for _ in range(2):
            found = generated(made, n, tmp_path / "store.sqlite").values()
    assert server.asked[0]["chat_template_kwargs"] == {"enable_thinking": True}
    thoughts = [response.diagnostics["thought"] for response in found]
    texts = [(response.response_text, response.finish_reason) for response in found]
    expected = [want for _, want in ODD_ANSWERS]
    assert [(*e, t) for e, t in zip(texts, thoughts, strict=True)] == expected
    reasons = [response.diagnostics.get("reasoning") for response in found]
    assert reasons == [None] * 5 + ["hm"] * 4
    assert server.billed.total() == n
    assert "2 in thought to the end" in caplog.text


# Some at a time


def test_what_is_on_its_way_at_ctrl_c_is_waited_for_and_handed_over():
    """Of two that are asked together the second is still at work when the first has come."""
    go_on = threading.Event()

    def watch(stage: Stage, call: Call) -> None:
        if stage == "before" and "01" in call.json()["messages"][0]["content"]:
            go_on.wait(5)

    with OpenAiServer(on_call=watch) as server:
        answers = answered(entrant(server.url, concurrency=2), prompts(9))
        assert next(answers).prompt_id == "p00"
        signal.raise_signal(signal.SIGINT)
        threading.Timer(0.05, go_on.set).start()
        assert next(answers).prompt_id == "p01"
        with pytest.raises(KeyboardInterrupt):
            next(answers)
    assert server.billed.total() == 2


# Errors


def test_half_an_emoji_is_never_sent_and_nothing_is_reserved_for_it(
    caplog,
):
    """The cap is that of one answer at a time."""
    half = Prompt(prompt_id="half", text="Why \ud83d?", source="test", subject="test")
    with OpenAiServer() as server:
        made = entrant(server.url, max_tokens=1000, budget_usd=0.0153, **PRICES)
        found = [response.prompt_id for response in answered(made, [half, *prompts(2)])]
    assert found == ["p00", "p01"]
    assert server.billed.total() == 2
    assert (
        "1 of them with this error: its text cannot be sent (surrogates not allowed)"
        in caplog.text
    )


def test_the_command_says_what_stops_an_entrant_before_any_other_answers(
    tmp_path,
):
    with OpenAiServer() as server:
        ran = attempt(
            "entrant=[probe_reference,openai_compatible]",
            *hosted(server),
            "entrant.openai_compatible.key_variable=MY_KEY",
            "tracker=local",
            folder=tmp_path,
        )
    assert ran.code == 2
    words = "The entrant openai_compatible needs an API key, and MY_KEY is not set."
    assert ran.err.startswith(f"elo_exp: {words}")
    assert ran.err.count("\n") == 3
    assert stored(tmp_path / "outputs/cache/store.sqlite") == []
    assert server.asked == []


def test_the_console_has_our_lines_and_the_warnings_of_others(tmp_path):
    """Whatever a library calls its logger."""

    def chat(stage: Stage, call: Call) -> None:
        logging.getLogger("loud.library").info("a line for every look")
        logging.getLogger("loud.library").warning("something is wrong")

    with OpenAiServer(on_call=chat) as server:
        ran = run(
            "experiment=answer",
            "entrant=[openai_compatible]",
            *hosted(server),
            *("mode=demo", "study=medical", "tracker=local"),
            bank(tmp_path),
            folder=tmp_path,
        )
    log = (ran.run_dir / "elo_exp.log").read_text()
    for text in (ran.err, log):
        assert "something is wrong" in text
        assert "answers" in text
        assert "a line for every look" not in text


def hosted(server: OpenAiServer) -> tuple[str, str]:
    name = "entrant.openai_compatible"
    return f"{name}.base_url={server.url}", f"{name}.model=small"


# Money


def test_a_cap_is_stopped_at_before_it_is_passed_and_a_higher_one_goes_on(tmp_path):
    """At most 1,000 tokens at $15 a million: 1.5 cents for each that is on its way; $0.0003 when it has come."""
    path = tmp_path / "store.sqlite"
    with OpenAiServer(answer=lambda model, text: "y" * 80) as server:

        def capped(dollars: float) -> Any:
            return entrant(server.url, max_tokens=1000, budget_usd=dollars, **PRICES)

        words = (
            r"^entrant\.openai_compatible\.budget_usd is too low for the next request, which may cost \$0\.01.*: "
            r"\$0\.00.* of \$0\.0163 are spent.*\n.*the same command again with a higher entrant\.openai_compatible\.bud"
        )
        with pytest.raises(UserError, match=words):
            generated(capped(0.0163), 9, path)
        assert 0 < len(stored(path)) < 9
        generated(capped(1.0), 9, path)
    assert set(server.billed.values()) == {1}
    assert server.billed.total() == 9


def test_an_answer_that_cannot_be_read_takes_no_other_along(tmp_path):
    """Ten come at the same moment."""
    all_there = threading.Barrier(10, timeout=60)

    def watch(stage: Stage, call: Call) -> None:
        if stage == "accepted":
            all_there.wait()

    class Spoilt(OpenAiCompatibleEntrant):
        def parse(self, message: Mapping[str, Any]) -> Completion:
            completion = super().parse(message)
            if "04" in completion.text:
                raise KeyError("text")
            return completion

    with OpenAiServer(on_call=watch) as server:
        made = entrant(server.url, concurrency=10)
        made.__class__ = Spoilt
        with pytest.raises(UserError, match="^1 of 10 responses are missing"):
            generated(made, 10, tmp_path / "store.sqlite")
    others = {prompt.prompt_id for prompt in prompts(10)} - {"p04"}
    assert set(stored(tmp_path / "store.sqlite")) == others


MISTAKES: list[tuple[dict[str, Any], str]] = [
    (
        {"input_usd_per_million": 1.0},
        "output_usd_per_million must be set as well, because input_usd_per_million is set",
    ),
    (
        {**PRICES, "budget_usd": 0.0},
        "budget_usd must be above 0 (US dollars), or null for no cap; got 0.0.",
    ),
    (
        {"budget_usd": 5.0},
        "budget_usd must be null while the prices of the model are not set; got 5",
    ),
]


@pytest.mark.parametrize(("changes", "words"), MISTAKES)
def test_a_wrong_setting_is_named(changes, words):
    with pytest.raises(UserError) as refusal:
        entrant(**changes)
    assert words in str(refusal.value)


# Claude


def test_claude_is_sent_what_is_set_and_says_what_it_took(
    monkeypatch,
):
    """Seven characters are two tokens; the answer has two, and 20 of thinking."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    because = anthropic_verdicts.Says("Because.")
    with AnthropicServer(outcomes=lambda params, n: because) as server:
        chosen = {"system_prompt": "Be brief.", "effort": "low"}
        one, other = (
            shipped("entrant", "claude", base_url=server.url, **some)
            for some in ({}, chosen)
        )
        (response,) = answered(one, prompts(1))
        list(answered(other, prompts(1)))
        for made in (one, other):
            made.api._client.close()
    plain, full = [call.json() for call in server.meter.calls if call.method == "POST"]
    assert plain == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 4000,
        "messages": [{"role": "user", "content": "Why 00?"}],
    }
    chosen = {"system": "Be brief.", "output_config": {"effort": "low"}}
    assert full == plain | chosen
    assert (response.response_text, response.finish_reason) == ("Because.", "stop")
    assert response.diagnostics == {
        "model": "claude-sonnet-5-5",
        "thought": "none",
        "input_tokens": 2,
        "output_tokens": 22,
        "dollars": pytest.approx((2 * 2 + 22 * 10) * 1e-6),
    }
