"""docs/troubleshooting.md quotes what the program says of a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import own_example
from tests.commands import attempt
from tests.documented import read
from tests.readers_files import write

PAGE = "docs/troubleshooting.md"
FILES = {
    "cols.csv": "q,a\nHow?,So\n",
    "onlyid.csv": "id,answer\n1,a\n",
    "broken.jsonl": '{"question": "a", "answer": "b"}\n{"question": "c", answer: "d"}\n',
    "twice.csv": "question,answer\nHow?,So\nHow?,Not so\n",
    "other.csv": "question,answer\nWhy?,Because\n",
    "bad/store.sqlite": "this is no database, however long it is" * 9,
    "emptied/store.sqlite": "",
    "notmodel/README.md": "nothing",
}
OWN = ("old.csv", "new.jsonl")
SERVER = (*OWN, "judge=openai_compatible", "judge.model=big")
# What the page quotes -> the words of the command that is mistaken
MISTAKES = {
    "File not found: befor.csv": ("befor.csv", "new.jsonl", "judge=lexical"),
    "A comparison needs at least two sets of answers; old.csv holds one": ("old.csv",),
    "No prompt is answered by all entrants": ("old.csv", "other.csv", "judge=lexical"),
    "onlyid.csv holds no prompts. Add prompts=FILE": (
        *("onlyid.csv", "old.csv", "judge=lexical"),
    ),
    "cols.csv has no column for the prompt and the answer": (
        "old.csv",
        "cols.csv",
        "judge=lexical",
    ),
    "broken.jsonl:2 is not valid JSON": ("old.csv", "broken.jsonl", "judge=lexical"),
    "a second, different answer of twice": ("twice.csv", "old.csv", "judge=lexical"),
    "nope is not a run folder: it has no manifest.json": (
        *("experiment=compare", "runs=[nope,nope2]"),
    ),
    "Unknown setting: judging.budget. Did you mean judging.budget_usd?": (
        "judging.budget=5",
    ),
    "Unknown setting: budget_usd. Did you mean judging.budget_usd=3?": (
        "budget_usd=3",
    ),
    "File not found: v1.txt": (*OWN, "judge=sonnet", "judge.system_prompt=@v1.txt"),
    "judging.use is now called judging.orders": ("judging.use=one",),
    "Unknown judge: sonet": ("judge=sonet",),
    "Unknown rubric: politeness": ("rubric=politeness",),
    "entrant cannot be v1=apy:gpt-5": ("entrant=[v1=apy:gpt-5,probe_hedged]",),
    "gate.margin is not a setting of experiment=tournament": ("gate.margin=0.1",),
    '"plan" is neither a file nor a setting with a value': ("plan",),
    '"judge" is neither a file nor a setting with a value': ("judge", "=", "sonnet"),
    'elo.k must be a number above 0 and at most 1,000; got "abc"': ("elo.k=abc",),
    "elo.k takes one value; got 8,16": ("elo.k=8,16",),
    "A tournament needs at least two entrants; got probe_hedged": (
        "entrant=[probe_hedged]",
    ),
    "judge is not set": OWN,
    "and ANTHROPIC_API_KEY is not set": (*OWN, "judge=sonnet"),
    "must be a model whose prices are known": (
        "judge=claude",
        "judge.model=claude-sonnet-9",
    ),
    "judge.base_url is not set": (*OWN, "judge=openai_compatible"),
    'judge.base_url must be http(s)://HOST or http(s)://HOST:PORT; got "localhost:8000"': (
        *(*SERVER, "judge.base_url=localhost:8000"),
    ),
    "cannot be used as the store (file is not a database)": (
        *("experiment=store", "cache_dir=bad"),
    ),
    "is empty (0 bytes), and a store never is": (
        "experiment=store",
        "cache_dir=emptied",
    ),
    "store.url holds a URL with a password": (
        *("experiment=store", "store=postgresql://me:secret@localhost/db"),
    ),
    'store must be postgresql://user@host/database, or null for a file in cache_dir; got "mysql://x"': (
        "experiment=store",
        "store=mysql://x",
    ),
    "is neither a folder here nor a name on the hub": (
        *(*OWN, "judge=local", "judge.model=./nomodel"),
    ),
    "notmodel holds no config.json": (*OWN, "judge=local", "judge.model=notmodel"),
    "shard must be NUMBER/TOTAL": ("shard=4/4",),
    "Unknown sweep: nosweep": ("-m", "sweep=nosweep"),
    "If every judge of the sweep has it": (
        *("-m", "judge=sonnet,haiku", "judge.effort=low", "plan=true"),
    ),
}


# Whole lines that other pages quote, by page
QUOTED = {
    "docs/quickstart.md": [(*OWN, "judge=sonnet")],
    "docs/privacy.md": [
        (*SERVER, "judge.base_url=http://me:secret@localhost/v1"),
        (*SERVER, "judge.base_url=http://localhost/v1", "judge.key_variable=sk-abc"),
    ],
    "docs/upgrading.md": [("judging.use=one",)],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistaken")
    own_example.write_files(folder)
    for name, text in FILES.items():
        write(folder / name, text)
    return folder


@pytest.mark.parametrize("message", MISTAKES)
def test_a_message_is_what_the_program_says(message: str, folder: Path):
    assert f"`{message}`" in read(PAGE)
    ran = attempt(*MISTAKES[message], folder=folder, ANTHROPIC_API_KEY="")
    assert ran.code == 2, ran.out
    assert message in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("page", "words"), [(page, words) for page in QUOTED for words in QUOTED[page]]
)
def test_another_page_quotes_the_line(page: str, words: tuple[str, ...], folder: Path):
    ran = attempt(*words, folder=folder, ANTHROPIC_API_KEY="")
    assert ran.code == 2, ran.out
    message = f"\n{ran.err}".rpartition("\nelo_exp: ")[2]
    assert f"\nelo_exp: {message}" in read(page)
