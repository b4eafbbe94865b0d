"""A tournament from the bank to the leaderboard: what it leaves behind, what a second one costs, and what a kill does.

`python -m elo_exp` runs as a user runs it. Where a test needs less than the whole demo it takes the first 40 pairs.
"""

import json
import re
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from elo_exp.files import read_json
from tests import own_example
from tests.commands import LOCAL, QUICK, Ran, attempt, run, start, table

N_PROMPTS = 143  # 93 of them with a reference answer
PROBES = ["probe_reference", "probe_hedged", "probe_partial", "probe_swapped"]
DIMENSIONS = {
    "factuality": 93 * 6,
    "calibration": 143 * 6,
    "clinical_utility": 143 * 6,
}  # pairs of entrants
BEST_FIRST = dict.fromkeys(DIMENSIONS, PROBES) | {  # entrants/probe.py says why
    "calibration": [PROBES[i] for i in (0, 2, 3, 1)]
}
PLAIN = ("tracker=local", "figures=false", "hydra.run.dir=run")  # all of the demo
NOT_CONCLUSIONS = (
    "earlier/",
    "manifest.json",
    "report.html",
    "elo_exp.log",
    ".hydra/",
    "tracker/",
    "wandb/",
)
# What the manifest says of money, time and choice, and not of inputs and judge.
SPENT_OR_CHOSEN = (
    "started_at finished_at usage overrides config git_commit files token store"
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The command without a word after it."""
    return run(folder=tmp_path_factory.mktemp("demo"), strict=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The first 40 pairs of each dimension, 20 permutations."""
    return run(*LOCAL, "figures=false", folder=tmp_path_factory.mktemp("small"))


def artifacts(run_dir: Path) -> dict[str, bytes]:
    """What a run concluded, file by file; a file that a kill left half-written begins with a dot."""
    return {
        path.relative_to(run_dir).as_posix(): path.read_bytes()
        for path in sorted(run_dir.rglob("*"))
        if path.is_file()
        and not path.relative_to(run_dir).as_posix().startswith(NOT_CONCLUSIONS)
        and not path.name.startswith(".")
    }


def timeless(run_dir: Path) -> dict[str, bytes]:
    """The same without the time at which each answer was made."""
    when = re.compile(rb'"timestamp": "[^"]*"')
    return {
        name: when.sub(b'"timestamp": null', data)
        for name, data in artifacts(run_dir).items()
    }


def facts(ran: Ran) -> dict[str, Any]:
    """What the manifest says of the inputs and of the judge."""
    manifest = ran.read("manifest.json")
    return {name: manifest[name] for name in manifest.keys() - SPENT_OR_CHOSEN.split()}


def usage(ran: Ran) -> dict[str, int]:
    return dict(ran.read("manifest.json")["usage"])


def numbers(value: Any) -> Any:
    """Nested mappings and lists with every float made comparable to 1e-9."""
    if isinstance(value, dict):
        return {name: numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [numbers(inner) for inner in value]
    return pytest.approx(value, abs=1e-9) if isinstance(value, float) else value


# What a run leaves behind


COLUMNS = {
    "responses/responses_probe_hedged.jsonl": [
        *["entrant_id", "prompt_id", "response_text", "p_correct"],
        *["finish_reason", "diagnostics", "timestamp"],
    ],
    "matches/matches.jsonl": [
        *["prompt_id", "dimension", "source", "prompt_text", "entrant_a", "entrant_b"],
        *["response_a", "response_b", "gold_answer", "expected_behavior"],
    ],
    "verdicts/factuality.jsonl": [
        *["prompt_id", "dimension", "entrant_a", "entrant_b", "winner"],
        *["inconsistent", "invalid", "equal_answers", "raw"],
    ],
    "battles.jsonl": [
        *["model_a", "model_b", "winner", "source", "question_id", "judge_model"],
        *["dimension", "verdict_ab", "verdict_ba", "equal_answers"],
    ],
    "strata.csv": [
        *["dimension", "stratum", "model", "rating", "ci_low", "ci_high", "n_battles"],
    ],
    "pairwise_winrates.csv": [
        *["dimension", "entrant_a", "entrant_b", "a_wins", "b_wins", "ties"],
        "inconsistent",
    ],
}
OTHER_FILES = ["elo_per_perm.npz", "elo_results.json", "ratings.json"]


@pytest.mark.system
def test_the_run_folder_holds_these_files_with_these_columns(demo: Ran):
    by_entrant = {f"responses/responses_{name}.jsonl" for name in PROBES}
    by_dimension = {f"verdicts/{dimension}.jsonl" for dimension in DIMENSIONS}
    found = {
        name for name in artifacts(demo.run_dir) if not name.startswith("figures/")
    }
    assert found == {*COLUMNS, *OTHER_FILES, *by_entrant, *by_dimension}
    for name, columns in COLUMNS.items():
        read = (
            demo.rows if name.endswith("jsonl") else lambda n: table(demo.run_dir / n)
        )
        assert list(read(name)[0]) == columns, name
    assert 100_000 < (demo.run_dir / "report.html").stat().st_size < 400_000


@pytest.mark.system
def test_any_column_of_the_bank_may_be_the_stratum(small: Ran):
    by = run(*LOCAL, "stratum=subject", "figures=false", folder=small.folder)
    subjects = {row["stratum"] for row in table(by.run_dir / "strata.csv")}
    assert len(subjects) > 2
    refused = attempt(*LOCAL, "stratum=topic", folder=small.folder)
    assert refused.code == 2
    assert "stratum must be a column of " in refused.err


@pytest.mark.system
def test_every_pair_is_judged_on_every_prompt_of_a_dimension(demo: Ran):
    """Factuality leaves out the 50 curated prompts, which have no reference."""
    matches = demo.rows("matches/matches.jsonl")
    assert Counter(row["dimension"] for row in matches) == DIMENSIONS
    factual = [row["source"] for row in matches if row["dimension"] == "factuality"]
    assert Counter(factual) == {"medmcqa_open": 24 * 6, "medqa": 69 * 6}


@pytest.mark.system
def test_elo_results_have_the_originals_layout(demo: Ran):
    """The array beside it has the rating after every permutation: its mean, its standard error."""
    results = demo.read("elo_results.json")
    *original, added = results
    assert original == ["default_k", "primary", "k_sensitivity", "n_decisive_matches"]
    assert results[added] == "ordering error of the permutation mean"
    decisive = [
        row["dimension"] for row in demo.rows("battles.jsonl") if row["winner"] != "tie"
    ]
    assert results["n_decisive_matches"] == Counter(decisive)
    with np.load(demo.run_dir / "elo_per_perm.npz") as file:
        arrays = dict(file)
    for dimension in DIMENSIONS:
        by_k = results["k_sensitivity"][dimension]
        assert list(by_k) == ["1.0", "4.0", "8.0", "16.0", "32.0"]
        assert by_k[str(results["default_k"])] == results["primary"][dimension]
        samples, names = (
            arrays[f"{dimension}__data"],
            arrays[f"{dimension}__entrants"].tolist(),
        )
        assert samples.shape == (500, 4)
        for name, column in zip(names, samples.T, strict=True):
            mean, sem = column.mean(), column.std(ddof=1) / 500**0.5
            low, high = mean - 1.96 * sem, mean + 1.96 * sem
            assert results["primary"][dimension][name] == {
                "entrant_id": name,
                **numbers(
                    {"mean": mean, "sem": sem, "ci95_low": low, "ci95_high": high}
                ),
            }


@pytest.mark.system
def test_ratings_json_has_every_method_best_first(demo: Ran):
    dimensions = demo.read("ratings.json")["dimensions"]
    primary = demo.read("elo_results.json")["primary"]
    assert list(dimensions) == list(DIMENSIONS)
    for dimension, methods in dimensions.items():
        for method in methods.values():
            rows = method["ratings"]
            assert [row["rank"] for row in rows] == [1, 2, 3, 4]
            assert [row["model"] for row in rows] == BEST_FIRST[dimension]  # as made
            assert all(row["ci_low"] < row["rating"] < row["ci_high"] for row in rows)
        for row in methods["elo"]["ratings"]:
            assert row["rating"] == primary[dimension][row["model"]]["mean"]
            assert row["ordering_error"] == primary[dimension][row["model"]]["sem"]
        fitted = methods["bradley_terry"]["ratings"]
        assert sum(row["rating"] for row in fitted) / 4 == pytest.approx(1400)
        assert [row["ordering_error"] for row in fitted] == [None] * 4  # not known


@pytest.mark.system
def test_a_run_in_the_folder_of_another_moves_that_one_aside(tmp_path: Path):
    """Whole, and once: the same command again is the same run. What others have put there stays."""
    three = "entrant=[probe_reference,probe_hedged,probe_partial]"
    first = run(*QUICK, "hydra.run.dir=mine", three, folder=tmp_path)
    manifest = first.read("manifest.json")
    assert {*manifest["files"]} == {*artifacts(first.run_dir), "manifest.json", "report.html"}  # fmt: skip
    (tmp_path / "mine" / "notes.txt").write_text("Ask Ada.\n", encoding="utf-8")
    ratings = (first.run_dir / "ratings.json").read_bytes()
    two = "entrant=[probe_reference,probe_hedged]"
    for _ in range(2):
        last = run(*QUICK, "hydra.run.dir=mine", two, folder=tmp_path, strict=False)
        (moved_to,) = (last.run_dir / "earlier").glob("20*")
        assert (last.run_dir / "notes.txt").is_file()
        assert read_json(moved_to / "manifest.json") == manifest
        assert all((moved_to / name).is_file() for name in manifest["files"])
        assert (moved_to / "ratings.json").read_bytes() == ratings
        assert last.read("manifest.json")["token"] == manifest["token"]
    assert f"It is now in {moved_to}" not in last.err


@pytest.mark.system
def test_a_run_on_a_file_that_changed_moves_the_earlier_result_aside(tmp_path: Path):
    own_example.write_files(tmp_path)
    words = ("old.csv", "new.jsonl", "judge=lexical", "hydra.run.dir=mine", *PLAIN[:2])
    run(*words, "elo.n_perms=2", folder=tmp_path)
    rows = (tmp_path / "new.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "new.jsonl").write_text("\n".join(rows[:-1]) + "\n", encoding="utf-8")
    ran = run(*words, "elo.n_perms=2", folder=tmp_path)
    (moved_to,) = (ran.run_dir / "earlier").glob("20*")
    assert f"It is now in {moved_to}" in ran.err
    assert (moved_to / "report.html").is_file()


@pytest.mark.system
def test_the_manifest_says_what_ran_on_what_and_what_it_cost(demo: Ran):
    manifest = demo.read("manifest.json")
    expected = {
        "experiment": "tournament", "mode": "demo", "judge_model": "lexical",
        "entrants": PROBES, "bank_size": N_PROMPTS, "selected_prompt_count": N_PROMPTS,
        "n_perms": 500, "shuffle_seed": 20260425, "pilot_seed": 20260427, "error": None,
        "rubric_versions": dict.fromkeys(DIMENSIONS, "v1"),
    }  # fmt: skip
    assert {name: manifest[name] for name in expected} == expected
    started, finished = (manifest[name] for name in ("started_at", "finished_at"))
    assert datetime.fromisoformat(started) <= datetime.fromisoformat(finished)
    assert {"elo_exp", "python", "numpy", "hydra-core"} <= set(manifest["versions"])
    assert "git_commit" in manifest
    hashes = manifest["input_hashes"].values()
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes)
    assert manifest["config"]["elo"]["k_sweep"] == [1, 4, 8, 16, 32]
    assert manifest["usage"]["verdicts_wanted"] == 2 * sum(DIMENSIONS.values()) == 4548


@pytest.mark.system
def test_every_figure_is_a_png_and_an_svg_with_its_data_beside_it(demo: Ran):
    paths = list((demo.run_dir / "figures").iterdir())
    endings = [
        f"{path.stem}{end}" for path in paths for end in (".csv", ".png", ".svg")
    ]
    assert {path.name for path in paths} == set(endings)
    for path in paths:
        if path.suffix == ".svg":
            ElementTree.parse(path)
        elif path.suffix == ".csv":
            assert {row["dimension"] for row in table(path)} == set(DIMENSIONS)


# Who wins


@pytest.mark.system
def test_the_console_fits_a_screen_and_ends_with_where_to_look(demo: Ran):
    lines = demo.out.splitlines()
    assert len(lines) + len(demo.err.splitlines()) <= 60
    dimensions = demo.read("ratings.json")["dimensions"]
    best = dimensions["factuality"]["bradley_terry"]["ratings"][0]
    interval = f"[{best['ci_low']:.0f}, {best['ci_high']:.0f}]"
    row = next(line for line in lines if f"{best['rating']:.0f}    {interval}" in line)
    assert row.split()[:2] == ["1", best["model"]]
    known = "18 of 18 pairs of reference entrants recovered, 15 of them significantly"
    assert f"  known order   {known}" in lines
    labels = [line.split()[0] for line in lines[-5:-1]]
    assert labels == ["files", "report", "tracked", "next"]
    assert (demo.run_dir / "report.html").as_uri() in lines[-4]
    assert "Upload: wandb sync" in lines[-3]
    assert max(map(len, [*lines[:-5], *lines[-2:]])) <= 110
    assert demo.run_dir.parent == demo.folder / "outputs"


@pytest.mark.system
def test_in_one_order_everything_says_so_and_nothing_gives_a_number_of_flips(
    small: Ran, tmp_path: Path
):
    one = run(*LOCAL, "figures=false", "judging.orders=one", folder=tmp_path)
    (plain, found) = (ran.read("manifest.json") for ran in (small, one))
    for quality in found["judge_quality"]:
        assert (quality["flip_rate"], quality["n_two_order"]) == (None, 0)
    usage = found["usage"]
    assert usage["flips"] is None
    assert usage["judge_calls"] < 0.6 * plain["usage"]["judge_calls"]
    said = " ".join(one.out.split())
    caution = "CAUTION: order changes the verdict: not measured: one order"
    assert f"{caution}; first answer wins" in said
    assert "Bradley-Terry with position, prompt-clustered" in one.out
    for conclusion in one.read("ratings.json")["conclusions"].values():
        assert "one_order" in [reason["name"] for reason in conclusion["reasons"]]
    page = one.page.text
    assert "<b>not measured: one order" in page and "orders: one" in page
    rates = table(one.run_dir / "pairwise_winrates.csv")
    assert {row["inconsistent"] for row in rates} == {""}
    given = (
        f"battles={one.run_dir / 'battles.jsonl'}",
        "elo.n_perms=20",
        "tracker=local",
        "figures=false",
    )
    rerated = run("experiment=rate", *given, folder=tmp_path)
    boards = [ran.read("ratings.json")["dimensions"] for ran in (one, rerated)]
    first, again = ({d: b["bradley_terry"] for d, b in some.items()} for some in boards)
    assert first == again
    said = " ".join(rerated.out.split())
    assert "order changes the verdict: not measured: one order" in said


# What a second run costs


@pytest.mark.system
def test_a_second_run_asks_nothing_and_concludes_the_same_to_the_byte(demo: Ran):
    """The times too: they are those at which the answers were made, once."""
    again = run("tracker=local", folder=demo.folder)
    assert again.run_dir != demo.run_dir
    assert artifacts(again.run_dir) == artifacts(demo.run_dir)
    assert facts(again) == facts(demo)
    assert usage(demo)["judge_calls"] == usage(demo)["verdicts_distinct"]
    assert usage(again)["judge_calls"] == usage(again)["responses_generated"] == 0
    assert usage(again)["verdicts_stored"] == usage(demo)["judge_calls"]


@pytest.mark.system
def test_replaying_the_verdicts_gives_the_same_ratings(small: Ran):
    judge = ("judge=replay", f"judge.path={small.run_dir}/verdicts", "figures=false")
    fresh = "cache_dir=fresh"  # a store without another judge
    replayed = run(*LOCAL, *judge, fresh, folder=small.folder)
    before, after = (artifacts(ran.run_dir) for ran in (small, replayed))
    for name in (*OTHER_FILES, "pairwise_winrates.csv"):
        assert after[name] == before[name], name
    old, new = (ran.read("manifest.json") for ran in (small, replayed))
    assert new["judge_model"] == "replay"
    assert new["judge_quality"] == old["judge_quality"]


OF_TEXTS = {
    "length",
    "repeats",
    "known_order",
    "strata",
    "invalid",
    "audit",
}  # not of battles


@pytest.mark.system
def test_rating_the_battles_file_gives_the_same_ratings(demo: Ran):
    """By dimension, from its name alone."""
    given = (f"{demo.run_dir}/battles.jsonl", "tracker=local", "figures=false")
    rated = run(*given, folder=demo.folder)
    assert "\nrate: 2,274 battles on 3 rubrics\n" in rated.err
    whole = demo.read("ratings.json")
    for found in whole["judge"].values():  # what takes the texts to know
        assert set(found) >= OF_TEXTS
        for name in OF_TEXTS:
            del found[name]
    assert [row["flags"] for row in whole["responses"]] == [
        [],
        ["phrases"],
        ["phrases"],
        ["refused"],
    ]
    whole["responses"] = []
    alone = rated.read("ratings.json")
    for found in (*whole["conclusions"].values(), *alone["conclusions"].values()):
        del found["sentence"], found["reasons"]  # strata, which are not in the file
    assert alone == numbers(whole)
    assert rated.read("elo_results.json") == numbers(demo.read("elo_results.json"))
    assert table(rated.run_dir / "pairwise_winrates.csv") == table(
        demo.run_dir / "pairwise_winrates.csv"
    )
    assert rated.run_dir.name.startswith("rate_")


# What a kill does


def select(query: str, folder: Path) -> list[tuple[Any, ...]]:
    """Rows of the store, read beside a run that may be writing; none where there is no store yet."""
    try:
        with closing(
            sqlite3.connect(
                f"file:{folder}/outputs/cache/store.sqlite?mode=ro", uri=True
            )
        ) as db:
            return db.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


def answers(folder: Path) -> dict[str, tuple[str, str]]:
    """Kind and value of every stored answer, by key."""
    return {
        key: (kind, value)
        for key, kind, value in select("SELECT key, kind, value FROM answers", folder)
    }


def n_stored(folder: Path) -> int:
    return sum(n for (n,) in select("SELECT COUNT(*) FROM answers", folder))


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)


def kill_when(ready: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """SIGKILL, as the kernel short of memory gives it, as soon as `ready()`; the run must not have ended by then."""
    wait_until(ready, process)
    process.kill()
    out, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, (
        f"the run had ended before it was killed:\n{out}{err}"
    )


def go_on_and_compare(folder: Path, whole: Ran) -> None:
    """The same command again ends where the run that nobody killed ended, and repeats no stored query."""
    before = answers(folder)
    kinds = Counter(kind for kind, _ in before.values())
    run_dir = folder / "run"
    if (run_dir / "manifest.json").is_file():
        killed = (run_dir / "manifest.json").read_text(encoding="utf-8")
        assert json.loads(killed)["finished_at"] is None
    again = run(*PLAIN, folder=folder)
    spent = usage(again)
    assert spent["responses_stored"] == kinds["Response"]
    n_responses = spent["responses_stored"] + spent["responses_generated"]
    assert n_responses == spent["responses_wanted"] == 4 * N_PROMPTS
    assert spent["verdicts_stored"] == kinds["JudgeReply"]
    assert spent["verdicts_stored"] + spent["judge_calls"] == spent["verdicts_distinct"]
    after = answers(folder)
    assert {key: after[key] for key in before} == before
    assert set(after) == set(answers(whole.folder))
    expected = timeless(whole.run_dir).items()
    assert timeless(again.run_dir) == {
        name: data for name, data in expected if not name.startswith("figures/")
    }
    assert facts(again) == facts(whole)
    assert again.read("manifest.json")["finished_at"]


@pytest.mark.system
def test_killed_or_interrupted_and_started_again_a_run_goes_on_where_it_was(
    demo: Ran, tmp_path: Path
):
    """Interrupted among its 572 responses, killed among its 3,265 verdicts, and as it writes results."""
    process = start(*PLAIN, folder=tmp_path)
    wait_until(lambda: n_stored(tmp_path) >= 100, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert err.endswith("stored. To continue, run the same command again.\n")
    kill_when(lambda: n_stored(tmp_path) >= 2000, start(*PLAIN, folder=tmp_path))
    written = tmp_path / "run/verdicts/factuality.jsonl"
    kill_when(written.exists, start(*PLAIN, folder=tmp_path))
    left = timeless(tmp_path / "run")
    go_on_and_compare(tmp_path, demo)
    whole = timeless(tmp_path / "run")
    assert left == {name: whole[name] for name in left}  # what was there was whole
