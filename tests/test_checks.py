"""Each row of the registry of checks is complete, and a new check is one file that page, console and conclusion show."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elo_exp.analysis import checks
from elo_exp.analysis.checks import (
    CLAIMS,
    LEADS,
    STATES,
    Check,
    CheckDefinition,
    check_definitions,
)
from elo_exp.analysis.conclusions import Scope, gate_conclusion
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.gate_checks import (
    GateCheckDefinition,
    check_pass_claim,
    gate_check_definitions,
)
from elo_exp.analysis.judge_bias import PositionEffect
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.noninferiority import share_of_points
from elo_exp.analysis.standings import Standings, add_diagnoses
from elo_exp.errors import FileError
from elo_exp.paths import HOME
from elo_exp.report import artifacts, gate_page, tournament_console
from elo_exp.report.document import (
    Cell,
    Finding,
    Findings,
    Folds,
    Paragraph,
    Styled,
    Table,
    strip_styles,
)
from elo_exp.report.judge_section import list_judge_blocks
from elo_exp.report.sentences import gate_sentences, tournament_sentences
from elo_exp.report.standings_view import build_view
from tests.commands import attempt
from tests.gates import candidate_evidence
from tests.simulation import Tournament
from tests.standings import standings
from tests.test_pairs import judged

QUALITY = JudgeQuality(
    dimension="d",
    n_judgments=360,
    n_invalid=6,
    n_refused=6,
    n_two_order=354,
    n_flips=9,
    flip_rate=9 / 354,
    first_shown_rate=0.5,
    tie_rate=0.1,
    invalid_rate=6 / 360,
)


@pytest.fixture(scope="module")
def rated() -> Standings:
    position = PositionEffect(
        dimension="d", p_first=0.5, ci_low=0.46, ci_high=0.54, n_decisive=60
    )
    drawn = Tournament(ratings=(200.0, 0.0)).battles(120, np.random.default_rng(5))
    found = standings({"d": drawn}, n_perms=2)
    return add_diagnoses(found, {"d": {"position": position}})


@pytest.fixture
def folder_of_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules are checks, beside those of the package."""
    folder = tmp_path / "checks"
    folder.mkdir()
    monkeypatch.setattr(checks, "__path__", [*checks.__path__, str(folder)])
    _forget_checks()
    yield folder
    _forget_checks()


def _forget_checks() -> None:
    check_definitions.cache_clear()
    gate_check_definitions.cache_clear()
    for name in ("refusals_check", "fences_check"):
        sys.modules.pop(f"elo_exp.analysis.checks.{name}", None)


def read_recipe(title: str = "A check of a judge") -> str:
    text = (HOME / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition(f"### {title}\n")[2].split("```python\n")[1].split("```")[0]


@pytest.fixture
def another_check(folder_of_checks: Path) -> None:
    """The file of the recipe."""
    path = folder_of_checks / "refusals_check.py"
    path.write_text(read_recipe(), encoding="utf-8")


def test_a_check_that_is_added_in_one_file_is_shown_everywhere(
    rated: Standings, another_check: None
):
    concluded = add_conclusions(rated, Scope(judge="opus"), quality=[QUALITY])
    view = build_view(concluded)
    verdict, findings, folds = list_judge_blocks(view)
    assert isinstance(verdict, Paragraph)
    assert isinstance(findings, Findings)
    assert isinstance(folds, Folds)
    failure = "The judge refuses 2% of comparisons."
    assert findings.items[0] == Finding(
        Styled("✕ Failed", "failed"),
        "Comparisons that the judge refuses",
        ["2% (accepted: at most 1%).", failure],
    )

    (table,) = folds.folds[0].blocks
    assert isinstance(table, Table)
    name = ["Comparisons that the judge refuses", Styled("at most 1%", "small")]
    (row,) = [row for row in table.rows if row[0] == Cell(name)]
    counted, failed = Styled("6 of 360", "small"), Styled("failed", "badge")
    value = Styled("2%", "bold")
    assert row[1] == Cell([value, " ", failed, counted], "caution")
    failed_title = "comparisons that the judge refuses"
    assert failed_title in strip_styles(verdict.text)

    console = tournament_console.format_console(view)
    assert "CAUTION: refuses 2%; order changes the verdict 3%" in console
    assert "the judge refuses (accepted: at most 1%): d 2%" in console

    tables = artifacts.tables(concluded, view.dimensions)
    assert ("refusals", "failed") in [(r["name"], r["state"]) for r in tables["judge"]]
    assert artifacts.list_final_metrics(concluded, view.dimensions)["judge/caution"]

    conclusion = concluded.conclusions["d"]
    assert conclusion.state == "caution"
    assert tournament_sentences.sentence(conclusion).endswith(
        "; it refuses 1.7% of comparisons"
    )


def test_a_check_of_a_gate_that_is_added_in_one_file_is_shown_everywhere(
    folder_of_checks: Path,
):
    path = folder_of_checks / "fences_check.py"
    path.write_text(read_recipe("A check of a gate"), encoding="utf-8")
    drawn = np.random.default_rng(3).choice(["A", "B"], size=(60, 2))
    judgments = [judged(ab, ba) for ab, ba in drawn.tolist()]
    answers = ["```\n```", "```python\nx = 1\n```", "Yes.", "  "]
    evidence = candidate_evidence(judgments, answers)
    checks_by_name = {check.name: check for check in check_pass_claim(evidence)}
    assert [*checks_by_name][-1] == "fences"
    title = "Answers that are empty without their code fences"
    (row,) = gate_page.build_checks_table({"d": [checks_by_name["fences"]]}).plain_rows
    assert row == [f"✕ Failed {title}at most 1%", "2 of 4 failed"]

    sees = Check(name="control", state="passed", value=1.0, n=10, of=10)
    share = share_of_points(
        np.full((93, 2), 0.5), margin=0.1, alpha=0.05, dimension="d", n_dimensions=1
    )
    conclusion = gate_conclusion.conclude(
        [share],
        margin=0.1,
        candidate="new",
        baseline="main",
        scope=Scope(),
        checks={"d": [sees, checks_by_name["fences"]]},
    )
    assert conclusion.state == "cannot tell"
    sentence = gate_sentences.verdict(conclusion)
    reason = "50% of new's answers are empty without their code fences."
    assert sentence.endswith(f"the margin. {reason}")


def test_without_that_file_nothing_stands_against_the_lead(rated: Standings):
    assert "refusals" not in check_definitions()
    concluded = add_conclusions(rated, Scope(judge="opus"), quality=[QUALITY])
    assert concluded.conclusions["d"].state == "leads"


@pytest.mark.parametrize("check", check_definitions().values(), ids=lambda c: c.name)
def test_the_row_of_a_check_is_complete(check: CheckDefinition):
    assert re.fullmatch("[a-z]+(_[a-z]+)*", check.name)
    assert check.title[0].isupper() and check.accepted and check.not_done
    assert {*check.blocked_claims} <= {*CLAIMS}
    assert {*check.blocking_states} <= {*STATES} - {"passed"}
    if check.is_about_judge and LEADS in check.blocked_claims:
        named = check.console_label or type(check).summarize_failure
        assert named is not CheckDefinition.summarize_failure
    if check.blocked_claims:
        for method in ("explain_failure", "explain_reason"):
            assert getattr(type(check), method) is not getattr(CheckDefinition, method)
    not_done = Check(name=check.name, state="not done")
    assert check.format_value(not_done) == check.not_done
    assert not_done.definition is check


MISTAKES = {
    "is not complete": (
        'title="Comparisons that the judge refuses",',
        "",
        "line N: TypeError: CheckDefinition.__init__() missing 1 required keyword-only argument: 'title'",
    ),
    "has no function": (
        "def measure(",
        "def mesure(",
        "line N: TypeError: Can't instantiate abstract class _Refusals",
    ),
    "cannot be read": (
        "share = quality.n_refused /",
        "share = /",
        "line N: SyntaxError: invalid syntax",
    ),
    "imports what is not there": (
        "format_percent_of_limit,\n)",
        "format_limit,\n)",
        "line N: ImportError: cannot import name 'format_limit' from 'elo_exp.formatting'",
    ),
    "has an unknown claim": (
        "blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT",
        "blocked_claims=('lead',)",
        "line N: blocked_claims must be a tuple of words from 'leads', 'level'; got ('lead',).",
    ),
    "has the name of another": (
        'name="refusals"',
        'name="flips"',
        "names its check 'flips', as ",
    ),
    "has no definition": (
        "CHECK = ",
        "A_CHECK = ",
        "defines neither CHECK nor GATE_CHECK",
    ),
    "has a class in place of a row": (
        "CHECK = _Refusals(",
        "CHECK = _Refusals\n_ = dict(",
        "It must be an instance of a subclass of CheckDefinition.",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_file_that_is_refused_says_where_its_mistake_is(
    mistake: str, folder_of_checks: Path
):
    text, wrong_text, message = MISTAKES[mistake]
    path = folder_of_checks / "refusals_check.py"
    recipe = read_recipe()
    assert recipe.count(text) == 1
    path.write_text(recipe.replace(text, wrong_text), encoding="utf-8")
    with pytest.raises(FileError) as error:
        check_definitions()
    assert "refusals_check.py" in error.value.line
    assert message in re.sub(r"line \d+", "line N", error.value.line)


def test_a_command_with_a_broken_check_ends_before_the_judge_is_asked(
    folder_of_checks: Path, tmp_path: Path
):
    path = folder_of_checks / "refusals_check.py"
    path.write_text("CHECK = 1 / 0", encoding="utf-8")
    ran = attempt("judge=lexical", "rubric=[factuality]", folder=tmp_path)
    assert ran.code == 2
    expected = f"elo_exp: {path}, line 1: ZeroDivisionError: division by zero\n"
    assert ran.err.endswith(expected)
    assert "verdicts:" not in ran.err


RESULTS = {
    "raises": (
        "quality.n_refused / quality.n_judgments",
        "1 / 0",
        "line N: ZeroDivisionError: division by zero",
    ),
    "has no such state": (
        "PASSED if share <= MAX_REFUSED_SHARE else FAILED",
        "'bad'",
        "the state of the result must be one of passed,",
    ),
    "has another name": (
        "name=self.name",
        "name='refused'",
        "the result must be named 'refusals', as ",
    ),
    "is no check": ("yield Check(", "yield dict(", "the result must be a Check; got {"),
    "cannot be worded": (
        "refuses {format_percent(check.value)} of",
        "refuses {check.values} of",
        "AttributeError: 'Check' object has no attribute 'values'",
    ),
}


@pytest.mark.parametrize("mistake", RESULTS)
def test_a_check_whose_result_is_wrong_is_named_with_its_file(
    mistake: str, folder_of_checks: Path, rated: Standings
):
    text, wrong_text, message = RESULTS[mistake]
    path = folder_of_checks / "refusals_check.py"
    recipe = read_recipe()
    assert recipe.count(text) == 1
    path.write_text(recipe.replace(text, wrong_text), encoding="utf-8")
    with pytest.raises(FileError) as error:
        add_conclusions(rated, Scope(judge="opus"), quality=[QUALITY])
    assert error.value.line.startswith(str(path))
    assert message in re.sub(r"line \d+", "line N", error.value.line)


def test_no_two_checks_share_a_name_a_place_or_a_reason():
    definitions = [*check_definitions().values()]
    made = [d for d in definitions if d.number < 1000]
    reasons = [name for d in definitions for name in d.reason_names]
    for values in (
        [d.title for d in definitions],
        [d.number for d in made],
        [d.row or d.number for d in made],
        reasons,
    ):
        assert len(set(values)) == len(values)


def test_a_limit_is_formatted_from_the_number_that_decides():
    """No text of a row has a number of its own: numbers stand in braces."""
    for path in Path(checks.__file__).parent.glob("*_check.py"):
        texts = re.findall(
            r'\b(?:accepted|warning)=f?"(.*?)"', path.read_text("utf-8"), re.MULTILINE
        )
        assert texts, path
        own_texts = [re.sub("{.*?}|1/2", "", text) for text in texts]
        assert not [text for text in own_texts if re.search(r"\d", text)], path


@pytest.mark.parametrize(
    "check", gate_check_definitions().values(), ids=lambda c: c.name
)
def test_the_row_of_a_check_of_a_gate_is_complete(check: GateCheckDefinition):
    assert re.fullmatch("[a-z]+(_[a-z]+)*", check.name)
    assert check.title[0].isupper() and check.accepted
    can_block = check.name not in ("first_shown", "ties", "invalid")
    default = GateCheckDefinition.explain_reason
    assert (type(check).explain_reason is not default) == can_block
