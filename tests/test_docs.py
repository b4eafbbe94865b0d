"""What the pages show is so: a tutorial's commands print what it shows, what is to be installed
exists, every file and field is described. test_docs_commands.py runs all other commands."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from elo_exp.analysis.conclusions.tournament_conclusion import STATES
from elo_exp.files import write_jsonl
from elo_exp.launching.error_messages import RENAMED
from elo_exp.paths import HOME
from elo_exp.version import __version__
from tests.commands import LOCAL, Ran, attempt, attempt_program, run
from tests.documented import PAGES, TUTORIALS, Block, commands, in_block, read, tutorial
from tests.readers_files import write

COMMANDS = {command.line for page in PAGES for command in commands(page)}
STEPS_OF_CI = read(".ci/run") + read(".github/workflows/ci.yml").replace("- run: ", "")

# The tutorials


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[Block, str]:
    """What the commands before each output that a tutorial shows have printed."""
    text = ""
    outputs = {}
    once: dict[str, str] = {}
    for block in (block for page in TUTORIALS for block in tutorial(page)):
        if block.kind == "text":
            outputs[block] = text
        elif block.kind in ("python", "csv"):
            write(folder / str(block.file), block.text)
        else:
            for line in block.text.splitlines():
                if line.startswith(
                    "cat "
                ):  # makes the file that the next command reads
                    ran = attempt_program("bash", "-c", line, folder=folder)
                    assert ran.code == 0, ran.err
            for line in in_block(block.text):
                if line not in once:
                    once[line] = output(line, folder)
            text = "".join(once[line] for line in in_block(block.text))
    return outputs


def output(line: str, folder: Path) -> str:
    program, *words = shlex.split(line)
    assert program == "python"
    if words[:2] == ["-m", "elo_exp"]:
        undrawn = [] if "figures=false" in words else ["figures=false"]
        ran = attempt(*words[2:], *undrawn, folder=folder, WANDB_MODE="disabled")
    else:
        ran = attempt_program(sys.executable, *words, folder=folder)
    assert ran.code == 0, ran.err
    return ran.out + ran.err


@pytest.mark.system
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_shows_what_its_commands_print(page: str, printed: dict[Block, str]):
    outputs = {block: said for block, said in printed.items() if block.page == page}
    assert outputs
    for block, said in outputs.items():
        assert lines(block.text, page) <= lines(said, page)


def lines(text: str, page: str) -> set[str]:
    """What a model computes may end in other digits on another processor."""
    return set(
        (re.sub(r"\d", "0", text) if page.endswith("oracle.md") else text).splitlines()
    )


# Installing

EXTRAS = set(tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"])


INSTALL = re.compile(r"pip install ([^`\n&|;#]+)")
OF_OTHERS = {"vllm"}  # which a reader installs beside it


@pytest.mark.parametrize("page", [page for page in PAGES if INSTALL.search(read(page))])
def test_every_install_line_names_this_package_and_its_extras(page: str):
    """In the text of a page, too; pip reads each requirement as it stands."""
    for line in INSTALL.findall(read(page)):
        words = shlex.split(line)
        options = {word for word in words if word.startswith("-")}
        assert options <= {"-e", "--no-build-isolation"}, line
        names = [
            re.sub(r"^\.", "elo-exp", word) for word in words if word not in options
        ]
        requirements = [Requirement(name) for name in names]
        assert requirements, line
        assert {each.name for each in requirements} <= {"elo-exp", *OF_OTHERS}, line
        assert {extra for each in requirements for extra in each.extras} <= EXTRAS


@pytest.mark.parametrize("where", ["conf/**/*.yaml", "elo_exp/**/*.py", "**/*.md"])
def test_what_names_an_extra_names_one_that_exists(where: str):
    """Of help, of comments in settings, of messages and of pages: elo-exp[hf], .[hf], "extra hf"."""
    named = re.compile(r"(?:elo-exp|'\.)\[([\w,]+)\]|\bextra `?(?!(?:or|that)\b)(\w+)")
    paths = [HOME / page for page in PAGES] if where == "**/*.md" else HOME.glob(where)
    texts = [path.read_text(encoding="utf-8") for path in paths]
    found = [match for text in texts for match in named.finditer(text)]
    names = {name for m in found for name in (m[1] or m[2]).split(",")}
    assert names and names <= {*EXTRAS, "NAME"}


@pytest.mark.parametrize(
    "line", sorted(line for line in COMMANDS if line.startswith("make "))
)
def test_a_target_of_the_makefile_runs_what_exists(line: str):
    """Continuous integration runs the quick ones."""
    recipe = attempt_program("make", "-nC", str(HOME), line.split()[1], folder=HOME)
    assert recipe.code == 0, recipe.err
    modules = re.findall(r"-m (tests\.\S+)", recipe.out)
    assert all((HOME / f"{name.replace('.', '/')}.py").is_file() for name in modules)
    assert re.search(rf"^ *{line}( |$)", STEPS_OF_CI, re.M) or re.search(
        "bench|figures|notebooks|slow|faults", line
    )


# Citing and upgrading


def test_the_citation_is_of_this_version():
    shown = f"version = {{{__version__}}}"
    assert shown in read("docs/citing.md")
    assert f"version: {__version__}" in read("CITATION.cff").splitlines()


def test_every_setting_with_a_new_name_is_on_the_page_of_upgrades():
    rows = read("docs/upgrading.md").splitlines()
    for old, new in RENAMED.items():
        assert f"| `{old}` | `{new}` |" in rows


# Files


@pytest.mark.system
def test_every_file_and_field_of_a_run_is_described(
    printed: dict[Block, str], folder: Path
):
    pages = ("files", "row_files", "manifest", "result_files")
    text = "".join(
        re.sub("```.*?```", "", read(f"docs/{page}.md"), flags=re.DOTALL)
        for page in pages
    )
    ran = Ran(folder, 0, "outputs/first", "")
    patterns = {re.sub("<.*>", "*", name) for name in re.findall(r"`([^`]+)`", text)}
    files = [
        path.relative_to(ran.run_dir)
        for path in ran.run_dir.rglob("*")
        if path.is_file()
    ]
    files = [path for path in files if path.parts[0] not in ("figures", ".hydra")]
    assert [
        f for f in files if not any(fnmatch(str(f), pattern) for pattern in patterns)
    ] == []
    rows = (
        *("responses/responses_probe_hedged.jsonl", "matches/matches.jsonl"),
        *("verdicts/factuality.jsonl", "battles.jsonl"),
    )
    fields = {name for file in rows for name in ran.rows(file)[0]}
    fields |= {
        f".{name}" for name in ran.rows("verdicts/factuality.jsonl")[0]["raw"][0]
    }
    fields |= set(ran.read("manifest.json"))
    assert {
        name for name in fields if f"`{name}`" not in text and f"`{name}[]`" not in text
    } == set()


RATED = (
    *LOCAL,
    "judging.limit_pairs=180",
    "figures=false",
    "rubric=[factuality,calibration]",
)
EVERY_METHOD = (
    *("rating=[bradley_terry,davidson,rao_kupper]", "judging.repeats=2"),
    *(
        "rating.bradley_terry.interval=bootstrap",
        "rating.bradley_terry.n_bootstraps=20",
    ),
)
VALUES = {
    "factuality",
    "calibration",
    "overall",
    "20",
    "40",
    "60",
}  # keys that are values
FLAGS = {
    "unbeaten",
    "winless",
    "disconnected",
    "separated",
    "null",
    *STATES,
}
FLAGS -= {"words", "separated"}  # fields, too
# Of battles in one order, of style control, and of a judge's kin
ELSEWHERE = {
    *(
        "p_not_longer",
        "p_not_shorter",
    ),  # of leads that no fit bounds, which these runs do not have
    "n_equal",  # of pairs with equal answers, which these runs do not have
    # of a lead with missing answers
    *("n_answered", "n_lacks_leader", "n_lacks_rival", "n_failed_rival"),
    *("n_unjudged", "n_empty", "n_one_order", "n_failed", "holds"),
    *(
        "variance",
        "prompts",
        "draws",
        "judge",
        "within",
        "n",
        "k",
        "orders",
    ),  # of draws
    *("kin", "family", "others", "is_allowed"),
    *("position_std_error", "style_length_verdicts"),
    "style_length_verdicts_std_error",
    # if a rival is ahead of the leader on a stratum
    *("rival", "reverses", "lead", "n_effective", "p_holm", "df"),
    *("earlier_looks", "n_looks", "first_leader"),
    *(
        "kin",
        "family",
        "others",
        "is_allowed",
    ),  # of a judge with kin among the entrants
}


@pytest.mark.system
def test_every_field_of_ratings_json_is_described_and_no_other(tmp_path: Path):
    """In a run with every method, after another judge whose verdicts the store holds, and in one
    with planned looks."""
    rows = run(*RATED, folder=tmp_path).rows("battles.jsonl")
    turned = [
        row | {"winner": "tie"} if i % 10 == 0 else row for i, row in enumerate(rows)
    ]
    for row in turned:
        del row["verdict_ab"], row["verdict_ba"]
    write_jsonl(tmp_path / "other.jsonl", turned)
    run(*RATED, "judge=replay", "judge.path=other.jsonl", folder=tmp_path)
    every = [
        run(*RATED, *more, folder=tmp_path).read("ratings.json")
        for more in (EVERY_METHOD, ["judging.looks=2"])
    ]
    pages = ("ratings", "ratings_leaderboards", "ratings_judge")
    text = "".join(without_code(read(f"docs/{page}.md")) for page in pages)
    text = text.replace("`dimensions.<", "`dimensions` `<").replace(
        "`judge.<", "`judge` `<"
    )
    spans = re.findall(r"`([^`]+)`", text)
    names = {re.sub(r"^\.|\[\]$|\.<\w+>(\[\])?$", "", span) for span in spans}
    described = {name for name in names if re.fullmatch(r"\w+", name)} - FLAGS
    found = set(keys(every)) - VALUES
    assert described - (ELSEWHERE - found) == found


def without_code(text: str) -> str:
    return re.sub("^```.*?^```$", "", text, flags=re.M | re.S)


def keys(value: Any) -> Iterator[str]:
    """The keys of nested objects."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from keys(inner)
