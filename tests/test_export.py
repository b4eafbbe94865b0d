"""An exported run: other programs find its ratings in the files, and a paper has the numbers of its page."""

import re
import string
import zlib
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from elo_exp.errors import UserError
from elo_exp.experiments import export
from elo_exp.figures import figure_kinds, style
from elo_exp.figures.vector_pdf import convert_svg
from elo_exp.files import read_jsonl, write_jsonl
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.report.document import Table
from elo_exp.report.paper_table import escape_latex, format_latex
from tests.commands import Ran, attempt, run
from tests.standings import tournament

QUICK = ("tracker=local", "figures=false", "elo.n_perms=2")


def ratings(ran: Ran, *names: str) -> list[Any]:
    found = ran.read("ratings.json")["dimensions"]
    rows = found["overall"]["bradley_terry"]["ratings"]
    return [row[name] for row in rows for name in names]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Path]:
    folder = tmp_path_factory.mktemp("export")
    battles = tournament(3, 30)
    path = write_jsonl(folder / "battles.jsonl", [b.to_dict() for b in battles])
    rated = run("experiment=rate", f"battles={path}", *QUICK, folder=folder)
    to = run(
        "experiment=export", f"folder={rated.run_dir}", "tracker=local", folder=folder
    )
    assert f"export: results of {rated.run_dir}\n" in to.err
    assert "The run has no figures. To export them, " in to.err
    assert to.out.startswith(
        "wrote table.tex, table.md, conclusion.txt and 4 files for evalica and "
    )
    return rated, to.run_dir / "overall"


@pytest.mark.system
def test_our_reader_finds_the_same_ratings_in_the_csv(exported):
    rated, to = exported
    csv = f"battles={to / 'evalica.csv'}"
    again = run("experiment=rate", csv, *QUICK, folder=to)
    assert "evalica.csv: read as evalica" in again.out + again.err
    names = ("rating", "std_error")
    assert ratings(again, *names) == pytest.approx(ratings(rated, *names), rel=1e-9)


def test_evalica_finds_the_same_gaps(exported):
    evalica = pytest.importorskip("evalica")
    rated, to = exported
    _, *rows = [line.split(",") for line in (to / "evalica.csv").read_text().split()]
    left, right, winner = zip(*(row[:3] for row in rows), strict=True)
    won = {"left": "X", "right": "Y", "tie": "Draw"}
    outcomes = [getattr(evalica.Winner, won[word]) for word in winner]
    found = evalica.bradley_terry(left, right, outcomes, tolerance=1e-12).scores
    gaps = -np.diff(POINTS_PER_LOG_ODDS * np.log(found.sort_values(ascending=False)))
    assert gaps == pytest.approx(-np.diff(ratings(rated, "rating")), abs=1e-4)


def test_inspect_gets_each_entrants_share_of_the_verdicts_on_a_prompt(
    exported,
):
    _, to = exported
    files = (to / f"inspect_{model}.jsonl" for model in "abc")
    lines = [[row for _, row in read_jsonl(file)] for file in files]
    for rows in zip(*lines, strict=True):  # as precomputed_scores reads them
        assert len({row["id"] for row in rows}) == 1
        assert sum(row["value"] for row in rows) == pytest.approx(1.5)
    assert len(lines[0]) == 30


def test_counts_are_rows_for_evalica_and_names_stay_as_they_are(tmp_path):
    """A spreadsheet would take the name for a formula; evalica would take an apostrophe for a part of the name."""
    row = {"model_a": "@cf/meta/llama", "model_b": "b", "question_id": "1"}
    counts = {"model_a": 3, "model_b": 1}
    rows = [{**row, "winner": won, "count": n} for won, n in counts.items()]
    path = write_jsonl(tmp_path / "battles.jsonl", rows)
    rated = run("experiment=rate", f"battles={path}", *QUICK, folder=tmp_path)
    command = ("experiment=export", f"folder={rated.run_dir}", "tracker=local")
    to = run(*command, folder=tmp_path).run_dir / "overall"
    _, *lines = (to / "evalica.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in lines] == [
        *[["@cf/meta/llama", "b", "left"]] * 3,
        ["@cf/meta/llama", "b", "right"],
    ]
    ((_, share),) = read_jsonl(to / "inspect_b.jsonl")
    assert share["value"] == 0.25


def test_counts_that_no_file_holds_are_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(export, "MAX_EVALICA_ROWS", 3)
    row = {"model_a": "a", "model_b": "b", "winner": "model_a", "question_id": "1"}
    path = write_jsonl(tmp_path / "battles.jsonl", [{**row, "count": 4}])
    rated = run("experiment=rate", f"battles={path}", *QUICK, folder=tmp_path)
    command = ("experiment=export", f"folder={rated.run_dir}", "tracker=local")
    failed = attempt(*command, folder=tmp_path)
    assert failed.code == 2
    assert "has 4 verdicts on " in failed.err
    assert "an evalica file takes at most 3." in failed.err
    assert not [*tmp_path.rglob("evalica.csv")]


# For a paper


def test_the_tables_have_the_numbers_of_the_page(exported):
    rated, to = exported
    lines = (to.parent / "table.md").read_text().splitlines()
    page = (rated.run_dir / "report.html").read_text()
    latex = (to.parent / "table.tex").read_text()
    assert len(lines) == 7  # a head, a rule, three entrants, a blank and the caption
    for line in lines[2:5]:
        _, name, rating, n_prompts, n_battles = map(str.strip, line.split("|")[1:-1])
        value, low, high = re.fullmatch(r"(\d+) \[(\d+), (\d+)\]", rating).groups()
        assert f">{value}<" in page and f"{low} to {high}" in page
        assert f"& {name} & {rating} & {n_prompts} & {n_battles} \\\\" in latex
    sentence = rated.read("ratings.json")["conclusions"]["overall"]["sentence"]
    conclusion = (to.parent / "conclusion.txt").read_text()
    assert conclusion.splitlines()[0].casefold() == f"{sentence}.".casefold()
    assert "Bradley-Terry ratings with 95% intervals (prompt-clustered)" in lines[6]
    assert " on 30 prompts. " in lines[6] and lines[6].count(sentence[1:]) == 1


PRINTED = {
    "textbackslash": "\\",
    "textasciitilde": "~",
    "textasciicircum": "^",
    "textless": "<",
    "textgreater": ">",
    "textbar": "|",
    "textasciigrave": "`",
}


def print_latex(text: str) -> str:
    """What LaTeX prints; fails for a character that it would take for a command."""
    command = r"\\(?P<symbol>[&%$#_{}])|\\(?P<name>[a-z]+)\{\}|\{\}|(?P<plain>[^\\&%$#_{}~^<>|`])"
    printed, position = "", 0
    while position < len(text):
        match = re.compile(command).match(text, position)
        assert match, text[position:]
        by_kind = match.groupdict()
        name = PRINTED[by_kind["name"]] if by_kind["name"] else ""
        printed += (by_kind["symbol"] or "") + name + (by_kind["plain"] or "")
        position = match.end()
    return printed


@pytest.mark.parametrize(
    "name",
    [
        string.printable.strip(),
        r"\input{/etc/passwd}",
        "a--b---c",
        "100% of $5 & #1_x^2 {~}",
        "模型 é",
    ],
)
def test_latex_prints_every_name_as_it_is(name: str):
    escaped = escape_latex(name)
    assert print_latex(escaped) == " ".join(name.split())
    assert "--" not in escaped


def test_a_row_of_latex_begins_with_no_option():
    table = Table(
        label="T",
        columns=["Rubric", "n"],
        rows=[["[a]", "1"], ["[a]", "2"], ["*", "−3"]],
    )
    lines = format_latex(table, "50%").splitlines()
    assert lines[lines.index("    \\midrule") + 1 :][:4] == [
        "    {}[a] & 1 \\\\",
        "     & 2 \\\\",
        "    \\addlinespace",
        "    {}* & $-$3 \\\\",
    ]
    assert "  \\caption{50\\%}" in lines


@matplotlib.rc_context(style.MATPLOTLIB_STYLE)
def draw_figure() -> str:
    figure, ((ax, _),) = style.make_panels({"a title": None}, "x", "up")
    cells = {(i, j): (i + j) / 4 for i in range(3) for j in range(3)}
    figure_kinds.draw_matrix(
        ax, cells, dict(enumerate("abc")), dict(enumerate("abc")), (0, 1), "{:.0%}"
    )
    ax.plot([0, 1, 2], [0, 2, 1], "o--", alpha=0.5)
    return style.render_plot("drawn", figure, [], "heading", "").svg


def test_a_figure_becomes_a_pdf_with_its_fonts(tmp_path):
    """All texts and the colours of the matrix are in it, and the same figure has the same bytes."""
    path = tmp_path / "drawn.svg"
    path.write_text(svg := draw_figure(), encoding="utf-8")
    pdf = convert_svg(path)
    assert pdf == convert_svg(path)
    assert pdf.startswith(b"%PDF-") and b"/FontFile2" in pdf
    assert pdf.count(b"/Subtype /Image") == svg.count("<image")
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    drawn = next(s for s in map(zlib.decompress, streams) if b" Tj" in s or b" TJ" in s)
    assert len(re.findall(rb"\bT[jJ]\b", drawn)) == svg.count("<text")


@pytest.mark.parametrize(
    "text",
    [
        "no xml",
        '<svg xmlns="http://www.w3.org/2000/svg"/>',
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><script>x</script></svg>',
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><path d="M x 1"/></svg>',
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><image href="http://a/b.png"/></svg>',
    ],
)
def test_a_figure_of_another_program_is_refused(text: str, tmp_path):
    (tmp_path / "a.svg").write_text(text)
    with pytest.raises(
        UserError, match=r"a.svg is not a figure that a run has drawn\."
    ):
        convert_svg(tmp_path / "a.svg")
