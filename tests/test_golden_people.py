"""What people are shown and what their labels conclude, on page and console, as they were last agreed on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import golden
from tests.commands import run
from tests.test_people import LOCAL, label, make, read_back


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tournament of the probes, and the pages of two annotators, who mostly prefer the hedged one."""
    folder = tmp_path_factory.mktemp("people")
    run(*LOCAL, "rubric=[factuality]", "hydra.run.dir=first", folder=folder)
    (folder / "first/labels").mkdir()
    key = '{"key": "' + "ab" * 32 + '"}'
    (folder / "first/labels/key.json").write_text(key, encoding="utf-8")
    return folder


@pytest.mark.system
def test_the_page_that_people_label(folder: Path):
    out = make(folder, "label.n=30")
    golden.same("label.txt", out.replace(str(folder), "FOLDER"))
    page = (folder / "first/labels/label.html").read_text(encoding="utf-8")
    golden.same("label.html", page)


def test_what_the_labels_of_two_conclude(folder: Path):
    make(folder, "label.annotators=2", "label.n=160")
    label(folder, "anna", page="label_1.html", seed=1, noise=0.05)
    label(folder, "ben", page="label_2.html", seed=2, noise=0.05)
    ran = read_back(folder, "anna", "ben")
    text, _, _ = ran.out.partition("\nfiles ")
    golden.same("people.txt", text)
    page = (ran.run_dir / "report.html").read_text(encoding="utf-8")
    page = re.sub(r"(label|run)_DATE\w*|label_[\d_-]+\w*", "label_DATE", page)
    golden.same("people.html", page.replace(str(folder), "FOLDER"))
