"""What the command says: help at once, one line for a mistake, and at the end where the results are."""

import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elo_exp.files import write_jsonl
from elo_exp.launching import composing, options
from elo_exp.launching.shorthand import expand_shorthand
from elo_exp.paths import CONF, HOME
from elo_exp.version import __version__
from tests.commands import QUICK, SCRIPTS, attempt, attempt_program, environment, run
from tests.data import full_disk

# What is given -> what the line must say: the setting or the file, and what would have been right.
MISTAKES = {
    # a name that is not there
    "elo.kk=3": "Unknown setting: elo.kk. Did you mean elo.k?",
    "-m judge=haiku,sonnet judge.chunk_size=9": "If every judge of the sweep has it, write:\n"
    "  ++judge.chunk_size=VALUE",
    "jugde=lexical": "Unknown setting: jugde. Did you mean judge?",
    "mode=fast": "Unknown mode: fast. Choose from demo, headline, own, pilot.",
    "'entrant=[probe_referenc,probe_hedged]'": "Did you mean probe_reference or probe_hedged?",
    "judging.use=consistent": "judging.use is now called judging.orders.",
    "+foo=1": "Unknown setting: foo. To list all:\n  python -m elo_exp --cfg job\n",
    "'elo.k=${nope}'": "Interpolation key 'nope' not found",
    # a value of the wrong type
    "elo.k=abc": 'elo.k must be a number above 0 and at most 1,000; got "abc".',
    "experiment=compare runs=outputs/first": "runs must be a list; got \"outputs/first\".\n  'runs=[outputs/first]'",
    "elo.k=8,16": "elo.k takes one value; got 8,16. To run one job per value, add -m:\n  -m elo.k=8,16\n",
    # what cannot be read
    "'prompts.bank_path=~/x.jsonl'": "prompts.bank_path=~/x.jsonl cannot be read: the value holds a quote or "
    "one of ~ ( ) [ ] { } = , and needs quotes of its own. Write $HOME for ~, and:\n  'prompts.bank_path=\"VALUE\"'\n",
    "'-m' 'battles=a=b.csv' elo.k=8,16": "battles=a=b.csv cannot be read: the value holds",
    "elo.k = 16": '"elo.k" is neither a file nor a setting with a value. Write elo.k=VALUE without spaces.',
    "help": '"help" is neither a file nor a setting. Did you mean --help?',
    "'elo.k=sort(a,1)'": "while evaluating 'sort(a,1)'",
    # in one job of a sweep
    "-m elo.k=8,abc": 'elo.k must be a number above 0 and at most 1,000; got "abc".',
    "-m 'rating=[bradley_terry],[davidson,davidson]'": "rating names davidson 2 times. Name it once.",
    "-m elo.k=8,16 elo.seed=1,x hydra.sweeper.max_batch_size=1": 'elo.seed must be a whole number of 0 or more; got "x".',
    # a value out of range
    "elo.k=0": "elo.k must be a number above 0 and at most 1,000; got 0.",
    "elo.k=nan": "elo.k must be a finite number; got nan.",
    "elo.ties=maybe": 'elo.ties must be drop or half; got "maybe".',
    "+mode.strata.medqa=1000": "mode.strata asks for 1000 prompts of source medqa, and the bank has ",
    # nothing, or too little, chosen
    "judge=null": "A part was set to null. Choose one of its options",
    "'entrant=[probe_reference]'": "A tournament needs at least two entrants; got probe_reference.",
    "'entrant=[probe_hedged,probe_hedged,probe_partial]'": "entrant names probe_hedged 2 times.",
    "'rubric=[]'": "The judge needs at least one rubric. Set rubric",
    "judge=replay": "judge.path is not set",
    # what another experiment reads
    "battles=notes.txt": "battles is not a setting of experiment=tournament, but of rate. "
    "Add experiment=rate, or leave battles out.",
    # a copied file that still has the first line, or the name, of the one that it was copied from
    "--config-dir=mine 'entrant=[probe_hedged,probe_partial,copied]'": "mine/entrant/copied.yaml does not say where its "
    "settings belong. Its first line must be '# @package entrant.copied'.",
    "--config-dir=mine 'entrant=[probe_hedged,unplaced]'": "mine/entrant/unplaced.yaml does not say where its "
    "settings belong. Its first line must be '# @package entrant.unplaced'.",
    "--config-dir=mine 'entrant=[probe_hedged,unnamed]'": "entrant.unnamed.entrant_id must be unnamed, as the entrant "
    "is called",
    # a file or folder that is not there, or not what it should be
    "study=medical mode=demo prompts.bank_path=missing.jsonl": "File not found: missing.jsonl (in ",
    "experiment=oracle prompts.bank_path=missing.jsonl": "File not found: missing.jsonl (in ",
    "experiment=oracle oracle.fresh_dir=missing.jsonl": ", given as fresh).",
    "experiment=oracle oracle.fresh_dir=notes.txt oracle.truth=missing.json": "File not found: missing.json (in",
    "experiment=audit audit.gold=missing.jsonl": "File not found: missing.jsonl (in ",
    "recorded_dir=missing": "File not found: missing (in ",
    "experiment=gate gate.baseline=missing entrant=probe_hedged": "File not found: missing (in ",
    "experiment=export folder=missing": "missing is not a run folder: it has no manifest.json.",
    "judge=replay judge.path=run": "judge.path must be a folder with .jsonl files of verdicts or battles; "
    "run/verdicts has none.",
    "experiment=rate battles=notes.txt": "notes.txt has no format that can be read. docs/formats.md lists",
    "shard=4/4": 'shard must be NUMBER/TOTAL, counted from 0: the first of four is 0/4; got "4/4".',
    "cache_dir=notes.txt": "notes.txt/store.sqlite cannot be used as the store",
    "hydra.run.dir=notes.txt/run": "notes.txt/run",
    "--config-dir=missing": "missing' not found",
    "--config-dir=mine judge=broken": "mine/judge/broken.yaml",
    "'entrant=[alpha,parrot]' recorded_dir=answers": "Write these three lines into mine/entrant/parrot.yaml and add "
    "--config-dir=mine (docs/entrants.md):\n  # @package entrant.parrot\n  defaults: [recorded@_here_, _self_]\n"
    "  entrant_id: parrot\n",
    "--config-dir=mine judge=elsewhere": "judge._target_ must be the path of a class, as module.Class; got "
    "elo_exp.judges.lexical.Lexicon.",
    "judge=lexical judge._target_=nowhere.Judge": "Python found no module nowhere, neither installed nor in",
    "judge=elsewhere": "To use your own FOLDER/judge/elsewhere.yaml, add --config-dir=FOLDER.",
    # what is not on this machine
    "mode=headline": "entrant.security_only.security_dir is not set: the folder with the heads' adapters",
    "judge=local judge.model=./absent": "./absent (revision main) is neither a folder here nor a name on the hub.",
    "judge=opus": "The judge needs an Anthropic API key, and ANTHROPIC_API_KEY is not set. Nothing was sent or "
    "charged.\n  Export it, or add the line ANTHROPIC_API_KEY=... to a file .env here.\n  To see the price",
}


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that can be mistaken."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "notes.txt").write_text("Ask Ada about the bank.\n", encoding="utf-8")
    (folder / "run" / "verdicts").mkdir(parents=True)
    battle = {"question_id": "q1", "model_a": "ann", "model_b": "bob", "winner": "tie"}
    write_jsonl(folder / "run" / "battles.jsonl", [battle])
    own = folder / "mine" / "judge"
    own.mkdir(parents=True)
    (own / "broken.yaml").write_text("margin: [0.1\n", encoding="utf-8")
    entrant = (HOME / "conf/entrant/probe_partial.yaml").read_text(encoding="utf-8")
    (own.parent / "entrant").mkdir()
    for name, first_line in {
        "copied": "# @package entrant.probe_partial",
        "unplaced": "# an entrant of my own",
        "unnamed": "# @package entrant.unnamed",
    }.items():
        text = first_line + entrant[entrant.index("\n") :]
        (own.parent / "entrant" / f"{name}.yaml").write_text(text, encoding="utf-8")
    (own / "elsewhere.yaml").write_text(
        "_target_: elo_exp.judges.lexical.Lexicon\n", encoding="utf-8"
    )
    return folder


@pytest.mark.parametrize(("line", "words"), MISTAKES.items(), ids=list(MISTAKES))
def test_a_mistake_is_one_clear_line_and_exit_code_2_and_leaves_no_folder(
    line, words, mine
):
    """Nothing but the store's, of which the parts' checks may have asked."""
    ran = attempt(*shlex.split(line), "tracker=local", folder=mine)
    line, *below = ran.err.splitlines()
    assert line.startswith("elo_exp: "), ran.err
    assert all(text.startswith("  ") for text in below), ran.err
    assert words in ran.err
    assert (ran.code, ran.out) == (2, "")
    assert {path.name for path in (mine / "outputs").glob("*")} <= {"cache"}


PLANS = {
    "": "plan: judge lexical, free",
    "mode=pilot": "plan: judge claude-sonnet",
    "mode=headline judge=opus": "plan: judge claude-opus",
    "experiment=oracle": "oracle: analyses simulated policies. No call is made",
    "experiment=arena": "  preference          593  1,186 ",
    "experiment=store": "plan: this experiment calls no judge and costs nothing.",
}


@pytest.mark.parametrize(("line", "words"), PLANS.items(), ids=list(PLANS))
def test_a_plan_needs_no_key_model_or_file(line, words, tmp_path):
    ran = run(*line.split(), "plan=true", folder=tmp_path)
    assert words in ran.out
    assert not list(tmp_path.glob("outputs/*_*"))


@pytest.mark.system
def test_flags_may_follow_settings(tmp_path):
    ran = run("elo.k=8", "plan=true", "-m", folder=tmp_path)
    assert "plan: judge lexical" in ran.out


@pytest.mark.system
def test_the_plan_of_a_sweep_is_that_of_each_job_and_leaves_no_folder(tmp_path):
    """Also where the launcher is not installed."""
    words = ("-m", "judge=haiku,opus", "hydra/launcher=ray", "plan=true")
    ran = run(*words, folder=tmp_path)
    jobs = re.findall(
        r"(?m)^job \d: judge=(\w+) .*\nplan: judge claude-(\w+)-", ran.out
    )
    assert jobs == [("haiku", "haiku"), ("opus", "opus")]
    assert "\ntotal of 2 jobs: $" in ran.out
    assert not (tmp_path / "outputs").exists()


@pytest.mark.system
def test_what_is_deleted_from_a_list_is_not_missed_in_it(tmp_path):
    ran = attempt(
        "entrant=[probe_reference,probe_hedged,probe_partial]",
        "~entrant.probe_partial",
        *QUICK,
        folder=tmp_path,
    )
    assert ran.code == 0, ran.err


UNSURE = """\
from dataclasses import dataclass

from elo_exp.extending import Judge, SettingError


@dataclass(kw_only=True)
class Unsure(Judge):
    model: str

    def answer(self, requests):
        raise SettingError("This judge is unsure.")
"""


def test_the_log_of_a_share_that_was_begun_stays(tmp_path, monkeypatch):
    """Its entrants may have been paid before what stopped it."""
    (tmp_path / "unsure.py").write_text(UNSURE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine/judge").mkdir(parents=True)
    settings = "_target_: unsure.Unsure\nmodel: unsure\n"
    (tmp_path / "mine/judge/unsure.yaml").write_text(settings, encoding="utf-8")
    given = ("--config-dir=mine", "judge=unsure", "shard=0/2", "tracker=local")
    ran = attempt(*given, folder=tmp_path)
    assert ran.code == 2, ran.err
    assert [path.name for path in tmp_path.glob("outputs/demo_*/elo_exp.log")] == [
        "elo_exp.log"
    ]


@pytest.mark.system
def test_run_folder_and_store_may_be_chosen_and_nothing_is_kept_elsewhere(
    tmp_path,
):
    small = run(
        *QUICK, "hydra.run.dir=results/first", "cache_dir=answers", folder=tmp_path
    )
    assert f"files         {tmp_path / 'results' / 'first'}\n" in small.out
    assert (small.run_dir / "elo_results.json").is_file()
    assert (tmp_path / "answers" / "store.sqlite").is_file()
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept - {"home"} == {"answers", "results"}  # compiled templates
    rows = [line.split() for line in small.out.splitlines() if "●" in line]
    assert [row[1] for row in rows].count("probe_reference") == 1
    assert "verdicts: 54 new from lexical, 0 from cache (80 judge calls" in small.err


@pytest.mark.system
def test_a_full_disk_is_one_clear_line_and_costs_no_answer(tmp_path):
    run(*QUICK, folder=tmp_path)
    with full_disk(60_000):
        ran = attempt(*QUICK, folder=tmp_path)
    assert ran.code == 2
    assert "elo_exp: File too large. The file is as large as a file may be" in ran.err
    assert "0 new from lexical, 54 from cache" in run(*QUICK, folder=tmp_path).err


@pytest.mark.system
def test_two_runs_of_the_same_second_get_folders_of_their_own(tmp_path):
    """They share the store too, so neither judges what the other has judged already."""
    with ThreadPoolExecutor(2) as at_once:
        first, second = at_once.map(
            lambda anew: run(*QUICK, folder=tmp_path, anew=anew), (False, True)
        )
    assert first.run_dir != second.run_dir
    for ran in (first, second):
        assert re.fullmatch(
            r"demo_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]{4}", ran.run_dir.name
        )
        assert ran.read("manifest.json")["finished_at"]
    assert (first.run_dir / "elo_results.json").read_bytes() == (
        second.run_dir / "elo_results.json"
    ).read_bytes()


@pytest.mark.system
def test_help_is_at_most_110_columns_wide_and_names_every_experiment_and_judge(
    tmp_path,
):
    ran = run("--help", folder=tmp_path, anew=True)
    assert max(map(len, ran.out.splitlines())) <= 110
    named = {
        word for line in ran.out.splitlines() for word in re.split(r"[\s,=]+", line)
    }
    for group in ("experiment", "judge"):
        names = {path.stem for path in (CONF / group).glob("*.yaml")}
        assert names - {"tournament", "claude", "openai", "none"} <= named
    assert "elo-exp mode=headline judge=opus  " in ran.out
    assert "about $35 to $70" in ran.out
    assert ran.err == ""


def commands_of_help(text: str) -> list[str]:
    return [
        re.split(r"  +| {1}(?=cost and)", line.strip())[0]
        for line in text.splitlines()
        if line.startswith("  elo-exp ") and "SETTING" not in line
    ]


@pytest.mark.system
def test_the_commands_of_the_help_compose(tmp_path, monkeypatch):
    commands = commands_of_help(run("--help", folder=tmp_path).out)
    assert len(commands) > 8
    monkeypatch.chdir(tmp_path)
    for name in (
        "old.csv",
        "new.jsonl",
        "battles.csv",
        "bank.jsonl",
        "a.eval",
        "b.eval",
        "v1.txt",
        "v2.txt",
    ):
        Path(name).write_text("", encoding="utf-8")
    for command in commands:
        words = shlex.split(command)[1:]
        if not {"-m", "--options", "--cfg", "--config-dir", "--version"} & {*words}:
            composing.compose(expand_shorthand(words))


@pytest.mark.system
def test_a_reader_that_has_read_enough_ends_the_command(tmp_path):
    """As head does, which closes its end of the pipe."""
    words = ("mode=pilot", "plan=true")
    read_end, write_end = os.pipe()
    os.close(read_end)
    ran = subprocess.run(
        [sys.executable, "-m", "elo_exp", *words],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert ran.returncode in {0, 1}
    assert "BrokenPipeError" not in ran.stderr


def test_options_lists_every_option_with_a_sentence(tmp_path):
    own = tmp_path / "mine" / "judge"
    own.mkdir(parents=True)
    (own / "dice.yaml").write_text("# A judge that throws dice. Nobody wins.\n")
    ran = run("--options", "--config-dir=mine", folder=tmp_path)
    assert max(map(len, ran.out.splitlines())) <= 110
    assert "  dice                      A judge that throws dice.\n" in ran.out
    for file in CONF.glob("[!h]*/*.yaml"):
        assert re.search(rf"^  {file.stem} +\S", ran.out, re.MULTILINE), file
    groups = {path.name for path in CONF.iterdir() if path.is_dir()} - {"hydra"}
    assert groups == set(options.GROUPS)


def test_the_version_is_that_of_the_program_and_not_of_a_library(tmp_path):
    ran = run("mode=pilot", "--version", folder=tmp_path)
    assert (ran.out, ran.err) == (f"elo_exp {__version__}\n", "")


@pytest.mark.system
def test_the_shell_completes_groups_and_options(tmp_path):
    line = "elo-exp judge="
    asked = attempt_program(
        str(SCRIPTS / "elo-exp"),
        "-sc",
        "query=bash",
        folder=tmp_path,
        COMP_LINE=line,
        COMP_POINT=str(len(line)),
    )
    assert {"judge=lexical", "judge=replay"} <= set(asked.out.split())
