"""Turn by turn: each turn is asked after the entrant's own answers, stored and paid for by itself.

The real SDKs talk to real servers on 127.0.0.1, which keep the bill; a tiny model of transformers answers through its
chat template.
"""

from __future__ import annotations

import multiprocessing
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elo_exp import models, pipeline
from elo_exp.data import bank as banks
from elo_exp.data import conversations
from elo_exp.entrants import Entrant
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl
from elo_exp.records import Message, Prompt, Response, ToolCall
from elo_exp.store.answer_store import Store
from tests.data import prompt, shipped
from tests.judging_process import Commits, CountingConnection
from tests.openai_server import OpenAiServer, Says, alone
from tests.test_api_entrants import PRICES, entrant
from tests.test_messages import assistant, user

QUESTIONS = ("Why?", "Shorter?", "In German?")


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch, tmp_path) -> None:
    alone(monkeypatch, tmp_path)


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    """A model that says which of its turns it is."""
    with OpenAiServer(
        answer=lambda _, text: f"About {text[-12:]} ({len(text)})"
    ) as made:
        yield made


def bank(n: int = 6) -> list[Prompt]:
    """Prompts of one, two and three turns."""
    return [
        prompt(
            number=i,
            messages=tuple(
                user(f"{i}: {text}") for text in QUESTIONS[: 1 + (i - 1) % 3]
            ),
            text="(transcript)",
        )
        for i in range(1, n + 1)
    ]


def answered(
    prompts: list[Prompt], entrants: Mapping[str, Any], path: Path, **how: bool
) -> Mapping[str, Mapping[str, Response]]:
    with Store(path) as store:
        return pipeline.generate(
            prompts, entrants, store, allow_missing=how.get("allow_missing", False)
        )


# What is sent


def test_each_turn_is_asked_after_the_entrants_own_answers(
    server: OpenAiServer, tmp_path: Path
):
    one = bank()[2]  # of three turns
    made = entrant(server.url, system_prompt="Be brief.", concurrency=1)
    found = answered([one], {"ann": made}, tmp_path / "s.sqlite")["ann"]["p3", 0]
    sent = [asked["messages"] for asked in server.asked]
    assert [len(messages) for messages in sent] == [2, 4, 6]
    assert sent[1][:2] == sent[0]
    roles = [message["role"] for message in sent[2]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    said = [message["content"] for message in sent[2] if message["role"] == "assistant"]
    whole = [message.content for message in found.messages]
    assert whole == [said[0], "3: Shorter?", said[1], "3: In German?", found.response_text]  # fmt: skip
    assert len(found.diagnostics["turns"]) == 3


def test_system_messages_of_entrant_and_prompt_are_sent_as_one(
    server: OpenAiServer, tmp_path: Path
):
    task = Message(role="system", content="Answer in verse.")
    one = prompt(messages=(task, user("Why?")))
    made = entrant(server.url, system_prompt="Be brief.")
    answered([one], {"ann": made}, tmp_path / "s.sqlite")
    assert server.asked[0]["messages"] == [
        {"role": "system", "content": "Be brief.\n\nAnswer in verse."},
        {"role": "user", "content": "Why?"},
    ]


def test_claude_is_sent_the_history_and_both_system_messages():
    """An empty answer, which its API refuses in a history, is left out, and calls of tools are refused."""
    task = Message(role="system", content="Answer in verse.")
    made = shipped("entrant", "claude", entrant_id="claude", system_prompt="Be brief.")
    history = (task, user("q1"), assistant(""), user("q2"))
    body = made.params(prompt(messages=history), None)
    assert body["system"] == "Be brief.\n\nAnswer in verse."
    assert [message["content"] for message in body["messages"]] == ["q1", "q2"]
    call = ToolCall(call_id="c1", name="bash", arguments="{}")
    called = (user("q1"), assistant("", call), user("q2"))
    with pytest.raises(UserError, match="Prompt p1 has a tool call in its history"):
        made.cache_key(prompt(messages=called))


@pytest.mark.system
def test_a_model_on_this_machine_reads_the_history_in_its_template(tmp_path: Path):
    """Of a call the template has the arguments as an object."""
    made = shipped("entrant", "tiny_base", cache_dir=str(tmp_path))
    call = ToolCall(call_id="c1", name="bash", arguments='{"cmd": "ls"}')
    messages = (
        user("q1"),
        assistant("a1"),
        user("q2"),
        assistant("", call),
        user("q3"),
    )
    one = prompt(messages=messages)
    lm = models.load_weights(made.weights)
    read = lm.decode(made.chat_ids(lm, one.sent("Be brief.")), special=True)
    places = [read.index(text) for text in ("Be brief.", "q1", "a1", "q2", "q3")]
    assert places == sorted(places)
    (said,) = made.generate([one])
    assert said.diagnostics["n_tokens_prompt"] == len(made.chat_ids(lm, one.sent(None)))
    models.release_weights()


def test_thoughts_are_left_out_of_the_history(server: OpenAiServer, tmp_path: Path):
    server.outcomes = lambda params, n: Says("<think>Hm.</think>So.")
    answered([bank()[1]], {"ann": entrant(server.url)}, tmp_path / "s.sqlite")
    (said,) = [m for m in server.asked[1]["messages"] if m["role"] == "assistant"]
    assert said["content"] == "So."


# Stored and paid for by itself


def test_all_turns_are_asked_once_and_nothing_is_asked_again(
    server: OpenAiServer, tmp_path: Path
):
    """First turns are shared with a run of first turns alone."""
    path, prompts = tmp_path / "s.sqlite", bank()
    entrants = {"ann": entrant(server.url), "bob": entrant(server.url, max_tokens=99)}
    firsts = [
        conversations.build_turn_prompt(one, []) if one.messages else one
        for one in prompts
    ]
    answered(firsts, entrants, path)
    assert len(server.asked) == 2 * 6
    found = answered(prompts, entrants, path)
    assert len(server.asked) == 2 * (6 + 4 + 2)
    assert set(server.billed.values()) == {1}
    assert answered(prompts, entrants, path) == found
    assert len(server.asked) == 2 * 12
    with Store(path) as store:
        assert store.query("SELECT COUNT(*) FROM answers") == [(24,)]
        assert pipeline.has_all_responses(prompts, entrants, store)
        assert pipeline.read_stored_responses(prompts, entrants, store) == found


def kill_after(commits: int, prompts: list[Prompt], made: Any, path: Path) -> None:
    """Answer in a process that is killed after so many of its writes."""
    Commits.deaths = {"after": commits}
    connect = sqlite3.connect
    sqlite3.connect = partial(connect, factory=CountingConnection)  # type: ignore[assignment]
    answered(prompts, {"ann": made}, path)


@pytest.mark.parametrize(("commits", "n_draws"), [(3, 1), (14, 1), (20, 1), (30, 2)])
def test_a_run_that_is_killed_anywhere_goes_on_where_it_was(
    server: OpenAiServer, tmp_path: Path, commits: int, n_draws: int
):
    """0 lost, 0 paid twice: between turns, and between draws."""
    killed_once(server, tmp_path, commits, n_draws)


@pytest.mark.faults
@pytest.mark.parametrize("n_draws", [1, 2])
@pytest.mark.parametrize("commits", range(1, 30))
def test_the_same_of_each_write(
    server: OpenAiServer, tmp_path: Path, commits: int, n_draws: int
):
    killed_once(server, tmp_path, commits * n_draws, n_draws)


def killed_once(server: OpenAiServer, folder: Path, commits: int, n_draws: int) -> None:
    made = entrant(server.url, concurrency=1, seed=7, **PRICES, budget_usd=1.0)
    path, prompts = folder / "s.sqlite", pipeline.repeat_prompts(bank(), n_draws)
    victim = multiprocessing.get_context("fork").Process(
        target=kill_after, args=(commits, prompts, made, path)
    )
    victim.start()
    victim.join()
    assert victim.exitcode == -signal.SIGKILL
    n_before = len(server.asked)
    found = answered(prompts, {"ann": made}, path)["ann"]
    assert n_before <= 12 * n_draws
    assert len(server.asked) == 12 * n_draws
    assert set(server.billed.values()) == {1}
    with OpenAiServer(answer=server.answer) as other:
        same = {"ann": entrant(other.url, seed=7)}
        anew = answered(prompts, same, folder / "t.sqlite")["ann"]
    assert {i: one.messages for i, one in anew.items()} == {
        i: one.messages for i, one in found.items()
    }


# What is missing, what is planned, and who takes turns


def test_a_conversation_ends_with_its_first_missing_turn(
    server: OpenAiServer, tmp_path: Path
):
    made = entrant(server.url)
    prompts = bank(3)
    with Store(tmp_path / "s.sqlite") as store:
        pipeline.generate(prompts[:2], {"ann": made}, store, allow_missing=False)
        known = pipeline.find_known_responses(prompts, {"ann": made}, store)["ann"]
    assert set(known) == {("p1", 0), ("p2", 0)}
    assert known["p2", 0].messages[1] == user("2: Shorter?")
    recorded = write_jsonl(
        tmp_path / "responses_ann.jsonl", [known[i, 0].to_dict() for i in ("p1", "p2")]
    )
    from_file = shipped("entrant", "recorded", entrant_id="ann", path=str(recorded))
    path = tmp_path / "t.sqlite"
    found = answered(prompts, {"ann": from_file}, path, allow_missing=True)["ann"]
    assert set(found) == {("p1", 0), ("p2", 0)}
    with pytest.raises(UserError, match="1 of 3 responses"):
        answered(prompts, {"ann": from_file}, path)


def test_a_conversation_that_lacks_a_turn_is_dropped_whole(tmp_path: Path):
    """Of an entrant that takes turns, and has no answer to one of them."""
    prompts, path = bank(3), tmp_path / "s.sqlite"
    some = OfTurns(unanswered="2: Shorter?")
    found = answered(prompts, {"mine": some}, path, allow_missing=True)["mine"]
    assert set(found) == {("p1", 0), ("p3", 0)}
    assert len(found["p3", 0].messages) == 5
    with pytest.raises(UserError, match="1 of 3 responses"):
        answered(prompts, {"mine": some}, path)


def test_two_draws_of_one_request_are_two_answers(server: OpenAiServer, tmp_path: Path):
    """Also where no seed tells them apart, and each is found again."""
    twice, made = pipeline.repeat_prompts([prompt()], 2), entrant(server.url)
    for _ in range(2):
        found = answered(twice, {"ann": made}, tmp_path / "s.sqlite")["ann"]
        assert set(found) == {("p1", 0), ("p1", 1)}
        assert len(server.asked) == 2
    assert set(server.billed.values()) == {2}


def test_a_plan_assumes_an_answer_to_each_turn_and_asks_nobody(
    server: OpenAiServer, tmp_path: Path
):
    with Store(tmp_path / "s.sqlite") as store:
        found = pipeline.assume_responses(
            bank(),
            {"ann": entrant(server.url, max_tokens=5)},
            store,
            allow_missing=False,
        )["ann"]
    assert [len(one.messages) for one in found.values()] == [0, 3, 5] * 2
    assert server.asked == []


@dataclass
class OfTexts(Entrant):
    """An entrant from elsewhere."""

    entrant_id: str = "mine"

    def cache_key(self, prompt: Prompt) -> Any:
        return prompt.text

    def generate(self, prompts: list[Prompt]) -> Iterator[Response]:
        for one in prompts:
            yield Response(
                entrant_id="mine",
                prompt_id=one.prompt_id,
                response_text=one.text.upper(),
            )


@dataclass
class OfTurns(OfTexts):
    """One that takes turns."""

    unanswered: str = ""
    turns = True

    def generate(self, prompts: list[Prompt]) -> Iterator[Response]:
        have = [one for one in prompts if self.unanswered not in one.text]
        yield from super().generate(have)


def test_an_entrant_from_elsewhere_is_asked_texts_and_no_conversation(
    server: OpenAiServer, tmp_path: Path
):
    """Before another one is paid."""
    mine = OfTexts()
    path = tmp_path / "s.sqlite"
    (one,) = answered([prompt()], {"mine": mine}, path)["mine"].values()
    assert one.response_text == "WHY?"
    with pytest.raises(UserError) as error:
        answered(bank(), {"ann": entrant(server.url), "mine": mine}, path)
    assert str(error.value).startswith(
        "entrant.mine takes no messages, and prompt 'p2' has some.\n  Leave the entrant out"
    )
    assert server.asked == []


# Probes and recorded answers


def test_a_probe_answers_each_turn_by_its_own_reference(tmp_path: Path):
    rows = [
        {
            "prompt_id": f"p{i}", "source": "s", "subject": "er",
            "messages": [{"role": "user", "content": f"{i}{q}"} for q in "ab"],
            "gold_answer": [f"Gold {i} a.", f"Gold {i} b."],
        }
        for i in (1, 2)
    ]  # fmt: skip
    path = write_jsonl(tmp_path / "bank.jsonl", rows)
    prompts = banks.load_bank(path)
    entrants = {
        name: shipped("entrant", name, bank_path=str(path), lapse_rate=0.0)
        for name in ("probe_reference", "probe_swapped")
    }
    found = answered(prompts, entrants, tmp_path / "s.sqlite")
    own = found["probe_reference"]["p1", 0].messages
    assert [message.content for message in own] == ["Gold 1 a.", "1b", "Gold 1 b."]
    other = found["probe_swapped"]["p1", 0].messages
    assert [message.content for message in other] == [
        "Certainly. Gold 2 a.", "1b", "Certainly. Gold 2 b.",
    ]  # fmt: skip


CHAT = [("user", "2: Why?"), ("assistant", "a1"), ("user", "2: Shorter?"), ("assistant", "a2")]  # fmt: skip


@pytest.mark.parametrize("start", [0, 1])
def test_a_recorded_conversation_is_whole_or_what_follows_the_first_question(
    tmp_path: Path, start: int
):
    messages = [{"role": role, "content": text} for role, text in CHAT[start:]]
    path = write_jsonl(
        tmp_path / "chats.jsonl", [{"prompt_id": "p2", "messages": messages}]
    )
    made = shipped("entrant", "recorded", entrant_id="ann", path=str(path))
    (found,) = made.generate([bank()[1]])
    assert [message.content for message in found.messages] == ["a1", "2: Shorter?", "a2"]  # fmt: skip
    assert found.response_text == "a2"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"response_text": "a1"}, "has 1 turn, but the prompt asks 2."),
        ({"messages": [*CHAT, ("user", "And?"), ("assistant", "a3")]},
         "has 3 turns, but the prompt asks 2."),
        ({"messages": [CHAT[0], CHAT[1], ("user", "Longer?"), CHAT[3]]},
         'has "Longer?" as message 2 of the user, but the prompt has "2: Shorter?".'),
    ],
)  # fmt: skip
def test_a_recorded_conversation_asks_what_the_bank_asks(
    tmp_path: Path, row: dict[str, Any], words: str
):
    if "messages" in row:
        some = [{"role": role, "content": text} for role, text in row["messages"]]
        row = {"messages": some}
    path = write_jsonl(tmp_path / "chats.jsonl", [{"prompt_id": "p2", **row}])
    made = shipped("entrant", "recorded", entrant_id="ann", path=str(path))
    with pytest.raises(UserError) as error:
        list(made.generate([bank()[1]]))
    assert str(error.value) == f"{path}: the answer of ann to p2 {words}"


def test_a_text_prompt_is_asked_as_before(server: OpenAiServer, tmp_path: Path):
    """Beside conversations, too: its key has the text alone."""
    path, made = tmp_path / "s.sqlite", entrant(server.url)
    text = replace(prompt(9), text="Why?")
    answered([text], {"ann": made}, path)
    answered([text, *bank(2)], {"ann": made}, path)
    assert len(server.asked) == 1 + 1 + 2
