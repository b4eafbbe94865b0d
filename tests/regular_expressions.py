"""Every regular expression of the package, and the strings on which one that backtracks takes longest.

`expressions()` reads them from the source, so that a new one is among them. What no source line holds as a constant is
in `CALLS`: functions that build a pattern, with an example of what they are given.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import elo_exp
from elo_exp.analysis.families import find_family
from elo_exp.data import thoughts
from elo_exp.data.formats import judge_arena
from elo_exp.data.writing_style import count_style
from elo_exp.masking import Mask
from elo_exp.records import JudgeReply
from tests.data import COMPARISON
from tests.paying import RUBRIC

PACKAGE = Path(elo_exp.__file__).parent
METHODS = ("search", "match", "fullmatch", "findall", "finditer", "sub", "split")
FLAGS = {
    "re.ASCII": re.ASCII,
    "re.DOTALL": re.DOTALL,
    "re.I": re.IGNORECASE,
    "re.IGNORECASE": re.IGNORECASE,
    "re.M": re.MULTILINE,
    "re.MULTILINE": re.MULTILINE,
}
COMMON_PIECES = (
    *" \n\ta0A._-\"'\\<{[(`,:/*#$",
    *("a ", "a.", "0.", " \n", "1. ", "- ", "**", "__", "# ", "``", "<think>", ".a"),
)


@dataclass(frozen=True)
class Expression:
    """A call that applies a pattern to a text, and the pieces of which its worst texts may consist."""

    name: str
    apply: Callable[[str], object]
    pieces: tuple[str, ...]

    def seconds(self, text: str) -> float:
        start = time.process_time()
        self.apply(text)
        return time.process_time() - start

    def worst_text(self, n_chars: int) -> Callable[[int], str]:
        """Return the maker of the texts, by length, that take longest: a beginning, a piece repeated, and an end."""

        def maker(first: str, piece: str) -> Callable[[int], str]:
            return lambda n: first + piece * (n // len(piece)) + "\x01"

        firsts = ("", *sorted({*self.pieces}.difference(COMMON_PIECES)), "<", " ")
        makers = [maker(first, piece) for first in firsts for piece in self.pieces]
        return max(makers, key=lambda make: self.seconds(make(n_chars)))


# What the source does not hold as constants


def _shown_to_a_judge(text: str) -> object:
    return RUBRIC.request(replace(COMPARISON, response_a=text), judge="judge")


def _reply(text: str) -> object:
    request = RUBRIC.request(COMPARISON, judge="judge")
    reply = JudgeReply(key=request.key, text=text)
    return RUBRIC.parse(request, reply, judge_model="judge")


def _original_reply(text: str) -> object:
    orders = [{"model_A": "a", "model_B": "b", "judge_completion": text}]
    return judge_arena.fields({"orders": orders})


def _thought(text: str) -> object:
    thoughts.OPEN_AT_START.match(text)
    thoughts.OPEN_AT_END.search(text)
    return thoughts.split_thought(text)


def _family(text: str) -> object:
    return find_family({"a.b": "one", "aa": "two"}, text)


_MASK = Mask((("it's 'a secret'", "MY_SECRET"),))
CALLS: Mapping[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "data/rubrics.py: a text that a judge is shown": (
        _shown_to_a_judge,
        ("response_a", "/"),
    ),
    "data/rubrics.py: a reply": (
        _reply,
        ("VERDICT:", "VERDICT: A", '{"a":[', '{"a": "', '{"a":x'),
    ),
    "data/formats/judge_arena.py": (_original_reply, ("score", "score a", "score_a: ")),
    "masking.py": (_MASK.text, ("a 'secret'", "a secret", "%27")),
    "data/thoughts.py": (_thought, ("</think>", "[THINK]", "<|channel|>")),
    "data/writing_style.py": (count_style, ("```", "1.", "\n-")),
    "analysis/families.py": (_family, ("aa", "llama", "openai-")),
}
# Patterns that are built of our own words: names of tables, settings and of errors of a library
BUILT = {
    *(name.partition(":")[0] for name in CALLS),
    "launching/composing.py",
    "launching/error_messages.py",
    "models/checkpoints.py",
    "store/postgres_schema.py",
    "launching/setting_names.py",
    "launching/shorthand.py",
}


def expressions() -> Iterator[Expression]:
    """Yield each pattern of the source with each method that the package calls it with, then `CALLS`."""
    sources = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    whole = "\n".join(sources.values())
    for path, source in sources.items():
        tree = ast.parse(source)
        constants = {
            call: target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(call := node.value, ast.Call) and isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and _is_of_re(node.func)):
                continue
            place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
            try:
                text = ast.literal_eval(node.args[0])
            except ValueError:
                assert str(path.relative_to(PACKAGE)) in BUILT, (
                    f"{place}: add a function that applies this pattern to CALLS"
                )
                continue
            flags = 0
            for argument in [*node.args[1:], *(k.value for k in node.keywords)]:
                for word in ast.unparse(argument).split(" | "):
                    flags |= FLAGS.get(word, 0)
            assert isinstance(node.func, ast.Attribute)
            methods = [node.func.attr]
            if methods == ["compile"]:
                name = constants.get(node, "flag")
                methods = sorted(
                    set(re.findall(rf"\b{name}\.({'|'.join(METHODS)})\(", whole))
                )
            for method in methods:
                yield Expression(
                    place, _applied(re.compile(text, flags), method), _pieces(text)
                )
    for name, (call, pieces) in CALLS.items():
        yield Expression(name, call, (*COMMON_PIECES, *pieces))


def _is_of_re(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in (*METHODS, "compile")
    )


def _applied(pattern: re.Pattern[Any], method: str) -> Callable[[str], object]:
    def apply(text: str) -> object:
        subject = text.encode() if isinstance(pattern.pattern, bytes) else text
        if method in ("search", "finditer"):
            return sum(1 for _ in pattern.finditer(subject))
        return getattr(pattern, method)(
            *([subject[:0]] if method == "sub" else []), subject
        )

    return apply


def _pieces(pattern: str | bytes) -> tuple[str, ...]:
    """Return the pieces of a pattern's own words and signs, and those that suit most patterns."""
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    text = re.sub(r"\\[a-zA-Z]", " ", text)
    own = {*re.findall(r"[\w<>/`:.-]{2,}", text), *text}
    return tuple(sorted({*own, *COMMON_PIECES}))
