"""A caller tells by the class of an error what to do: raise a cap, name another file, wait for a server, collect more."""

import copy
from pathlib import Path

import pytest

import elo_exp
from elo_exp.entrants import NoRoomError
from elo_exp.errors import FileError, name_error
from tests.openai_server import OpenAiServer, alone

BATTLES = [
    {"model_a": "new", "model_b": "old", "winner": ("model_a", "model_b")[n % 3 == 0]}
    for n in range(30)
]
ANSWERS = {
    name: [
        {"id": n, "prompt": f"What is {n} squared?", "response": f"{words} {n * n}."}
        for n in range(12)
    ]
    for name, words in {"old": "It is", "new": "The square of it is"}.items()
}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)


def judged(server: OpenAiServer, **settings: object) -> elo_exp.Run:
    return elo_exp.compare(
        ANSWERS,
        judge="openai_compatible",
        judge__base_url=server.url,
        judge__model="small",
        rubric=["preference"],
        figures=False,
        **settings,
    )


@pytest.mark.system
def test_an_unknown_setting_is_an_error_of_settings():
    with pytest.raises(elo_exp.SettingError, match=r"^Unknown setting: elo\.kk"):
        elo_exp.rate(BATTLES, elo__kk=1)


def test_a_value_out_of_range_is_an_error_of_settings():
    with pytest.raises(elo_exp.SettingError, match=r"^elo\.k must be a number above 0"):
        elo_exp.rate(BATTLES, elo__k=-1)


def test_tables_that_are_not_named_are_an_error_of_settings():
    with pytest.raises(
        elo_exp.SettingError, match="got a list. To compare tables, name"
    ) as raised:
        elo_exp.compare(ANSWERS["old"], ANSWERS["new"], judge="lexical")
    assert raised.value.below == ('  compare({"old": OLD, "new": NEW}, ...)',)


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("https://host/a.csv?raw=1", "'https://host/a.csv?raw=1'"),
        (Path("https://host/a.csv"), "https://host/a.csv"),
        (
            "hf://datasets/user/set/data/a.csv",
            "https://huggingface.co/datasets/user/set/resolve/main/data/a.csv",
        ),
    ],
)
def test_an_address_is_to_be_downloaded_first(path: str | Path, address: str):
    error = FileError.not_found(path)
    assert error.line.endswith("is an address. Download the file, and give its path:")
    assert error.below == (f"  curl -LO {address}",)


@pytest.mark.parametrize("path", ["hf://user/set", "C:/a.csv", "a.csv", "http:/"])
def test_a_path_is_no_address(path: str):
    assert FileError.not_found(path).line.startswith(f"File not found: {path}")


def test_an_unknown_option_is_an_error_of_settings():
    with pytest.raises(elo_exp.SettingError, match="nobody"):
        elo_exp.compare(ANSWERS, judge="nobody")


@pytest.mark.parametrize(
    "call",
    [
        lambda: elo_exp.rate("nowhere.jsonl"),
        lambda: elo_exp.compare(
            {"old": "nowhere.jsonl", "new": ANSWERS["new"]}, judge="lexical"
        ),
        lambda: elo_exp.run("nowhere.jsonl"),
        lambda: elo_exp.open_run("nowhere"),
    ],
)
def test_a_missing_file_is_an_error_of_files(call):
    with pytest.raises(elo_exp.FileError, match="nowhere"):
        call()


def test_a_damaged_row_is_an_error_of_files():
    Path("battles.jsonl").write_text('{"model_a": "new",\n')
    with pytest.raises(elo_exp.FileError, match="battles.jsonl"):
        elo_exp.rate("battles.jsonl")


def test_a_cap_that_is_too_small_is_an_error_of_budgets():
    with OpenAiServer() as server, pytest.raises(elo_exp.BudgetError) as error:
        judged(
            server,
            judge__input_usd_per_million=5,
            judge__output_usd_per_million=5,
            budget_usd=0.0001,
        )
    assert "and the cap is $0.0001. Nothing was spent." in error.value.line
    assert "judging.budget_usd=" in str(error.value)


def test_a_server_that_refuses_the_key_is_an_error_of_servers(monkeypatch):
    monkeypatch.setenv("MY_KEY", "wrong-key-of-some-length")
    with (
        OpenAiServer(key="another") as server,
        pytest.raises(elo_exp.ServerError) as error,
    ):
        judged(server, judge__key_variable="MY_KEY")
    assert "(401)" in error.value.line


def test_a_key_that_is_not_set_is_an_error_of_servers():
    with (
        OpenAiServer() as server,
        pytest.raises(
            elo_exp.ServerError, match="needs an API key, and MY_KEY is not set"
        ),
    ):
        judged(server, judge__key_variable="MY_KEY")


def test_no_valid_battle_is_an_error_of_evidence():
    rows = [{**row, "winner": "invalid"} for row in BATTLES]
    with pytest.raises(elo_exp.EvidenceError, match="no battle that can be rated"):
        elo_exp.rate(rows, battles_values={"invalid": None})


def test_answers_to_different_prompts_are_an_error_of_evidence():
    other = [
        {**row, "id": f"x{row['id']}", "prompt": "Why?" * (n + 1)}
        for n, row in enumerate(ANSWERS["new"])
    ]
    with pytest.raises(elo_exp.EvidenceError, match="No prompt is answered by"):
        elo_exp.compare({"old": ANSWERS["old"], "new": other}, judge="lexical")


def test_every_class_is_the_users():
    names = [name for name in elo_exp.__all__ if name.endswith("Error")]
    assert len(names) == 7
    assert all(issubclass(getattr(elo_exp, name), elo_exp.UserError) for name in names)


def test_run_files_know_the_users_mistakes_by_one_name():
    assert name_error(elo_exp.BudgetError("cap")) == "UserError"
    assert name_error(elo_exp.UserError("no")) == "UserError"
    assert name_error(elo_exp.StoppedError("stop")) == "StoppedError"
    assert name_error(ValueError("ours")) == "ValueError"


def test_an_error_in_other_words_keeps_its_class_and_what_it_carries():
    error = NoRoomError("too long", [])
    reworded = error.reword("model: too long", "a", "b")
    assert type(reworded) is NoRoomError
    assert (reworded.line, reworded.below) == ("model: too long", ("a", "b"))
    assert str(reworded) == "model: too long\na\nb"
    assert reworded.prompts == frozenset()
    assert (error.line, str(copy.copy(error))) == ("too long", "too long")
