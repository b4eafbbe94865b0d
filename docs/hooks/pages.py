"""The pages of the site that do not lie in docs/: Markdown files of other folders, and the configuration reference.

Links between files are written as they hold in the repository, and turned here into links between pages.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
ELSEWHERE = {  # a file of the repository -> its page
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "prompts/README.md": "prompts.md",
    "notebooks/README.md": "notebooks.md",
    "examples/README.md": "example_files.md",
}
GENERATED = {
    "reference/settings.md": reference.settings_page,
    "reference/options.md": reference.options_page,
}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")

logger = logging.getLogger("mkdocs.pages")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in ELSEWHERE.items():
        files.append(
            File.generated(
                config, page, content=(ROOT / source).read_text(encoding="utf-8")
            )
        )
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        page, content = f"notebooks/{notebook.name}", notebook.read_bytes()
        files.append(File.generated(config, page, content=content))
    for page, make in GENERATED.items():
        files.append(File.generated(config, page, content=make()))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    here = page.file.src_uri
    if here in GENERATED:
        return markdown
    source = next(
        (file for file, uri in ELSEWHERE.items() if uri == here), f"docs/{here}"
    )

    def to_page(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        if not (ROOT / target).is_file():
            logger.warning("%s links to %s, which is not there", source, link[1])
        uri = ELSEWHERE.get(target) or target.removeprefix("docs/")
        return posixpath.relpath(uri, posixpath.dirname(here) or ".")

    return _LINK.sub(to_page, markdown)
