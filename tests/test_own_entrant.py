"""An entrant of your own: a class with one method. Each answer is stored before the next is made, a plan makes none, and
what a first try gets wrong is said in a line."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from elo_exp.entrants import Entrant, draws_of
from elo_exp.errors import EvidenceError, FileError, SettingError, UserError
from elo_exp.launching.composing import build
from elo_exp.pipeline import assume_responses, generate
from elo_exp.records import Prompt, Response, make_fingerprint
from elo_exp.store.answer_store import Store
from tests.data import prompt

PROMPTS = [prompt(number, f"Why {number}?") for number in range(3)]


@dataclass(kw_only=True)
class OwnEntrant(Entrant):
    """Answers as it is told."""

    answers: Callable[[Entrant, Sequence[Prompt]], Any]
    asked: list[int] = field(default_factory=list)

    entrant_id = "own"

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        self.asked.append(len(prompts))
        return self.answers(self, prompts)

    def cache_key(self, prompt: Prompt) -> dict[str, Any]:
        return prompt.content


def answered(entrant: Entrant, **settings: Any) -> dict[str, str]:
    with Store(Path("store.sqlite")) as store:
        options = {"allow_missing": False, **settings}
        responses = generate(PROMPTS, {"own": entrant}, store, **options)["own"]
    return {name: response.response_text for (name, _), response in responses.items()}


def count_stored() -> int:
    with Store(Path("store.sqlite")) as store:
        ((n,),) = store.query("SELECT count(*) FROM answers")
    return int(n)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shout(entrant: Entrant, prompts: Sequence[Prompt]) -> Iterator[Response]:
    for asked in prompts:
        yield entrant.respond(asked, asked.text.upper())


def test_answers_are_stored_and_not_made_again():
    entrant = OwnEntrant(answers=shout)
    expected = {"p0": "WHY 0?", "p1": "WHY 1?", "p2": "WHY 2?"}
    assert answered(entrant) == answered(entrant) == expected
    assert entrant.asked == [3]


def test_a_crash_loses_no_answer_and_none_is_made_twice():
    def crash(entrant: Entrant, prompts: Sequence[Prompt]) -> Iterator[Response]:
        yield from shout(entrant, prompts[:2])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answered(OwnEntrant(answers=crash))
    assert count_stored() == 2
    entrant = OwnEntrant(answers=shout)
    assert len(answered(entrant)) == 3
    assert entrant.asked == [1]


def test_a_plan_makes_none_of_its_answers():
    entrant = OwnEntrant(answers=shout)
    with Store(Path("store.sqlite")) as store:
        assumed = assume_responses(
            PROMPTS, {"own": entrant}, store, allow_missing=False
        )
    assert {len(response.response_text) for response in assumed["own"].values()} == {
        2000
    }
    assert entrant.asked == []


def test_it_has_one_answer_to_a_prompt_unless_it_varies():
    assert draws_of(OwnEntrant(answers=shout), 3) == 1


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        (lambda entrant, prompts: None, "it returned None."),
        (
            lambda entrant, prompts: (p.text for p in prompts),
            "it yielded 'Why 0?'.",
        ),
        (
            lambda entrant, prompts: (
                Response(entrant_id="other", prompt_id=p.prompt_id, response_text="")
                for p in prompts
            ),
            "it yielded an answer that it was not asked for.\n  The answer is of 'other' to 'p0', draw 0.",
        ),
    ],
)
def test_what_is_no_answer_is_refused_in_a_line(answers: Any, line: str):
    must = "OwnEntrant.generate must be a generator that yields self.respond(prompt, text) for each prompt; "
    with pytest.raises(SettingError) as error:
        answered(OwnEntrant(answers=answers))
    assert str(error.value) == must + line
    assert count_stored() == 0


def test_a_generator_that_yields_nothing_leaves_answers_missing():
    with pytest.raises(EvidenceError, match="3 of 3 responses are missing"):
        answered(OwnEntrant(answers=lambda entrant, prompts: iter(())))


def test_the_first_answers_are_looked_at():
    def say_nothing(entrant: Entrant, prompts: Sequence[Prompt]) -> Iterator[Response]:
        for asked in prompts:
            yield entrant.respond(asked, "")

    with pytest.raises(
        EvidenceError, match="All of the first 2 answers of entrant .* are empty"
    ):
        answered(OwnEntrant(answers=say_nothing), canary=2)


CLASS = """\
from dataclasses import dataclass

from elo_exp.entrants import Entrant


@dataclass(kw_only=True)
class Mine(Entrant):
    entrant_id: str
    ending: str

    def generate(self, prompts):
        for prompt in prompts:
            yield self.respond(prompt, prompt.text + self.ending)
"""


def built(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> Entrant:
    Path(f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(Path.cwd())
    settings = {"_target_": f"{name}.Mine", "ending": "!"}
    if "entrant_id: str" in source:
        settings["entrant_id"] = "mine"
    entrant = build(settings, "entrant.mine")
    assert isinstance(entrant, Entrant)
    return entrant


def test_its_key_is_its_file_its_settings_and_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
):
    entrant = built(monkeypatch, "own_entrant_1", CLASS)
    first_key, other_key = (make_fingerprint(entrant.cache_key(p)) for p in PROMPTS[:2])
    assert first_key != other_key
    Path("own_entrant_1.py").write_text(f"{CLASS}\n", encoding="utf-8")
    assert make_fingerprint(entrant.cache_key(PROMPTS[0])) != first_key


def test_what_is_left_out_of_a_class_is_named(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(
        UserError, match=r"the class Mine has no attribute entrant_id\. Add a field"
    ):
        built(monkeypatch, "own_entrant_2", CLASS.replace("    entrant_id: str\n", ""))
    with pytest.raises(UserError, match="lacks the method generate. Its base class"):
        built(
            monkeypatch, "own_entrant_3", CLASS.replace("def generate", "def answers")
        )


@pytest.mark.parametrize(
    ("name", "text", "wrong_text", "message"),
    [
        ("own_entrant_4", "def generate", "def generate(", "line 11: SyntaxError: "),
        ("own_entrant_5", "import Entrant", "import Entrants", "line 3: ImportError: "),
        ("own_entrant_6", "kw_only=True", "kw_ony=True", "line 6: TypeError: "),
        ("own_entrant_7", "(Entrant)", "(Entrant.Mine)", "line 7: AttributeError: "),
        ("own_entrant_8", "ending: str", "ending: list = []", "line 6: ValueError: "),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_the_line(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    wrong_text: str,
    message: str,
):
    with pytest.raises(FileError) as error:
        built(monkeypatch, name, CLASS.replace(text, wrong_text))
    setting = f"entrant.mine._target_ names {name}.Mine, which cannot be imported. "
    path = Path(f"{name}.py").resolve()
    assert error.value.line.startswith(f"{setting}{path}, {message}")


def test_a_generator_that_yields_nothing_is_named():
    with pytest.raises(EvidenceError) as error:
        answered(OwnEntrant(answers=lambda entrant, prompts: iter(())))
    assert "3 of 3 responses are missing" in error.value.line
    assert "OwnEntrant.generate yielded no answer" in error.value.line
