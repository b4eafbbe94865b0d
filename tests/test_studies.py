"""A study: which bank, header, rubrics and strata belong together, and what a judge is told that it is.

study=medical is the one that ships; study=own is neutral, for prompts and answers of one's own.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from elo_exp.data.rubrics import extract_role
from elo_exp.experiments.audit import Audit
from elo_exp.files import write_jsonl
from elo_exp.judges import role_suffix, roles_by_dimension
from tests.commands import Ran, attempt
from tests.data import shipped
from tests.experiments import composed, opened
from tests.openai_server import OpenAiServer

PROBES = "entrant=[probe_reference,probe_hedged,probe_partial,probe_swapped]"
OWN = ("study=own", "mode=own", "prompts.bank_path=bank.jsonl", "recorded_dir=answers",
       "entrant=[probe_reference,probe_hedged]")  # fmt: skip
CAPITALS = {
    "France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Japan": "Tokyo", "Peru": "Lima", "Kenya": "Nairobi",
    "Norway": "Oslo", "Egypt": "Cairo", "Cuba": "Havana", "Chile": "Santiago", "Ghana": "Accra", "Nepal": "Kathmandu",
}  # fmt: skip


@pytest.fixture
def own_work(tmp_path: Path) -> Path:
    """A folder with a bank of twelve questions about capitals, and two entrants' answers to them."""
    bank = [
        {
            "prompt_id": f"p{i}",
            "source": "capitals",
            "subject": "geography",
            "text": f"What is the capital of {country}?",
            "gold_answer": city,
        }
        for i, (country, city) in enumerate(CAPITALS.items())
    ]
    write_jsonl(tmp_path / "bank.jsonl", bank)
    (tmp_path / "answers").mkdir()
    for name, text in (
        ("probe_reference", "The capital of {} is {}."),
        ("probe_hedged", "Nobody can be sure about {}, but it may be {}."),
    ):
        rows = [
            {"prompt_id": f"p{i}", "response_text": text.format(country, city)}
            for i, (country, city) in enumerate(CAPITALS.items())
        ]
        write_jsonl(tmp_path / f"answers/responses_{name}.jsonl", rows)
    return tmp_path


def folders_of_runs(folder: Path) -> list[str]:
    """What a command has left under outputs/ besides the store."""
    return [
        path.name for path in (folder / "outputs").glob("*") if path.name != "cache"
    ]


# What belongs together


def test_the_medical_study_is_what_a_run_has_unless_it_says_otherwise():
    for experiment in ("tournament", "gate"):
        cfg = composed(f"experiment={experiment}")
        assert cfg.study.name == "medical"
        assert list(cfg.rubric) == ["factuality", "calibration", "clinical_utility"]
    assert composed().stratum == "source"
    audit = composed("experiment=audit")
    assert (audit.study.name, list(audit.rubric)) == ("medical", ["factuality"])
    assert len(composed("experiment=audit", "study=medical").rubric) == 3


@pytest.mark.parametrize("experiment", ["tournament", "gate", "audit"])
def test_own_is_one_neutral_rubric_without_strata(experiment: str):
    cfg = composed(f"experiment={experiment}", "study=own")
    assert cfg.study.name == "own"
    assert list(cfg.rubric) == ["preference"]
    assert cfg.rubric.preference.system_path.endswith("arena_judge_system.md")
    assert cfg.get("stratum") is None


def test_what_you_choose_wins_over_the_study():
    cfg = composed("study=own", "rubric=[correctness]", "stratum=subject")
    assert list(cfg.rubric) == ["correctness"]
    assert cfg.stratum == "subject"


def test_a_study_without_a_bank_wants_one(tmp_path: Path):
    for words in ((), ("experiment=audit",)):
        ran = attempt(*words, "study=own", folder=tmp_path)
        assert ran.code == 2
        assert ran.err.startswith(
            "elo_exp: study=own has no prompts of its own. Give answer files that hold their prompts, or choose prompts:\n"
            "  prompts=FILE "
        )


# Keys: what earlier versions have judged is found again


def digest(keys: Iterable[str]) -> str:
    return hashlib.sha256("".join(sorted(keys)).encode()).hexdigest()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "1331d11ba94e5fead2082f3ebc30f70a8ab42bed83553c0b0cc3219290dc3d34"),
        (("mode=headline", "judge=opus", PROBES),
         "7263e63cb44649647b0b3a09c012ce4adcd5bfebc7e14cba3c43b3613bfdb286"),
        (("mode=headline", "judge=sonnet", PROBES),
         "682c7523295f1675d7c882fe4ffdecec05c57b9524a9b624286564c900eb6ea1"),
    ],
)  # fmt: skip
def test_the_queries_of_the_medical_study_have_the_keys_they_always_had(
    tmp_path: Path, words: tuple[str, ...], expected: str
):
    with opened(tmp_path, *words) as (job, context):
        keys = job.experiment.plans(context.store)[0].keys
    assert (len(keys), digest(keys)) == (4548, expected)


@pytest.mark.system
def test_so_have_those_of_an_audit(tmp_path: Path):
    with opened(tmp_path, "experiment=audit", "judge=sonnet") as (job, _):
        assert isinstance(job.experiment, Audit)
        (audit,) = job.experiment.audit_runs.values()
        keys = [query.key for query in audit.questions.queries]
    expected = "5e50a9bc5ea0ba6abbdcd392b928dc95db8467e7e7080a5ff8cd7743eaed8f06"
    assert (len(keys), digest(keys)) == (6272, expected)


# What the judge is told that it is


@pytest.mark.parametrize(
    ("header", "role"),
    [
        ("# version: v1\n\n# Judge\n\nYou are an expert,\nimpartial evaluator. You compare two.",
         "an expert, impartial evaluator"),
        ("You are a teacher: grade these.", "a teacher"),
        ("Judge these answers.", "Judge these answers"),
        ("You are " + "very " * 40 + "careful.", ("very " * 20)[:99].rstrip() + "…"),
        ("# Only a heading", ""),
    ],
)  # fmt: skip
def test_a_role_is_the_first_sentence_of_the_header(header: str, role: str):
    assert extract_role(header) == role


def test_shipped_headers_name_two_roles():
    names = ("factuality", "calibration", "clinical_utility", "preference", "correctness")  # fmt: skip
    assert [shipped("rubric", name).role for name in names] == [
        *["an expert, impartial physician-evaluator"] * 3,
        *["an expert, impartial evaluator"] * 2,
    ]


def test_a_judge_that_goes_by_words_or_by_a_file_is_told_nothing():
    rubrics = [shipped("rubric", "preference"), shipped("rubric", "correctness")]
    assert roles_by_dimension(shipped("judge", "lexical"), rubrics) == {}
    assert (
        roles_by_dimension(shipped("judge", "replay", path="votes.jsonl"), rubrics)
        == {}
    )
    told = roles_by_dimension(shipped("judge", "opus"), rubrics)
    assert set(told) == {"preference", "correctness"}
    assert role_suffix(told.values()) == ' as "an expert, impartial evaluator"'


Judged = Callable[..., tuple[Ran, str]]


@pytest.fixture
def judged(own_work: Path) -> Iterator[Judged]:
    """Runs the command before a judge on this machine: what it printed, and all that the judge was sent."""
    with OpenAiServer(models=("m",)) as server:

        def run_before_it(*words: str) -> tuple[Ran, str]:
            ran = attempt(
                *("judge=openai_compatible", f"judge.base_url={server.url}"),
                *("judge.model=m", "tracker=local", *words),
                folder=own_work,
            )
            sent = [call.body.decode() for call in server.calls if call.body]
            return ran, "\n".join(sent).lower()

        yield run_before_it


@pytest.mark.system
def test_own_prompts_are_judged_by_no_physician(judged: Judged):
    ran, sent = judged(*OWN, "figures=false", "elo.n_perms=2")
    assert ran.code == 0, ran.err
    assert ran.err.startswith(
        "12 of 12 prompts have a reference answer that the judge does not see. To compare the answers with it as "
        "well: 'rubric=[preference,correctness]'\n"
        'own: preset own, 1 rubric (preference), judge m as "an expert, impartial evaluator"\n'
    )
    assert sent
    assert "physician" not in sent
    assert "clinic" not in sent
    manifest = ran.read("manifest.json")
    assert manifest["study"] == "own"
    assert manifest["judge_roles"] == {"preference": "an expert, impartial evaluator"}
    assert 'judged by m as "an expert, impartial evaluator"' in ran.page.said


@pytest.mark.system
def test_under_the_medical_study_every_request_is_to_a_physician(judged: Judged):
    ran, sent = judged("study=medical", *OWN[1:], "figures=false", "elo.n_perms=2")
    assert ran.code == 0, ran.err
    assert "warning: study" not in ran.err  # it was chosen
    bodies = sent.splitlines()
    assert len(bodies) == 3 * 24
    assert all("physician-evaluator" in body for body in bodies)
    assert set(ran.read("manifest.json")["judge_roles"].values()) == {
        "an expert, impartial physician-evaluator"
    }


@pytest.mark.system
@pytest.mark.parametrize("experiment", ["tournament", "audit"])
def test_prompts_that_a_study_was_not_written_for_are_warned_of(
    judged: Judged, own_work: Path, experiment: str
):
    """Of a bank that stands in a file of the user's; a word of the command would bring study=own."""
    (own_work / "mine/experiment").mkdir(parents=True)
    (own_work / "mine/experiment/capitals.yaml").write_text(
        f"# @package _global_\ndefaults: [{experiment}, _self_]\n"
        "prompts: {bank_path: bank.jsonl}\n",
        encoding="utf-8",
    )
    words = ["--config-dir=mine", "experiment=capitals", "plan=true"]
    ran, sent = judged(*words)
    assert (ran.code, sent) == (0, "")
    warning = (
        'warning: The preset medical tells the judge that it is "an expert, impartial physician-evaluator", but the '
        "prompts are from bank.jsonl. For other prompts use preset=own. To keep the preset, set preset=medical.\n"
    )
    assert warning in ran.err
    assert ran.out.startswith(
        'plan: judge m as "an expert, impartial physician-evaluator"\n  budget '
    )
    named, _ = judged(*words, "study=medical")
    assert warning not in named.err


# No judge is chosen


def prices(ran: Ran) -> dict[str, str]:
    """The prices by judge of the lines that offer some: {"haiku": "0.01"}."""
    parts = re.findall(r"judge=(\w+) +\$([\d.,]+)", ran.err)
    return dict(parts)


def planned(ran: Ran) -> str:
    """The expected dollars of a plan of one rubric, which stand before the detectable gap."""
    lines = ran.out.splitlines()
    has_gap = any(line.endswith(" detectable") for line in lines)
    row = next(line for line in lines if line.startswith("  preference "))
    return row.split()[-2 if has_gap else -1]


@pytest.mark.system
@pytest.mark.parametrize(
    ("words", "n_queries"),
    [
        (OWN, 24),
        ((*OWN, "experiment=gate", "entrant=[probe_hedged]",
          "gate.baseline=run/responses/responses_probe_reference.jsonl"), 24),
        (("experiment=audit", "study=own", "judge=none", "prompts.bank_path=bank.jsonl", "probe=[twin]"), 30),
    ],
)  # fmt: skip
def test_without_a_judge_a_run_says_what_each_would_cost_and_stops(
    own_work: Path, words: tuple[str, ...], n_queries: int
):
    if "experiment=gate" in words:
        baseline = attempt(
            *(*OWN, "judge=lexical", "tracker=local", "figures=false", "elo.n_perms=2"),
            "hydra.run.dir=run",
            folder=own_work,
        )
        assert baseline.code == 0, baseline.err
    ran = attempt(*words, folder=own_work)
    assert ran.code == 2
    line, *below = ran.err[ran.err.index("elo_exp: ") :].splitlines()
    assert line == (
        f"elo_exp: judge is not set. Nothing was sent or charged. Choose a judge for {n_queries} judge calls on preference:"
    )
    assert [one.split()[0] for one in below] == [
        "judge=haiku",
        "judge=gpt",
        "judge=gemini",
        "judge=openai_compatible",
        "judge=lexical",
        "Add",
    ]
    assert not folders_of_runs(own_work)
    offered = prices(ran)
    assert list(offered) == ["haiku", "sonnet", "opus", "gpt", "gemini"]
    for judge in ("haiku", "gpt", "gemini"):
        words_of_plan = [word for word in words if not word.startswith("judge=")]
        plan = attempt(*words_of_plan, f"judge={judge}", "plan=true", folder=own_work)
        assert plan.code == 0, plan.err
        assert offered[judge] == planned(plan)


@pytest.mark.system
def test_a_plan_without_a_judge_stops_alike_and_shares_of_answers_need_none(
    own_work: Path,
):
    ran = attempt(*OWN, "plan=true", folder=own_work)
    assert (ran.code, ran.out) == (2, "")
    assert "judge is not set" in ran.err
    words = ("experiment=answer", *OWN, "shard=0/2", "tracker=local")
    share = attempt(*words, folder=own_work)
    assert share.code == 0, share.err


@pytest.mark.system
@pytest.mark.parametrize("plan", [(), ("plan=true",)])
def test_nobody_places_models_in_an_arena_either(tmp_path: Path, plan: tuple[str, ...]):
    ran = attempt("experiment=arena", "judge=none", *plan, folder=tmp_path)
    assert ran.code == 2
    assert (
        "elo_exp: judge is not set. Nothing was sent or charged. Choose a judge for 1,186 judge calls on preference:"
        in ran.err
    )
    assert not folders_of_runs(tmp_path)


# Words are counted: a baseline


def test_counting_words_is_a_baseline_that_finds_nothing(own_work: Path):
    """Grey cards, no leader, no number to compare jobs by; and it says on its first line that nobody judged."""
    words = ("judge=lexical", "tracker=local", "figures=false", "elo.n_perms=2")
    ran = attempt(*OWN, *words, folder=own_work)
    assert ran.code == 0, ran.err
    assert "own: baseline: word overlap; no model judges the answers\n" in ran.err
    manifest = ran.read("manifest.json")
    assert (manifest["headline"], manifest["headline_std_error"]) == (None, None)
    assert manifest["judge_roles"] == {}
    assert (
        "No model judged these answers: the baseline only counts words."
        in ran.page.said
    )
    assert "compared by lexical." in ran.page.said
    assert "medicine" not in ran.page.said
    assert "\n12 prompts are too few to rank the entrants; " in ran.out
    assert "Word overlap only, not a quality judgement." in " ".join(ran.out.split())
    assert re.findall(r'<article class="card (\w+)">', ran.page.text) == ["open"]
    for said in (ran.out, ran.page.said):
        assert not re.search(r"\bleads\b|\bSupported\b|\bOK\b", said)


def test_a_gate_by_shared_words_is_one_too(own_work: Path):
    ran = attempt(
        *(*OWN[:3], "experiment=gate", "judge=lexical", "tracker=local"),
        *("figures=false", "answers=answers/responses_probe_hedged.jsonl"),
        "gate.baseline=answers/responses_probe_reference.jsonl",
        folder=own_work,
    )
    assert ran.code in (0, 1, 3), ran.err
    assert "gate: baseline: word overlap; no model judges the answers\n" in ran.err
    assert "by word overlap" in ran.page.said


def test_probes_whose_order_is_known_are_no_baseline(tmp_path: Path):
    """The demo shows that counting words puts them in their order."""
    with opened(tmp_path) as (job, _):
        assert job.experiment.opening == (  # type: ignore[attr-defined]
            "preset medical, 3 rubrics (factuality, calibration and clinical_utility), judge lexical"
        )
