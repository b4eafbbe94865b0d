"""The results of a batch are read by line: of n rows, k of them spoilt, n - k are stored and k can be paid again.

The real SDKs of Anthropic and OpenAI, and Gemini's list of batches, read what real servers on 127.0.0.1 send.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from elo_exp.api import batch_results
from elo_exp.api.gemini_answers import parse_document
from elo_exp.api.result_lines import parse_lines, split_rows
from elo_exp.errors import UserError
from elo_exp.experiments.store import _repay
from elo_exp.store.answer_store import Store
from elo_exp.store.ledger import Ledger
from tests.batch_judges import (
    N_PAIRS,
    RESULTS,
    each_provider,
    judged,
    machine,
    n_stored,
    serving,
)
from tests.batch_server import Fate
from tests.http_server import Rewrite, Truncate
from tests.stores import Place, place

__all__ = ["machine", "place"]

pytestmark = pytest.mark.usefixtures("machine")


def repay(place: Place) -> str:
    with Store(place) as store:
        (batch,) = [batch for batch in Ledger(store).batches() if batch.is_open]
        return _repay(store, batch.nonce)


# What may become of a line, and of another that is as it was

Spoil = Callable[[bytes, bytes], bytes]


def retyped(line: bytes, **parts: Any) -> bytes:
    """A line some of whose parts have another type, at whichever depth."""

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [change(item) for item in value]
        if isinstance(value, dict):
            return {name: parts.get(name, change(x)) for name, x in value.items()}
        return value

    return json.dumps(change(json.loads(line))).encode()


SPOILT: Mapping[str, Spoil] = {
    "a bad byte": lambda line, _: line[:-9] + b"\xff" + line[-9:],
    "a bad byte in its id": lambda line, _: re.sub(
        rb'("(custom_id|key)": "...).', b"\\1\xfe", line
    ),
    "a web page": lambda *_: b"<html><body>502 Bad Gateway</body></html>",
    "cut short": lambda line, _: line[: len(line) // 2],
    "cut within its id": lambda line, _: line[:35],
    "nothing": lambda *_: b"",
    "blanks": lambda *_: b" \t ",
    "a zero byte": lambda line, _: line.replace(b'"', b"\0", 1),
    "a number": lambda *_: b"17",
    "a list": lambda *_: b'["row"]',
    "null": lambda *_: b"null",
    "too deep": lambda *_: b"[" * 100_000,
    "an id of another type": lambda line, _: retyped(line, custom_id=17, key=["x"]),
    "an unknown id": lambda line, _: retyped(line, custom_id="alien", key="alien"),
    "another row again": lambda _, other: other,
    "a result of another type": lambda line, _: retyped(line, result="ok", response=[]),
    "an answer of another type": lambda line, _: retyped(
        line, message=5, body="text", candidates="text"
    ),
    "parts of another type": lambda line, _: retyped(
        line, content=5, choices=7, candidates=[3]
    ),
}


def spoil(provider: str, body: bytes, names: Mapping[int, str]) -> bytes:
    """The results with some lines spoilt, by their numbers."""

    def spoil_lines(lines: list[bytes]) -> list[bytes]:
        whole = [line for n, line in enumerate(lines) if n not in names]
        other = whole[0] if whole else b"null"
        return [
            SPOILT[names[n]](line, other) if n in names else line
            for n, line in enumerate(lines)
        ]

    if provider != "gemini":
        return b"\n".join(spoil_lines(body.splitlines()))
    batch = json.loads(body)
    rows = batch["metadata"]["output"]["inlinedResponses"]
    lines = [json.dumps(row).encode() for row in rows["inlinedResponses"]]
    rows["inlinedResponses"] = ["ROWS"]
    spoilt = b", ".join(spoil_lines(lines))
    return json.dumps(batch).encode().replace(b'"ROWS"', spoilt)


def law(provider: str, place: Place, names: Mapping[int, str]) -> None:
    """What is not spoilt is stored, the rest is not paid for by itself, and repay pays for that alone."""
    n, k = 2 * N_PAIRS, len(names)
    fault = Rewrite(lambda body: spoil(provider, body, names))
    with serving(provider) as server:
        server.fault("GET", RESULTS[provider], fault, nth=None)
        for _ in range(2):
            words = rf"only {n - k} of {n} results can be read\. They are stored\.\n  The cause: "
            with pytest.raises(UserError, match=words):
                judged(provider, server, place)
            assert n_stored(place) == n - k
            assert server.meter.billed.total() == n
        assert f"Its {k} open judge calls are sent and charged again" in repay(place)
        server.faults.clear()
        assert judged(provider, server, place) == n
        assert n_stored(place) == n
        assert server.meter.billed.total() == n + k


@each_provider
def test_law_a_spoilt_line_costs_itself_alone(provider, place):
    """Every second line, each in another way, and so the last one."""
    numbers = range(2 * N_PAIRS - 1, 0, -2)
    law(provider, place, dict(zip(numbers, SPOILT, strict=False)))


@pytest.mark.faults
@each_provider
@pytest.mark.parametrize("seed", range(40))
def test_law_n_minus_k_are_stored_and_repay_pays_k(provider, seed, place):
    draw = random.Random(seed)
    numbers = draw.sample(range(2 * N_PAIRS), draw.randint(1, 2 * N_PAIRS))
    law(provider, place, {n: draw.choice(list(SPOILT)) for n in numbers})


@each_provider
@pytest.mark.parametrize("how", ["rst", "eof", "clean"])
def test_what_came_before_a_cut_is_stored(provider, how, place, monkeypatch):
    """And the same command reads the whole file, once it comes whole."""
    # one transaction takes the whole file, and a cut ends it
    monkeypatch.setattr(batch_results, "_ROWS_PER_TRANSACTION", 2 * N_PAIRS + 1)
    with serving(provider) as server:
        cut = Truncate(at_byte=9_000, how=how)
        server.fault("GET", RESULTS[provider], cut, nth=None)
        with pytest.raises(UserError, match=r"[1-9]\d* of 40 results can be read"):
            judged(provider, server, place)
        assert 5 < n_stored(place) < 2 * N_PAIRS
        server.faults.clear()
        judged(provider, server, place)
        assert server.meter.billed.total() == n_stored(place) == 2 * N_PAIRS


@pytest.mark.parametrize("name", ["an unknown id", "another row again", "a bad byte"])
def test_a_spoilt_row_of_an_expired_batch_is_not_taken_for_one_that_was_not_run(name):
    """Whose rows in the error file are as many as the server has run: it would be paid for again by itself."""
    place = Path("store.sqlite")
    with serving("openai", fates={1: Fate(n_run=N_PAIRS)}) as server:
        fault = Rewrite(lambda body: spoil("openai", body, {3: name}))
        for nth in range(1, 11, 2):  # of two files, the output
            server.fault("GET", RESULTS["openai"], fault, nth=nth)
        with pytest.raises(UserError, match="39 of 40 results can be read"):
            judged("openai", server, place)
        assert server.meter.billed.total() == N_PAIRS
        judged("openai", server, place)
        assert server.meter.billed.total() == n_stored(place) == 2 * N_PAIRS


def test_a_spoilt_batch_keeps_nobody_from_the_results_of_the_others():
    place = Path("store.sqlite")
    with serving("anthropic") as server:
        fault = Rewrite(lambda body: spoil("anthropic", body, {0: "a web page"}))
        for nth in range(1, 6):  # of the first batch, each reading
            server.fault("GET", RESULTS["anthropic"], fault, nth=nth)
        with pytest.raises(UserError, match="9 of 10 results can be read"):
            judged("anthropic", server, place, chunk_size=10)
        assert n_stored(place) == 2 * N_PAIRS - 1


# The parts


def row(key: str) -> Any:
    return {"metadata": {"key": key}, "response": {"candidates": [{"content": {}}]}}


def test_blank_lines_are_nothing_and_the_place_of_a_spoilt_one_is_named():
    data = b'\n{"custom_id": "x"}\r\n\r\n{"custom\n'
    first, second = parse_lines(data, lambda line: line["custom_id"])
    assert (first, str(second.location), second.reason) == ("x", "line 4", "is no JSON")


def test_the_rows_of_a_spoilt_document_are_found_from_their_beginnings():
    a, b = (json.dumps(row(key)) for key in "ab")
    for spoilt, n_bad in (
        (f"[{a}, {b}", 0),
        (f"[{a} {b}]", 0),
        (f"[{a[:40]}, {b}]", 1),
        (f'[{a[:-3]}", {b}]', 1),
        (f"[<html>, {b}, {a[:-1]}", 1),
    ):
        rows, around = split_rows(f'{{"state": {spoilt}'.encode())
        assert row("b") in rows and rows.count(None) == n_bad
        assert around.startswith('{"state": [')


def test_a_document_of_beginnings_takes_a_time_in_proportion_to_its_length():
    """Each beginning is read to its end, which is the end of all, if a reader knows no better."""
    n = 200_000
    rows, _ = split_rows(b'{"response":' * n)
    assert 1 <= len(rows) < n


def test_a_spoilt_batch_is_known_by_its_state_and_has_ended_if_it_has_rows():
    whole = json.dumps({"metadata": {"state": "BATCH_STATE_EXPIRED", "x": [row("a")]}})
    assert parse_document("b", whole[:-1].encode())["metadata"]["state"] == "BATCH_STATE_EXPIRED"  # fmt: skip
    assert parse_document("b", b"<html>") is None
    found = parse_document("b", json.dumps([row("a")])[:-1].encode())
    assert found["metadata"]["state"] == "BATCH_STATE_SUCCEEDED"
