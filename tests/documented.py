"""What the pages show: their code blocks, and the commands in them and in the running text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from elo_exp.paths import HOME

PAGES = [
    *("README.md", "CONTRIBUTING.md", "prompts/README.md", "notebooks/README.md"),
    *sorted(
        path.relative_to(HOME).as_posix() for path in (HOME / "docs").rglob("*.md")
    ),
]
_PROGRAMS = (
    r"(?:python|elo-exp|make|pip|export|sbatch|jupyter|mkdocs|trackio|\.venv/bin/\S+)"
)
_CODE = re.compile(
    r"^```(\w*)\n(.*?)^```$|((?:^    [^\n]*\n)+)", re.MULTILINE | re.DOTALL
)
_SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Block:
    """A code block; `kind` is the word behind its fence, `file` the last file named before it."""

    page: str
    kind: str
    text: str
    file: str | None


@dataclass(frozen=True)
class Command:
    """A command as it is shown, on one line and without the comment behind it."""

    page: str
    line: str

    def __str__(self) -> str:
        return f"{self.page}: {self.line}"


def read(page: str) -> str:
    return (HOME / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """The code blocks of a page, in order."""
    text = read(page)
    found = []
    for match in _CODE.finditer(text):
        spans = _SPAN.findall(_CODE.sub("", text[: match.start()]))
        files = [span for span in spans if re.fullmatch(r"[\w./-]+\.\w+", span)]
        found.append(
            Block(page, match[1] or "", match[2] or match[3], (files or [None])[-1])
        )
    return found


def commands(page: str) -> list[Command]:
    """The commands of a page's blocks and of its running text, each once."""
    shown = [
        line
        for block in blocks(page)
        if not block.kind
        for line in in_block(block.text)
    ]
    spans = (
        " ".join(span.split()) for span in _SPAN.findall(_CODE.sub("", read(page)))
    )
    return [
        Command(page, line)
        for line in dict.fromkeys([*shown, *filter(_is_command, spans)])
    ]


def in_block(text: str) -> Iterator[str]:
    """The commands of a block: a wrapped one on one line, two joined by && as two."""
    for line in text.replace("\\\n", " ").splitlines():
        one = line.startswith("sbatch")
        for part in [line] if one else re.sub(r"\s#\s.*", "", line).split("&&"):
            if _is_command(command := " ".join(part.split())):
                yield command


def _is_command(text: str) -> bool:
    return text == ".ci/run" or re.match(rf"{_PROGRAMS} \S", text) is not None


def tutorial(page: str) -> list[Block]:
    """The blocks of a tutorial, without the commands whose output it does not show."""
    every = blocks(page)
    shows_output = [following.kind == "text" for following in every[1:]] + [False]
    return [
        block
        for block, shown in zip(every, shows_output, strict=True)
        if block.kind or shown
    ]


TUTORIALS = [
    "README.md",
    "docs/quickstart.md",
    *(
        f"docs/tutorials/{name}.md"
        for name in ("tournament", "rate", "arena", "oracle")
    ),
]
# Their judge is asked, so that test_own_page.py and test_agents_page.py give their commands
OWN, AGENTS = "docs/own.md", "docs/tutorials/agents.md"
IN_TUTORIALS = {
    line
    for page in (*TUTORIALS, OWN, AGENTS)
    for block in tutorial(page)
    for line in in_block(block.text)
}
"""The commands whose output a tutorial shows, and those before them."""
