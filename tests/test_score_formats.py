"""Files of scores that other programs wrote: what is read of each, and faulty ones."""

import json
import logging
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.standings import rate_scores
from elo_exp.data import scores
from elo_exp.data.formats import recognise
from elo_exp.errors import UserError
from elo_exp.files import read_jsonl, write_json, write_jsonl
from elo_exp.ratings.leaderboard import Leaderboard
from tests.commands import attempt, run
from tests.data import shared_data
from tests.faulty_documents import faulty
from tests.score_files import (
    deepeval_run,
    inspect_log,
    lm_eval_rows,
    openai_evals_lines,
    promptfoo_csv,
    promptfoo_lines,
    promptfoo_results,
    swe_bench_report,
)

RIGHT = {"ann": "CCICCICIPC", "bob": "ICICNICIIC"}


def boards(
    *paths: Path, metric: str | None = None, cluster: str | None = None
) -> dict[str, Leaderboard]:
    files = {path: recognise(path) for path in paths}
    rows, _ = scores.read_scores(files, metric=metric, cluster=cluster)
    return dict(rate_scores(rows, allow_missing=False).boards["mean_score"])


@pytest.fixture
def two_logs(tmp_path: Path) -> list[Path]:
    return [
        write_json(tmp_path / f"{model}.json", inspect_log(model, values))
        for model, values in RIGHT.items()
    ]


def test_inspect_gives_the_mean_and_the_error_that_the_log_states():
    found = boards(shared_data("formats/inspect_scored.eval"))["popularity match"]
    assert found.models == ("openai/gpt-4o-mini",)
    assert found.rating == pytest.approx([0.8], abs=1e-12)
    assert found.std_error == pytest.approx([0.13333333333333333], abs=1e-12)


def test_inspect_words_are_numbers_and_what_was_not_scored_is_missing(tmp_path):
    log = inspect_log(
        "ann", ["C", "P", "I", "N", "yes", False, 0.25, "C", "C", math.nan]
    )
    log["samples"][7]["error"] = {"message": "timed out"}
    log["samples"][8]["scores"] = None
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps(log)
    )  # with NaN, as inspect_ai writes what it did not score
    found = boards(path)["quiz match"]
    assert found.rating == pytest.approx([2.75 / 7])
    assert found.parameters["n_missing"] == 3


def test_inspect_averages_epochs_before_the_error(tmp_path):
    """Items of .5 and 1: their mean is .75, its error .25, however many epochs there are."""
    log = inspect_log("ann", ["C", "C"], n_epochs=2)
    log["samples"][0]["scores"]["match"]["value"] = "I"
    found = boards(write_json(tmp_path / "a.json", log))["quiz match"]
    assert (*found.rating, *found.std_error) == pytest.approx((0.75, 0.25))


def test_epochs_are_the_draws_of_pass_rates(tmp_path):
    """One of two right, and both: of two epochs one at least is right on both items, all are on one."""
    values = {"ann": ["C", "C"], "bob": ["I", "C"]}
    for model, own in values.items():
        log = inspect_log(model, own, n_epochs=2)
        log["samples"][0]["scores"]["match"]["value"] = "I"
        write_json(tmp_path / f"{model}.json", log)
    logs = f"battles=[{','.join(str(tmp_path / f'{model}.json') for model in values)}]"
    given = ("experiment=rate", logs, "tracker=local", "figures=false")
    ran = run(*given, "pass.at=[2]", "pass.hat=[1,2]", folder=tmp_path)
    boards = ran.read("ratings.json")["dimensions"]["quiz match"]
    assert list(boards) == ["mean_score", "pass@2", "pass^1", "pass^2"]
    shares = {
        method: {row["model"]: row["rating"] for row in boards[method]["ratings"]}
        for method in ("pass@2", "pass^2")
    }
    assert shares == {
        "pass@2": {"ann": 1.0, "bob": 0.5},
        "pass^2": {"ann": 0.5, "bob": 0.5},
    }
    assert (
        "ALSO          pass^2 (intervals in the report)\n  quiz match ann 0.500  bob 0.500"
        in ran.out
    )
    page = (ran.run_dir / "report.html").read_text(encoding="utf-8")
    assert "0.500 (0.000 to 1.000)" in page


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("pass.hat=[4]", "pass.hat must be at most 1, as item 0 of ann has 1 draw; got 4."),
        ("pass.at=[0]", "pass.at.0 must be a whole number of 1 or more; got 0."),
        ("pass.to=[1]", "Unknown setting: pass.to. Choose from pass.at, pass.hat."),
    ],
)  # fmt: skip
def test_a_pass_rate_that_cannot_be_is_refused_before_a_folder(tmp_path, setting, said):
    log = write_json(tmp_path / "log.json", inspect_log("ann", "CI"))
    ran = attempt(
        "experiment=rate", f"battles={log}", setting, folder=tmp_path / "here"
    )
    assert (ran.code, ran.err.splitlines()[-1]) == (2, f"elo_exp: {said}")
    assert not list(tmp_path.glob("here/outputs/rate*"))


def test_win_rates_have_no_pass_rate(tmp_path):
    row = {"model_a": "a", "model_b": "b", "winner": "tie", "question_id": "p1"}
    path = write_jsonl(tmp_path / "battles.jsonl", [row])
    ran = attempt("experiment=rate", f"battles={path}", "pass.hat=[2]", folder=tmp_path)
    said = f"pass.hat needs item scores, which tell how often an answer succeeds; {path} holds battles."
    assert ran.code == 2
    assert said in ran.err


def test_an_interrupted_zip_is_read_and_its_status_said(tmp_path, caplog):
    log, path = inspect_log("ann", ["C", "I"]), tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_journal/start.json", json.dumps({"eval": log["eval"]}))
        for sample in log["samples"]:
            archive.writestr(f"samples/{sample['id']}.json", json.dumps(sample))
    assert boards(path)["quiz match"].rating.tolist() == [0.5]
    assert "the status of the log is None" in caplog.text


@pytest.mark.parametrize("shape", ["json", "eval"])
def test_a_log_that_nobody_has_scored_is_refused_with_what_to_do(tmp_path, shape):
    """It ended in an empty page. The answers in it can be judged; other formats hold none."""
    log = inspect_log("ann", "CI")
    for sample in log["samples"]:
        sample["scores"] = None
    path = write_json(tmp_path / "a.json", log)
    if shape == "eval":
        path = tmp_path / "a.eval"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", json.dumps(log | {"samples": []}))
            for sample in log["samples"]:
                archive.writestr(f"samples/{sample['id']}.json", json.dumps(sample))
    ran = attempt("experiment=rate", f"battles={path}", folder=tmp_path / "here")
    hint = "To have its answers judged, add judge=sonnet."
    message = f"{path} has no item with a score, read as inspect_ai. {hint}"
    assert ran.err == f"elo_exp: {message}\n"
    assert (ran.code, ran.out) == (2, "")
    assert not list(tmp_path.glob("here/outputs/rate*"))


def test_a_file_without_any_score_is_refused_whatever_wrote_it(tmp_path):
    path = tmp_path / "m/samples_x.jsonl"
    texts = lm_eval_rows([None, None], arguments=[["Why?", {"until": []}]])
    with pytest.raises(
        UserError,
        match="no item with a score, read as lm_eval. To have its answers judged, add judge",
    ):
        boards(write_jsonl(path, texts))
    for row in texts:  # log-likelihoods of options: nothing that a judge could read
        row |= {"arguments": [["Why?", "A"], ["Why?", "B"]]}
    with pytest.raises(
        UserError, match="has no item with a score, .* Give a file with scores."
    ):
        boards(write_jsonl(path, texts))
    results = promptfoo_results(ann=[1, 0])
    path = write_json(tmp_path / "results.json", results)
    with pytest.raises(UserError, match="has no item with the score length, read as"):
        boards(path, metric="length")
    for row in results["results"]["results"]:
        row["failureReason"] = 2
    with pytest.raises(
        UserError, match="has no item with a score, .* Give a file with scores."
    ):
        boards(write_json(path, results))


def test_a_log_that_has_answers_too_says_what_would_judge_them(tmp_path, caplog):
    """Its scores are rated unless a judge is chosen; options leave nothing to judge."""
    caplog.set_level(logging.INFO)
    texts = lm_eval_rows([1, 0], arguments=[["Why?", {"until": []}]])
    options = lm_eval_rows([1, 0], arguments=[["Why?", "A"], ["Why?", "B"]])
    log = inspect_log("ann", "CI")
    results = promptfoo_results(ann=[1, 0])
    for path, has_answers in {
        write_jsonl(tmp_path / "m/samples_x.jsonl", texts): True,
        write_jsonl(tmp_path / "m/samples_y.jsonl", options): False,
        write_json(tmp_path / "log.json", log): True,
        write_json(tmp_path / "results.json", results): False,
    }.items():
        caplog.clear()
        boards(path)
        assert ("; judge=sonnet would judge its answers" in caplog.text) == has_answers


def test_two_logs_of_one_model_are_told_apart_by_their_files(tmp_path):
    paths = [
        write_json(tmp_path / f"{name}.json", inspect_log("ann", values))
        for name, values in RIGHT.items()
    ]
    assert boards(*paths)["quiz match"].models == ("ann", "ann (bob.json)")


def test_a_column_of_the_items_names_their_clusters(two_logs):
    assert boards(*two_logs, cluster="topic")["quiz match"].n_clusters == 3
    with pytest.raises(
        UserError, match=r'cluster must be a column of .*ann.json.* got "theme"'
    ):
        boards(*two_logs, cluster="theme")


def test_lm_eval_gives_acc_and_acc_stderr_of_its_results(tmp_path):
    """acc_stderr is the sample standard deviation over sqrt(n)."""
    values = [1, 0, 1, 1, 0, 1, 0, 1]
    results = {"acc": 0.625, "acc_stderr": math.sqrt(15 / 64 * 8 / 7 / 8)}
    path = tmp_path / "org__model" / "samples_arc_easy_2024-09-28T00-12-08.123.jsonl"
    found = boards(write_jsonl(path, lm_eval_rows(values)))
    board = found["arc_easy acc, filter None"]
    assert board.models == ("org__model",)
    assert (*board.rating, *board.std_error) == pytest.approx(tuple(results.values()))


def test_a_fixture_of_lm_eval_is_read_by_subject():
    path = shared_data("formats/samples_lm_eval_schema_only.jsonl")
    rows = [row for _, row in read_jsonl(path)]
    (board,) = boards(path, cluster="subject").values()
    assert board.rating == pytest.approx([np.mean([row["acc"] for row in rows])])
    assert board.n_clusters == len({row["doc"]["subject"] for row in rows})


def test_lm_eval_pairs_documents_by_their_hash_and_filters_apart(tmp_path):
    name, filters = "samples_gsm8k.jsonl", ("strict", "flexible")
    rows = {
        model: [row for f in filters for row in lm_eval_rows([1, 0, 1, 1], filter=f)]
        for model in ("ann", "bob")
    }
    rows["bob"][0]["doc_hash"] = "another document"
    paths = [write_jsonl(tmp_path / m / name, some) for m, some in rows.items()]
    found = boards(*paths)
    assert found["gsm8k acc, filter strict"].parameters["n_common"] == 3
    assert found["gsm8k acc, filter flexible"].parameters["n_common"] == 4


def test_lm_eval_metrics_of_a_corpus_are_refused(tmp_path):
    rows = lm_eval_rows([1, 0], metrics=["f1"], f1=[1, 0])
    for row in rows:
        del row["acc"]
    path = write_jsonl(tmp_path / "m" / "samples_x.jsonl", rows)
    with pytest.raises(
        UserError,
        match=r"samples_x.jsonl cannot be read as lm_eval: \S+ must be a valid number; got \[1, 0\]",
    ):
        boards(path)


def test_promptfoo_compares_providers_by_the_variables_of_a_test(tmp_path):
    results = promptfoo_results(ann=[1, 0.5, 1, 0], bob=[0, 0.5, 0, 0.25])
    rows = results["results"]["results"]
    rows[7]["failureReason"] = 2  # an error, of which the score 0.25 says nothing
    rows.append({**rows[4], "testIdx": 9, "score": 1})  # --repeat: another draw
    path = write_json(tmp_path / "results.json", results)
    found = boards(path)["score"]
    assert found.rating == pytest.approx([2.5 / 3, 1 / 3])
    assert found.parameters["n_common"] == 3
    tone = boards(path, metric="tone")["tone"].rating
    assert tone == pytest.approx([0.5 / 3, 2.5 / 3])


def test_two_files_are_compared_on_console_page_and_in_ratings_json(two_logs, tmp_path):
    """The totals that lm_eval writes beside its samples are left out, and said."""
    totals = two_logs[0].parent / "logs" / "results_2024.json"
    write_json(totals, {"results": {}, "versions": {}, "n-shot": {}})
    for path in two_logs:
        path.rename(totals.parent / path.name)
    battles = f"battles={totals.parent}"
    found = run("experiment=rate", battles, "tracker=local", folder=tmp_path)
    assert f"{totals} holds lm_eval's totals" in found.err
    assert (
        "ann.json: read as inspect_ai: 10 scores used, 0 missing"
        in found.err + found.out
    )
    conclusion = found.read("ratings.json")["conclusions"]["quiz match"]
    assert (conclusion["state"], conclusion["first"]) == ("few", "ann")
    sentence = conclusion["sentence"]
    assert sentence.startswith(
        "10 items are too few to rank the entrants; ann is ahead of bob by"
    )
    assert sentence in " ".join(found.out.split()) and sentence in found.page.said
    assert not (found.run_dir / "elo_results.json").exists()


def _seen(paths: list[Path]) -> Any:
    """What a user is told of the files, apart from the numbers; and the numbers."""
    found = boards(*paths)
    told = {name: (b.models, dict(b.parameters)) for name, b in found.items()}
    return told, {name: b.rating.round(12).tolist() for name, b in found.items()}


@pytest.mark.parametrize("program", ["inspect", "lm_eval", "promptfoo"])
def test_a_faulty_file_is_refused_or_said_or_read_the_same(program, tmp_path):
    """One place of one file is changed: never a traceback, never another number unsaid."""
    values = np.random.default_rng(0).integers(0, 2, (2, 12)).tolist()
    paths = [tmp_path / m / "samples_quiz.jsonl" for m in ("ann", "bob")]
    documents: list[Any] = [lm_eval_rows(some) for some in values]
    if program == "inspect":
        logs = zip(("ann", "bob"), values, strict=True)
        documents = [inspect_log(model, some) for model, some in logs]
    if program == "promptfoo":
        documents, paths = [promptfoo_results(a=values[0], b=values[1])], paths[:1]
    write = write_jsonl if program == "lm_eval" else write_json
    for path, document in zip(paths, documents, strict=True):
        write(path, document)
    told, numbers = _seen(paths)
    n_refused = 0
    for kind, changed in faulty(documents[0], n=60):
        try:
            write(paths[0], changed)
            now, ratings = _seen(paths)
        except UserError as error:
            assert "\n" not in error.line
            n_refused += 1
        except AttributeError:  # a row that is no object cannot be written as a line
            assert program == "lm_eval"
        else:
            assert now != told or ratings == numbers, kind
    assert n_refused > 10
    text = paths[0].write_bytes
    whole = write(paths[0], documents[0]).read_bytes()
    text(b"\xef\xbb\xbf" + whole)
    assert _seen(paths) == (told, numbers)
    text(whole[: len(whole) // 2])
    with pytest.raises(UserError):
        _seen(paths)


# Other programs

OTHERS_SCORES = {"ann": [1.0, 0.0, 1.0, 0.0], "bob": [1.0, 1.0, 1.0, 0.0]}


def _write_each(folder: Path, name: str) -> list[Path]:
    """The same scores of two entrants, as a program writes them."""
    if name == "promptfoo's lines":
        return [write_jsonl(folder / "out.jsonl", promptfoo_lines(**OTHERS_SCORES))]
    if name == "promptfoo's table":
        path = folder / "out.csv"
        path.write_text(promptfoo_csv(**OTHERS_SCORES), encoding="utf-8")
        return [path]
    if name == "OpenAI evals":
        return [
            write_jsonl(folder / f"{model}.jsonl", openai_evals_lines(model, values))
            for model, values in OTHERS_SCORES.items()
        ]
    make = {"SWE-bench": swe_bench_report, "deepeval": deepeval_run}[name]
    return [
        write_json(folder / f"{model}.json", make(values))
        for model, values in OTHERS_SCORES.items()
    ]


@pytest.mark.parametrize(
    ("name", "dimension"),
    [
        ("promptfoo's lines", "score"),
        ("promptfoo's table", "score"),
        ("OpenAI evals", "rivers correct"),
        ("SWE-bench", "resolved"),
        ("deepeval", "Correctness"),
    ],
)
def test_each_program_s_files_hold_the_scores_of_two_entrants(
    tmp_path: Path, name: str, dimension: str
):
    paths = _write_each(tmp_path, name)
    forms = {path: recognise(path) for path in paths}
    assert {form.name for form in forms.values()} == {name}
    found, facts = scores.read_scores(forms, metric=None, cluster=None)
    by_entrant: dict[str, list[Any]] = {}
    for row in found:
        if row.dimension == dimension:
            by_entrant.setdefault(row.entrant, []).append(row.value)
    assert by_entrant == OTHERS_SCORES
    items = {row.item for row in found}
    assert len(items) == 4
    assert [fact["format"] for fact in facts] == [name] * len(paths)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("t02_promptfoo.jsonl", "promptfoo's lines"),
        ("t02_promptfoo.csv", "promptfoo's table"),
        ("t03_oaieval_large.jsonl", "OpenAI evals"),
        ("t01_scores_long.csv", "a table of scores"),
    ],
)
def test_files_of_the_kinds_that_people_bring_open(file: str, name: str):
    assert recognise(shared_data(f"doors/{file}")).name == name


def test_a_metric_of_deepeval_is_chosen(tmp_path: Path):
    path = write_json(tmp_path / "ann.json", deepeval_run(OTHERS_SCORES["ann"]))
    found, _ = scores.read_scores({path: recognise(path)}, metric="Tone", cluster=None)
    assert [row.value for row in found] == [0.0, 1.0, 0.0, 1.0]
