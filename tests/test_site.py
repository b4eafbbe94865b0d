"""The site is built without a warning or a network, and its reference describes every setting."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import elo_exp
from docs.hooks import reference
from elo_exp.launching import composing  # noqa: F401  (registers the schema that conf/ starts from)
from elo_exp.paths import CONF, HOME
from tests.commands import attempt_program
from tests.data import described

pytestmark = pytest.mark.system

SEVERAL = ("entrant", "rating", "rubric", "estimator", "probe")
OPTIONS = {
    group: sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    for group in reference.GROUPS
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it, in another folder."""
    folder = tmp_path_factory.mktemp("site")
    program = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet")
    where = (
        "--config-file",
        str(HOME / "mkdocs.yml"),
        "--site-dir",
        str(folder / "site"),
    )
    built = attempt_program(*program, *where, folder=folder, NO_MKDOCS_2_WARNING="1")
    assert built.code == 0, built.err
    return folder / "site"


def test_every_page_of_the_repository_is_a_page_of_the_site(site: Path):
    pages = {
        path.relative_to(HOME / "docs").with_suffix(".html")
        for path in (HOME / "docs").rglob("*.md")
    }
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert "Find out which of your language-model configurations is better" in (
        site / "index.html"
    ).read_text(encoding="utf-8")


def test_the_page_of_the_library_describes_its_names_and_no_other(site: Path):
    text = (site / "library.html").read_text(encoding="utf-8")
    named = re.findall(r'<h3 id="elo_exp\.(\w+)"', text)
    assert sorted(named) == sorted(elo_exp.__all__)
    public = {name for name in vars(elo_exp.Run) if not name.startswith("_")}
    shown = set(re.findall(r'id="elo_exp\.Run\.(\w+)"', text))
    assert shown == public - {"text"}  # it is among the attributes


def test_reading_it_fetches_nothing(site: Path):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert (
            re.findall(
                r"<(?:script|img|link|iframe)[^>]*(?:src|href)=.?(?:https?:)?//[^>]*>",
                text,
            )
            == []
        )
    for sheet in site.rglob("*.css"):
        assert not re.findall(
            r"url\([\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")
        )


def test_every_option_is_on_the_site(site: Path):
    text = (site / "reference/options.html").read_text(encoding="utf-8")
    assert [
        f"{group}-{name}"
        for group, names in OPTIONS.items()
        for name in names
        if f'id="{group}-{name}"' not in text
    ] == []


def test_every_group_of_options_is_in_the_reference():
    groups = {
        path.parent.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml")
    } - {
        ".",
        "hydra/help",
        "hydra/job_logging",
    }
    assert set(reference.GROUPS) == groups


@pytest.fixture(scope="module")
def notes() -> dict[str, str]:
    """What the reference says of each setting, by its path."""
    every = [
        *reference.settings(),
        *(setting for option in reference.options() for setting in option.settings),
    ]
    return {setting.path: setting.note for setting in every}


def keys(values: Any, prefix: str = "") -> Iterator[str]:
    """The paths of all values but the class that a part builds."""
    for name, value in values.items():
        # a tournament has several scorings, and the oracle has one
        if isinstance(value, dict) and (value or name in (*SEVERAL, "scoring")):
            yield from keys(value, f"{prefix}{name}.")
        elif name != "_target_":
            yield f"{prefix}{name}"


def is_described(path: str, notes: dict[str, str]) -> bool:
    """By itself, or with the whole mapping in which it stands, such as the prices of a model."""
    parts = path.split(".")
    return any(notes.get(".".join(parts[:n])) for n in range(len(parts), 0, -1))


def test_every_key_of_a_run_is_described(notes: dict[str, str]):
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        values = OmegaConf.to_container(compose("config"))
    paths = [re.sub("^oracle_(judge|scoring)", r"\1", path) for path in keys(values)]
    assert "judge.margin" in paths
    assert [path for path in paths if not is_described(path, notes)] == []


@pytest.mark.parametrize(
    "group",
    ["entrant", "judge", "elo", "rating", "rubric", "scoring", "estimator", "tracker"],
)
def test_every_key_of_a_part_is_described_in_its_file_or_one_that_it_starts_from(
    group: str, notes: dict[str, str]
):
    for name in OPTIONS[group]:
        for key in keys(OmegaConf.to_container(described(group, name))):
            of_any = (
                [f"{group}.{start}.{key}" for start in OPTIONS[group]]
                if group in SEVERAL
                else [f"{group}.{key}"]
            )
            assert any(is_described(path, notes) for path in of_any), (
                f"{group}={name}: {key}"
            )


def test_a_setting_is_shown_with_its_value_type_and_meaning():
    note = "judge only the first N pairs per rubric; null: all"
    shown = f"`judging.limit_pairs=null` int, at least 1 or null\n:   {note}"
    assert shown in reference.settings_page() + reference.options_page()
    note = "update factor K, may be a fraction (rating points)"
    kind = "float, more than 0, at most 1,000"
    assert f"`elo.k=16` {kind}\n:   {note}" in reference.options_page()


def test_every_setting_has_a_type_and_a_choice_is_listed_once():
    options = reference.options()
    every = [*reference.settings(), *(s for o in options for s in o.settings)]
    assert [setting.path for setting in every if not setting.kind] == []
    kinds = {setting.path: setting.kind for setting in every}
    assert kinds["caps.month_usd"] == "float, at least 0 or null"
    assert kinds["judging.shown.view"] == "whole or final"
    assert kinds["pass.at"] == "list of int, at least 1"
    assert kinds["battles_values"] == "mapping"
    for option in options:
        groups = [choice.partition("=")[0] for choice in option.chooses]
        assert len(groups) == len({*groups}), option.name


def test_a_setting_with_two_names_is_shown_by_the_one_to_type():
    text = reference.settings_page() + reference.options_page()
    assert "\n`judging.analyses=1` (`judging.looks`) int, at least 1\n" in text
    assert "### preset=medical {#study-medical}" in text
    assert "[docs/save\\_calls.md](../save_calls.md)" in text


def test_no_setting_is_without_a_description(notes: dict[str, str]):
    assert [path for path, note in notes.items() if not note] == []
