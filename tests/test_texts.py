"""Texts in a command and in a call: system prompts and rubrics arrive as they were given, and resolve nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from elo_exp.data.rubrics import strip_version
from elo_exp.errors import UserError
from elo_exp.formatting import shorten_override
from elo_exp.launching.quoting import quote_text, quote_value, unquote_text
from elo_exp.launching.shorthand import expand_shorthand
from elo_exp.library.arguments import CallFolder, make_words
from elo_exp.paths import HOME
from tests.data import BLEEDING, shipped, shipped_settings
from tests.experiments import built

HEADER = HOME / "prompts" / "arena_judge_system.md"
PREFERENCE = HOME / "rubrics" / "preference.md"
TWO_VERSIONS = (
    "entrant=[v1=api:gpt-5,v2=api:gpt-5]",
    "api.base_url=http://localhost:9",
)
PARTS = (*TWO_VERSIONS, "judge=claude:claude-haiku-5-5", "tracker=local")
LONG = "Be brief.\nNever use lists: not even [a, b] or {c=d}; say \"no\", 'no' and ${oc.env:HOME}.\r\n\\"
# What OmegaConf has for a value that is missing, and what Hydra has for none
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(
    lambda text: text not in ("???", "null")
)


PARSER = OverridesParser.create()


def read_values(*words: str) -> dict[str, Any]:
    """What Hydra and OmegaConf make of the words of a command, by name."""
    overrides = PARSER.parse_overrides(expand_shorthand(words))
    values = {override.get_key_element(): override.value() for override in overrides}
    resolved = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
    assert isinstance(resolved, dict)
    return {str(name): value for name, value in resolved.items()}


def typed(text: str) -> str:
    return f"@{text}" if text.startswith("@") else text


@given(ANY_TEXT)
@example(LONG)
@example('"quoted"')
@example("@@mail")
@settings(max_examples=60, deadline=None)
def test_any_text_arrives_as_it_is(text: str):
    """In a command, and in a call with arguments."""
    rubric = f"Which is better? {text}x"  # which ends as no file does
    words = (
        f"entrant.v1.system_prompt={typed(text)}",
        f"judge.system_prompt={typed(text)}",
        f"rubric={rubric}",
    )
    values = read_values(*words)
    (node,) = values.pop("+rubric").values()
    assert node["text"] == rubric
    assert values == {
        "++entrant.v1.system_prompt": text,
        "++judge.system_prompt": text,
        "rubric": [],
    }
    arguments = {
        "entrant__v1__system_prompt": typed(text),
        "judge__system_prompt": typed(text),
        "rubric": [rubric],
    }
    called, _ = make_words((), arguments, CallFolder(None))
    assert called == [*expand_shorthand(words), "tracker=local"]
    assert expand_shorthand(called) == called


@given(st.lists(ANY_TEXT, min_size=2, max_size=2))
@settings(deadline=None)
def test_each_job_of_a_sweep_has_its_text(texts: list[str]):
    """Hydra writes the values of a sweep anew for each job."""
    parser = OverridesParser.create()
    sweep = parser.parse_override(f"++a={','.join(map(quote_value, texts))}")
    jobs = [f"++a={value}" for value in sweep.sweep_string_iterator()]
    values = [parser.parse_override(job).value() for job in jobs]
    assert OmegaConf.to_container(OmegaConf.create(values), resolve=True) == texts


def test_a_chat_template_is_a_text_where_it_is_no_file():
    template = "{% for m in messages %}{{ m['content'] }}, {% endfor %}"
    values = read_values(f"judge.chat_template={template}")
    assert values == {"++judge.chat_template": template}
    for other in ("none", "null", "chat.jinja", '"{{ x }}"'):
        assert expand_shorthand([f"judge.chat_template={other}"]) == [
            f"judge.chat_template={other}"
        ]


@given(st.text("\\\"'a,$ \n", max_size=12))
def test_quotes_are_taken_off_as_they_were_put_on(text: str):
    assert unquote_text(quote_text(text)) == text


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("v1.txt", "v2.txt", "polite.md", "más cortés.md", "null.md"):
        (tmp_path / name).write_bytes(f"{name}: {LONG}".encode())
    return tmp_path


def test_files_are_read_to_the_byte(here: Path):
    polite = f"polite.md: {LONG}"
    for word in ("rubric=polite.md", "rubric=@polite.md", "rubric=[@polite.md]"):
        assert read_values(word)["+rubric"] == {"polite": {"text": polite}}
    listed = read_values("rubric=[preference,@más cortés.md,mine=@null.md,@null.md]")
    assert listed["rubric"] == ["preference"]
    names = {name: node.get("dimension") for name, node in listed["+rubric"].items()}
    assert names == {"m_s_cort_s": "más cortés", "mine": None, "_null": "null"}
    sweep = expand_shorthand(["-m", "rubric=@polite.md,@null.md", "judge.system_prompt=@v1.txt,@v2.txt"])  # fmt: skip
    axes = [PARSER.parse_override(word) for word in sweep[1:]]
    assert [axis.is_sweep_override() for axis in axes] == [False, True, True]


def test_settings_hold_the_text_and_not_the_file(here: Path):
    """Also what else is set of the rubric, wherever the command says it."""
    words = ("rubric.polite.needs_reference=true", "rubric=polite.md", "entrant.v1.system_prompt=@v1.txt")  # fmt: skip
    job = built(*expand_shorthand([*PARTS, *words]))
    text = f"polite.md: {LONG}"
    assert job.config["entrant"]["v1"]["system_prompt"] == f"v1.txt: {LONG}"
    assert job.config["rubric"] == {
        "polite": {
            **shipped_settings("rubric", "preference"),
            "dimension": "polite",
            "path": None,
            "text": text,
            "needs_reference": True,
        }
    }
    (rubric,) = job.experiment.list_group("rubric").values()
    assert rubric.version == hashlib.sha256(text.encode()).hexdigest()[:8]
    paths = map(str, job.experiment.list_input_files().values())
    assert not any("polite" in path for path in paths)


def test_the_same_text_has_the_same_key_however_it_is_given():
    """A stored verdict is found by a rubric of a file, a text, and a judge's header instead of the rubric's."""
    by_path = shipped("rubric", "preference")
    words = (
        f"rubric=@{PREFERENCE}",
        f"judge.system_prompt=@{HEADER}",
    )
    experiment = built(*expand_shorthand([*PARTS, *words])).experiment
    (run,) = experiment.judge_runs.values()
    answers = dict.fromkeys(("entrant_a", "response_a"), "a") | dict.fromkeys(("entrant_b", "response_b"), "b")  # fmt: skip
    keys = {
        rubric.request(rubric.compare(BLEEDING, **answers), judge="judge").key
        for rubric in (by_path, *run.rubrics)
    }
    assert len(keys) == 1 and run.rubrics[0].key == by_path.key
    assert run.judge.cache_key() == shipped("judge", "haiku").cache_key()


def test_each_of_several_judges_has_its_header():
    words = (
        *TWO_VERSIONS,
        "judge=[low=haiku,high=haiku]",
        "judges.low.system_prompt=You are strict",
        "rubric=[preference]",
        "judging.budget_usd=5",
    )
    experiment = built(*expand_shorthand(words)).experiment
    runs = experiment.judge_runs
    roles = {name: run.rubrics[0].role for name, run in runs.items()}
    assert len({run.rubrics[0].key for run in runs.values()}) == 2
    assert experiment.describe_judge()["judge_roles"] == {"preference": "strict"}
    assert roles == {"low": "strict", "high": "an expert, impartial evaluator"}


def test_a_call_names_files_and_rubrics_as_python_does(tmp_path: Path):
    """A path is a file, a mapping names its texts, and the budget has one name."""
    path = tmp_path / "kind.md"
    path.write_text("Which is kinder?", encoding="utf-8")
    calls: list[tuple[dict[str, Any], list[str]]] = [
        ({"rubric": path}, [f"rubric=@{path}"]),
        ({"rubric": "Which is kinder, A or B?"}, ["rubric=Which is kinder, A or B?"]),
        ({"rubric": {"kind": "Is it kind, or not?"}}, ['rubric=[kind="Is it kind, or not?"]']),
        ({"rubric": ["preference", path]}, [f"rubric=[preference,@{path}]"]),
        ({"judge__system_prompt": path}, [f"judge.system_prompt=@{path}"]),
        ({"entrant": {"v1": "api:gpt-5"}}, ["entrant=[v1=api:gpt-5]"]),
        ({"judge": ["low=opus", "gpt"]}, ["judge=[low=opus,gpt]"]),
        ({"budget_usd": 3}, ["judging.budget_usd=3"]),
    ]  # fmt: skip
    for arguments, words in calls:
        made, _ = make_words((), arguments, CallFolder(None))
        assert made == expand_shorthand([*words, "tracker=local"]), arguments
    with pytest.raises(UserError, match="are two names of one setting"):
        make_words((), {"budget_usd": 3, "judging__budget_usd": 4}, CallFolder(None))


def test_people_read_a_rubric_without_its_version():
    assert strip_version("# version: v1\n\nWhich is kinder?\n") == "Which is kinder?"
    assert strip_version("Which is kinder?\nBe strict.") == "Which is kinder?\nBe strict."  # fmt: skip


def test_names_and_tables_show_a_text_by_its_beginning():
    override = f"++judge.system_prompt={quote_value('Be fair. ' * 9)}"
    shown = shorten_override(override)
    assert shown.startswith("judge.system_prompt=Be fair. Be fair.") and len(shown) < 80
    assert shown != shorten_override(override.replace('. "', '! "'))
    listed = '+rubric={a:{text:"b:{text:"},b:{dimension:"c",text:"x"}}'
    assert shorten_override(listed) == "rubric=[a,b]"
    assert shorten_override("+judging.families.x=Y") == "+judging.families.x=Y"
