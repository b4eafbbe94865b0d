"""What a gate leaves for programs of continuous integration."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from elo_exp.paths import HOME
from tests.commands import SCRIPTS, attempt, attempt_program

BASELINE = "run/responses/responses_probe_partial.jsonl"
GATE = (
    *("experiment=gate", "judge=lexical", "tracker=local", "figures=false"),
    *("rubric=[factuality]", "gate.junit=junit.xml"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gate")
    ran = attempt(
        *("entrant=[probe_partial,probe_reference]", "rubric=[factuality]"),
        *("tracker=local", "figures=false", "elo.n_perms=2", "hydra.run.dir=run"),
        folder=path,
    )
    assert ran.code == 0, ran.err
    return path


@pytest.mark.system
@pytest.mark.parametrize(
    ("candidate", "code", "element", "level"),
    [
        ("probe_reference", 0, None, "notice"),
        ("probe_swapped", 1, "failure", "error"),
        ("probe_hedged", 3, "error", "warning"),
    ],
)
def test_junit_and_annotation_have_the_result(
    candidate: str, code: int, element: str | None, level: str, folder: Path
):
    given = (*GATE, f"entrant={candidate}", f"gate.baseline={BASELINE}")
    ran = attempt(*given, folder=folder, GITHUB_ACTIONS="true")
    assert ran.code == code, ran.err
    suites = ElementTree.parse(folder / "junit.xml").getroot()
    (suite,) = suites
    (case,) = suite
    assert (suite.get("tests"), case.get("name")) == ("1", "factuality")
    assert [problem.tag for problem in case] == ([element] if element else [])
    assert suite.get("failures") == str(int(element == "failure"))
    (line,) = (one for one in ran.out.splitlines() if one.startswith("::"))
    assert line.startswith(f"::{level} title=")
    assert "%0A" not in line
    if element:
        sentence = ran.read("gate.json")["conclusion"]["sentence"]
        assert case[0].text == sentence
        assert line.endswith(sentence.replace("%", "%25"))


@pytest.mark.system
def test_elsewhere_no_annotation_is_printed(folder: Path):
    given = (*GATE, "entrant=probe_reference", f"gate.baseline={BASELINE}")
    assert "::" not in attempt(*given, folder=folder).out


# The action that users copy

ACTION = HOME / "examples/github_action/action.yml"


def run_action(folder: Path, **inputs: str) -> list[int]:
    """Run the shell steps of the action as GitHub does, until one fails; steps that always run do so."""
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    values = {name: row.get("default") for name, row in action["inputs"].items()}
    values |= {name.replace("_", "-"): value for name, value in inputs.items()}
    codes: list[int] = []
    for step in action["runs"]["steps"]:
        if "run" not in step or (any(codes) and step.get("if") != "always()"):
            continue
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # a value is no part of the script
        variables = {
            name: re.sub(
                r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text
            )
            for name, text in step.get("env", {}).items()
        }
        script = f"pip() {{ :; }}\n{step['run']}"
        done = attempt_program(
            *("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script),
            folder=folder,
            PATH=f"{SCRIPTS}:/usr/bin:/bin",
            GITHUB_ACTIONS="true",
            GITHUB_STEP_SUMMARY="summary.md",
            **variables,
        )
        codes.append(done.code)
    return codes


@pytest.mark.system
@pytest.mark.parametrize(
    ("baseline", "candidate", "inputs", "code"),
    [
        ("copy.jsonl", "new.jsonl", {}, 0),
        ("copy.jsonl", "old.csv", {}, 1),
        ("old.csv", "new.jsonl", {}, 3),
        ("old.csv", "new.jsonl", {"allow_inconclusive": "true"}, 0),
        ("old.csv", "nowhere $(touch made).csv", {}, 2),
    ],
    ids=["same answers", "worse", "inconclusive", "inconclusive allowed", "no file"],
)
def test_the_action_ends_with_the_code_of_the_gate_and_a_summary(
    baseline: str, candidate: str, inputs: dict[str, str], code: int, tmp_path: Path
):
    for name in ("old.csv", "new.jsonl"):
        shutil.copy(HOME / "examples" / name, tmp_path)
    shutil.copy(tmp_path / "new.jsonl", tmp_path / "copy.jsonl")
    settings = "allow_missing=true\n\nrubric=[preference]\nfigures=false\n"
    given = {"baseline": baseline, "candidate": candidate, "judge": "lexical"}
    assert run_action(tmp_path, **given, settings=settings, **inputs) == [0, code, 0]
    assert not (tmp_path / "made").exists()
    is_done = code != 2
    assert (tmp_path / "gate.xml").exists() == is_done
    assert (tmp_path / "summary.md").exists() == is_done
    if is_done:
        summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
        assert summary == (tmp_path / "gate.md").read_text(encoding="utf-8")
        assert summary.startswith("## ")


def test_the_action_takes_what_the_page_gives_it():
    """It keeps the results, whatever the gate says."""
    page = (HOME / "docs/gate.md").read_text(encoding="utf-8")
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    (shown,) = re.findall(
        r"uses: \./\.github/actions/gate\n +with:\n((?: {10}.*\n)+)", page
    )
    given = yaml.safe_load(shown)
    required = {name for name, row in action["inputs"].items() if row.get("required")}
    assert required <= given.keys() <= action["inputs"].keys()
    (upload,) = (
        step
        for step in action["runs"]["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact@")
    )
    assert upload["if"] == "always()" and "gate.xml" in upload["with"]["path"]
