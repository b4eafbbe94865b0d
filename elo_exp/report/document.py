"""The parts of a page: sections of blocks, as values. templates/document.html.j2 draws them.

A page module decides what is shown and in which order; how each kind of block looks is written once, in
templates/blocks.html.j2, whose macros have the names of these classes.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Style: TypeAlias = Literal[
    "", "bold", "small", "code", "quote", "name", "chip", "badge", "fine", "yes", "no", "passed", "failed", "cannot_tell",
    "not_done",
]  # fmt: skip

# Characters that Markdown takes for a format, where it does
_MARKDOWN_MARK = re.compile(r"[\\`*~|]|<(?=[a-zA-Z/!?])|(?<!\w)_|_(?!\w)|\](?=\()")
# More outcomes than these are a bar
MAX_OUTCOME_SQUARES = 200
COMPARISON_TERMS = (
    (
        "comparison",
        "The answers of two entrants to one prompt, judged under one rubric in both orders. Also called a battle.",
    ),
    (
        "verdict",
        "The judge’s decision on one comparison in one order: A, B, tie or invalid. Invalid verdicts are left out and "
        "never count as ties.",
    ),
    (
        "tie",
        "The judge says tie, or its two orders name different winners.",
    ),
    ("entrant", "A model or configuration that answers prompts."),
    (
        "rubric",
        "The criterion by which the judge compares answers. Each rubric has its own ratings.",
    ),
    ("source", "The origin of a prompt, or another column of the prompt file."),
    (
        "rating",
        "Strength in points. The mean is 1400 unless the scale is fixed otherwise. A gap of 400 means odds of 10 to 1.",
    ),
    (
        "95% interval",
        "The range that other prompts of this kind could give, if it is clustered by prompt. It does not cover another "
        "judge.",
    ),
    (
        "significant",
        "Too large to be chance: over all pairs together, the risk of a false claim is at most 5%.",
    ),
    (
        "order inconsistency",
        "The two orders of a comparison name different winners, because of position bias or noise.",
    ),
    ("match order", "A random order of the same comparisons, replayed through Elo."),
)


class Drawn:
    """A value that a macro of templates/blocks.html.j2 draws."""

    __slots__ = ()

    @property
    def macro(self) -> str:
        """The name of the macro."""
        return type(self).__name__


# Texts


@dataclass(frozen=True, slots=True)
class Styled(Drawn):
    """A part of a text.

    style  `name` for a name that others chose, in any script; `chip` for the state of a card, `badge` for that of a
           cell; `fine` for a line in smaller type; `passed`, `failed`, `cannot_tell` and `not_done` for states of checks
    """

    text: "Text"
    style: Style


@dataclass(frozen=True, slots=True)
class Link(Drawn):
    """A part of a text that leads to a place of the page or to a file next to it."""

    text: "Text"
    target: str


@dataclass(frozen=True, slots=True)
class Dot(Drawn):
    """A dot in the colour of an entrant."""

    color: int


@dataclass(frozen=True, slots=True)
class LineBreak(Drawn):
    """A new line within a text."""


TextFragment: TypeAlias = str | Styled | Link | Dot | LineBreak
Text: TypeAlias = str | Sequence[TextFragment]


def strip_styles(text: Text) -> str:
    """Return the words of a text without their styles."""
    if isinstance(text, str):
        return text
    return "".join(map(_strip_fragment, text))


def _strip_fragment(fragment: TextFragment) -> str:
    if isinstance(fragment, Styled | Link):
        return strip_styles(fragment.text)
    return fragment if isinstance(fragment, str) else ""


def join_codes(codes: Iterable[str]) -> list[TextFragment]:
    """Return words of a command, each as code."""
    return [x for code in codes for x in (Styled(code, "code"), " ")]


# Blocks


class Block(Drawn):
    """A part of a section."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Paragraph(Block):
    """A paragraph; `style` has classes of report.css: lede, facts, small, whose, notice, warn, reason, begins, text."""

    text: Text
    style: str = ""


@dataclass(frozen=True, slots=True)
class Heading(Block):
    """A heading within a section."""

    text: Text
    style: str = ""


@dataclass(frozen=True, slots=True)
class Bullets(Block):
    """A list of sentences."""

    items: Sequence[Text]


@dataclass(frozen=True, slots=True)
class Facts(Block):
    """A list of terms, each with what there is to say of it; `style` is glossary or empty."""

    items: Sequence[tuple[str, Text]]
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card(Block):
    """A conclusion: the title above it, its state as a chip, and what is said; `tone` is supported, caution or open."""

    title: str
    chip: str
    tone: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Cards(Block):
    """Cards side by side."""

    cards: Sequence[Card]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that does not look like its column; `style` is a class of report.css: num, yes, no, words, caution, plain."""

    text: Text
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Block):
    """A table, left out if it has no rows. The first column holds names, those named in `words` text, the others numbers.

    note   what a reader has to know about it, below it
    style  a class of report.css
    """

    label: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    words: Collection[str] = ()
    note: Text = ""
    style: str = ""

    @property
    def lines(self) -> list[tuple[Cell, list[Cell]]]:
        """Each row: its name, and its other cells."""
        return [
            (
                _make_name_cell(name),
                [
                    self._make_cell(column, cell)
                    for column, cell in zip(self.columns[1:], cells, strict=True)
                ],
            )
            for name, *cells in self.rows
        ]

    def _make_cell(self, column: str, cell: str | Cell) -> Cell:
        if isinstance(cell, Cell):
            return cell
        return _make_name_cell(cell) if column in self.words else Cell(cell, "num")

    @property
    def plain_rows(self) -> list[list[str]]:
        """The words of all cells."""
        return [
            [
                strip_styles(cell.text if isinstance(cell, Cell) else cell)
                for cell in row
            ]
            for row in self.rows
        ]


def add_headings(tables: Iterable[Table]) -> list[Block]:
    """Return tables, each below its label."""
    return [block for table in tables for block in (Heading(table.label), table)]


def format_markdown_table(table: Table) -> str:
    """Return a table as Markdown that is aligned as text, with headings in lower case; numbers stand on the right."""
    from rich.cells import cell_len, set_cell_size

    heads = [_escape_markdown(column.lower()) for column in table.columns]
    rows = [[_escape_markdown(cell) for cell in row] for row in table.plain_rows]
    widths = [max(3, *map(cell_len, cells)) for cells in zip(heads, *rows, strict=True)]
    are_words = [
        i == 0 or column in table.words for i, column in enumerate(table.columns)
    ]
    rules = [
        "-" * width if is_words else f"{'-' * (width - 1)}:"
        for width, is_words in zip(widths, are_words, strict=True)
    ]
    lines = [
        [
            set_cell_size(cell, width)
            if is_words
            else f"{' ' * (width - cell_len(cell))}{cell}"
            for cell, width, is_words in zip(cells, widths, are_words, strict=True)
        ]
        for cells in (heads, *rows)
    ]
    head_line, *row_lines = lines
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (head_line, rules, *row_lines)
    )


def _escape_markdown(text: str) -> str:
    """Return a text as Markdown shows it on one line, without a format of its own."""
    return _MARKDOWN_MARK.sub(r"\\\g<0>", text.replace("\n", " "))


def _make_name_cell(cell: str | Cell) -> Cell:
    return cell if isinstance(cell, Cell) else Cell([Styled(cell, "name")])


@dataclass(frozen=True, slots=True)
class Finding:
    """A check in sentences: its state, its name, and what was found."""

    state: Styled
    name: str
    sentences: Sequence[Text]


@dataclass(frozen=True, slots=True)
class Findings(Block):
    """A list of checks."""

    items: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class FigureSlot(Block):
    """The place of a figure, which a page shows once; empty if it was not drawn."""

    name: str


@dataclass(frozen=True, slots=True)
class OtherFigures(Block):
    """The figures that have no place of their own."""


@dataclass(frozen=True, slots=True)
class Details(Block):
    """Blocks that a click on the summary shows; `style` is notable or empty."""

    summary: Text
    blocks: Sequence[Block]
    style: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks behind a line that gives the answer already; left out if the blocks show nothing.

    anchor  where links lead; it opens the fold
    """

    anchor: str
    name: str
    answer: Text
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Folds(Block):
    """Details, one line each until they are opened."""

    folds: Sequence[Fold]


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """How often a comparison ended in one way; `tone` is lead, tie or other."""

    text: str
    n: int
    tone: str


@dataclass(frozen=True, slots=True)
class Outcomes(Block):
    """All comparisons of two entrants: a square each, or of many a bar."""

    label: str
    counts: Sequence[OutcomeCount]

    @property
    def has_squares(self) -> bool:
        return sum(count.n for count in self.counts) <= MAX_OUTCOME_SQUARES

    @property
    def marks(self) -> list[tuple[str, int]]:
        """The tone of each mark, and how many comparisons it stands for."""
        if self.has_squares:
            return [(count.tone, 1) for count in self.counts for _ in range(count.n)]
        return [(count.tone, count.n) for count in self.counts]


@dataclass(frozen=True, slots=True)
class Answer:
    title: Text
    text: str
    is_winner: bool

    @property
    def size(self) -> str:
        return f"{len(self.text):,} characters"


@dataclass(frozen=True, slots=True)
class Answers(Block):
    """Two answers side by side."""

    answers: Sequence[Answer]


@dataclass(frozen=True, slots=True)
class Verdict(Block):
    """A comparison with its answers, whose beginnings are shown until a reader asks for all of them.

    kicker   the line above it
    reasons  of the judge, in each order
    """

    kicker: str
    question: str
    answers: Sequence[Answer]
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class ViewerLinks(Block):
    """The links that open the viewer of verdicts, which needs JavaScript.

    notice  what the viewer leaves out
    """

    n_comparisons: str
    has_flips: bool
    notice: str = ""


# Pages


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its blocks; left out, with its line in the contents, if these show nothing."""

    anchor: str
    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A page.

    kicker             the line above its headline
    begins_with_word   whether the headline begins with a word, which gets a capital, and not with a name
    lede               the blocks below its headline
    verdict_data       what the viewer of verdicts reads; None without a viewer
    figures_left_out   names of figures that a table of the page shows better
    """

    kicker: str
    headline: str
    begins_with_word: bool = False
    lede: Sequence[Block]
    sections: Sequence[Section]
    footer: str = ""
    verdict_data: str | None = None
    figures_left_out: Collection[str] = ()
