"""A setting with two names may be given by either, and files have the one that they always had."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import elo_exp
from elo_exp.launching import composing
from elo_exp.launching.options import format_options
from elo_exp.launching.setting_names import (
    NAME_TO_TYPE,
    resolve_names,
    restore_typed_names,
)
from elo_exp.launching.shorthand import expand_shorthand
from elo_exp.paths import CONF
from tests.commands import QUICK, attempt, run
from tests.documented import read
from tests.openai_server import alone

ANSWERS = {
    name: [{"id": n, "prompt": f"Name {n}", "response": f"{n}{said}"} for n in range(6)]
    for name, said in {"old": "", "new": " is the number"}.items()
}
BATTLES = [
    {"model_a": "new", "model_b": "old", "winner": winner, "criterion": criterion}
    for winner in ["model_a"] * 6 + ["model_b"] * 3
    for criterion in ("style", "facts")
]


@pytest.fixture(autouse=True)
def a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone(monkeypatch, tmp_path)


@pytest.mark.parametrize(("name", "typed"), NAME_TO_TYPE.items())
def test_one_name_is_a_setting_and_the_other_is_free(name: str, typed: str):
    experiment = {"label": "label", "battles_columns": "rate"}.get(
        name.partition(".")[0]
    )
    cfg = composing.compose([f"experiment={experiment or 'tournament'}"]).cfg
    cfg = OmegaConf.create(OmegaConf.to_container(cfg, resolve=False))
    parent, _, last = name.rpartition(".")
    assert last in (OmegaConf.select(cfg, parent) if parent else cfg)
    assert OmegaConf.select(cfg, typed) is None
    assert not (CONF / typed).exists()
    assert typed.rpartition(".")[0] == parent


@pytest.mark.parametrize(
    ("typed", "expanded"),
    [
        ("preset=medical", "study=medical"),
        ("preset.stratum=source", "study.stratum=source"),
        ("+preset.stratum=source", "+study.stratum=source"),
        ("++judging.analyses=2", "++judging.looks=2"),
        ("~objective", "~headline"),
        ("judging.analyses=1,2", "judging.looks=1,2"),
        ("answers_per_prompt='3'", "draws='3'"),
        ("name=preset", "name=preset"),
        ("name='judging.analyses=2'", "name='judging.analyses=2'"),
        ("presets=1", "presets=1"),
        ("gate.objective=1", "gate.objective=1"),
    ],
)
def test_an_override_gets_the_name_of_the_files(typed: str, expanded: str):
    assert resolve_names([typed]) == [expanded]
    assert resolve_names([expanded]) == [expanded]


def test_either_name_means_the_same_to_a_command():
    words = ["-m", "experiment=audit", "preset=own", "judge=lexical"]
    assert expand_shorthand(words) == expand_shorthand(
        [word.replace("preset", "study") for word in words]
    )
    assert "study=own" not in expand_shorthand(["answers=a.csv", "preset=medical"])


def test_both_names_at_once_are_one_mistake(tmp_path: Path):
    ran = attempt("judging.looks=2", "+judging.analyses=3", folder=tmp_path)
    line = "elo_exp: judging.looks and judging.analyses are two names of one setting. Give one of them.\n"
    assert (ran.code, ran.err) == (2, line)
    with pytest.raises(elo_exp.SettingError, match="draws and answers_per_prompt are"):
        elo_exp.plan("draws=2", answers_per_prompt=2)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["judging.analyses=0"], "judging.analyses must be a whole number of 1 or more; got 0."),
        (["preset=medicl"], "Unknown preset: medicl. Did you mean medical?"),
        (["judging.analysis=2"], "Unknown setting: judging.analysis. Did you mean judging.analyses?"),
        (["answers_per_prompt=2", "experiment=audit"], "answers_per_prompt is not a setting of experiment=audit"),
        (["preset"], '"preset" is neither a file nor a setting with a value. Write preset=VALUE'),
        (["judging={analyses: 2}"], "In a YAML file or a mapping it is called judging.looks."),
    ],
)  # fmt: skip
def test_a_mistake_has_the_name_that_was_typed(
    words: list[str], line: str, tmp_path: Path
):
    ran = attempt(*words, folder=tmp_path)
    assert ran.code == 2
    assert line in " ".join(ran.err.split())


def test_an_english_word_in_a_message_stays():
    text = "The study's rubrics are unknown. Set study=own or study.name=NAME."
    assert restore_typed_names(text, ["preset=medical"]) == (
        "The study's rubrics are unknown. Set preset=own or preset.name=NAME."
    )
    assert restore_typed_names(text, ["study=medical"]) == text


@pytest.mark.system
def test_a_run_keeps_the_name_of_the_files(tmp_path: Path):
    ran = run("preset=medical", "judging.analyses=2", *QUICK, folder=tmp_path)
    manifest = ran.read("manifest.json")
    assert manifest["config"]["judging"]["looks"] == 2
    assert {"study=medical", "judging.looks=2"} <= {*manifest["overrides"]}
    assert "analyses" not in json.dumps(manifest["config"])


@pytest.mark.system
def test_the_library_takes_either_name():
    given = {"answers": ANSWERS, "judge": "lexical"}
    named = elo_exp.plan(**given, preset="own", judging__analyses=2)
    assert named.text == elo_exp.plan(**given, study="own", judging__looks=2).text
    rated = elo_exp.rate(BATTLES, rubric="criterion", elo__n_perms=20)
    assert {row["dimension"] for row in rated.ratings} == {"style", "facts"}
    with pytest.raises(elo_exp.SettingError, match="^judging.analyses must be"):
        elo_exp.plan(judging__analyses=0)


def test_help_and_options_show_the_name_to_type():
    assert "\npreset: " in format_options()
    help_text = (CONF / "hydra" / "help" / "elo_exp.yaml").read_text(encoding="utf-8")
    assert "answers_per_prompt=3" in help_text
    rows = read("docs/upgrading.md").splitlines()
    for name, typed in NAME_TO_TYPE.items():
        assert f"| `{typed}` | `{name}` |" in rows
