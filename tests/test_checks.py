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
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.judge_bias import PositionEffect
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings, add_diagnoses
from elo_exp.paths import HOME
from elo_exp.report import artifacts, tournament_console
from elo_exp.report.document import Cell, Paragraph, Styled, Table, strip_styles
from elo_exp.report.judge_section import list_judge_blocks
from elo_exp.report.sentences import tournament_sentences
from elo_exp.report.standings_view import build_view
from tests.simulation import Tournament
from tests.standings import standings

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
RECIPE = re.compile(
    r"^### A check of a judge$.*?```python\n(.*?)```", re.DOTALL | re.MULTILINE
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
def another_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file of the recipe, beside those of the package."""
    (recipe,) = RECIPE.findall((HOME / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    (tmp_path / "refusals_check.py").write_text(recipe, encoding="utf-8")
    monkeypatch.setattr(checks, "__path__", [*checks.__path__, str(tmp_path)])
    check_definitions.cache_clear()
    yield
    check_definitions.cache_clear()
    sys.modules.pop("elo_exp.analysis.checks.refusals_check", None)


def test_a_check_that_is_added_in_one_file_is_shown_everywhere(
    rated: Standings, another_check: None
):
    concluded = add_conclusions(rated, Scope(judge="opus"), quality=[QUALITY])
    view = build_view(concluded)
    verdict, table, *_ = list_judge_blocks(view)
    assert isinstance(verdict, Paragraph)
    assert isinstance(table, Table)

    name = [
        "Comparisons that the judge refuses",
        Styled("at most 1 %", "small"),
    ]
    (row,) = [row for row in table.rows if row[0] == Cell(name)]
    counted, failed = Styled("6 of 360", "small"), Styled("failed", "badge")
    value = Styled("2\N{NO-BREAK SPACE}%", "bold")
    assert row[1] == Cell([value, " ", failed, counted], "caution")
    failure = "d: The judge refuses 2\N{NO-BREAK SPACE}% of comparisons."
    assert strip_styles(verdict.text).startswith(f"Verdict: caution. {failure}")

    console = tournament_console.format_console(view)
    assert "CAUTION: refuses 2 %; flips 3 %" in console
    assert "the judge refuses (accepted: at most 1 %): d 2 %" in console

    tables = artifacts.tables(concluded, view.dimensions)
    assert ("refusals", "failed") in [(r["name"], r["state"]) for r in tables["judge"]]
    assert artifacts.list_final_metrics(concluded, view.dimensions)["judge/caution"]

    conclusion = concluded.conclusions["d"]
    assert conclusion.state == "caution"
    assert tournament_sentences.sentence(conclusion).endswith(
        "; it refuses 1.7 % of comparisons"
    )


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
    if {*check.blocked_claims} - {"not worse"}:
        for method in ("explain_failure", "explain_reason"):
            assert getattr(type(check), method) is not getattr(CheckDefinition, method)
    not_done = Check(name=check.name, state="not done")
    assert check.format_value(not_done) == check.not_done
    assert not_done.definition is check


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
        row = path.read_text(encoding="utf-8").partition("\nCHECK = ")[2]
        row = row.partition("\n)\n")[0]
        texts = re.findall(r'(?:accepted|warning)=f?"(.*)"', row)
        own_texts = [re.sub("{.*?}", "", text) for text in texts]
        assert not [text for text in own_texts if re.search(r"\d", text)], path
