"""Policies through vLLM, in this process and behind its server: over a fake of both, a tiny model of transformers.

Tokens are drawn and scored, and never their text.
"""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elo_exp import models, pipeline
from elo_exp.data import bank
from elo_exp.errors import UserError
from elo_exp.models.generation import prompt_seed
from elo_exp.records import Response
from elo_exp.store.answer_store import Store
from tests import tiny_engine
from tests.data import BANK, shipped
from tests.openai_server import CONTEXT, OpenAiServer, alone
from tests.oracle_demo import oracle_of
from tests.tiny_models import BY_ID, forced, tiny_adapter, tiny_model

PROMPTS = bank.load_bank(BANK)[:10]
FIRST = PROMPTS[0].prompt_id
SERVED, HERE = "openai_compatible", "vllm"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("vllm")
    base = tiny_model(folder / "model", kind="llama", n_layers=2)
    tiny_adapter(folder / "adapter", base)
    return folder


@pytest.fixture
def server(folder, tmp_path, monkeypatch) -> Iterator[OpenAiServer]:
    alone(monkeypatch, tmp_path)
    tiny_engine.install(monkeypatch)
    with OpenAiServer(engine=tiny_engine.TinyEngine(folder / "model")) as server:
        yield server
    models.release_weights()


def policy(kind: str, folder: Path, server: OpenAiServer, **changes: Any) -> Any:
    settings: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "logprobs": True}
    if kind == SERVED:
        settings |= {"base_url": server.url, "model": "small", "max_tokens": 8}
    else:
        kept = {"model": str(folder / "model"), "cache_dir": str(folder)}
        settings |= {**kept, "dtype": "float32", "max_new_tokens": 8}
    return shipped("entrant", kind, **{**settings, **changes})


def answers(of: Any, prompts: Any = PROMPTS) -> dict[str, Response]:
    with Store(Path("store.sqlite")) as store:
        made = pipeline.generate(prompts, {"mine": of}, store, allow_missing=False)
    return {r.prompt_id: r for r in made["mine"].values()}


def sent(server: OpenAiServer, path: str) -> list[Any]:
    return [call.json() for call in server.calls if call.path == path]


@pytest.mark.system
@pytest.mark.parametrize(
    ("kind", "changes"),
    [(SERVED, {}), (HERE, {}), (HERE, {"adapters": ["adapter"]})],
)
def test_what_is_drawn_is_scored_as_likely_also_by_transformers(
    folder, server, kind, changes
):
    changes = {
        name: [str(folder / place) for place in x] for name, x in changes.items()
    }
    of = policy(kind, folder, server, system_prompt="Be brief.", **changes)
    made = answers(of)
    totals = forced(of, made)
    check = pipeline.compare_logprobs(made, totals, allowed=1e-6)
    assert check.n_checked == len(PROMPTS)
    other = policy("huggingface", folder, server, **changes)
    lm = models.load_weights(other.weights)
    rows = [
        (other.chat_ids(lm, BY_ID[i].sent("Be brief.")), r.diagnostics["token_ids"])
        for i, r in made.items()
    ]
    by_other = dict(zip(made, lm.total_logprobs(rows, temperature=1.0), strict=True))
    assert totals == pytest.approx(by_other, abs=1e-3)
    if kind == HERE:
        assert made[FIRST].diagnostics["vllm"] == "0.33.0"
        return
    prompts = [call["prompt"] for call in sent(server, "/v1/completions")]
    assert sorted(prompts) == sorted([*start, *ids] for start, ids in rows)
    drawn = sent(server, "/v1/chat/completions")
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0}
    assert all({**plain, "repetition_penalty": 1}.items() <= x.items() for x in drawn)
    assert {call["seed"] for call in drawn} == set(map(prompt_seed, PROMPTS))


@pytest.mark.parametrize("kind", [SERVED, HERE])
def test_tokens_are_scored_whatever_the_text_and_only_known_ones(folder, server, kind):
    of = policy(kind, folder, server)
    made = {FIRST: answers(of, PROMPTS[:1])[FIRST]}
    totals = forced(of, made)

    def changed(**diagnostics: Any) -> dict[str, Response]:
        known = {**made[FIRST].diagnostics, **diagnostics}
        one = dataclasses.replace(made[FIRST], response_text="", diagnostics=known)
        return {FIRST: one}

    assert forced(of, changed()) == totals
    assert forced(of, changed(token_ids=[7] * CONTEXT)) == {FIRST: None}
    with pytest.raises(UserError, match="their tokenizers or end tokens differ"):
        forced(of, changed(tokenizer="?"))


def test_an_answer_depends_on_its_prompt_and_not_on_its_company(
    folder, server, monkeypatch
):
    of = policy(HERE, folder, server)
    whole = {r.prompt_id: r.response_text for r in of.generate(PROMPTS)}
    monkeypatch.setattr("elo_exp.entrants.vllm._MAX_PROMPTS_PER_CALL", 3)
    again = {r.prompt_id: r.response_text for r in of.generate(PROMPTS[::-1])}
    assert again == whole
    assert len(set(whole.values())) == len(PROMPTS)


PRICED = {"input_usd_per_million": 1.0, "output_usd_per_million": 1.0}


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (HERE, {"temperature": 0.7}, "temperature=0.7 and top_p=1.0"),
        (SERVED, {"top_p": None}, "temperature=1.0 and top_p=None"),
        (
            SERVED,
            {"extra_body": {"top_k": 20}},
            "with prices, and with top_k, .*; got true",
        ),
        (SERVED, PRICED, "with prices, and"),
    ],
)
def test_what_could_not_be_scored_is_refused_at_once(
    folder, server, kind, changes, message
):
    with pytest.raises(UserError, match=f"^logprobs must be false .*{message}"):
        policy(kind, folder, server, **changes)


def test_what_is_not_there_is_one_line_and_nothing_is_paid(folder, server, monkeypatch):
    server.engine = None
    with pytest.raises(
        UserError, match=r"/tokenize does not answer \(Not Found\. Check"
    ):
        answers(policy(SERVED, folder, server))
    assert not server.billed
    with pytest.raises(
        UserError, match="adapters must be a list with at most 1 item; got "
    ):
        policy(HERE, folder, server, adapters=["one", "two"])
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(
        UserError, match="needs the Python package vllm, which is not installed"
    ):
        answers(policy(HERE, folder, server))


def test_drawing_at_another_temperature_stops_after_eight_scored_answers(
    folder, server
):
    server.engine.temperature = 0.7
    of = policy(SERVED, folder, server)
    made = answers(of)
    expected = r"(?s)8 answers, .*, differ by .* a token on average, more than 0\.02\..*temperature"
    with Store(Path("store.sqlite")) as store, pytest.raises(UserError, match=expected):
        pipeline.teacher_force(
            PROMPTS, made, {"a": of}, store, check_nats=None, check_answers=8
        )
    assert len(sent(server, "/v1/completions")) == 8


@pytest.mark.system
def test_the_oracle_weights_two_policies_behind_one_server(server, tmp_path):
    """One has a system prompt. Nothing is asked for twice."""
    (tmp_path / "conf/entrant").mkdir(parents=True)
    for name, system in (("plain", "null"), ("brief", "Be brief.")):
        (tmp_path / f"conf/entrant/{name}.yaml").write_text(
            f"# @package entrant.{name}\ndefaults: [openai_compatible@_here_, _self_]\n"
            f"entrant_id: {name}\nsystem_prompt: {system}\nbase_url: {server.url}\n"
            "model: small\ntemperature: 1.0\ntop_p: 1.0\nlogprobs: true\nmax_tokens: 8\n",
            encoding="utf-8",
        )
    given = (f"hydra.searchpath=[file://{tmp_path}/conf]", "entrant=[plain,brief]")
    chosen = ("oracle.n_prompts=40", "oracle.label_fraction=1", "estimator=[snips]")
    for _ in range(2):
        with oracle_of(tmp_path, *given, *chosen) as (experiment, context):
            report = experiment.run(context)
            usage = context.store.usage
    rows = {row["estimator"]: row for row in report.tables["estimates"]}
    assert rows["snips"]["policy"] == "brief"
    assert rows["snips"]["value"] is not None
    (check,) = report.facts["collection"]["checks"]
    assert (check["n_checked"], check["allowed"]) == (40, 0.02)
    assert len(sent(server, "/v1/completions")) == 2 * 40
    assert set(server.billed.values()) == {1}
    assert (usage.responses_generated, usage.logprobs_forced) == (0, 0)
