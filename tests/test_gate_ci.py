"""What a gate leaves for programs of continuous integration."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.commands import attempt

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
