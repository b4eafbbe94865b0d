"""Policies behind a server that speaks as vLLM's: tokens are drawn and scored, and never their text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from elo_exp import models, pipeline
from elo_exp.data import bank
from elo_exp.models.generation import prompt_seed
from elo_exp.records import Response, UserError
from elo_exp.store.store import Store
from tests.data import BANK, shipped
from tests.openai_server import CONTEXT, OpenAiServer, alone
from tests.oracle_demo import oracle_of
from tests.tiny_engine import TinyEngine
from tests.tiny_models import tiny_model

PROMPTS = bank.load(BANK)[:12]
BY_ID = {prompt.prompt_id: prompt for prompt in PROMPTS}
AT_ONE = {"temperature": 1.0, "top_p": 1.0, "logprobs": True, "max_tokens": 8}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), kind="llama", n_layers=2)


@pytest.fixture
def server(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenAiServer]:
    alone(monkeypatch, tmp_path)
    with OpenAiServer(engine=TinyEngine(model)) as server:
        yield server
    models.release()


def policy(server: OpenAiServer, **changes: Any) -> Any:
    settings = {"base_url": server.url, "model": "small", **AT_ONE}
    return shipped("entrant", "openai_compatible", **{**settings, **changes})


def answers(of: Any, store: Store) -> dict[str, Response]:
    made = pipeline.generate(PROMPTS, {"mine": of}, store, allow_missing=False)
    return dict(made["mine"])


def forced(by: Any, responses: Mapping[str, Response]) -> dict[str, float | None]:
    found = by.teacher_force(BY_ID, list(responses.values()))
    return {each.prompt_id: each.total_logprob for each in found}


def sent(server: OpenAiServer, path: str) -> list[Any]:
    return [call.json() for call in server.calls if call.path == path]


def test_what_is_drawn_is_scored_as_likely_also_by_transformers(server, model):
    of = policy(server, system_prompt="Be brief.")
    with Store(Path("store.sqlite")) as store:
        made = answers(of, store)
    totals = forced(of, made)
    check = pipeline.generation_check(made, totals, allowed=1e-6)
    assert check.n_checked == len(PROMPTS)
    kept = {"model": str(model), "dtype": "float32", "cache_dir": "."}
    at_one = {"temperature": 1.0, "logprobs": True, "system_prompt": "Be brief."}
    here = shipped("entrant", "huggingface", **kept, **at_one)
    lm = models.load(here.weights)
    rows = [
        (here.chat_ids(lm, BY_ID[i].text, "Be brief."), r.diagnostics["token_ids"])
        for i, r in made.items()
    ]
    by_other = dict(zip(made, lm.total_logprobs(rows, temperature=1.0), strict=True))
    assert totals == pytest.approx(by_other, abs=1e-3)
    (drawn, *_) = sent(server, "/v1/chat/completions")
    expected = {
        **{"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0},
        **{"repetition_penalty": 1, "logprobs": True, "return_token_ids": True},
    }
    assert expected.items() <= drawn.items()
    seeds = {call["seed"] for call in sent(server, "/v1/chat/completions")}
    assert seeds == {prompt_seed(i) for i in BY_ID}
    prompts = [call["prompt"] for call in sent(server, "/v1/completions")]
    assert sorted(prompts) == sorted([*start, *ids] for start, ids in rows)


def test_tokens_are_scored_whatever_the_text_and_those_of_others_refused(server):
    with Store(Path("store.sqlite")) as store:
        made = answers(policy(server), store)
    silent = {i: dataclasses.replace(r, response_text="") for i, r in made.items()}
    assert forced(policy(server), silent) == forced(policy(server), made)
    name = PROMPTS[0].prompt_id
    diagnostics = made[name].diagnostics
    long = {**diagnostics, "token_ids": diagnostics["token_ids"] * CONTEXT}
    one = {name: dataclasses.replace(made[name], diagnostics=long)}
    assert forced(policy(server), one) == {name: None}
    other = {
        name: dataclasses.replace(made[name], diagnostics={**long, "tokenizer": "?"})
    }
    with pytest.raises(UserError, match="has the tokens of another tokenizer"):
        forced(policy(server), other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"temperature": 0.7},
            "temperature=0.7 and top_p=1.0. Expected .* temperature 1,",
        ),
        ({"top_p": None}, "top_p=None. Expected temperature=1.0 and top_p=1.0"),
        ({"extra_body": {"top_k": 20}}, "found true with prices, or with top_k"),
        (
            {"input_usd_per_million": 1.0, "output_usd_per_million": 1.0},
            "no dollars are counted of scoring",
        ),
    ],
)
def test_what_could_not_be_scored_is_refused_at_once(server, changes, message):
    with pytest.raises(UserError, match=f"^logprobs: .*{message}"):
        policy(server, **changes)


def test_a_server_that_cannot_tokenise_is_refused_before_it_answers(server):
    server.engine = None
    with (
        Store(Path("store.sqlite")) as store,
        pytest.raises(UserError, match="/tokenize: Not Found. Check"),
    ):
        answers(policy(server), store)
    assert not server.billed


def test_drawing_at_another_temperature_stops_after_eight_scored_answers(server):
    server.engine.temperature = 0.7
    of = policy(server)
    with Store(Path("store.sqlite")) as store:
        made = answers(of, store)
        expected = (
            "8 answers differ by .* a token on average, more than 0.02. .*temperature"
        )
        with pytest.raises(UserError, match=expected):
            pipeline.teacher_force(PROMPTS, made, {"a": of}, store, check_nats=None)
    assert len(sent(server, "/v1/completions")) == 8


def test_the_oracle_weights_two_policies_behind_one_server(server, tmp_path):
    """The second has a system prompt, and weights of its own; nothing is asked for twice."""
    start = "defaults: [openai_compatible@_here_, _self_]\n"
    (tmp_path / "conf/entrant").mkdir(parents=True)
    for name, system in (("plain", "null"), ("brief", "Be brief.")):
        (tmp_path / f"conf/entrant/{name}.yaml").write_text(
            f"# @package entrant.{name}\n{start}entrant_id: {name}\nsystem_prompt: {system}\n"
            f"base_url: {server.url}\nmodel: small\ntemperature: 1.0\ntop_p: 1.0\n"
            "logprobs: true\nmax_tokens: 8\n",
            encoding="utf-8",
        )
    given = (f"hydra.searchpath=[file://{tmp_path}/conf]", "entrant=[plain,brief]")
    chosen = (
        "oracle.n_prompts=40",
        "oracle.label_fraction=1",
        "estimator=[snips,direct]",
    )
    for _ in range(2):
        with oracle_of(tmp_path, *given, *chosen) as (experiment, context):
            report = experiment.run(context)
            usage = context.store.usage
    rows = {row["estimator"]: row for row in report.tables["estimates"]}
    assert rows["snips"]["policy"] == "brief"
    assert rows["snips"]["value"] is not None
    (check, _) = report.facts["collection"]["checks"]
    assert (check["n_checked"], check["allowed"]) == (40, 0.02)
    assert check["mean_difference"] < 1e-6
    assert len(sent(server, "/v1/completions")) == 2 * 40
    assert set(server.billed.values()) == {1}
    assert (usage.responses_generated, usage.logprobs_forced) == (0, 0)
