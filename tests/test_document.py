"""Blocks of a page: what each is drawn as, what is left out, and that every class has a macro and every macro a class."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from elo_exp.report import page
from elo_exp.report.document import (
    Answer,
    Answers,
    Block,
    Bullets,
    Card,
    Cards,
    Cell,
    Details,
    Document,
    Dot,
    Drawn,
    Facts,
    FigureSlot,
    Fold,
    Folds,
    Heading,
    LineBreak,
    Link,
    OtherFigures,
    OutcomeCount,
    Outcomes,
    Paragraph,
    Section,
    Styled,
    Table,
    ViewerLinks,
    format_markdown_table,
    join_codes,
    strip_styles,
)
from elo_exp.report.leaderboard_section import Bars, BoardTable
from elo_exp.report.pairs_section import Matrices
from tests.pages import Reader

TEMPLATES = Path(page.__file__).with_name("templates")

RICH = ["a ", Styled("b", "bold"), LineBreak(), Link([Styled("c", "code")], "#d")]


def drawn(*blocks: Block) -> str:
    """The elements of blocks in a page of a single section, without white space between them."""
    text = page.render_document(
        "run",
        Document(
            kicker="k", headline="h", lede=[], sections=[Section("s", "S", blocks)]
        ),
    )
    section = re.search(r'<h2 id="h-s">S</h2>(.*?)</section>', text, re.DOTALL)
    if section is None:
        return ""
    return re.sub(r"> ?<", "><", " ".join(section[1].split()))


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (
            Paragraph(RICH, "facts"),
            '<p class="facts">a <b>b</b><br><a href="#d"><code>c</code></a></p>',
        ),
        (Paragraph("<x>"), "<p>&lt;x&gt;</p>"),
        (Paragraph([Styled("x", "")]), "<p><span>x</span></p>"),
        (Paragraph([Styled("x", "no")]), '<p><span class="no">x</span></p>'),
        (
            Paragraph([Styled("x", "fine")]),
            '<p><span class="small">x</span></p>',
        ),
        (Paragraph([Styled("x", "badge")]), '<p><i class="chip">x</i></p>'),
        (Heading("H", "begins"), '<h3 class="begins">H</h3>'),
        (Bullets(["x", RICH[:1]]), "<ul><li>x</li><li>a </li></ul>"),
        (
            Facts([("t", ["x ", *join_codes(["y"])])], "glossary"),
            '<dl class="glossary"><dt>t</dt><dd>x <code>y</code></dd></dl>',
        ),
        (
            Details("s", [Paragraph("x")], "notable", is_open=True),
            '<details class="notable" open><summary>s</summary><p>x</p></details>',
        ),
        (FigureSlot("absent"), ""),
        (OtherFigures(), ""),
    ],
)
def test_a_block_is_drawn(block: Block, shown: str):
    assert drawn(block) == shown


def test_a_card_holds_blocks():
    card = Card(title="t", chip="c", tone="open", blocks=[Heading("h"), Paragraph("p")])
    article = '<article class="card open"><p class="over"><span>t</span><b class="chip">c</b></p><h3>h</h3><p>p</p></article>'
    assert drawn(Cards([card, card])) == f'<div class="cards">{2 * article}</div>'


TABLE = Table(
    label="T",
    columns=["Name", "Number", "Words"],
    rows=[
        ["x|y", "1", "so"],
        [
            Cell(["z", Styled("of", "small")]),
            Cell(RICH, "yes"),
            Cell([Dot(3), "q"]),
        ],
    ],
    words=["Words"],
    note="n",
    style="checks",
)


def test_a_cell_looks_like_its_column_unless_it_says_otherwise():
    shown = drawn(TABLE)
    assert '<table class="checks">' in shown
    assert (
        '<th scope="col">Name</th><th scope="col" class="num">Number</th><th scope="col">Words</th>'
    ) in shown
    assert shown.endswith(
        '<tr><th scope="row"><bdi>x|y</bdi></th><td class="num">1</td><td><bdi>so</bdi></td></tr>'
        '<tr><th scope="row">z<small>of</small></th>'
        '<td class="yes">a <b>b</b><br><a href="#d"><code>c</code></a></td>'
        '<td><i class="dot c3"></i>q</td></tr></tbody></table></div><p class="small">n</p>'
    )


def test_a_table_as_markdown():
    assert TABLE.plain_rows[1] == ["zof", "a bc", "q"]
    assert format_markdown_table(TABLE).splitlines() == [
        "| name | number | words |",
        "| ---- | -----: | ----- |",
        "| x\\|y |      1 | so    |",
        "| zof  |   a bc | q     |",
    ]
    assert strip_styles("x") == "x"


def test_a_name_formats_no_markdown():
    names = {
        "a_b": "a_b",
        "_a_": r"\_a\_",
        "*a* `b` ~c~": r"\*a\* \`b\` \~c\~",
        "<b>x": r"\<b>x",
        "p < .05": "p < .05",
        "[a](b)": r"[a\](b)",
        "x\ny": "x y",
        "模": "模",
    }
    table = Table(label="T", columns=["Name"], rows=[[name] for name in names])
    lines = format_markdown_table(table).splitlines()[2:]
    assert [line.strip("| ") for line in lines] == [*names.values()]
    assert {cell_len(line) for line in lines} == {len(r"| \*a\* \`b\` \~c\~ |")}


def test_a_row_has_a_cell_for_each_column():
    with pytest.raises(ValueError, match="zip"):
        drawn(Table(label="T", columns=["A"], rows=[["a", "b"]]))


def test_answers_and_the_winner():
    answers = [Answer("x", "<t>", is_winner=True), Answer("y", "u", is_winner=False)]
    shown = drawn(Answers(answers))
    assert (
        '<article class="answer won"><h3>x <em>✓ wins</em><small>3 characters</small></h3>'
        in shown
    )
    assert '<div class="rendered"><p>u</p>' in shown


def test_an_answer_is_markdown_without_html_images_and_links():
    text = "**b** <b>x</b> &amp; ![i](http://x/y.png) [l](http://x) <http://x>\n\n- one\n- two"
    shown = drawn(Answers([Answer("x", text, is_winner=False)]))
    reader = Reader(f"<main>{shown}</main>")
    assert "<strong>b</strong>" in shown
    assert "<li>one</li>" in shown
    assert not reader.given("href") and not reader.given("src")
    assert "<b>x</b> &amp; ![i](http://x/y.png) [l](http://x) <http://x>" in reader.said


def test_a_fold_shows_its_answer_and_is_left_out_if_it_shows_nothing():
    full = Fold("a", "Name", "the answer", [Paragraph("p")])
    empty = Fold("b", "Empty", "", [OtherFigures()])
    shown = drawn(Folds([full, empty]))
    assert (
        '<details id="a"><summary><b>Name</b><span>the answer</span></summary>' in shown
    )
    assert "Empty" not in shown
    assert drawn(Folds([empty])).strip() == ""


def test_outcomes_are_squares_and_of_many_a_bar():
    few = [OutcomeCount("a wins 2", 2, "lead"), OutcomeCount("b wins 1", 1, "other")]
    many = [OutcomeCount("a wins 201", 201, "lead")]
    assert [tone for tone, _ in Outcomes("All", few).marks] == ["lead", "lead", "other"]
    assert drawn(Outcomes("All", few)).count('<i class="lead"') == 2 + 1
    assert "flex-grow:201" in drawn(Outcomes("All", many))


def test_the_viewer_names_what_it_leaves_out_and_flips_only_where_there_are_two_orders():
    both, single = (
        drawn(ViewerLinks("3", has_flips, "left out")) for has_flips in (True, False)
    )
    assert "Read all 3 comparisons</a>" in both
    assert '<p class="notice">left out</p>' in both
    assert ">Order changes the verdict</a>" in both
    assert ">Order changes the verdict</a>" not in single


def test_a_section_that_shows_nothing_is_left_out():
    table = Table(label="T", columns=["A"], rows=[])
    shown = page.render_document(
        "run",
        Document(
            kicker="k",
            headline="h",
            begins_with_word=True,
            lede=[Paragraph("l", "lede")],
            sections=[
                Section("empty", "E", [table, FigureSlot("f"), OtherFigures()]),
                Section("full", "F", [Paragraph("p")]),
            ],
            footer="end",
        ),
    )
    reader = Reader(shown)
    assert reader.headings == ["F"]
    assert [link for link in reader.given("href") if link.startswith("#")] == ["#full"]
    assert '<h1 class="begins">h</h1>' in shown
    assert reader.said.endswith("F p end ")


def test_every_class_has_a_macro_and_every_macro_a_class():
    def leaves(cls: type) -> set[str]:
        children = cls.__subclasses__()
        names = (leaves(child) for child in children)
        return {cls.__name__}.union(*names) if not children else set().union(*names)

    standings = {Bars, BoardTable, Matrices}
    assert all(issubclass(cls, Block) for cls in standings)
    environment = page.build_environment(None)
    source = (TEMPLATES / "blocks.html.j2").read_text(encoding="utf-8")
    module = environment.from_string(source).make_module(
        {"figures": page.Figures((), ())}
    )
    assert set(module.macros) == leaves(Drawn)
