"""Changes of the program's source, addressed by a function and by the shape of what is there: renaming breaks none of them.

`where` is a module below elo_exp/ and, after a colon, the qualified name of a function, a class or a constant, as in
`store/claims:Claims.send.mark_sent` or `api/costs:_MIN_BYTES_PER_TOKEN`; without a colon it is a file that is no module.

A pattern is Python: an expression, statements that follow each other, an `except` clause, or a `for A in B if C` of a
comprehension. In it

    A, B, ...  a capital letter stands for any expression or name, and for the same one wherever it stands again
    ...        stands for any number of arguments, operands, elements or statements, also for none; `**...` for arguments by
               name. `if A: ...` may have an `elif` or an `else`
    the rest   has to be there as it is written, but for quotes, brackets and line breaks

A letter may stand for a local variable, a parameter, an attribute or a private function. A pattern says by its operators,
literals and public names which place it means, and has to match once: AddressError says on which lines it does.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

# what stands for the letters of a pattern, and for each `...` in order
Letters = Mapping[str, Any]
_LETTER = re.compile("[A-Z]")
# expressions that stand nowhere by themselves
_PARTS = (ast.Starred, ast.Slice, ast.FormattedValue)
# in the text of an f-string, what it has in braces
_IN_BRACES = "\0"


class AddressError(Exception):
    """An address that is not that of one place."""


@dataclass(frozen=True)
class Change:
    """A change of syntax: what matches the pattern `old` becomes `new`, which is written with the same letters.

    given  a pattern that matches once, anywhere in the function: its letters stand for the same in `old` and `new`
    """

    old: str
    new: str
    given: str = ""

    def edited(self, source: str, where: str) -> str:
        """Return a source with the change in it. Raises AddressError."""
        scope = _scope(source, where)
        letters: Letters = {}
        if self.given:
            (given,) = _patterns(self.given)
            place = _only(_places(scope, given, {}), f"{where}: {self.given}")
            letters = {k: v for k, v in place.letters.items() if _LETTER.fullmatch(k)}
        old, new = _patterns(self.old, self.new)
        place = _only(_places(scope, old, letters), f"{where}: {self.old}")
        rests = iter([v for k, v in place.letters.items() if not _LETTER.fullmatch(k)])
        return _edited(source, scope, place, _filled(new, place.letters, rests))


@dataclass(frozen=True)
class Text:
    """A change within a string: where it says `old` it says `new`. `{}` is whatever an f-string has in braces."""

    old: str
    new: str

    def edited(self, source: str, where: str) -> str:
        """Return a source with the change in it. Raises AddressError."""
        if ":" not in where:
            if (n := source.count(self.old)) != 1:
                raise AddressError(f"{where}: {self.old}: {n} times. Expected once.")
            return source.replace(self.old, self.new)
        scope = _scope(source, where)
        places = [
            place
            for place in _runs(scope, 1)
            if not isinstance(place.parent, ast.JoinedStr)
            for _ in range(self._count(place.nodes[0]))
        ]
        place = _only(places, f"{where}: {self.old}")
        return _edited(source, scope, place, [self._changed(place.nodes[0])])

    def _count(self, node: ast.AST) -> int:
        match node:
            case ast.Constant(value=str(text)):
                return text.count(self.old)
            case ast.JoinedStr():
                return _text(node).count(self.old.replace("{}", _IN_BRACES))
        return 0

    def _changed(self, node: ast.AST) -> ast.expr:
        if isinstance(node, ast.Constant):
            return ast.Constant(str(node.value).replace(self.old, self.new))
        assert isinstance(node, ast.JoinedStr)
        old, new = (text.replace("{}", _IN_BRACES) for text in (self.old, self.new))
        before, after = _text(node).split(old)
        values = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        n, n_old = before.count(_IN_BRACES), old.count(_IN_BRACES)
        values[n : n + n_old] = values[n : n + new.count(_IN_BRACES)]
        parts: list[ast.expr] = []
        for text in re.split(f"({_IN_BRACES})", before + new + after):
            parts += [values.pop(0) if text == _IN_BRACES else ast.Constant(text)]
        return ast.JoinedStr(parts)


def _text(node: ast.JoinedStr) -> str:
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else _IN_BRACES
        for part in node.values
    )


# Where


def file_of(where: str) -> Path:
    """Return the file of an address, from the root of the repository."""
    module, colon, _ = where.partition(":")
    return Path("elo_exp", f"{module}.py") if colon else Path(where)


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _scope(source: str, where: str) -> ast.AST:
    """Find what a qualified name means, a definition or an assignment, and put it into a module of its own."""
    scope: Any = _parsed(source)
    for name in where.partition(":")[2].split("."):
        nodes = [node for node in _defined(scope) if name in _names(node)]
        if len(nodes) != 1:
            raise AddressError(f"{where}: {name} is defined {len(nodes)} times there.")
        (scope,) = nodes
    return ast.Module([scope], [])


def _defined(scope: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(scope):
        if _names(node):
            yield node
        else:
            yield from _defined(node)


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


# What matches


class _Place(NamedTuple):
    """Nodes that follow each other in a field of a parent, and what letters stand for if they match."""

    parent: ast.AST
    field: str
    start: int
    nodes: list[ast.AST]
    letters: Letters

    @property
    def line(self) -> int:
        return max(getattr(node, "lineno", 0) for node in (self.parent, *self.nodes))


def _patterns(*texts: str) -> list[list[ast.AST]]:
    """Parse patterns as the first kind that all of them can be."""
    kinds = (
        ("({})", lambda tree: [tree.body[0].value]),
        ("[0 {}]", lambda tree: tree.body[0].value.generators),
        ("try: pass\n{}", lambda tree: tree.body[0].handlers),
        ("{}", lambda tree: tree.body),
    )
    for form, part in kinds:
        try:
            trees = [ast.parse(form.format(text)) for text in texts]
        except SyntaxError:
            continue
        for node in (node for tree in trees for node in ast.walk(tree)):
            match node:
                case ast.If(body=[rest], orelse=[]) if _is_rest(rest):
                    node.orelse = [rest]
        return [part(tree) for tree in trees]
    raise AddressError(f"{' and '.join(texts)}: no patterns of one kind.")


def _runs(node: ast.AST, n: int) -> Iterator[_Place]:
    """All places below a node that have n nodes."""
    for field, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for start in range(len(children) - n + 1):
            run = children[start : start + n]
            if all(isinstance(child, ast.AST) for child in run):
                yield _Place(node, field, start, run, {})
        for child in children:
            if isinstance(child, ast.AST):
                yield from _runs(child, n)


def _places(
    scope: ast.AST, pattern: Sequence[ast.AST], letters: Letters
) -> list[_Place]:
    """All places that match, each in the first way in which it does."""
    ways = (
        (place, next(_ways(pattern, place.nodes, letters), None))
        for place in _runs(scope, len(pattern))
    )
    return [place._replace(letters=way) for place, way in ways if way is not None]


def _only(places: Sequence[_Place], what: str) -> _Place:
    if len(places) != 1:
        lines = ", ".join(str(place.line) for place in places)
        there = f"{len(places)} times, on lines {lines}" if places else "not there"
        raise AddressError(f"{what}: {there}. Expected once.")
    return places[0]


def _ways(pattern: Any, node: Any, letters: Letters) -> Iterator[Letters]:
    """All that letters can stand for where a part of a pattern matches a node, a list of nodes or a name."""
    match pattern:
        case ast.Name(id=str(letter)) | str(letter) if _LETTER.fullmatch(letter):
            node = ast.Name(node) if isinstance(node, str) else node
            if isinstance(node, ast.expr) and _same(letters.get(letter, node), node):
                yield {**letters, letter: node}
        case ast.Constant():
            if _same(pattern, node):
                yield letters
        case ast.AST() if type(pattern) is type(node):
            yield from _ways(_parts(pattern), _parts(node), letters)
        case [first, *others] if _is_rest(first) and isinstance(node, list):
            for n in range(len(node) + 1):
                rest = {f"...{len(letters)}": node[:n]}
                yield from _ways(others, node[n:], {**letters, **rest})
        case [first, *others] if isinstance(node, list) and node:
            for way in _ways(first, node[0], letters):
                yield from _ways(others, node[1:], way)
        case _ if not isinstance(pattern, ast.AST) and pattern == node:
            yield letters


def _parts(node: ast.AST) -> list[Any]:
    return [value for name, value in ast.iter_fields(node) if name != "ctx"]


def _same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, ast.AST):
        return _same(_parts(left), _parts(right))
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _is_rest(node: Any) -> bool:
    match node:
        case ast.Expr(value=value) | ast.keyword(arg=None, value=value):
            return _is_rest(value)
    return isinstance(node, ast.Constant) and node.value is ...


def _filled(pattern: Any, letters: Letters, rests: Iterator[list[ast.AST]]) -> Any:
    """Put into a pattern what its letters stand for."""
    match pattern:
        case ast.Name(id=str(letter)) if _LETTER.fullmatch(letter):
            return letters[letter]
        case str(letter) if _LETTER.fullmatch(letter):
            return letters[letter].id
        case list():
            nodes: list[Any] = []
            for part in pattern:
                is_rest = _is_rest(part)
                nodes += next(rests) if is_rest else [_filled(part, letters, rests)]
            return nodes
        case ast.AST() if not isinstance(pattern, ast.Constant):
            return _with_fields(pattern, lambda part: _filled(part, letters, rests))
    return pattern


def _with_fields(node: ast.AST, made: Callable[[Any], Any]) -> ast.AST:
    fields = {name: made(value) for name, value in ast.iter_fields(node)}
    return type(node)(**fields)


# What is written


class _Edit(NamedTuple):
    """Nodes that follow each other, and what is written in their place."""

    old: list[Any]
    new: list[ast.AST]

    def written(self, source: bytes) -> bytes:
        """Return a source with it: an expression in brackets, statements with the indent of the first."""
        first, last = self.old[0], self.old[-1]
        start = _offset(source, first.lineno, first.col_offset)
        end = _offset(source, last.end_lineno, last.end_col_offset)
        if source[start:].startswith(b"elif"):
            raise AddressError(f"line {first.lineno}: an elif cannot be replaced.")
        for node in self.new:
            ast.fix_missing_locations(node)
        text = f"({ast.unparse(self.new[0])})"
        if isinstance(first, ast.stmt):
            lines = "\n".join(map(ast.unparse, self.new)).splitlines()
            text = ("\n" + " " * first.col_offset).join(lines)
        return source[:start] + text.encode() + source[end:]


def _edited(source: str, scope: ast.AST, place: _Place, new: list[ast.AST]) -> str:
    """Write anew what differs, and nothing beside it."""
    edits = _edits(scope, _replaced(scope, place, new))
    if not edits:
        raise AddressError(f"line {place.line}: nothing to be written differs.")
    text = source.encode()
    for edit in sorted(edits, key=lambda edit: _start(edit.old[0]), reverse=True):
        text = edit.written(text)
    return text.decode()


def _start(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _offset(source: bytes, line: int, column: int) -> int:
    return sum(map(len, source.splitlines(keepends=True)[: line - 1])) + column


def _replaced(node: Any, place: _Place, new: list[ast.AST]) -> Any:
    """Copy a tree, with other nodes at a place."""
    if isinstance(node, list):
        return [_replaced(child, place, new) for child in node]
    if not isinstance(node, ast.AST):
        return node
    copy = _with_fields(node, lambda value: _replaced(value, place, new))
    if node is place.parent:
        nodes = getattr(copy, place.field)
        if isinstance(nodes, list):
            nodes[place.start : place.start + len(place.nodes)] = new
        else:
            setattr(copy, place.field, new[0])
    return copy


def _edits(old: Any, new: Any) -> list[_Edit] | None:
    """The smallest edits that make one tree of another; None where what differs cannot be written by itself."""
    if _same(old, new):
        return []
    edits = None
    if isinstance(old, list) and isinstance(new, list):
        edits = _edits_of_lists(old, new)
    elif type(old) is type(new) and _is_divided(old):
        edits = _edits_of_lists(_parts(old), _parts(new))
    is_whole = any(
        isinstance(old, kind) and isinstance(new, kind) for kind in (ast.stmt, ast.expr)
    )
    if edits is None and is_whole and not isinstance(old, _PARTS):
        return None if isinstance(new, _PARTS) else [_Edit([old], [new])]
    return edits


def _is_divided(node: Any) -> bool:
    return isinstance(node, ast.AST) and not isinstance(node, ast.JoinedStr)


def _edits_of_lists(old: list[Any], new: list[Any]) -> list[_Edit] | None:
    if len(old) != len(new):
        return _edits_of_run(old, new)
    edits: list[_Edit] = []
    for left, right in zip(old, new, strict=True):
        part = _edits(left, right)
        if part is None:
            return None
        edits += part
    return edits


def _edits_of_run(old: list[Any], new: list[Any]) -> list[_Edit] | None:
    """The edit of the statements between those that are the same at both ends."""
    if not (old and new and isinstance(old[0], ast.stmt)):
        return None
    n = min(len(old), len(new)) - 1
    start = next((i for i in range(n) if not _same(old[i], new[i])), n)
    n -= start
    end = next((i for i in range(n) if not _same(old[-1 - i], new[-1 - i])), n)
    return [_Edit(old[start : len(old) - end], new[start : len(new) - end])]
