"""Families of models by their names: parts, whole names, and maps that are refused."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elo_exp.analysis.checks import check_judge
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.families import (
    JudgeFamily,
    KinDiagnosis,
    find_family,
    find_judge_family,
    list_family_hints,
)
from elo_exp.data.battles import Battles
from elo_exp.files import read_jsonl, write_jsonl
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Shown
from tests.commands import QUICK, Ran, attempt
from tests.data import BANK
from tests.experiments import built


def chosen(*words: str) -> Any:
    return built(*words).config["judging"]["families"]


SHIPPED = chosen()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-opus-5-5", "Anthropic"),
        ("anthropic/Claude-2", "Anthropic"),
        ("gpt-4o-mini", "OpenAI"),
        ("chatgpt", "OpenAI"),
        ("o1-preview", "OpenAI"),
        ("foo1", None),
        ("dolphin-2", None),  # no phi
        ("Qwen/Qwen2-0.5B", "Alibaba"),
        ("google_gemma-7b", "Google"),
        ("gpt-6.2-sol", "OpenAI"),
        ("gemini-4-hydrogen", "Google"),
        ("openai/o5", "OpenAI"),  # by its maker, as hubs and gateways write it
        ("mistralai/Devstral-2", "Mistral"),
        ("anthropic.haiku", "Anthropic"),
        ("x-ai/something", "xAI"),
        ("lexical", None),
        ("", None),
    ],
)
def test_a_part_between_anything_but_letters_tells_the_family(name, expected):
    assert find_family(SHIPPED, name) == expected


def test_the_longest_part_counts_and_a_whole_name_most():
    families = {"llama": "Meta", "code-llama": "Forks", "code-llama-7b": "Mine"}
    names = ["llama-2", "code-llama-2", "code-llama-7b"]
    assert [find_family(families, name) for name in names] == ["Meta", "Forks", "Mine"]


def test_the_first_name_that_tells_it_counts():
    assert find_family(SHIPPED, "my-model", "gpt-4", "claude") == "OpenAI"
    assert find_family({}, "gpt-4") is None


def test_what_runs_or_asks_any_model_tells_no_family():
    assert find_family(SHIPPED, "llama_cpp", "llama.cpp") is None
    assert find_family(SHIPPED, "my-model", "openai_compatible") is None
    assert find_family(SHIPPED, "llama_cpp-llama-2") == "Meta"


@dataclass
class Model:
    entrant_id: str
    model: str = ""
    path: str = ""


@pytest.mark.parametrize(
    ("entrant", "expected"),
    [
        (Model("a", model="claude-opus-5-5"), ["claude-opus-5-5", "a"]),
        (Model("a", model="Qwen/Qwen2-0.5B"), ["Qwen/Qwen2-0.5B", "a"]),
        (Model("a", model="/home/claude/mine"), ["mine", "a"]),
        (Model("a", model="runs/claude/mine"), ["mine", "a"]),
        (Model("a", path="/models/phi-2.gguf"), ["phi-2.gguf", "a"]),
        (Model("gpt-4", path="judged-by-claude"), ["gpt-4"]),  # a folder of answers
    ],
)
def test_an_entrant_is_known_by_its_model_its_file_and_its_name(
    entrant: Model, expected: list[str]
):
    assert list_family_hints(entrant) == expected


def test_kin_are_the_models_of_the_family_of_the_judge():
    models = {"ann": ["claude-2", "ann"], "bob": ["gpt-4"], "eve": ["Claude"]}
    found = find_judge_family(SHIPPED, "claude-opus-5-5", models)
    assert found == JudgeFamily(
        family="Anthropic", models=("ann", "eve"), others=("bob",)
    )
    assert found.is_unequal
    unknown = find_judge_family(SHIPPED, "foo1", {"foo": ["foo1"]})
    assert unknown == JudgeFamily(others=("foo",))
    assert not unknown.is_unequal
    assert not find_judge_family(SHIPPED, "claude-1", {"ann": ["claude-2"]}).is_unequal


@pytest.mark.parametrize("experiment", ["tournament", "audit"])
def test_parts_are_added_by_name_and_a_mapping_is_emptied(experiment):
    def given(*words: str) -> Any:
        return chosen(f"experiment={experiment}", *words)

    assert given("+judging.families.mine=Me") == {**SHIPPED, "mine": "Me"}
    assert given("judging.families={}") == {}
    assert given("judging.families={}", "judging.families.o1=Me") == {"o1": "Me"}


def test_an_audit_takes_the_families_of_every_experiment_or_its_own():
    def audits(*words: str) -> Any:
        return built("experiment=audit", *words).experiment.audit.families

    assert audits() == SHIPPED
    assert audits("audit.families={lexical: ours}") == {"lexical": "ours"}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "judging.families={mine: Me}",
            "No family is known for mine. To add one:\n  +judging.families.mine=FAMILY",
        ),
        (
            "+judging.families.mine=''",
            'judging.families.mine must be text that is not empty; got "".',
        ),
        (
            "+judging.families.mine=null",
            "judging.families.mine must be text that is not empty; got null.",
        ),
        (
            "judging.families=Me",
            'judging.families must be a mapping, such as {A:VALUE}; got "Me".',
        ),
    ],
)
@pytest.mark.parametrize("experiment", ["tournament", "audit"])
def test_a_map_that_says_nothing_is_refused(
    experiment: str, word: str, message: str, tmp_path: Path
):
    ran = attempt(f"experiment={experiment}", word, "plan=true", folder=tmp_path)
    assert (ran.code, ran.err) == (2, f"elo_exp: {message}\n")


# A tournament by a judge of one family with an entrant


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers of three entrants, claude's the best but on every fifth prompt, whatever their lengths."""
    folder = tmp_path_factory.mktemp("kin")
    prompts = [row["prompt_id"] for _, row in read_jsonl(BANK)]
    for n, name in enumerate(["poe", "probe_reference", "claude"]):
        rows = [
            {
                "prompt_id": p,
                "response_text": f"{name} on {p}, grade {n + 1 if i % 5 else 4 - n}"
                + "".join(f" w{i}x{j}" for j in range((3 * i + 7 * n) % 11)),
            }
            for i, p in enumerate(prompts)
        ]
        write_jsonl(folder / f"responses/responses_{name}.jsonl", rows)
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[AnthropicServer]:
    with AnthropicServer(verdicts=_better) as server:
        yield server


def _better(shown: Shown) -> str:
    """The answer with the higher grade."""
    grades = [
        int(text.partition("grade ")[2][0])
        for text in (shown.response_a, shown.response_b)
    ]
    return "A" if grades[0] > grades[1] else "B"


def tournament(
    folder: Path, server: AnthropicServer, *words: str, model: str = "claude-opus-5-5"
) -> Ran:
    return attempt(
        *QUICK,
        "recorded_dir=responses",
        "+mode.strata.medqa=25",
        "judge=opus",
        "judge.transport=messages",
        f"judge.base_url={server.url}",
        f"judge.model={model}",
        "judging.budget_usd=10",
        *words,
        folder=folder,
        ANTHROPIC_API_KEY=server.key,
        NO_PROXY="127.0.0.1",
    )


TWO, BOTH = "entrant=[claude,probe_reference]", "entrant=[claude,poe]"
OF_POE = "+judging.families.poe=Anthropic"


@pytest.mark.system
def test_a_plan_says_who_is_judged_by_its_own_family_before_money_is_spent(tmp_path):
    opus = (TWO, "judge=opus", "plan=true")
    line = "family   claude is judged by a model of its own family (Anthropic)"
    assert line in attempt(*opus, folder=tmp_path).out.splitlines()
    known = "judge.models={foo1: ${judge.models.claude-opus-5-5}}"
    for words in (
        ("judging.families={}",),
        ("judging.self_judging=allow",),
        ("entrant=[probe_hedged,probe_reference]",),
        (f"+{known}", "judge.model=foo1"),
    ):
        ran = attempt(*opus, *words, folder=tmp_path)
        assert (ran.code, "kin" in ran.out) == (0, False), ran.err


@pytest.mark.system
def test_a_lead_of_the_judges_kin_needs_care(folder, server):
    ran = tournament(folder, server, TWO)
    ratings = ran.read("ratings.json")
    said = ratings["conclusions"]["factuality"]
    assert said["state"] == "caution"
    assert [reason["name"] for reason in said["reasons"]] == ["kin"]
    assert said["sentence"].startswith("the judge prefers claude to ")
    assert said["sentence"].endswith(
        "; claude and the judge belong to the same model family (Anthropic)"
    )
    assert said["sentence"] in ran.page.said
    assert ratings["judge"]["factuality"]["kin"] == {
        "family": "Anthropic",
        "models": ["claude"],
        "others": ["probe_reference"],
        "is_allowed": False,
    }


@pytest.mark.system
@pytest.mark.parametrize("word", ["judging.families={}", "judging.self_judging=allow"])
def test_it_needs_none_where_the_user_says_so(word, folder, server):
    """Nor is anything judged anew: no key has a family in it."""
    tournament(folder, server, TWO)
    n_billed = server.meter.billed_bodies.total()
    ran = tournament(folder, server, TWO, word)
    assert server.meter.billed_bodies.total() == n_billed
    said = ran.read("ratings.json")["conclusions"]["factuality"]
    assert (said["state"], said["reasons"]) == ("leads", [])
    (row,) = (
        c for c in ran.page.cells if "Entrants of the judge’s model family" in c[0]
    )
    assert ("not checked" in row[1]) == ("families" in word)


@pytest.mark.system
def test_where_all_are_kin_or_another_leads_it_is_a_note(folder, server):
    ran = tournament(folder, server, BOTH, OF_POE)
    assert ran.read("ratings.json")["conclusions"]["factuality"]["reasons"] == []
    assert "claude and poe (family Anthropic)" in ran.page.said


@pytest.mark.system
def test_an_excluded_family_is_refused_where_nothing_would_link_it(folder, server):
    n_billed = server.meter.billed_bodies.total()
    word = "judging.self_judging=exclude"
    ran = tournament(folder, server, TWO, word)
    assert (ran.code, ran.err.count("\n")) == (2, 4), ran.err
    assert "exclude leaves out all comparisons that link the judge's family" in ran.err
    assert "  Family Anthropic: " in ran.err
    assert server.meter.billed_bodies.total() == n_billed
    assert tournament(folder, server, BOTH, OF_POE, word).code == 0


@pytest.mark.parametrize(
    ("leaders", "verdicts", "state"),
    [
        (["claude", "ann"], [], "failed"),
        (["claude", "ann"], ["ok", "cannot tell"], "failed"),
        (["claude", "ann"], ["ok", "ok"], "passed"),
        (["ann", "claude"], [], "passed"),
        ([], [], "passed"),
    ],
)
def test_labelled_pairs_may_show_that_the_judge_has_no_preference_for_its_own(
    leaders: list[str], verdicts: list[str], state: str
):
    results = [{"probe": f"self: {n}", "verdict": v} for n, v in enumerate(verdicts)]
    kin = KinDiagnosis(family="Anthropic", models=("claude",), others=("ann",))
    diagnosis: Diagnosis = {"kin": kin, "audit": {"results": results}}
    found = check_judge(Battles.from_rows([]), diagnosis, leaders=leaders)
    (check,) = (check for check in found if check.name == "kin")
    assert (check.state, check.value) == (state, 0.5)
