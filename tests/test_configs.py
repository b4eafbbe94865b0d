"""Every choice is a file in conf/: each one composes and builds, a mode chooses for you, and you overrule it.

A user's own parts stand in a folder of the same shape, given with --config-dir.
"""

import json
import re
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from elo_exp.data import bank
from elo_exp.errors import RunNeeds, UserError
from elo_exp.files import write_jsonl
from elo_exp.launching import setting_comments
from elo_exp.launching.options import read_first_sentence
from elo_exp.paths import CONF, HOME
from tests.commands import LOCAL, attempt, run
from tests.documented import blocks
from tests.experiments import built, composed

PART_GROUPS = (
    "entrant",
    "judge",
    "scoring",
    "elo",
    "rating",
    "rubric",
    "probe",
    "estimator",
    "tracker",
)  # their files name a class to build
SEVERAL = (
    "entrant",
    "rating",
    "rubric",
    "probe",
    "estimator",
)  # of these, several may be chosen
PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]
MODELS = ["base_olmo", "security_only", "security_plus_robustness", "full_poe"]

OPTIONS = sorted(
    (path.parent.relative_to(CONF).as_posix(), path.stem)
    for path in CONF.rglob("*.yaml")
    if path.parent != CONF
)
PARTS = [(group, name) for group, name in OPTIONS if group in PART_GROUPS]


def write_files(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def chosen(group: str, name: str) -> str:
    return f"{group}=[{name}]" if group in SEVERAL else f"{group}={name}"


GROUP_OF = {
    "probe": "audit",
    "estimator": "oracle",
    "scoring": "oracle",
}  # experiments that have a group, if not all


@pytest.fixture
def files_to_read(tmp_path: Path) -> dict[str, list[str]]:
    """Some parts have no default for what they are to read, or for whom they are to ask."""
    response = {"entrant_id": "recorded", "prompt_id": "p1", "response_text": "Yes."}
    battle = {"model_a": "a", "model_b": "b", "winner": "tie", "question_id": "p1"}
    for name, row in (("responses.jsonl", response), ("battles.jsonl", battle)):
        (tmp_path / name).write_text(json.dumps(row) + "\n", encoding="utf-8")
    hosted = {"base_url": "http://127.0.0.1:9/v1", "model": "mine"}
    (tmp_path / "manifest.json").write_text(
        '{"config": {"num_shards": 2}}', encoding="utf-8"
    )
    for head in range(2):
        (tmp_path / f"shard_{head}_lora.pt").touch()
    heads = ("poe", "full_poe", "security_only", "security_plus_robustness")
    return {
        **{
            n: [
                f"entrant.{n}.{part}_dir={tmp_path}"
                for part in ("security", "robustness")
            ]
            for n in heads
        },
        "entrant/openai_compatible": [
            f"entrant.openai_compatible.{name}={value}"
            for name, value in hosted.items()
        ],
        "judge/openai": ["judge.model=gpt-6.2-sol"],
        "judge/openai_compatible": [
            f"judge.{name}={value}" for name, value in hosted.items()
        ],
        "entrant/llama_cpp": ["entrant.llama_cpp.path=mine.gguf"],
        **{
            f"entrant/{name}": [f"entrant.{name}.model=mine/model"]
            for name in (
                *("huggingface", "huggingface_4bit", "huggingface_int8"),
                "huggingface_sharded",
            )
        },
        "entrant/vllm": ["entrant.vllm.model=mine/model"],
        "judge/local": ["judge.model=mine/model"],
        "entrant/function": [
            "entrant.function.function=json:dumps",
            "entrant.function.version=1",
        ],
        "judge/function": ["judge.function=json:dumps", "judge.version=1"],
        "scoring/criteria": ["scoring.criteria=[Is it right?]"],
        "recorded": [f"entrant.recorded.path={tmp_path}/responses.jsonl"],
        "trajectories": [f"entrant.trajectories.path={tmp_path}/a.eval"],
        "replay": [f"judge.path={tmp_path}/battles.jsonl"],
    }


@pytest.mark.parametrize(
    ("group", "name"), [option for option in OPTIONS if option not in PARTS]
)
def test_every_file_of_settings_composes(group: str, name: str):
    cfg = composed(
        *(["experiment=arena"] if group == "arena" else []), chosen(group, name)
    )
    match group:
        case "mode":
            assert cfg.mode.name == name
        case "study":
            assert cfg.study.name == name
        case "experiment":
            assert cfg._target_.startswith(f"elo_exp.experiments.{name}.")
        case "sweep":
            swept = dict(cfg.hydra.sweeper.params)
            assert swept
            assert all(OmegaConf.select(cfg, key) is not None for key in swept)
        case "arena":
            assert cfg.arena.name == name
            assert (cfg.arena.dataset is None) == (name in ("file", "simulated"))
        case "hydra/help":
            assert (
                "hydra.help.footer"
                in OmegaConf.to_container(cfg, resolve=False)["hydra"]["help"][
                    "template"
                ]
            )
        case "hydra/job_logging":
            assert cfg.hydra.job_logging.version == 1
        case _:
            pytest.fail(f"conf/{group}: say here what its files must hold")


@pytest.mark.parametrize(
    ("group", "name"),
    [
        pytest.param(*part, marks=[pytest.mark.system] * (number % 3 > 0))
        for number, part in enumerate(PARTS)
    ],
)
def test_every_part_composes_and_builds(
    group: str, name: str, tmp_path: Path, files_to_read: dict[str, list[str]]
):
    overrides = [
        f"experiment={GROUP_OF.get(group, 'tournament')}",
        chosen(group, name),
        *files_to_read.get(name, files_to_read.get(f"{group}/{name}", [])),
    ]
    built(*overrides, f"cache_dir={tmp_path}")


def comments_and_lines(path: Path) -> list[tuple[str, str]]:
    """The comment, if any, and the rest of each line below the header of a yaml file."""
    text = path.read_text(encoding="utf-8")
    header = re.match(r"(?:#.*\n)*", text)
    below = text[header.end() if header else 0 :].splitlines()
    parts = [re.split(r"(?:^|\s+)# ", line, maxsplit=1) for line in below]
    return [(part[1] if len(part) > 1 else "", part[0]) for part in parts]


FILES = sorted(CONF.rglob("*.yaml"))


def test_no_comment_is_longer_than_80_characters():
    """But for the header of a file: messages and the reference show a comment on one line."""
    comments = [comment for path in FILES for comment, _ in comments_and_lines(path)]
    assert sum(map(bool, comments)) > 300
    assert [comment for comment in comments if len(comment) > 80] == []


def test_the_first_sentence_of_a_file_fits_into_90_characters():
    """`--options` lists it."""
    sentences = [read_first_sentence(path) for path in FILES]
    assert [sentence for sentence in sentences if len(sentence) > 90] == []


def test_the_comment_of_a_value_that_must_be_given_ends_in_an_example():
    unset = [
        (line.strip().removesuffix(": ???"), comment)
        for path in FILES
        for comment, line in comments_and_lines(path)
        if line.endswith(": ???")
    ]
    assert {"runs", "battles", "model", "path"} <= {key for key, _ in unset}
    for key, comment in unset:
        about, _, example = comment.partition(", e.g. ")
        assert about and f"{key}=" in example, f"{key}: {comment}"


@pytest.mark.parametrize(
    ("mode", "judge", "entrants", "strata", "budget_usd"),
    [
        ("demo", "elo_exp.judges.lexical.LexicalJudge", PROBES, {}, 0),
        (
            "pilot",
            "claude-sonnet-5-5",
            MODELS,
            {"medmcqa_open": 8, "medqa": 24, "curated": 18},
            10,
        ),
        ("headline", "claude-opus-5-5", MODELS, {}, 100),
        ("own", "elo_exp.judges.NoJudge", [], {}, 5),
    ],
)
def test_a_mode_chooses_judge_entrants_prompts_and_budget(
    mode: str,
    judge: str,
    entrants: list[str],
    strata: dict[str, int],
    budget_usd: float,
):
    cfg = composed(f"mode={mode}")
    assert cfg.judge.get("model", cfg.judge["_target_"]) == judge
    assert list(cfg.entrant) == entrants
    assert cfg.mode.strata == strata
    assert cfg.mode.pilot_seed == 20260427
    assert cfg.judging.budget_usd == budget_usd


@pytest.mark.parametrize("in_this_order", [1, -1])
def test_what_you_choose_wins_over_the_mode_wherever_you_say_it(in_this_order: int):
    def given(*overrides: str) -> DictConfig:
        return composed(*overrides[::in_this_order])

    assert (
        given("judge=lexical", "mode=headline").judge["_target_"]
        == "elo_exp.judges.lexical.LexicalJudge"
    )
    assert given("judge=haiku", "mode=pilot").judge.model == "claude-haiku-5-5"
    two = given("entrant=[probe_reference,probe_hedged]", "mode=pilot")
    assert list(two.entrant) == ["probe_reference", "probe_hedged"]
    assert two.judge.model == "claude-sonnet-5-5"
    assert given("judging.budget_usd=3", "mode=headline").judging.budget_usd == 3


def test_recorded_dir_answers_for_entrants_that_cannot_run_here(tmp_path: Path):
    """The rows of the four models keep their names; who made them elsewhere rates them here."""
    for name in MODELS:
        row = {"prompt_id": "p1", "response_text": f"{name} answers"}
        (tmp_path / f"responses_{name}.jsonl").write_text(
            json.dumps(row), encoding="utf-8"
        )
    job = built("mode=headline", "judge=lexical", f"recorded_dir={tmp_path}")
    job.check_files(RunNeeds())
    entrants = job.experiment.entrant  # type: ignore[attr-defined]
    assert {name: entrant.entrant_id for name, entrant in entrants.items()} == {
        m: m for m in MODELS
    }


@pytest.mark.system
def test_with_allow_missing_entrants_are_rated_on_the_prompts_that_they_answered(
    tmp_path: Path,
):
    """One file is absent, and its entrant is left out; another lacks a prompt, on which the others are compared."""
    prompts = [p.prompt_id for p in bank.load_bank(HOME / "prompts/bank.jsonl")]
    for name, answered in (
        ("probe_reference", prompts),
        ("probe_hedged", prompts[1:]),
        ("probe_partial", prompts),
    ):
        rows = [{"prompt_id": p, "response_text": f"{name} {p}"} for p in answered]
        write_jsonl(tmp_path / f"responses_{name}.jsonl", rows)
    ran = run("recorded_dir=.", "allow_missing=true", "rubric=[calibration]", "elo.n_perms=20", "tracker=local",
              "figures=false", folder=tmp_path)  # fmt: skip
    assert (
        "probe_swapped: found no responses_probe_swapped.jsonl. The run goes on without it."
        in ran.err
    )
    assert ran.read("manifest.json")["entrants"] == [
        "probe_reference",
        "probe_hedged",
        "probe_partial",
    ]
    board = ran.read("ratings.json")["dimensions"]["calibration"]["bradley_terry"][
        "ratings"
    ]
    n = len(prompts)
    assert {row["model"]: row["n_battles"] for row in board} == {
        "probe_reference": 2 * n - 1,
        "probe_hedged": 2 * n - 2,
        "probe_partial": 2 * n - 1,
    }


RUBRIC = """\
# @package rubric.empathy
_target_: elo_exp.data.rubrics.Rubric
dimension: empathy
path: empathy.md
system_path: ${home:prompts/judge_system.md}
template_path: ${home:prompts/pairwise.md}
schema_path: ${home:prompts/verdict_schema.json}
"""
RUBRIC_TEXT = """\
# version: v3

# Empathy

Which response would a worried person rather receive? Prefer the one that names the worry and answers it.
"""


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "judging.budget_usd=inf",
            "judging.budget_usd must be a finite number; got inf.",
        ),
        (
            "judge.structured=xml",
            'judge.structured must be json_schema, json_object or none; got "xml".',
        ),
        (
            "+judge.extra_body={top_p: [-inf]}",
            "judge.extra_body.top_p.0 must be a finite number; got -inf.",
        ),
        (
            "judge._target_=math.sqrt",
            "judge._target_ must be the path of a dataclass, and math.sqrt is not one.",
        ),
    ],
)
def test_what_no_manifest_can_hold_and_no_part_can_be_is_refused(
    override: str, words: str
):
    with pytest.raises(UserError) as refusal:
        at = ("judge.base_url=http://127.0.0.1:9", "judge.model=m")
        built("judge=openai_compatible", *at, override)
    assert str(refusal.value).startswith(words)


def test_entrants_and_a_dimension_of_your_own_are_files_and_no_code(tmp_path: Path):
    """The yaml of the tutorial for recorded answers, a rubric, and a bank without reference answers."""
    page = blocks("docs/tutorials/tournament.md")
    (shown,) = (block.text for block in page if "entrant.alpha" in block.text)
    prompts = [f"p{i}" for i in range(4)]
    write_files(
        tmp_path,
        {
            "mine/entrant/alpha.yaml": shown,
            "mine/entrant/parrot.yaml": shown.replace("alpha", "parrot"),
            "mine/rubric/empathy.yaml": RUBRIC,
            "empathy.md": RUBRIC_TEXT,
        },
    )
    about = {"source": "own", "subject": "sleep", "text": "I worry about my sleep."}
    write_jsonl(tmp_path / "bank.jsonl", [{"prompt_id": p, **about} for p in prompts])
    for name in ("alpha", "parrot"):
        rows = [{"prompt_id": p, "response_text": f"{name} {p}"} for p in prompts]
        write_jsonl(tmp_path / f"responses_{name}.jsonl", rows)
    ran = run(
        *["--config-dir=mine", "entrant=[alpha,parrot]", "recorded_dir=."],
        *["rubric=[empathy,factuality]", "prompts.bank_path=bank.jsonl"],
        "judge=lexical",
        *[*LOCAL, "figures=false"],
        folder=tmp_path,
    )
    manifest = ran.read("manifest.json")
    assert manifest["entrants"] == ["alpha", "parrot"]
    assert manifest["rubric_versions"]["empathy"] == "v3"
    assert len(ran.rows("verdicts/empathy.jsonl")) == 4
    assert (
        "rubric factuality: no prompt has a gold_answer, so it judges nothing."
        in ran.err
    )


JUDGE = """\
from dataclasses import dataclass

from elo_exp.judges import Judge


@dataclass(kw_only=True)
class FirstLetter(Judge):
    letter: str
    model = "first_letter"

    def answer(self, requests):
        for request in requests:
            yield request.reply(self.letter)
"""
RATING = """\
from dataclasses import dataclass

from elo_exp.ratings.elo import PermutationElo
from elo_exp.ratings.leaderboard import Leaderboard


class EveryTie(PermutationElo):
    def select_played(self, battles):
        return battles


@dataclass(kw_only=True)
class Battles:
    points: float

    def rate(self, battles):
        return {dimension: self.leaderboard(some) for dimension, some in battles.items()}

    def leaderboard(self, battles):
        rating = self.points * battles.n_battles()
        return Leaderboard(
            label="Battles fought", interval=None, models=battles.models, rating=rating
        )
"""


@pytest.mark.system
def test_a_judge_and_a_rating_of_your_own_are_a_class_and_a_file_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """This judge prefers whatever is shown first, and this Elo plays every tie."""
    written = {
        "my_judge.py": JUDGE,
        "my_rating.py": RATING,
        "mine/judge/first.yaml": "_target_: my_judge.FirstLetter\nletter: A\n",
        "mine/elo/every_tie.yaml": "defaults: [default, _self_]\n_target_: my_rating.EveryTie\n",
        "mine/rating/battles.yaml": "# @package rating.battles\n_target_: my_rating.Battles\npoints: 10\n",
    }
    write_files(tmp_path, written)
    monkeypatch.syspath_prepend(tmp_path)
    chosen_parts = (
        "judge=first",
        "elo=every_tie",
        "rating=[bradley_terry,battles]",
        "rubric=[clinical_utility]",
        *LOCAL,
        "figures=false",
    )
    ran = run("--config-dir=mine", *chosen_parts, folder=tmp_path)

    (quality,) = ran.read("manifest.json")["judge_quality"]
    assert (quality["flip_rate"], quality["first_shown_rate"]) == (1.0, 1.0)
    dimension = ran.read("ratings.json")["dimensions"]["clinical_utility"]
    assert dimension["elo"]["n_matches"] == quality["n_judgments"]  # all of them ties
    found = dimension["battles"]
    assert (found["label"], found["interval"]) == ("Battles fought", None)
    assert (
        sum(row["rating"] for row in found["ratings"])
        == 10 * 2 * quality["n_judgments"]
    )
    assert "Battles fought" in ran.out


def test_a_mode_of_your_own_that_forgets_a_setting_is_told_which(tmp_path: Path):
    mode = "# @package _global_\nmode: {name: mine, strata: {medqa: 3}}\n"
    write_files(tmp_path, {"mine/mode/mine.yaml": mode})
    ran = attempt("--config-dir=mine", "mode=mine", *LOCAL, folder=tmp_path)
    assert ran.code == 2
    line = "elo_exp: mode.pilot_seed is not set and has no default. Set it:"
    assert ran.err == f"{line}\n  mode.pilot_seed=VALUE\n"


@pytest.mark.parametrize(
    ("setting", "words", "file"),
    [
        ("judge.base_url", ["judge=openai_compatible"], "judge/openai_compatible.yaml"),
        ("judge.model", ["judge=local"], "judge/local.yaml"),
        ("runs", ["experiment=dashboard"], "experiment/dashboard.yaml"),
        ("entrant.mine.model", ["+entrant@entrant.mine=vllm"], "entrant/vllm.yaml"),
    ],
)
def test_a_comment_is_that_of_the_file_that_the_command_chooses(
    setting: str, words: list[str], file: str
):
    name = setting.rpartition(".")[2]
    comment = setting_comments.read_comments(CONF / file)[name]
    assert setting_comments.find_comment(setting, words) == comment
