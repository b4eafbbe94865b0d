"""Templates lay out what Python worked out: loops over rows, `if`, look-ups and markup, and no name that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from jinja2 import Environment, StrictUndefined, nodes

from elo_exp.report import page
from elo_exp.report.document import Paragraph

FOLDER = Path(page.__file__).with_name("templates")
TEMPLATES = sorted(path.name for path in FOLDER.glob("*.j2"))
WIDEST = 160  # columns of a line
LONGEST = 2  # filters one after the other
CHANGES = ("append", "extend", "update", "add", "pop", "insert", "setdefault")
ARITHMETIC = (
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod),
    *(nodes.Pow, nodes.Neg, nodes.Pos),
)


def computed(source: str) -> Iterator[str]:
    """What a template works out, where, and each line that is too wide."""
    tree = Environment().parse(source)
    for node in tree.find_all(nodes.Node):
        if what := computes(node):
            yield f"line {node.lineno}: {what}"
    for number, line in enumerate(source.splitlines(), start=1):
        if len(line) > WIDEST:
            yield f"line {number}: {len(line)} columns"


def computes(node: nodes.Node) -> str | None:
    """What a node of a template works out; None where it lays out."""
    what = None
    if isinstance(node, ARITHMETIC) and not joins_lists(node):
        what = "arithmetic"
    elif isinstance(node, nodes.Compare):
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        if any(is_number(side) for side in sides):
            what = "a comparison with a number"
    elif isinstance(node, nodes.Assign) and getattr(node.target, "name", "") == "_":
        what = "set _"
    elif isinstance(node, nodes.Call):
        called = node.node
        if isinstance(called, nodes.Name) and called.name == "namespace":
            what = "a namespace"
        if isinstance(called, nodes.Getattr) and called.attr in CHANGES:
            what = f"a call of {called.attr}"
    elif isinstance(node, nodes.Filter) and n_filters(node) > LONGEST:
        what = f"{n_filters(node)} filters one after the other"
    return what


def joins_lists(node: nodes.Node) -> bool:
    """Whether headings are put together: a list that stands in the template, and others."""
    if not isinstance(node, nodes.Add):
        return False
    return any(
        isinstance(side, nodes.List) or joins_lists(side)
        for side in (node.left, node.right)
    )


def is_number(node: nodes.Node) -> bool:
    value = node.value if isinstance(node, nodes.Const) else None
    return isinstance(value, int | float) and not isinstance(value, bool)


def n_filters(node: nodes.Node | None) -> int:
    return 1 + n_filters(node.node) if isinstance(node, nodes.Filter) else 0


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_computes_nothing(name: str):
    source = (FOLDER / name).read_text(encoding="utf-8")
    assert list(computed(source)) == []


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{{ 100 * share }}", "arithmetic"),
        ("{{ names + others }}", "arithmetic"),
        ("{{ -gap }}", "arithmetic"),
        ("{% if n > 1%}s{% endif %}", "a comparison with a number"),
        ("{% if 0.5 < share %}{% endif %}", "a comparison with a number"),
        ("{% set _ = rows.pop() %}", "set _"),
        ("{{ rows.append(row) }}", "a call of append"),
        ("{% set found = namespace(n=none) %}", "a namespace"),
        ("{{ rows|list|first|upper }}", "3 filters one after the other"),
        ("x" * 161, "161 columns"),
    ],
)
def test_what_computes_is_found(source: str, what: str):
    assert f"line 1: {what}" in list(computed(source))


@pytest.mark.parametrize(
    "source",
    [
        "{% for row in rows %}{{ row.name }}{{ ', ' if not loop.last }}{% endfor %}",
        "{% if kind == 'words' and not rows %}{{ a ~ b }}{% endif %}",
        "{{ n|count }}{{ rows[0].name }}{% set card = cards[0]%}",
        "{% set heading = ['Job'] + settings + ['State']%}",
    ],
)
def test_what_lays_out_is_allowed(source: str):
    assert list(computed(source)) == []


def test_a_name_that_is_not_there_is_an_error():
    assert (
        page.load_template("document.html.j2").environment.undefined is StrictUndefined
    )


# Compiled templates


def rendered(folder: Path | None) -> tuple[str, int]:
    """A page, and how many templates were compiled for it."""
    environment, compiled = page.build_environment(folder), list[str]()
    compile_one = environment.compile

    def counting(source: str, name: str | None = None, *others: Any) -> Any:
        compiled.append(str(name))
        return compile_one(source, name, *others)

    with patch.object(environment, "compile", counting):
        environment.get_template("document.html.j2")
        macros = environment.get_template("blocks.html.j2").module
    return str(macros.Paragraph(Paragraph("<x>"))), len(compiled)


def test_a_template_is_compiled_once_and_others_can_put_none_in_its_place(
    tmp_path: Path,
):
    folder = tmp_path / "cache"
    shown, n = rendered(folder)
    assert n
    assert rendered(folder) == (shown, 0)
    assert folder.stat().st_mode & 0o77 == 0
    files = sorted(folder.iterdir())
    assert len(files) == n

    files[0].write_bytes(files[0].read_bytes()[:-1])  # cut off
    files[1].chmod(0o666)
    assert rendered(folder) == (shown, 2)  # both are written anew
    assert rendered(folder) == (shown, 0)
    folder.chmod(0o777)
    assert rendered(folder) == (shown, n)


@pytest.mark.parametrize("place", [None, "file/cache", "nobody/cache"])
def test_where_nothing_can_be_kept_pages_are_made_all_the_same(
    tmp_path: Path, place: str | None
):
    (tmp_path / "file").touch()
    (tmp_path / "nobody").mkdir(mode=0o500)
    folder = None if place is None else tmp_path / place
    shown, n = rendered(folder)
    assert shown == rendered(tmp_path / "own")[0]
    assert n


def test_several_at_once_compile_the_same(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        shown = {text for text, _ in pool.map(rendered, [tmp_path / "cache"] * 16)}
    assert len(shown) == 1
    assert rendered(tmp_path / "cache")[1] == 0
