"""The words of a command: files, own prompts, entrants without a yaml; what is typed by mistake is one line."""

from __future__ import annotations

import shlex
import string
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from elo_exp.api.transport import read_key
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl
from elo_exp.launching.composing import parse_config_dirs
from elo_exp.launching.quoting import quote_value
from elo_exp.launching.shorthand import expand_shorthand
from elo_exp.masking import mask_text
from elo_exp.paths import HOME
from tests.commands import attempt

QUESTIONS = [f"What is {n} and {n}?" for n in range(4)]
OWN = ["study=own", "mode=own"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a newcomer has it: answers, prompts, battles, a yaml without its package line, runs."""
    folder = tmp_path_factory.mktemp("words")
    for name in ("old", "new"):
        rows = [{"prompt": q, "response": f"{name}: {q}"} for q in QUESTIONS]
        write_jsonl(folder / f"{name}.jsonl", rows)
    write_jsonl(folder / "bank.jsonl", [{"question": q} for q in QUESTIONS])
    write_jsonl(folder / "rows.jsonl", [{"about": q} for q in QUESTIONS])
    battle = {"model_a": "ann", "model_b": "bob", "winner": "model_a"}
    write_jsonl(folder / "battles.jsonl", [battle])
    write_jsonl(folder / "${oc.env:SECRET_KEY}.jsonl", [battle])
    (folder / "mine" / "entrant").mkdir(parents=True)
    yaml = "defaults: [recorded@_here_, _self_]\nentrant_id: old\n"
    (folder / "mine/entrant/old.yaml").write_text(yaml, encoding="utf-8")
    (folder / "runs" / "first").mkdir(parents=True)
    (folder / "runs/first/manifest.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


# What stands for other words

REWRITTEN = {
    # several judges
    "'judge=[sonnet,low:local]' elo.k=8": ["~judge", "+judge@judges.sonnet=sonnet", "+judge@judges.low=local", "elo.k=8"],
    "old.jsonl new.jsonl 'judge=[sonnet, mine/gpt]'": ["~judge", "+judge@judges.sonnet=sonnet", "+judge@judges.gpt=mine/gpt",
                                                       'answers=["old.jsonl","new.jsonl"]', *OWN],
    # files, by what they can be read as
    "old.jsonl new.jsonl judge=sonnet": ["judge=sonnet", 'answers=["old.jsonl","new.jsonl"]', *OWN],
    "battles.jsonl elo.k=8,16 -m": ["-m", "elo.k=8,16", "experiment=rate", 'battles=["battles.jsonl"]'],
    "experiment=rate old.jsonl": ["experiment=rate", 'battles=["old.jsonl"]'],
    "bank.jsonl battles_columns.winner=question": [
        "battles_columns.winner=question", "experiment=rate", 'battles=["bank.jsonl"]'],
    # own work, where no word says how it is judged
    "prompts=bank.jsonl": ['prompts.bank_path="bank.jsonl"', *OWN],
    "prompts.bank_path=bank.jsonl study=medical": ["prompts.bank_path=bank.jsonl", "study=medical", "mode=own"],
    "answers=old.jsonl mode=demo": ['answers="old.jsonl"', "mode=demo", "study=own"],
    "experiment=gate gate.baseline=old.jsonl answers=new.jsonl": [
        "experiment=gate", "gate.baseline=old.jsonl", 'answers="new.jsonl"', *OWN],
    "experiment=gate old.jsonl new.jsonl": [
        "experiment=gate", 'gate.baseline="old.jsonl"', 'answers=["new.jsonl"]', *OWN],
    "experiment=gate gate.baseline=old.jsonl new.jsonl": [
        "experiment=gate", "gate.baseline=old.jsonl", 'answers=["new.jsonl"]', *OWN],
    "experiment=audit prompts=bank.jsonl": [
        "experiment=audit", 'prompts.bank_path="bank.jsonl"', "study=own", "judge=none"],
    "experiment=audit prompts=bank.jsonl judge=haiku": [
        "experiment=audit", 'prompts.bank_path="bank.jsonl"', "judge=haiku", "study=own"],
    "experiment=arena prompts=bank.jsonl": ["experiment=arena", 'prompts.bank_path="bank.jsonl"'],
    # names are values
    "'answers={null:old.jsonl,gpt 4:new.jsonl}'": [
        'answers=[{name:"null",file:"old.jsonl"},{name:"gpt 4",file:"new.jsonl"}]', *OWN],
    # entrants without a yaml: the last part names them
    "'entrant=[probe_hedged,hf:Qwen/Qwen3-0.6B,claude:claude-haiku-5-5]'": [
        "entrant=[probe_hedged]", "+entrant@entrant.Qwen3-0_6B=huggingface",
        'entrant.Qwen3-0_6B.entrant_id="Qwen3-0_6B"', 'entrant.Qwen3-0_6B.model="Qwen/Qwen3-0.6B"',
        "+entrant@entrant.claude-haiku-5-5=claude", 'entrant.claude-haiku-5-5.entrant_id="claude-haiku-5-5"',
        'entrant.claude-haiku-5-5.model="claude-haiku-5-5"'],
    "'entrant=[api:big]'": [
        "entrant=[]", "+entrant@entrant.big=openai_compatible", 'entrant.big.entrant_id="big"',
        'entrant.big.model="big"', "entrant.big.base_url=${api.base_url}",
        "entrant.big.key_variable=${api.key_variable}"],
    # parts with names, models and functions: a known kind first, then the older NAME:FILE, then a function
    "'entrant=[v1=api:gpt-5,base=tiny_base,v2=json:dumps]'": [
        "entrant=[]", "+entrant@entrant.v1=openai_compatible", 'entrant.v1.entrant_id="v1"', 'entrant.v1.model="gpt-5"',
        "entrant.v1.base_url=${api.base_url}", "entrant.v1.key_variable=${api.key_variable}",
        "+entrant@entrant.base=tiny_base", 'entrant.base.entrant_id="base"',
        "+entrant@entrant.v2=function", 'entrant.v2.entrant_id="v2"', 'entrant.v2.function="json:dumps"'],
    "'judge=[low=opus,high=claude:claude-opus-5-5,api:org/big-1,json:dumps,old:gpt]'": [
        "~judge", "+judge@judges.low=opus", "+judge@judges.high=claude", 'judges.high.model="claude-opus-5-5"',
        "+judge@judges.big_1=openai_compatible", 'judges.big_1.model="org/big-1"',
        "+judge@judges.dumps=function", 'judges.dumps.function="json:dumps"', 'judges.dumps.model="dumps"',
        "+judge@judges.old=gpt"],
    "judge=claude:claude-opus-5-5": ["judge=claude", 'judge.model="claude-opus-5-5"'],
    "experiment=oracle judge@oracle_judge=claude:claude-opus-5-5": [
        "experiment=oracle", "judge@oracle_judge=claude", 'oracle_judge.model="claude-opus-5-5"'],
    "judge=json:dumps": ["judge=function", 'judge.function="json:dumps"', 'judge.model="dumps"'],
    # texts, a rubric only if it has a space
    "'rubric=Which one, A: or B?'": ["rubric=[]", '+rubric={which_one_a_or_b:{text:"Which one, A: or B?"}}'],
    "rubric=preference": ["rubric=preference"],
    "rubric=preferense": ["rubric=preferense"],
    "judge.system_prompt=null": ["judge.system_prompt=null"],
    # of a plan, which starts nothing
    "plan=true hydra/launcher=joblib hydra.launcher.n_jobs=2 -m": ["-m", "plan=true"],
    "arena=[one,two]": ["arena=one", "+arena@arena.union.two=two"],
}  # fmt: skip


@pytest.mark.parametrize(("line", "words"), REWRITTEN.items(), ids=list(REWRITTEN))
def test_words_stand_for_others_and_once_rewritten_for_themselves(
    line: str, words: list[str], here: Path
):
    assert expand_shorthand(shlex.split(line)) == words
    assert expand_shorthand(words) == words


def test_folders_of_ones_own_may_have_any_name():
    words = ["--config-dir", "my parts", "elo.k=8", "--config-dir=a=b", "-cd", "c"]
    assert parse_config_dirs(words) == [Path("my parts"), Path("a=b"), Path("c")]


def test_the_bank_that_ships_is_no_bank_of_the_users():
    word = f"prompts.bank_path={HOME / 'prompts/bank.jsonl'}"
    assert expand_shorthand([word]) == [word]


ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(st.lists(ANY | st.text(string.printable), max_size=4))
@settings(max_examples=300, deadline=None)
def test_whatever_the_words_are_they_are_rewritten_or_refused_in_a_line(words):
    """Among them names of 300 characters, which no file can have, and null bytes."""
    try:
        once = expand_shorthand(words)
    except UserError as error:
        assert len(error.line) < 700
    else:
        assert expand_shorthand(once) == once


@pytest.mark.parametrize("word", ["a" * 5000, "\0", f"entrant=[{'x,' * 300}y]"])
def test_a_word_past_any_file_name_is_a_line(word: str, tmp_path: Path):
    ran = attempt(word, folder=tmp_path)
    assert ran.code == 2 and ran.err.count("\n") <= 2
    assert len(ran.err) < 1000


@given(
    st.text(st.characters(exclude_categories=["C"]), max_size=20)
    | st.text("\\\"$'{}:,[]() ", max_size=12)
)
@settings(deadline=None)  # fmt: skip
def test_a_quoted_value_is_read_as_it_is(text: str):
    """By Hydra, and by OmegaConf, which would resolve a variable."""
    (word,) = OverridesParser.create().parse_overrides([f"a={quote_value(text)}"])
    assert OmegaConf.to_container(OmegaConf.create({"a": word.value()}), resolve=True) == {"a": text}  # fmt: skip


def test_a_name_of_a_file_resolves_no_variable(made: Path):
    """Neither of a file that is there, nor of answers that are not."""
    name, key = "${oc.env:SECRET_KEY}.jsonl", {"SECRET_KEY": "sesame-1234"}
    rated = attempt(name, "tracker=local", "figures=false", folder=made, **key)
    assert rated.code == 0, rated.err
    absent = attempt("answers={a:${oc.env:SECRET_KEY},b:c}", folder=made, **key)
    assert "File not found: ${oc.env:SECRET_KEY} (in" in absent.err
    written = [p for p in rated.run_dir.rglob("*") if p.suffix in (".json", ".yaml", ".log")]  # fmt: skip
    texts = [path.read_text(encoding="utf-8") for path in written]
    assert texts and not any(
        "sesame" in text for text in (*texts, rated.err, absent.err)
    )


@pytest.mark.parametrize(
    "words",
    [
        ["prompts.bank_path=${oc.env:A_KEY}", "study=medical", "mode=demo"],
        ["elo.k=${oc.env:A_KEY}"],
        ["-m", "elo.k=8,${oc.env:A_KEY}"],
    ],
)
def test_a_key_that_a_message_would_repeat_is_its_variable(
    words: list[str], tmp_path: Path
):
    ran = attempt(*words, folder=tmp_path, A_KEY="sk-sesame-1234")
    assert (ran.code, "sesame" in ran.out + ran.err) == (2, False)
    assert "$A_KEY" in ran.err


def test_a_key_that_was_read_from_a_file_is_masked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("MY_GATEWAY=sk-sesame-5678\n", encoding="utf-8")
    assert read_key("MY_GATEWAY") == "sk-sesame-5678"
    assert mask_text("found sk-sesame-5678.") == "found $MY_GATEWAY."


# Mistakes

MISTAKES = {
    "nope.csv": "File not found: nope.csv (in ",
    "runs/": "runs/ is a folder of runs. Did you mean experiment=compare 'runs=[runs/...]'?",
    "runs/first": "runs/first is a run. Did you mean experiment=compare 'runs=[runs/first]'?",
    "mine": "mine is a folder. To give its files, write mine/*. To rate a folder of battles or scores, write "
    "experiment=rate battles=mine",
    "rate battles.jsonl": '"rate" is an experiment. Write experiment=rate battles=battles.jsonl',
    "audit": '"audit" is an experiment. Write experiment=audit',
    "sonnet": '"sonnet" names a file of conf/judge. Write judge=sonnet',
    "probe_hedged": "\"probe_hedged\" names a file of conf/entrant. Write 'entrant=[probe_hedged]'",
    "report": '"report" is neither a file nor a setting. Did you mean resume=VALUE?',
    "--plan": "--plan is not a flag. Did you mean plan=true?",
    "--judge sonnet": "--judge is not a flag. Did you mean judge=sonnet?",
    "--budget_usd 5": "--budget_usd is not a flag. Did you mean judging.budget_usd=5?",
    "--elo.k=16": "--elo.k=16 is not a flag. Did you mean elo.k=16?",
    "--frobnicate": "Unknown flag: --frobnicate. Write settings as NAME=VALUE. "
    "--help lists flags and settings.",
    "--config-dir mine 'entrant=[old,probe_hedged]'": "mine/entrant/old.yaml does not say where its settings belong. "
    "Its first line must be '# @package entrant.old'.",
    "prompts=rows.jsonl 'entrant=[probe_hedged,probe_partial]' judge=lexical":
    "rows.jsonl:1 has no prompt. Give it a column called prompt",
    "prompts=absent.jsonl judge=lexical": "File not found: absent.jsonl (in ",
    "prompts=bank.jsonl": "A tournament needs at least two entrants; got none.",
    "old.jsonl": "A comparison needs at least two sets of answers; old.jsonl holds one. Add a second file:\n"
    "  python -m elo_exp old.jsonl FILE",
    "old.jsonl battles.jsonl": "The files are of two kinds: old.jsonl holds answers and prompts, "
    "battles.jsonl holds battles. "
    "Give files of one kind.",
    "old.jsonl bank.jsonl": "bank.jsonl holds prompts and no answers. Write:\n  prompts=bank.jsonl",
    "bank.jsonl": "bank.jsonl holds prompts and no answers. To let models answer them first, or to rate battles whose "
    "columns have other names, write:\n  prompts=bank.jsonl 'entrant=[hf:org/model,api:name]'\n  "
    "bank.jsonl columns.model_a=",
    "'study=[own,medical]'": "A run has one study; got study=[own,medical]. To run one job with each, add -m:\n"
    "  -m study=own,medical",
    "'judge=[sonnet]'": "judge takes one value without brackets. Write judge=sonnet.",
    "'entrant=[hf:x/base,hf:y/base]'": "Two entrants are called base. Name them yourself:\n"
    "  'entrant=[v1=hf:x/base,v2=hf:y/base]'",
    "entrant=hf:x/base": "entrant takes a list in brackets; got hf:x/base. Write:\n  'entrant=[hf:x/base]'",
    "prompts=bank.jsonl 'entrant=[api:a,api:b]' judge=lexical": "Entrant a needs a server. Set "
    "api.base_url, and",
    "-m 'entrant=[a=hf:x],[b=hf:x]'": "Each job of a sweep has the same list of entrants; got [a=hf:x],[b=hf:x].",
    "entrant=v1=hf:x/base": "entrant takes a list in brackets; got v1=hf:x/base. Write:\n  'entrant=[v1=hf:x/base]'",
    "'entrant=[v1=apy:x,probe_hedged]'": "entrant cannot be v1=apy:x: apy is neither a kind (api, claude, hf, "
    "huggingface, openai_compatible, vllm) nor a Python module, and x is not a file of conf/entrant. Did you mean api:x?",
    "'judge=[low=opus]'": "judge takes one value without brackets. Write judge=opus.",
    "'judge=[low:sonet,opus]'": "judge cannot be low:sonet: low is neither a kind (api, claude, gemini, hf, local, openai, "
    "openai_compatible) nor a Python module, and sonet is not a file of conf/judge. Did you mean low=sonnet?",
    "judge=low:gpt": "judge cannot be low:gpt: ",
    "judge=opus,claude:x": "Several judges are a list in brackets; got opus,claude:x. Write:\n  'judge=[opus,claude:x]'",
    "-m judge=opus,claude:x": "A sweep takes judges by the names of their files; got opus,claude:x.",
    "rubric=preferense": "Unknown rubric: preferense. Did you mean preference or preference_scores? To use your own "
    "FOLDER/rubric/preferense.yaml, add --config-dir=FOLDER. To make one in the command:\n"
    "  rubric='Which answer is more polite?'",
    "'entrant=[gpt5,probe_hedged]'": "Unknown entrant: gpt5. --options lists all names. To use your own "
    "FOLDER/entrant/gpt5.yaml, add --config-dir=FOLDER. To make one in the command:\n"
    "  'entrant=[gpt5=api:MODEL]' api.base_url=URL",
    "rubric=absent.md": "File not found: absent.md (in ",
    "'rubric=my absent.md'": "File not found: my absent.md (in ",
    "rubric=@a.md,@b.md": "rubric takes a list in brackets; got @a.md,@b.md. Write:\n  'rubric=[@a.md,@b.md]'",
    "'rubric=[preference,preference=@bank.jsonl]'": "Two rubrics are called preference. Name one of them yourself:",
    "judge=sonnet judge.system_prompt=@absent.txt": "File not found: absent.txt (in ",
    "judge=sonnet 'judge.system_prompt=@you are kind'": "judge.system_prompt begins with @ and names no file. If this is "
    "a text, begin it with @@.",
    "judge=sonnet judge.system_prompt=@a.txt,@b.txt": "judge.system_prompt takes one text; got 2 files. To run one job "
    "with each, add -m:\n  -m judge.system_prompt=@a.txt,@b.txt",
    "judge.system_prompt=kind": "Unknown setting: judge.system_prompt. It belongs to judges and entrants that are",
    "entrant.foo.system_prompt=kind": "entrant.foo.system_prompt belongs to no chosen entrant: these are probe_reference,",
    # settings by their last step
    "budget_usd=3": "Unknown setting: budget_usd. Did you mean judging.budget_usd=3?",
    "budget_usd": '"budget_usd" is neither a file nor a setting. Did you mean judging.budget_usd=VALUE?',
    "budget=3": "Unknown setting: budget. Did you mean judging.budget_usd=3?",
    "judge=sonnet budget_usd=3": "Unknown setting: budget_usd. Did you mean judging.budget_usd=3?",
    "n_perms=5": "Unknown setting: n_perms. Did you mean elo.n_perms=5?",
    "judge=gpt max_tokens=9": "Unknown setting: max_tokens. Did you mean judge.max_tokens=9?",
    "max_token=9": "Unknown setting: max_token. Did you mean judge.max_tokens=9 or entrant.NAME.max_tokens=9?",
    "entrant.foo.temperature=1": "Unknown setting: entrant.foo. Choose from entrant.probe_hedged,",
    "'answers={old.jsonl,new.jsonl}'": "answers must be names with files; got old.jsonl. Write:\n"
    "  'answers={NAME:FILE,NAME:FILE}'",
    "experiment=compare old.jsonl": "experiment=compare reads no file without a setting. Write SETTING=old.jsonl. "
    "--help lists the settings.",
    "old.jsonl answers=new.jsonl": "Answers are named twice: by answers=... and by old.jsonl. Name all files in one place.",
}  # fmt: skip


@pytest.mark.parametrize(("line", "said"), MISTAKES.items(), ids=list(MISTAKES))
def test_a_mistake_is_a_line_that_says_what_was_meant_and_writes_nothing(
    line: str, said: str, made: Path
):
    before = {path for path in made.rglob("*") if "cache" not in path.parts}
    ran = attempt(*shlex.split(line), folder=made)
    message = ran.err[ran.err.index("elo_exp: ") :]
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert message.startswith(f"elo_exp: {said}"), ran.err
    left = {path for path in made.rglob("*") if "cache" not in path.parts} - before
    assert left <= {made / "outputs"}
