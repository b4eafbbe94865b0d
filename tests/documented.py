"""What the pages show: their code blocks, and the commands in them and in the running text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from elo_exp import HOME

PAGES = [
    *(
        HOME / name
        for name in ("README.md", "CONTRIBUTING.md", "prompts/README.md", "notebooks/README.md")
    ),
    *sorted((HOME / "docs").rglob("*.md")),
]
_PROGRAMS = r"(?:python|elo-exp|make|pip|export|sbatch|jupytext|mkdocs|trackio|\.venv/bin/\S+)"
_CODE = re.compile(r"^```(\w*)\n(.*?)^```$|((?:^    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Block:
    """A code block. `kind` is the word behind its fence; `file` the last name of a file before it, in backticks."""

    page: str
    kind: str
    text: str
    file: str | None


@dataclass(frozen=True)
class Command:
    """As it is shown, a long one on one line, without the remark behind it."""

    page: str
    line: str

    def __str__(self) -> str:
        return f"{self.page}: {self.line}"


def blocks(page: str) -> list[Block]:
    """In order. `page` is a path from the root of the repository."""
    text = (HOME / page).read_text(encoding="utf-8")
    return [
        Block(page, found[1] or "", found[2] or found[3], _last_file(text[: found.start()]))
        for found in _CODE.finditer(text)
    ]


def shown(page: str) -> list[Block]:
    """The blocks of a tutorial without the commands whose output it does not show."""
    every = blocks(page)
    followed = [after.kind == "text" for after in every[1:]] + [False]
    return [
        block
        for block, is_followed in zip(every, followed, strict=True)
        if block.kind or is_followed
    ]


def _last_file(before: str) -> str | None:
    names = [
        span
        for span in _SPAN.findall(_CODE.sub("", before))
        if re.fullmatch(r"[\w./-]+\.\w+", span)
    ]
    return names[-1] if names else None


def commands(page: str) -> list[Command]:
    """Of the blocks and of the running text, each once."""
    text = (HOME / page).read_text(encoding="utf-8")
    shown = [line for block in blocks(page) if block.kind == "" for line in in_block(block.text)]
    spans = (" ".join(span.split()) for span in _SPAN.findall(_CODE.sub("", text)))
    return [Command(page, line) for line in dict.fromkeys([*shown, *filter(_is_command, spans)])]


def in_block(text: str) -> Iterator[str]:
    """The commands of a block: one that is wrapped on one line, two joined by && as two."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in (
            [line] if line.startswith("sbatch") else re.sub(r"\s#\s.*", "", line).split("&&")
        ):
            if _is_command(command := " ".join(part.split())):
                yield command


def _is_command(text: str) -> bool:
    return text == ".ci/run" or re.match(rf"{_PROGRAMS} \S", text) is not None


def relative(path: object) -> str:
    """From the root of the repository."""
    return str(path).removeprefix(f"{HOME}/")


TUTORIALS = [f"docs/tutorials/{name}.md" for name in ("tournament", "rate", "arena", "oracle")]
WALKED = {line for page in TUTORIALS for block in shown(page) for line in in_block(block.text)}
"""The commands whose output a tutorial shows, and those before them."""
