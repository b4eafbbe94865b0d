"""The machine of somebody who does what the pages say: a checkout, made small, and whatever the commands ask for.

A shell is given each command as the page shows it. What makes it small is the checkout: fewer prompts, match orders and
tokens (MADE_SMALL). APIs are servers on this machine, the hub of models is a cache, and Slurm begins its jobs here.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from elo_exp.paths import HOME
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Says, longer, plain_text
from tests.commands import Ran, attempt_program, environment
from tests.documented import IN_TUTORIALS, PAGES, Command, blocks, commands
from tests.openai_server import OpenAiServer
from tests.readers_files import write, write_inputs
from tests.stores import empty_schema

COPIED = (
    "conf",
    "elo_exp",
    "examples",
    "notebooks",
    "prompts",
    "rubrics",
    "tests",
    "Makefile",
    "README.md",
    "pyproject.toml",
)
_SHELL = re.compile(
    "[$;|&<>]|launcher="
)  # a command for a shell, or for processes of its own

# Commands that continuous integration runs, that take half an hour, or that test_docs.py and
# test_docs_commands.py check in their own way; `export` goes before the commands of its page.
NOT_RUN = re.compile(
    r"make (demo|test|lint|docs|bench|bench-gpu|figures|notebooks|test-(system|lowest|slow|faults))$"
    r"|python -m pytest|\.ci/run"
    r"|jupyter "  # test_notebooks.py
    r"|python -m build"  # test_wheel.py
    r"|python -m venv|pip |python -m tests\.(\w+_server|benchmarks.bench_gpu)|trackio show|export "
    r"|.*experiment=dashboard"  # test_trackers.py
    r"|.*runs=\[wandb:"  # test_tracked_identity.py
    r"|.*experiment=gate (?!.*plan=true)"  # cannot tell: this bank has fewer than 20 prompts. test_gate.py
    r"|.*experiment=label .*labels="  # test_people.py
    r"|.*oracle.grid=true"  # test_grid.py
    r"|python -m elo_exp old.csv new.jsonl$"  # it ends for want of a judge: test_own_page.py
)

# A file of the checkout -> settings in it, and what they are here.
MADE_SMALL: dict[str, dict[str, object]] = {
    "conf/config.yaml": {"figures": "false"},
    "conf/experiment/arena.yaml": {
        "min_battles": 5,
        "n_battles": 8,
        "n_calibration": 4,
    },
    "conf/experiment/oracle.yaml": {
        "n_prompts": 12,
        "label_fraction": 1.0,
        "check_answers": 2,
    },
    "conf/elo/default.yaml": {"n_perms": 10, "n_bootstraps": 10},
    "conf/sweep/boubdir.yaml": {"elo.n_perms": "1,10"},
    "conf/sweep/judges.yaml": {"judge": "opus,haiku", "figures": "false"},
    "conf/sweep/k_and_perms.yaml": {"elo.k": "1,4", "elo.n_perms": "10"},
    "conf/sweep/seeds.yaml": {"elo.seed": "1"},
    "conf/sweep/pilot_vs_headline.yaml": {"figures": "false"},
    "conf/mode/pilot.yaml": {"strata": "{medmcqa_open: 2, medqa: 2, curated: 1}"},
    "conf/judge/claude.yaml": {"poll_initial_seconds": 0.02, "poll_max_seconds": 0.1},
    "conf/judge/local.yaml": {"dtype": "float32"},
    "conf/entrant/huggingface.yaml": {"max_new_tokens": 4},
    "conf/entrant/poe.yaml": {"max_new_tokens": 4},
    "conf/entrant/tiny_base.yaml": {"max_new_tokens": 8},
    "tests/benchmarks/bench_generate.py": {
        "N_PROMPTS": 2,
        "MAX_NEW_TOKENS": 3,
        "REPEATS": 1,
    },
    "tests/benchmarks/bench_oracle.py": {"SIZES": "(400,)", "GRID_SIZES": "[400]"},
    "tests/benchmarks/bench_poe.py": {
        "HIDDEN, LAYERS, INNER, VOCABULARY": "64, 4, 64, 256",
        "SHORT, LONG, REPEATS": "2, 8, 1",
    },
}

# What stands in a command for something of the reader's, or for a machine that is not here -> what is here.
STANDS_FOR = {
    r"battles=FILE": "battles=battles.jsonl",
    r"judge_model=NAME": "judge_model=crowd",
    r"RUN\b": "outputs/arena_1",
    r"DIR1|outputs/own\b": "outputs/first",
    r"DIR2": "outputs/k64",
    r"_\.\.\.": "_1",
    r"arena=lmarena_140k": "arena=lmarena_140k arena.path=lmarena.jsonl",
    r"arena.path=(FILE|\.\.\.)": "arena.path=votes/arena.jsonl",
    r"judge.path=FILE": "judge.path=verdicts.jsonl",
    r"prompts=FILE": "prompts=prompts/bank.jsonl",
    r"prompts.bank_path=FILE": "prompts.bank_path=prompts/bank.jsonl",
    r"fresh_dir=FILE": "fresh_dir=draws.jsonl",
    r"recorded_dir=DIR": "recorded_dir=responses",
    r"export store.file=F": "export store.file=answers.jsonl",
    r"store.file=F\b": "store.file=other/store.sqlite",
    r"poe.model=DIR": "poe.model=models/olmo",
    r"security_dir=DIR": "security_dir=heads",
    r"build_bank.py": "build_bank.py --medmcqa medmcqa.jsonl --medqa medqa.jsonl",
    r"cuda:\$\{hydra:job.num\}": "cpu",
    r"%g/8 0 7": "%g/2 0 1",
    r"array=0-7": "array=0-1",
    r"shard=0/4,1/4,2/4,3/4": "shard=0/2,1/2",
    r" hydra/launcher=joblib( \S+n_jobs=4)?": "",  # test_launchers.py
    r"elo.k=8,16,32 elo.n_perms=100,500": "elo.k=8 elo.n_perms=10,20",
    r"elo.k=8,16,32 tracker": "elo.k=8 tracker",
    r"elo.k=(4|8),16,(32|64)(,64)?": "elo.k=8,16",
    r"TASK_ID/8": "TASK_ID/2",
}

# A page -> what has been done before its commands are given, besides the first two runs of the tutorials.
BEFORE = {
    "CONTRIBUTING.md": ["git init --quiet"],
    "docs/arena.md": [
        "python -m elo_exp experiment=arena arena=file arena.path=votes/arena.jsonl "
        "hydra.run.dir=outputs/arena_1 'entrant=[mine]'"
    ],
    "docs/compare.md": [
        "python -m elo_exp mode=pilot judge=lexical recorded_dir=responses hydra.run.dir=outputs/pilot_1",
        "python -m elo_exp mode=headline judge=lexical recorded_dir=responses hydra.run.dir=outputs/headline_1",
        "cp -r outputs/headline_1 outputs/headline_2",
        "mkdir outputs/multirun_1",
        "cp -r outputs/first outputs/multirun_1/0",
        "cp -r outputs/k64 outputs/multirun_1/1",
    ],
    "docs/flags.md": ["cp old.csv same.csv"],
    "docs/store.md": ["python -m elo_exp cache_dir=other"],
    "docs/quickstart.md": [
        "cp old.csv before.csv",
        "sed 's/ it for / them for /' old.csv > after.csv",
    ],
    "docs/oracle.md": [
        "python -m elo_exp experiment=oracle hydra.run.dir=outputs/oracle",
        "cp -r outputs/oracle/logged.jsonl outputs/oracle/fresh .",
        "cat logged.jsonl fresh/*.jsonl > draws.jsonl",
    ],
}
for _name in ("policies", "cje"):
    BEFORE[f"docs/oracle_{_name}.md"] = BEFORE["docs/oracle.md"]
BEFORE["README.md"] = BEFORE["docs/tutorials/oracle.md"] = [
    BEFORE["docs/oracle.md"][0],
    "cat outputs/oracle/logged.jsonl outputs/oracle/fresh/*.jsonl > draws.jsonl",
]
FIRST = [
    "python -m elo_exp hydra.run.dir=outputs/first",
    "python -m elo_exp elo.k=64 hydra.run.dir=outputs/k64",
]

# Of a command, the first of these that is in it -> what it says. Those with none of them name their run folder.
SAYS = {
    "make bench-generate": r"tokens/s .* equal answers(.*\n)+.* speculative",
    "make bench-oracle": r"compat=cje-0.3\n +400 ",
    "build_bank": r"^my_bank.jsonl: 24 medmcqa_open, 69 medqa, 4 curated$",
    "pre-commit": r"installed at .git/hooks/pre-commit",
    " --help": r"elo-exp mode=headline judge=opus",
    "experiment=label": r"^label: [1-9]\d* of \d+ comparisons on factuality",
    "experiment=audit .*plan=true": r"^plan: judge (.*\n)+  can be ok  ",
    "experiment=oracle .*plan=true": r"^plan: judge (.*\n)+oracle: its slices",
    "status=true": r"^  policy +answers .* labels",
    r"scoring=\w.*plan=true": r"^plan: judge (.*\n)+  rubric +answers ",
    "plan=true": r"^plan: judge (.*\n)+  Detectable gap: ",
    "action=wait": r"^no open batches",
    "action=cancel": r"^no batches to cancel at ",
    "action=export": r"^wrote [1-9][\d,]* answers to answers.jsonl",
    "action=copy": r"Counts and keys are equal|no open batches",
    "action=merge": r"found [1-9][\d,]* answers in the other cache",
    "store.confirm=true": r"^moved [1-9][\d,]* answers, .* to outputs/cache/purged_",
    "action=purge": r"^would delete [1-9][\d,]* answers, ",
    "action=recover": r"^found \d+ batches at \S+ that were not in the cache",
    "experiment=store": r"^  verdicts  (.*\n)+no open batches",
    "submitit_slurm": r"sweep: (\d+) of \1 jobs finished",  # the jobs print into logs of their own
    "shard=": r"shard \d/\d: \d+ (answers generated|generated|new verdicts)",
    "experiment=answer": r"answers: \d+ generated",
    "elo_exp.* -m ": r"sweep: (\d+) of \1 jobs finished",
}
WRITES = {
    "experiment=arena": ["elo_ratings.json", "battles.jsonl"],
    "experiment=oracle": ["estimates.json", "weight_diagnostics.json"],
    "experiment=audit": ["audit.json", "verdicts.jsonl", "report.html"],
    "experiment=compare": ["compare.json", "compare.csv"],
    "experiment=export": ["factuality/evalica.csv"],
    "battles=[": ["ratings.json", "report.html"],
    "elo_exp scores.csv": ["ratings.json", "report.html"],
    "elo_exp graded": ["ratings.json", "report.html"],
    "battles_metric": ["ratings.json", "report.html"],
    "battles_filter.judge_model": ["ratings.json", "report.html"],
    "judge=[": ["judges.json", "report.html"],
    "scoring=number": ["ratings.json", "scores.json", "report.html"],
    "judges=pooled": ["ratings.json", "report.html"],
    "elo_exp battles.jsonl": ["judges.json", "report.html"],
    "battles=FILE": ["judges.json", "report.html"],
    "": ["ratings.json", "elo_results.json", "report.html"],
}


@dataclass(frozen=True)
class Done:
    """A command that has ended, and how many answers it was billed for by whatever API."""

    command: Command
    ran: Ran
    n_billed: int


@dataclass
class Machine:
    folder: Path
    variables: dict[str, str]
    anthropic: AnthropicServer
    openai: OpenAiServer
    python: subprocess.Popen[str]
    done: dict[str, dict[str, Done]] = field(default_factory=dict)

    def page(self, page: str) -> dict[str, Done]:
        """What became of the commands of a page, by their lines, given in the order of the page."""
        if page not in self.done:
            self.write_parts(page)
            for line in BEFORE.get(page, []):
                assert self.shell(line).code == 0, line
            exported = [
                each.line for each in commands(page) if each.line.startswith("export ")
            ]
            words = shlex.split(self.here(" ".join(exported)).replace("export ", ""))
            variables = dict(word.split("=", 1) for word in words)
            self.done[page] = {
                each.line: self.give(each, variables)
                for each in commands(page)
                if is_run(each)
            }
        return self.done[page]

    def write_parts(self, page: str) -> None:
        """Write the yaml and Markdown files of a page, over those of entrants.md, which other pages use."""
        every = [*blocks("docs/entrants.md"), *blocks(page)]
        for block in (each for each in every if each.kind in ("yaml", "markdown")):
            package = re.match(r"# @package (\w+)\.(\w+)", block.text)
            name = (
                f"mine/{package[1]}/{package[2]}.yaml" if package else str(block.file)
            )
            write(self.folder / name, self.here(block.text))

    def give(self, command: Command, variables: dict[str, str]) -> Done:
        before = self.n_billed()
        ran = self.shell(self.here(command.line), **variables)
        return Done(command, ran, self.n_billed() - before)

    def shell(self, line: str, **variables: str) -> Ran:
        """A command; one of elo_exp that needs no shell is run by a Python that has made the imports."""
        words = shlex.split(line)
        if words[:3] != ["python", "-m", "elo_exp"] or _SHELL.search(
            re.sub("'[^']*'", "", line)
        ):
            return attempt_program(
                "bash", "-c", line, folder=self.folder, **self.variables | variables
            )
        assert self.python.stdin is not None and self.python.stdout is not None
        given = {"arguments": words[3:], "variables": variables}
        print(json.dumps(given), file=self.python.stdin, flush=True)
        return Ran(self.folder, *json.loads(self.python.stdout.readline()))

    def here(self, text: str) -> str:
        text = re.sub(r"http://localhost:\d+/v1", self.openai.url, made_small(text))
        url = self.variables["STORE"]
        text = re.sub(r"(store|STORE)=postgresql://\S+", rf"'\1={url}'", text)
        if url == "null":
            return re.sub(r"store.action=copy store.to=\S+", "store.action=list", text)
        return re.sub(r"store.to=\S+", lambda _: f"'store.to={empty_schema()}'", text)

    def n_billed(self) -> int:
        return self.anthropic.meter.billed_bodies.total() + self.openai.billed.total()


def store() -> str:
    """A store of PostgreSQL; that of the folder where no package brings a server."""
    try:
        return empty_schema()
    except pytest.skip.Exception:
        return "null"


def is_run(command: Command) -> bool:
    """It is run here: a tutorial does not show its output, and no page before it shows it, too."""
    first = FIRST_SHOWN[without_numbers(command.line)] == command
    return (
        first and command.line not in IN_TUTORIALS and not NOT_RUN.match(command.line)
    )


def made_small(text: str) -> str:
    """With what there is on this machine in place of what stands for it."""
    for pattern, what in STANDS_FOR.items():
        text = re.sub(pattern, lambda _, what=what: what, text)
    return text


def without_numbers(line: str) -> str:
    return re.sub(r"\d+", "", made_small(line))


FIRST_SHOWN: dict[str, Command] = {}
for _page in PAGES:
    for _command in commands(_page):
        FIRST_SHOWN.setdefault(without_numbers(_command.line), _command)


def ended_well(done: Done) -> None:
    """It ended without an error, said what it should, and left the files of its experiment."""
    line, ran = done.command.line, done.ran
    assert ran.code == 0, ran.err
    assert "Traceback" not in ran.err
    if expected := next(
        (says for words, says in SAYS.items() if re.search(words, line)), None
    ):
        assert re.search(expected, ran.out, re.MULTILINE), ran.out
        return
    run_dir = Path(re.findall(r"(?m)^files +(/.*/outputs/[\w-]+)$", ran.out)[-1])
    assert json.loads((run_dir / "manifest.json").read_text(encoding="utf-8"))[
        "finished_at"
    ]
    files = next(files for words, files in WRITES.items() if words in line)
    assert [name for name in files if not (run_dir / name).is_file()] == []


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """A checkout and what is beside it."""
    with (
        AnthropicServer(verdicts=longer, outcomes=answered) as anthropic,
        OpenAiServer(
            models=("big", "qwen", "llama3.2", "meta-llama/Llama-3.1-8B-Instruct"),
            answer=lambda model, text: f"{model} on {text[:40]}: yes.",
        ) as openai,
    ):
        variables = {
            "PATH": f"{folder}/bin:{environment(folder)['PATH']}",
            "PYTHONPATH": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "TRACKIO_DIR": str(folder / "trackio"),
            "HF_HOME": str(folder / "hub"),
            "HF_HUB_OFFLINE": "1",
            "WANDB_MODE": "disabled",
            "ANTHROPIC_API_KEY": anthropic.key,
            "NO_PROXY": "127.0.0.1",
            "STORE": store(),
        }
        check_out(folder, anthropic.url)
        write_inputs(folder)
        with subprocess.Popen(
            [sys.executable, "-m", "tests.commands"],
            cwd=folder,
            env=environment(folder) | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as python:
            made = Machine(folder, variables, anthropic, openai, python)
            for line in FIRST:
                ran = made.shell(line)
                assert ran.code == 0, ran.err
            yield made


def check_out(folder: Path, anthropic_url: str) -> None:
    """A copy of the checkout with smaller settings, and rubrics short enough for a model on one core."""
    for name in COPIED:
        copy = shutil.copytree if (HOME / name).is_dir() else shutil.copy
        copy(HOME / name, folder / name)
    for name in ("conf/judge/claude.yaml", "conf/entrant/claude.yaml"):
        change(folder / name, {"base_url": anthropic_url})
    for name, settings in MADE_SMALL.items():
        change(folder / name, settings)
    for told in (
        *(folder / "rubrics").glob("*.md"),
        *(folder / "prompts").glob("*_system.md"),
    ):
        told.write_text(
            "".join(told.read_text(encoding="utf-8").splitlines(keepends=True)[:9]),
            encoding="utf-8",
        )


def change(file: Path, settings: dict[str, object]) -> None:
    text = file.read_text(encoding="utf-8")
    for name, value in settings.items():
        text, n = re.subn(
            rf"(?m)^( *{name}(?::| =)).*$",
            lambda found, value=value: f"{found[1]} {value}",
            text,
        )
        assert n == 1, f"{file}: {name} is there {n} times"
    file.write_text(text, encoding="utf-8")


def answered(params: dict[str, Any], n: int) -> Says | None:
    """What Claude says where it is not asked to compare: a score by the question's length, or an answer."""
    asked = plain_text(params["messages"][0]["content"])
    if "<response_a" in asked:
        return None
    if "<response id=" in asked:
        return Says(f'{{"evidence": "it", "score": {len(asked) % 11}}}')
    return Says(f"It depends on {asked[:60]}")
