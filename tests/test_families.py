"""Families of models by their names: parts, whole names, and maps that are refused."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elo_exp.analysis.families import Kin, family, kin, names
from tests.commands import attempt
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
        ("lexical", None),
        ("", None),
    ],
)
def test_a_part_between_anything_but_letters_tells_the_family(name, expected):
    assert family(SHIPPED, name) == expected


def test_the_longest_part_counts_and_a_whole_name_most():
    families = {"llama": "Meta", "code-llama": "Forks", "code-llama-7b": "Mine"}
    names = ["llama-2", "code-llama-2", "code-llama-7b"]
    assert [family(families, name) for name in names] == ["Meta", "Forks", "Mine"]


def test_the_first_name_that_tells_it_counts():
    assert family(SHIPPED, "my-model", "gpt-4", "claude") == "OpenAI"
    assert family({}, "gpt-4") is None


def test_the_program_llama_cpp_tells_no_family():
    assert family(SHIPPED, "llama_cpp", "llama.cpp") is None
    assert family(SHIPPED, "llama_cpp-llama-2") == "Meta"


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
    assert names(entrant) == expected


def test_kin_are_the_models_of_the_family_of_the_judge():
    models = {"ann": ["claude-2", "ann"], "bob": ["gpt-4"], "eve": ["Claude"]}
    found = kin(SHIPPED, "claude-opus-5-5", models)
    assert found == Kin(family="Anthropic", models=("ann", "eve"))
    assert kin(SHIPPED, "foo1", {**models, "foo": ["foo1"]}) == Kin()
    assert kin(SHIPPED, "gemini", models) == Kin(family="Google")


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
    ("word", "line"),
    [
        ("judging.families={mine: Me}", "judging.families.mine: is no part"),
        ("+judging.families.mine=''", "judging.families.mine: found ''. Expected at"),
        ("+judging.families.mine=null", "judging.families.mine: found null. Expected"),
        ("judging.families=Me", "judging.families: found 'Me'. Expected"),
    ],
)
@pytest.mark.parametrize("experiment", ["tournament", "audit"])
def test_a_map_that_says_nothing_is_refused_in_one_line(
    experiment: str, word: str, line: str, tmp_path: Path
):
    ran = attempt(f"experiment={experiment}", word, "plan=true", folder=tmp_path)
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert ran.err.startswith(f"elo_exp: {line}")
