"""No secret of the environment leaves the process as text: no file, no message in the store, no tracker has one.

Stored answers, and paths that are read back, stay as they are.
"""

from __future__ import annotations

import csv
import html
import json
import os
import random
import secrets
import string
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import yaml
from omegaconf import OmegaConf

from elo_exp.errors import UserError
from elo_exp.files import (
    read_json,
    read_jsonl,
    write_csv,
    write_json,
    write_jsonl,
    write_whole,
)
from elo_exp.launching import composing, hydra_callback
from elo_exp.masking import mask_text, register_secret
from elo_exp.records import JudgeReply
from elo_exp.runs.manifest import fingerprint_environment
from elo_exp.store.answer_store import Store
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import Ledger
from elo_exp.trackers import Files, Lines, RunInfo, track_run
from elo_exp.trackers.local import LocalTracker
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Errored, longer
from tests.batch_server import BatchServer
from tests.commands import attempt
from tests.gemini_server import GeminiServer
from tests.http_server import Status
from tests.openai_batch_server import OpenAiBatchServer

# Each is written otherwise in JSON, URLs, HTML, CSV, YAML, Python or a shell
NASTY = 'it\'s "a" <b>&\\amp; 100% /é\n,x\t#:'


def invent(rng: random.Random, *, is_nasty: bool) -> str:
    letters = string.ascii_letters + string.digits
    middle = "".join(rng.choices(letters + NASTY * is_nasty, k=rng.randint(8, 30)))
    return f"q{middle}z"


def renderings(text: str) -> Iterator[str]:
    """A text as files and servers may hold it, and once more around that."""
    writers = (
        str,
        json.dumps,
        lambda one: json.dumps(one, ensure_ascii=False),
        lambda one: json.dumps(one).replace("/", r"\/"),
        html.escape,
        quote,
        lambda one: quote(one, safe=""),
        quote_plus,
        repr,
    )
    for inner in writers:
        for outer in writers:
            yield outer(inner(text))


def test_a_secret_is_masked_however_a_text_quotes_it(monkeypatch: pytest.MonkeyPatch):
    rng = random.Random(7)
    for is_nasty in [True, False] * 20:
        secret = invent(rng, is_nasty=is_nasty)
        monkeypatch.setenv("MY_SECRET", secret)
        for text in renderings(secret):
            assert mask_text(f"said {text}.").count("MY_SECRET") == 1, text
            assert secret not in mask_text(text)


def test_names_lengths_and_places_decide_what_is_a_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """As on the console: eight characters, by the name of the variable. A file that holds a key is none."""
    place = tmp_path / "key.pem"
    place.touch()
    for name, value in {
        "A_KEY": "abcdefgh",
        "B_TOKEN": "abcdefghijkl",  # begins as the first one does
        "C_PASSWORD": "1234567",
        "HARMLESS": "harmless-value",
        "D_KEY_FILE": str(place),
    }.items():
        monkeypatch.setenv(name, value)
    assert mask_text("abcdefghijkl abcdefgh") == "$B_TOKEN $A_KEY"
    for text in ("1234567", "harmless-value", str(place)):
        assert mask_text(text) == text
    before = secrets.token_hex(8)
    register_secret("OWN_NAME", before)
    register_secret("OWN_NAME", "a-renewed-one")
    assert mask_text(f"{before}, a-renewed-one") == "$OWN_NAME, $OWN_NAME"
    assert "abcdefgh" not in UserError("no", "abcdefgh").args[0]


def test_files_hold_no_secret_and_can_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """JSON and CSV stay whole, numbers stay numbers, and the path of a file that exists is not changed."""
    monkeypatch.setenv("PIN_SECRET", "12345678")
    monkeypatch.setenv("WORD_SECRET", "disabled")
    rng = random.Random(3)
    for is_nasty in [True, False] * 5:
        secret = invent(rng, is_nasty=is_nasty)
        monkeypatch.setenv("MY_SECRET", secret)
        row = {
            "text": f"a {secret} b",
            "n": 12345678,
            secret: [json.dumps({"k": secret})],
        }
        expected = {
            "text": "a $MY_SECRET b",
            "n": 12345678,
            "$MY_SECRET": ['{"k": "$MY_SECRET"}'],
        }
        assert read_json(write_json(tmp_path / "a.json", row)) == expected
        for name in ("a.jsonl", "a.jsonl.gz"):
            path = write_jsonl(tmp_path / name, [row, {"k": 1}])
            assert [one for _, one in read_jsonl(path)] == [expected, {"k": 1}]
        path = write_csv(
            tmp_path / "a.csv", [{"t": secret, "n": 12345678, "u": "12345678"}]
        )
        with path.open(newline="", encoding="utf-8") as file:
            assert [*csv.DictReader(file)] == [
                {"t": "$MY_SECRET", "n": "12345678", "u": "$PIN_SECRET"}
            ]
        page = f"<style>a {{}}</style><p disabled>{html.escape(secret)}</p><script>e.disabled = 1</script>"
        path = write_whole(tmp_path / "a.html", page)
        assert path.read_text() == (
            "<style>a {}</style><p $WORD_SECRET>$MY_SECRET</p><script>e.disabled = 1</script>"
        )
        assert (
            secret not in write_whole(tmp_path / "a.md", [secret, secret]).read_text()
        )
    (tmp_path / "12345678").mkdir()
    inside = {"path": str(tmp_path / "12345678"), "other": "of 12345678"}
    expected = {"path": inside["path"], "other": "of $PIN_SECRET"}
    assert read_json(write_json(tmp_path / "a.json", inside)) == expected
    kept = write_jsonl(tmp_path / "a.jsonl", [inside], keeps_secrets=True)
    assert [one for _, one in read_jsonl(kept)] == [inside]


@pytest.mark.system
def test_masking_costs_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Ten secrets that each text form writes otherwise, in 20 MB: the file takes at most a second more."""
    rows = [{"n": n, "text": "a word, 'another' & more " * 40} for n in range(20_000)]

    def seconds() -> float:
        start = time.process_time()
        write_jsonl(tmp_path / "a.jsonl", rows)
        return time.process_time() - start

    before = min(seconds() for _ in range(2))
    for n in range(10):
        monkeypatch.setenv(f"S{n}_SECRET", f"{n}{NASTY}{secrets.token_hex(4)}")
    assert min(seconds() for _ in range(2)) < before + 1.0


# Settings


def test_a_variable_in_the_settings_is_kept_by_name(monkeypatch: pytest.MonkeyPatch):
    """Also in a text, by way of another setting, and as a number; objects are built from the values."""
    for name, value in {
        "MY_SECRET": "s3cret-value",
        "N": "7",
        "PLACE": "/tmp/x",
    }.items():
        monkeypatch.setenv(name, value)
    cfg = OmegaConf.create(
        {
            "cache_dir": "${oc.env:PLACE}/cache",
            "user": "${oc.env:MY_SECRET}",
            "header": "Bearer ${oc.env:MY_SECRET}",
            "other": "${user}",
            "literal": "is s3cret-value",
            "n": "${oc.decode:${oc.env:N}}",
            "many": ["${oc.env:N}", "${oc.env:ABSENT,none}", 1],
        }
    )
    found = composing._resolve_config(cfg)
    assert composing._make_readable(found) == {
        "cache_dir": "/tmp/x/cache",
        "user": "${oc.env:MY_SECRET}",
        "header": "Bearer ${oc.env:MY_SECRET}",
        "other": "${oc.env:MY_SECRET}",
        "literal": "is $MY_SECRET",
        "n": "${oc.env:N}",
        "many": ["${oc.env:N}", "none", 1],
    }
    values = composing._make_plain(found)
    assert values == OmegaConf.to_container(cfg, resolve=True)
    assert [type(values[name]) for name in ("user", "n")] == [str, int]


def test_another_value_of_a_variable_is_another_run_unless_it_is_a_secret(
    monkeypatch: pytest.MonkeyPatch,
):
    settings = {"judge": {"model": "${oc.env:MODEL}", "user": "a ${oc.env:MY_SECRET}"}}
    seen = []
    for model, secret in (
        ("opus-5-5", "one"),
        ("opus-5-5", "two"),
        ("sonnet-5", "two"),
    ):
        monkeypatch.setenv("MODEL", model)
        monkeypatch.setenv("MY_SECRET", secret)
        seen.append(fingerprint_environment(settings))
        assert model not in str(seen[-1])
    assert seen[0] == seen[1] != seen[2]
    assert {one["MY_SECRET"] for one in seen} == {None}


def test_what_hydra_writes_of_a_command_is_masked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """A shell may have put the value into a word; interpolations stay."""
    monkeypatch.setenv("MY_SECRET", "a long pass phrase " * 8)
    word = f"judge.extra_body.user='{os.environ['MY_SECRET']}'"
    path = tmp_path / "overrides.yaml"
    OmegaConf.save(OmegaConf.create([word, "k=${oc.env:MY_SECRET}"]), path)
    hydra_callback._mask_settings(path)
    assert yaml.safe_load(path.read_text()) == [
        "judge.extra_body.user='$MY_SECRET'",
        "k=${oc.env:MY_SECRET}",
    ]


# Store and trackers


def test_what_a_server_has_said_is_masked_in_the_store_and_answers_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    secret = f"it's {secrets.token_hex(8)}"
    monkeypatch.setenv("MY_SECRET", secret)
    how: dict[str, Any] = {
        "judge_model": "m",
        "ttl": None,
        "high_water": None,
        "now": 1.0,
    }
    with Store(tmp_path / "store.sqlite") as store, Claims(store) as claims:
        claims.take(["a", "b", "c"])
        claims.record_call("a", 0.5)
        claims.end_call("a", lost=f"said {secret}")
        ledger = Ledger(store, claims.owner)
        for key in "bc":
            batch = ledger.record_intent({key: {}}, [1.0], endpoint="e", **how)
            assert batch is not None
            if key == "b":
                ledger.mark_submitted(batch, "id")
                ledger.record_results(batch, {key: f"error {secret}"}, {}, {}, now=1.0)
            else:
                ledger.abandon(batch, f"No, {secret}.")
        store.query("PRAGMA wal_checkpoint(TRUNCATE)")
        assert secret.encode() not in (tmp_path / "store.sqlite").read_bytes()
        store.commit({"k": JudgeReply(key="k", text=f"I say {secret}")})
        assert store.get(JudgeReply, ["k"])["k"].text == f"I say {secret}"


def test_no_tracker_is_told_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    secret = f"it's \"{secrets.token_hex(8)}"
    monkeypatch.setenv("MY_SECRET", secret)
    info = RunInfo(
        run_dir=tmp_path,
        name=secret,
        group=None,
        job_type="tournament",
        config={"judge": {"user": secret}},
        overrides=(f"a={secret}",),
        labels={"judge_model": secret},
        tags=(f"judge:{secret}",),
    )
    with track_run(LocalTracker(), info) as run:
        run.log({"reason": secret, "verdicts": [{"text": secret}], secret: 1.0})
        run.log(
            {"chart": Lines(title=secret, x_label=secret, lines={secret: [(0, 1)]})}
        )
        run.log_files(Files(kind="run", name="run", paths={}, metadata={"m": secret}))
        run.notes = secret
    text = (tmp_path / "tracker" / "log.jsonl").read_text()
    assert text.count("$MY_SECRET") >= 12
    assert secret not in text
    assert json.dumps(secret)[1:-1] not in text


# The law: whatever the servers say

PROVIDERS: dict[str, tuple[type[BatchServer], str, str, tuple[str, ...]]] = {
    # server, variable of the key, paths of submissions and single calls, words of its own
    "anthropic": (
        AnthropicServer,
        "ANTHROPIC_API_KEY",
        "/(batches|messages)$",
        ("judge=opus",),
    ),
    "openai": (
        OpenAiBatchServer,
        "OPENAI_API_KEY",
        "/(batches|completions)$",
        (
            "judge=openai",
            "judge.model=gpt-6.2-sol",
            "+judge.extra_body.user='${oc.env:MY_SECRET}'",
        ),
    ),
    "gemini": (
        GeminiServer,
        "GEMINI_API_KEY",
        ":(batchGenerateContent|generateContent)$",
        ("judge=gemini",),
    ),
}
SMALL = (
    *("judge.poll_initial_seconds=0.02", "judge.poll_max_seconds=0.05"),
    *("judge.quarantine_seconds=0.1", "elo.n_perms=5", "figures=false"),
    *("+mode.strata.medqa=2", "entrant=[probe_reference,probe_partial]"),
    *("judging.allow_equal=true", "judging.budget_usd=5"),
)
ONE = ("openai", "messages", "tracker=local")
CASES = [
    (provider, transport, "tracker=wandb")
    for provider in PROVIDERS
    for transport in ("messages", "batches")
]


def leaks(folder: Path, *values: str) -> list[str]:
    """Files below a folder that hold a value, or what is left of it where a text was cut."""
    sought = {
        form.encode(code, "surrogateescape")
        for value in values
        for whole in renderings(value)
        for form in (whole.strip("\"'"), value[: len(value) // 2])
        for code in ("utf-8", "utf-16-le")
    }
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(form in path.read_bytes() for form in sought)
    ]


@pytest.mark.parametrize(
    ("provider", "transport", "tracker"),
    [ONE, *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES)],
)
def test_servers_that_repeat_secrets_put_them_into_no_file(
    provider: str, transport: str, tracker: str, tmp_path: Path
):
    """A refusal, a failure that may have been billed, rows at fault and odd answers, each with key and secret in it; the
    run then goes on. A long text comes first, so that the words are cut within the key."""
    server_type, variable, path, words = PROVIDERS[provider]
    key = f"sk-{secrets.token_hex(20)}"
    secret = f"{secrets.token_hex(6)}'\"é<&>/{secrets.token_hex(6)}"
    said = f"{'No. ' * 66}{key} {secret} {json.dumps(secret)} {quote(secret)}"

    def outcome(params: Any, nth: int) -> Errored | None:
        return Errored("api_error", said) if nth == 1 else None

    with server_type(verdicts=longer, key=key, outcomes=outcome) as server:
        server.fault("POST", path, Status(500, message=said, etype=f"kind {key}"))
        for dimension in ("factuality", "calibration"):
            if dimension == "calibration":  # of which nothing is stored
                server.fault("POST", path, Status(400, message=said), nth=None)
            ran = attempt(
                *words,
                f"judge.base_url={server.url}",
                f"judge.transport={transport}",
                *SMALL,
                *(f"rubric=[{dimension}]", "hydra.verbose=true"),
                *(tracker, "tracker.mode=offline")[: 1 + ("wandb" in tracker)],
                folder=tmp_path,
                strict="wandb" not in tracker,
                **{variable: key, "MY_SECRET": secret, "NO_PROXY": "127.0.0.1"},
            )
            if dimension == "calibration":
                assert f"${variable}" in ran.err
            assert key[:20] not in ran.out + ran.err
    assert server.meter.billed_bodies
    if "wandb" in tracker:
        assert [*tmp_path.glob("outputs/*/wandb/offline-run-*/*.wandb")]
    assert leaks(tmp_path, key, secret) == []
