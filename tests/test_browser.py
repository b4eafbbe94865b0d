"""The tournament's page in a real browser, opened from its file as a reader does."""

from __future__ import annotations

import itertools
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from elo_exp.data import labels
from elo_exp.data.labels import Key
from elo_exp.files import read_jsonl, write_jsonl
from elo_exp.records import Comparison, Judgment
from elo_exp.runs.reading import read_runs
from tests.commands import run
from tests.test_tournament_page import HOSTILE, page, rated, simulated
from tests.test_viewer import judged

pytestmark = pytest.mark.system

api: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright")
RUN = "<img src=x onerror=alert(1)><script>alert(1)</script>"
NAMES = (*HOSTILE, "a~b/c")
LOCAL = ("tracker=local", "figures=false", "elo.n_perms=2")
LETTERS = [("A", "B"), ("B", "A"), ("TIE", "TIE"), ("A", "A"), ("A", "INVALID")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    with api.sync_playwright() as playwright:
        try:
            # A container's root may have no sandbox.
            started = playwright.chromium.launch(
                executable_path=found, args=["--no-sandbox"]
            )
        except api.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield started
        started.close()


class Tab:
    """A page of a browser, and what it complained of."""

    def __init__(self, browser: Any, path: Path, address: str = "", **how: Any) -> None:
        how = {"viewport": {"width": 1440, "height": 900}} | how
        self.page = browser.new_context(**how).new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda some: self.complaints.append(some.message))
        self.page.on("console", lambda some: self.complaints.append(some.text))
        self.page.goto(f"{path.as_uri()}{address}")

    def text(self, where: str) -> str:
        return " ".join(self.page.locator(where).inner_text().split())

    def counted(self) -> int:
        """Comparisons that the viewer lists."""
        self.page.locator("#viewer[open]").wait_for()
        found = re.match(r"(\d+) of \d+ comparisons", self.text("#count"))
        assert found
        return int(found[1])


def write(folder: Path, pairs: list[tuple[Comparison, Judgment]]) -> Path:
    some = rated(simulated(NAMES, n_prompts=25), NAMES, "bradley_terry")
    comparisons, judgments = zip(*pairs, strict=True)
    texts = {"d": comparisons}, {"d": judgments}
    text = page(some, [], [], *texts, title=RUN, judge_model=RUN).text
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five comparisons of every pair of entrants with hostile names, prompts, answers and reasons."""
    pairs = [
        judged(f"q{q}/{RUN}", *LETTERS[q], text=f"{RUN} {q}", entrants=pair)
        for q in range(len(LETTERS))
        for pair in itertools.combinations(NAMES, 2)
    ]
    return write(tmp_path_factory.mktemp("page"), pairs)


def test_hostile_names_and_texts_are_shown_and_not_run(browser: Any, report: Path):
    tab = Tab(browser, report)
    assert tab.page.locator("img").count() == 0
    assert RUN in tab.page.title()
    shown = tab.page.locator("table.board tbody bdi").all_inner_texts()
    assert sorted(shown) == sorted(NAMES)
    tab.page.get_by_role("link", name="Read all 50 comparisons").click()
    assert tab.counted() == 50
    assert RUN in tab.text("#one h3 >> nth=0")
    assert f"{RUN} 0 of" in tab.text("#one .answer >> nth=0")
    assert f"because {RUN} 0" in tab.text("#one ol")
    assert tab.page.locator("img").count() == 0
    assert tab.complaints == []


MARKDOWN = f"""# A heading {RUN}

**Bold** and `code` and [a link](javascript:alert(1)).

- one
- two

```
if x < 1:
    {RUN}
```

| a | b |
|---|---|
| 1 | {RUN} |
"""


def test_the_viewer_shows_markdown_and_runs_nothing_of_it(browser: Any, tmp_path: Path):
    """The verdict and its reason stand above the answers."""
    pair = judged("q1", *LETTERS[0], text=MARKDOWN, entrants=NAMES[:2])
    tab = Tab(browser, write(tmp_path, [pair]), "#?")
    assert tab.counted() == 1
    answer = tab.page.locator("#one .answer").first
    counts = {
        tag: answer.locator(tag).count()
        for tag in ("h5", "b", "li", "pre", "td", "a", "img", "script")
    }
    assert counts == {
        **{"h5": 1, "b": 1, "li": 2, "pre": 1, "td": 2},
        **{"a": 0, "img": 0, "script": 0},
    }
    assert f"    {RUN}" in answer.locator("pre").inner_text()
    assert "[a link](javascript:alert(1))" in answer.inner_text()
    texts = tab.text("#one")
    assert texts.index("Verdict: ") < texts.index("because") < texts.index("Bold and")
    assert tab.complaints == []


def test_filters_search_and_keys(browser: Any, report: Path):
    tab = Tab(browser, report, "#?outcome=flipped")
    assert tab.counted() == 10
    form = tab.page.locator("#filters")
    form.locator("[name=outcome]").select_option("")
    form.locator("[name=pair]").select_option(index=1)
    assert tab.counted() == 5
    assert "medqa: " in tab.text("#tally")
    form.locator("[name=pair]").select_option("")
    form.locator("[name=search]").fill("SCRIPT> 3")
    assert tab.counted() == 10
    form.locator("[name=search]").fill("")
    tab.page.locator("#one").focus()

    def chosen(*keys: str) -> int:
        for key in keys:
            tab.page.keyboard.press(key)
        buttons = tab.page.locator("#list button").all()
        marks = [button.get_attribute("aria-current") for button in buttons]
        return marks.index("true")

    assert chosen() == 0
    assert chosen("j", "j", "ArrowDown") == 3
    assert chosen("k", "ArrowUp") == 1
    tab.page.keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.name") == "search"
    tab.page.keyboard.press("Escape")
    if tab.page.locator("#viewer[open]").count():  # a search box takes the first
        tab.page.keyboard.press("Escape")
    tab.page.wait_for_function("location.hash === '#verdicts'")
    assert tab.page.locator("#viewer[open]").count() == 0
    assert tab.complaints == []


@pytest.mark.parametrize("order", [1, -1])
def test_an_address_leads_to_a_pair_or_to_a_comparison(
    browser: Any, report: Path, order: int
):
    """In either order of the pair, which the cells of a matrix and its mirror name."""
    pair = "~".join((HOSTILE[0], "a~b/c")[::order])
    tab = Tab(browser, report, "#?" + urlencode({"dimension": "d", "pair": pair}))
    assert tab.counted() == 5
    place = "/".join(quote(name, safe="") for name in (f"q2/{RUN}", pair, "d"))
    tab = Tab(browser, report, f"#{place}")
    assert tab.counted() == 1
    assert tab.text("#one h4 >> nth=0") == "Verdict: tie"
    assert tab.page.url.count("/") == f"{report.as_uri()}#{place}".count("/")
    assert tab.complaints == []


def test_a_cell_of_the_matrix_leads_to_its_verdicts(browser: Any, report: Path):
    tab = Tab(browser, report)
    tab.page.locator(".matrix a").first.click()
    assert tab.counted() == 5


def test_a_heading_sorts_the_leaderboard(browser: Any, report: Path):
    tab = Tab(browser, report)

    def names() -> list[str]:
        return tab.page.locator("table.board tbody bdi").all_inner_texts()

    tab.page.get_by_role("button", name="Entrant").click()
    assert names() == sorted(NAMES)
    tab.page.get_by_role("button", name="Entrant").click()
    assert names() == sorted(NAMES, reverse=True)


@pytest.mark.parametrize("address", ["", "#?"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_sideways_scrolling(
    browser: Any, report: Path, scheme: str, address: str
):
    phone = {"width": 390, "height": 800}
    tab = Tab(browser, report, address, viewport=phone, color_scheme=scheme)
    if address:
        tab.counted()
    width = "document.documentElement.scrollWidth"
    assert tab.page.evaluate(width) == 390
    paper = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", paper)[0])
    assert red < 60 if scheme == "dark" else red > 200
    assert tab.complaints == []


def test_print_shows_what_is_folded_away_and_no_controls(browser: Any, report: Path):
    tab = Tab(browser, report)
    tab.page.emulate_media(media="print")
    tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.page.locator("main details:not([open])").count() == 0
    assert not tab.page.locator("nav").is_visible()


def test_without_scripts_the_verdicts_worth_reading_stay(browser: Any, report: Path):
    tab = Tab(browser, report, java_script_enabled=False)
    assert "enable JavaScript" in tab.text("#verdicts")
    assert tab.page.locator("details.notable").count() == 3


def test_headings_are_in_order_and_tables_have_headers(browser: Any, report: Path):
    tab = Tab(browser, report)
    levels = tab.page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map((some) => +some.tagName[1])"
    )
    steps = [after - before for before, after in itertools.pairwise(levels)]
    assert levels[0] == 1 and max(steps) == 1
    assert tab.page.locator("th:not([scope])").count() == 0
    unnamed = "[role=region]:not([aria-label]), svg:not([role=img] svg)"
    assert tab.page.locator(unnamed).count() == 0


# The page that people label on


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and its page of thirty comparisons, of answers with hostile texts."""
    folder = tmp_path_factory.mktemp("label")
    for name in ("one", "two"):
        rows = [
            {"question": f"Why {q}? {RUN}", "answer": f"{name[0]}{q} {RUN}</script>"}
            for q in range(30)
        ]
        write_jsonl(folder / f"{name}.jsonl", rows)
    asked = ("judge=lexical", "hydra.run.dir=first", "name=mine")
    run("one.jsonl", "two.jsonl", *asked, *LOCAL, folder=folder)
    run("experiment=label", "run=first", folder=folder)
    return folder


class Sheet(Tab):
    """The page of labels in a browser that keeps what it is told to."""

    def __init__(self, browser: Any, folder: Path, **how: Any) -> None:
        self.folder = folder
        super().__init__(browser, folder / "first/labels/label.html", **how)

    def press(self, keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def exported(self) -> list[dict[str, Any]]:
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name="Export labels").click()
        assert download.value.suggested_filename == "labels.jsonl"
        path = self.folder / "anna.jsonl"
        download.value.save_as(path)
        return [row for _, row in read_jsonl(path)]


def test_label_twenty_by_keyboard_reload_export_and_read_back(
    browser: Any, labelled: Path
):
    """Offline; an undone label is given anew, and a held key counts once."""
    sheet = Sheet(browser, labelled, offline=True)
    asked: list[str] = []
    sheet.page.on("request", lambda request: asked.append(request.url))
    first = sheet.text("#answer1")
    assert sheet.text("main").startswith(sheet.text("#prompt"))
    assert sheet.text("#count") == "0 of 30"
    sheet.press("120xs12012")
    assert sheet.text("#count") == "10 of 30"
    sheet.press("uu")
    assert sheet.text("#count") == "8 of 30"
    sheet.press("x0")
    sheet.page.keyboard.down("1")
    sheet.page.keyboard.down("1")  # which repeats
    sheet.page.keyboard.up("1")
    assert sheet.text("#count") == "11 of 30"
    sheet.page.reload()
    assert sheet.text("#count") == "11 of 30"
    assert sheet.text("#answer1") != first
    sheet.press("2012X0s12")
    assert sheet.text("#count") == "20 of 30"
    rows = sheet.exported()
    words = {"1": "1", "2": "2", "0": "tie", "x": "both bad", "s": "skip"}
    assert [row["choice"] for row in rows] == [words[k] for k in "120xs120x012012x0s12"]
    assert all(row["seconds"] >= 0 for row in rows)
    assert asked == [sheet.page.url]
    assert sheet.complaints == []

    key = Key.read(labelled / "first/labels/key.json")
    (finished,) = read_runs([str(labelled / "first")])[0]
    known = key.comparisons_by_id(finished.comparisons())
    again = labels.read_labels([labelled / "anna.jsonl"], key, known)
    assert [label.to_dict() for _, label, _ in again] == rows
    shown = again[0][2]
    assert " ".join(shown.response_a.split()) == first
    votes = labels.votes_from_labels(again)
    assert [vote.winner for vote in votes][:3] == ["model_a", "model_b", "tie"]
    assert len(votes) == 18


def test_labels_to_the_end_are_exported_and_read_by_the_command(
    browser: Any, labelled: Path
):
    sheet = Sheet(browser, labelled)
    sheet.press("12012" * 6)
    assert sheet.text("#count") == "30 of 30"
    assert "All comparisons are labelled" in sheet.text("#done")
    sheet.press("1")  # there is nothing left to label
    assert len(sheet.exported()) == 30
    ran = run("experiment=label", "run=first", "labels=[anna.jsonl]", *LOCAL, folder=labelled)  # fmt: skip
    assert len(ran.rows("battles.jsonl")) == 30
    tab = Tab(browser, ran.run_dir / "report.html")
    assert "Labelled run: first, judged by lexical" in tab.text("header")
    assert tab.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_label_page_without_sideways_scrolling(
    browser: Any, labelled: Path, scheme: str
):
    phone = {"width": 390, "height": 800}
    sheet = Sheet(browser, labelled, viewport=phone, color_scheme=scheme)
    assert sheet.page.evaluate("document.documentElement.scrollWidth") == 390
    sheet.page.get_by_role("button", name="Answer 2").click()
    sheet.page.get_by_role("button", name="equally good").click()
    assert sheet.text("#count") == "2 of 30"
    sheet.page.get_by_role("button", name="undo").click()
    assert sheet.text("#count") == "1 of 30"
    assert sheet.page.locator("img").count() == 0
    assert sheet.complaints == []


def test_a_browser_that_keeps_no_labels_says_so(browser: Any, labelled: Path):
    sheet = Sheet(browser, labelled)
    assert not sheet.page.locator("#notice").is_visible()
    sheet.page.evaluate(
        "void (Storage.prototype.setItem = () => { throw new Error('full'); })"
    )
    sheet.press("1")
    assert "does not keep your labels: export them" in sheet.text("#notice")


@pytest.mark.slow
def test_a_hundred_thousand_verdicts_open(browser: Any, tmp_path: Path):
    """Of long texts not all fit: the page says so, and can still be filtered and searched."""
    draw = random.Random(1)
    words = ["".join(draw.choices(ascii_lowercase, k=6)) for _ in range(3000)]
    pairs = [
        judged(
            f"q{q}",
            *LETTERS[q % 29 % 5],
            text=" ".join(draw.choices(words, k=200)),
            entrants=pair,
        )
        for q in range(5000)
        for pair in itertools.combinations(NAMES, 2)
    ]
    path = write(tmp_path, pairs)
    assert path.stat().st_size < 25e6
    tab = Tab(browser, path, "#?outcome=flipped")
    n = tab.counted()
    assert 5000 < n < 20_000
    assert "the texts of only" in path.read_text(encoding="utf-8")
    tab.page.locator("[name=search]").fill("q4324")
    tab.page.wait_for_function("document.querySelector('#count').textContent[0] < 3")
    assert tab.counted() == 10
    assert tab.complaints == []
