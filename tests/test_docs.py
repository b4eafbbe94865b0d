"""What the pages show is so: their commands begin, those of the tutorials end with the output shown, files have the
fields named.

A command of elo_exp is composed, and its parts are built and checked, up to the point where it would begin; what stands
for something of the reader's is filled in with real files. Those of the tutorials whose output is shown are run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import huggingface_hub.constants
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import open_dict

from docs.hooks import reference
from elo_exp import CONF, HOME, composing, config, mistakes
from elo_exp.__main__ import EXPERIMENTS
from tests.commands import SCRIPTS, attempt_program
from tests.data import PROBES
from tests.documented import PAGES, Block, Command, blocks, commands, in_block, relative, shown
from tests.openai_server import alone

PAGE_NAMES = [relative(path) for path in PAGES]
TUTORIALS = [f"docs/tutorials/{name}.md" for name in ("tournament", "rate", "arena")]
WALKED = {line for page in TUTORIALS for block in shown(page) for line in in_block(block.text)}
COMMANDS = list({command.line: command for page in PAGE_NAMES for command in commands(page)}.values())
OURS = [command for command in COMMANDS if command.line.startswith("python -m elo_exp") and command.line not in WALKED]
OTHERS = [command for command in COMMANDS if command not in OURS and command.line not in WALKED]
EXPORTS = dict(word.split("=") for c in OTHERS if c.line.startswith("export ") for word in shlex.split(c.line)[1:])

# What stands in a command for something of the reader's -> what there is in `world`.
STANDS_FOR = {
    r"battles=(FILE|RUN/battles.jsonl)": "battles=outputs/first/battles.jsonl",
    r"like=RUN": "like=outputs/first",
    r"outputs/pilot_\.\.\.|DIR1": "outputs/first",
    r"outputs/headline_\.\.\.|DIR2": "outputs/k64",
    r"outputs/(multirun_\.\.\.|\w+_\*)": "outputs/first,outputs/k64",
    r"arena.path=(FILE|\.\.\.)": "arena.path=votes.jsonl",
    r"judge.path=FILE": "judge.path=outputs/first/battles.jsonl",
    r"prompts.bank_path=FILE": f"prompts.bank_path={HOME}/prompts/bank.jsonl",
    r"oracle.logged=FILE": "oracle.logged=logged.jsonl",
    r"oracle.fresh_dir=DIR": "oracle.fresh_dir=fresh",
    r"recorded_dir=DIR": "recorded_dir=responses",
    r"store.file=F": "store.file=answers.jsonl",
    r"entrant.poe.security_dir=DIR": "entrant.poe.security_dir=heads",
    r"model=(DIR|allenai/.*)": "model=model",
}
NO_KEY, NO_MODEL = "ANTHROPIC_API_KEY: not set", "allenai/OLMo-2-1124-7B-Instruct (revision main): is no folder here"
# What is not on this machine, by what the command says of it -> how the refusal begins.
NOT_HERE = {
    "localhost:8000": "http://localhost:8000/v1 cannot be reached",
    "localhost:11434": "http://localhost:11434/v1 cannot be reached",
    **dict.fromkeys(("entrant.claude", "judge=opus", "judge=haiku", "mode=pilot", "mode=headline"), NO_KEY),
    **dict.fromkeys(("base_olmo", "sweep=pilot_vs_headline"), NO_MODEL),
}
OWN_PARTS = {  # of which the pages speak, and show no file -> what such a file says
    "mine": "defaults: [recorded@_here_, _self_]\nentrant_id: mine\npath: responses\n",
    "other": "defaults: [recorded@_here_, _self_]\nentrant_id: other\npath: responses\n",
    "qwen": "defaults: [llama@_here_, _self_]\nentrant_id: qwen\n",
}
SWEEPS = {option.name: option.sweeps for option in reference.options() if option.group == "sweep"}
FLAGS = ("-m", "--config-dir", "mine", "--config-dir=mine", "--help")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# The tutorials


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def walked(folder: Path) -> dict[Block, str]:
    """What the commands before each output that a tutorial shows have said."""
    said = ""
    outputs = {}
    for block in (block for page in TUTORIALS for block in shown(page)):
        if block.kind == "text":
            outputs[block] = said
        elif block.kind in ("python", "csv"):
            write(folder / str(block.file), block.text)
        else:
            said = "".join(walk(line, folder) for line in in_block(block.text))
    return outputs


def walk(line: str, folder: Path) -> str:
    program, *arguments = shlex.split(line)
    assert program == "python"
    ran = attempt_program(sys.executable, *arguments, folder=folder, WANDB_MODE="disabled")
    assert ran.code == 0, ran.err
    return ran.out + ran.err


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_shows_what_its_commands_say(page: str, walked: dict[Block, str]):
    outputs = {block: said for block, said in walked.items() if block.page == page}
    assert outputs
    for block, said in outputs.items():
        assert set(block.text.splitlines()) <= set(said.splitlines())


# The other commands


@pytest.fixture(scope="module")
def world(folder: Path, walked: dict[Block, str]) -> Iterator[Path]:
    """The folder of the tutorials, with whatever else the commands want to read: small, and real."""
    logged = {"prompt_id": "q", "judge_score": 0.5, "total_logprob": -1.0, "target_logps": {"b": -1.0}}
    write(folder / "logged.jsonl", json.dumps(logged))
    files = ["fresh/b.jsonl", "answers.jsonl", "responses.jsonl", "judged.sqlite", "shares/0/store.sqlite"]
    files += [f"{model}/{file}" for model in ("model", "models/judge") for file in ("config.json", "model.safetensors")]
    files += ["runs/sft/lora/adapter_config.json", "runs/sft/lora/adapter_model.safetensors"]
    files += [f"outputs/oracle/{file}" for file in ("logged.jsonl", "fresh/b.jsonl", "probe/b.jsonl")]
    models = ("base_olmo", "security_only", "security_plus_robustness", "full_poe", "mine", "other")
    for name in [*files, *(f"responses/responses_{model}.jsonl" for model in (*models, *PROBES))]:
        write(folder / name, "")
    for heads in ("heads", "weights/prod", "weights/robustness"):
        write(folder / heads / "manifest.json", '{"config": {"num_shards": 2}}')
        for head in range(2):
            write(folder / heads / f"shard_{head}_lora.pt", "")
    for name, text in own_parts().items():
        write(folder / name, on_this_machine(text, folder))
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        composing.compose_once()
        yield folder
    HydraConfig.instance().cfg = None


def own_parts() -> dict[str, str]:
    """The yaml files that the pages show, and those that they leave to the reader, in the folder `mine`."""
    found = {}
    for block in (block for page in PAGE_NAMES for block in blocks(page) if block.kind == "yaml"):
        package = re.match(r"# @package (\w+)\.(\w+)", block.text)
        found[f"mine/{package[1]}/{package[2]}.yaml" if package else str(block.file)] = block.text
    for name, text in OWN_PARTS.items():
        found[f"mine/entrant/{name}.yaml"] = f"# @package entrant.{name}\n{text}"
    return found


def on_this_machine(yaml: str, folder: Path) -> str:
    """A file with folders in place of what is on the hub."""
    for name, here in (("allenai/OLMo-2-1124-7B-Instruct", f"{folder}/model"), ("me/dpo-lora@v2", "~/runs/sft/lora")):
        yaml = yaml.replace(name, here)
    return re.sub(r"(?m)^revision: .*\n", "", yaml)


def given(command: Command, folder: Path) -> list[str]:
    """The words that the program gets, as the shell splits them, with what stands for something filled in."""
    shell = ["bash", "-c", f'given() {{ printf "%s\\n" "$@"; }}; given {command.line}']
    variables = {**os.environ, "TMPDIR": str(folder), "SLURM_ARRAY_TASK_ID": "3"}
    words = subprocess.run(shell, cwd=folder, env=variables, capture_output=True, text=True, check=True).stdout
    for placeholder, what in STANDS_FOR.items():
        words = re.sub(placeholder, what, words)
    return words.splitlines()


def first_job(overrides: list[str]) -> list[str]:
    """Of a sweep over these, or of a named one; what there is where nothing is swept over."""
    swept = [word for name, words in SWEEPS.items() if f"sweep={name}" in overrides for word in words]
    parsed = OverridesParser.create().parse_overrides([*overrides, *swept])
    first = [next(o.sweep_string_iterator()) if o.is_sweep_override() else o.get_value_string() for o in parsed]
    return [f"{o.get_key_element()}={value}" for o, value in zip(parsed, first, strict=True)]


def refusal(overrides: list[str], folder: Path) -> str | None:
    """What the command says in place of beginning; None where it would begin."""
    own = f"hydra.searchpath=[file://{folder}/mine]"
    try:
        cfg = compose("config", overrides=[*overrides, own, "hydra.job.num=0"], return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        with open_dict(cfg):
            del cfg["hydra"]
        config.take_ratings(cfg)
        settings = config.settings(cfg)
        experiment = EXPERIMENTS[settings.experiment.name]
        parts = config.build(cfg, settings, experiment.NEEDS)
        with parts.store:
            experiment.check(settings, parts)
    except Exception as error:
        if (line := mistakes.explain(error)) is None:
            raise
        return line
    return None


@pytest.mark.parametrize("command", OURS, ids=str)
def test_a_command_shown_would_begin(command: Command, world: Path, monkeypatch: pytest.MonkeyPatch):
    alone(monkeypatch, world)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name, value in {**EXPORTS, "HOME": str(world)}.items():
        monkeypatch.setenv(name, value)
    overrides = [word for word in given(command, world)[3:] if word not in FLAGS]
    said = refusal(first_job(overrides), world)
    expected = [words for part, words in NOT_HERE.items() if part in command.line]
    assert said is None or said.startswith(tuple(expected)), said


@pytest.mark.parametrize("command", OTHERS, ids=str)
def test_another_command_shown_names_what_is_there(command: Command):
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    makefile = (HOME / "Makefile").read_text(encoding="utf-8")
    match shlex.split(command.line):
        case ["make", *targets]:
            assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
        case ["pip", "install", *what]:
            extras = re.findall(r"[\w-]+", what[-1].partition("[")[2])
            assert set(extras) <= set(project["optional-dependencies"])
        case ["python", "-m", "venv" | "pytest", *_] | [".ci/run"]:
            assert (HOME / ".ci/run").stat().st_mode & 0o100
        case [".venv/bin/pre-commit" | "jupytext" | "mkdocs" as program, *_]:
            assert (SCRIPTS / Path(program).name).is_file()
        case ["python", "-m", module, *_]:
            assert (HOME / f"{module.replace('.', '/')}.py").is_file()
        case ["python", script, *flags]:
            text = (HOME / script).read_text(encoding="utf-8")
            assert all(flag in text for flag in flags if flag.startswith("--"))
        case ["export", *_]:
            poe = (CONF / "entrant" / "poe.yaml").read_text(encoding="utf-8")
            assert all(name in poe for name in EXPORTS)
        case _:
            pytest.fail(f"{command}: say here how this command is tested")


# Files


def test_every_file_of_a_run_is_described(walked: dict[Block, str], folder: Path):
    text = (HOME / "docs/files.md").read_text(encoding="utf-8")
    patterns = {re.sub("<.*>", "*", name) for name in re.findall(r"`([^`]+)`", text)}
    for path in (path for path in (folder / "outputs/first").rglob("*") if path.is_file()):
        name = path.relative_to(folder / "outputs/first")
        assert any(fnmatch(str(name), pattern) for pattern in patterns) or name.parts[0] in ("figures", ".hydra"), name


@pytest.mark.parametrize(
    "file",
    ["responses/responses_probe_hedged.jsonl", "matches/matches.jsonl", "verdicts/factuality.jsonl", "battles.jsonl"],
)
def test_every_field_of_a_row_is_described(file: str, walked: dict[Block, str], folder: Path):
    text = (HOME / "docs/files.md").read_text(encoding="utf-8")
    row = json.loads((folder / "outputs/first" / file).read_text(encoding="utf-8").splitlines()[0])
    names = {*row, *(f".{name}" for name in row.get("raw", [{}])[0]), *(["raw[]"] if row.pop("raw", None) else [])}
    assert {name for name in names - {"raw"} if f"`{name}`" not in text} == set()


def test_every_field_of_the_manifest_is_described(walked: dict[Block, str], folder: Path):
    text = (HOME / "docs/files.md").read_text(encoding="utf-8")
    manifest = json.loads((folder / "outputs/first/manifest.json").read_text(encoding="utf-8"))
    assert {name for name in manifest if f"`{name}`" not in text and f"`{name}[]`" not in text} == set()
