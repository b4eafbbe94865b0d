"""Battles that are counted: rows that stand for so many alike are rated as the battles themselves.

A row that names no question stands for battles on prompts of their own, and one that names it for battles
on that prompt.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from elo_exp.analysis import standings
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.win_rates import pair_shares
from elo_exp.data import battle_columns, battle_files, identical_answers
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battle_lines import encode_battles
from elo_exp.data.battles import Battles
from elo_exp.data.writing_style import FEATURES
from elo_exp.errors import UserError
from elo_exp.experiments.export import iterate_verdicts
from elo_exp.files import write_whole
from elo_exp.ratings import RatingMethod
from elo_exp.ratings.bootstrap import draw_prompts
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.fit import Fit
from elo_exp.ratings.games import make_games
from elo_exp.ratings.ties import Davidson, RaoKupper
from elo_exp.records import Battle
from elo_exp.report.artifacts import ratings_json
from tests import test_bradley_terry, test_elo
from tests.commands import attempt, run, table
from tests.data import battle, write_table

STYLES = [(n, *[0] * (len(FEATURES) - 1)) for n in (100, 200, 500)]
WORDS = ("model_a", "model_b", "tie")


def drawn(n: int, *, n_models: int = 6, seed: int = 0) -> list[Battle]:
    """Battles of all sorts: two dimensions, prompts of one and of several, one order and both, and a
    model that loses all."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        i, j = rng.choice(n_models, size=2, replace=False).tolist()
        strengths = [0.5 * (i - j), 0.5 * (j - i), 0.0]
        p = np.exp(strengths) / np.exp(strengths).sum()
        ab, ba = rng.choice(WORDS, size=2, p=p).tolist()
        if 0 in (i, j):
            ab = ba = "model_b" if i == 0 else "model_a"
        of = int(
            rng.integers(10**9) if rng.random() < 0.6 else rng.integers(1 + n // 20)
        )
        one_order = rng.random() < 0.5
        rows.append(
            Battle(
                model_a=f"m{i}",
                model_b=f"m{j}",
                winner=ab if one_order or ab == ba else "tie",
                verdict_ab=ab,
                verdict_ba=None if one_order else ba,
                question_id=f"q{of}",
                dimension=("fluency", "truth")[int(rng.integers(2))],
                equal_answers=not one_order and ab == ba == "tie",
                source="llm-judge",
            )
        )
    return rows


def counted(rows: Sequence[Battle]) -> list[Battle]:
    """The same battles, a row for each kind, without the question where it has one battle."""
    n = Counter(row.question_id for row in rows)
    kinds = Counter(
        replace(row, question_id=None) if n[row.question_id] == 1 else row
        for row in rows
    )
    return [replace(row, count=count) for row, count in kinds.items()]


def rated(rows: Sequence[Battle], **ratings: RatingMethod) -> Standings:
    battles = Battles.from_rows(rows)
    return standings.rate(
        battles.split_by_dimension(["truth", "fluency"]),
        elo=test_elo.method(k_sweep=[], n_perms=100, n_bootstraps=0),
        ratings=ratings or {"bradley_terry": test_bradley_terry.method()},
        models=battles.models,
    )


def assert_same(
    found: Any, expected: Any, *, at: str = "", close: float = 1e-10
) -> None:
    """Every number to `close` of itself or 1, everything else equal."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), at
        for key, value in expected.items():
            assert_same(found[key], value, at=f"{at}.{key}", close=close)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), at
        for n, value in enumerate(expected):
            assert_same(found[n], value, at=f"{at}[{n}]", close=close)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=close, abs=close), at
    else:
        assert found == expected, at


def without_elo(found: Standings) -> dict[str, Any]:
    """ratings.json but for what random orders give."""
    written = ratings_json(found)
    for dimension in written["dimensions"].values():
        del dimension["elo"]
    return {name: value for name, value in written.items() if name != "order"}


def test_by_hand_three_prompts_alike_are_three_clusters():
    rows = [replace(battle("a", "b", "model_a"), count=3), battle("a", "b", "model_b")]
    battles = Battles.from_rows(rows)
    assert (len(battles), battles.n_total(), battles.n_prompts()) == (2, 4, 4)
    fit = Fit.from_games(make_games(battles, orders="both"))
    assert fit.theta[0] - fit.theta[1] == pytest.approx(math.log(3))
    # of the difference: 4/3 sum of e^2 over the squared information, 3/4 and 4 (3/16)
    assert fit.covariance[0, 0] * 4 == pytest.approx(
        4 / 3 * (3 * 0.25**2 + 0.75**2) / (4 * 3 / 16) ** 2
    )
    assert fit.n_prompts.tolist() == [4, 4]


def test_by_hand_three_battles_on_one_prompt_are_one_cluster():
    rows = [battle("a", "b", "model_a"), battle("a", "b", "model_b")]
    rows = [
        replace(rows[0], question_id="q", count=3),
        replace(rows[1], question_id="r"),
    ]
    fit = Fit.from_games(make_games(Battles.from_rows(rows), orders="both"))
    assert fit.games.n_clusters == 2
    plain = 2 * (0.75**2 + 0.75**2) / (4 * 3 / 16) ** 2
    assert fit.covariance[0, 0] * 4 == pytest.approx(plain)
    # left out, the prompts with 3/4 and 1/4 of the games weigh 1/2 over 1/4 and 1/2 over 3/4
    assert fit.balance.variance_factor == pytest.approx((2**2 + (2 / 3) ** 2) / 2)
    assert fit.balance.n_effective == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("n", "n_models"), [(1_500, 6), pytest.param(20_000, 12, marks=pytest.mark.slow)]
)
def test_counts_are_rated_as_the_battles_that_they_stand_for(n: int, n_models: int):
    rows = drawn(n, n_models=n_models)
    counts = counted(rows)
    assert len(counts) < 0.8 * n
    every, few = rated(rows), rated(counts)
    assert_same(without_elo(few), without_elo(every))
    for name in ("truth", "fluency"):
        assert few.n_prompts(name) == every.n_prompts(name)
        one, other = few.boards, every.boards
        board, expected = one["bradley_terry"][name], other["bradley_terry"][name]
        np.testing.assert_allclose(board.covariance, expected.covariance, rtol=1e-10)
        np.testing.assert_array_equal(board.ranks(), expected.ranks())
        assert board.one_sided == expected.one_sided
        assert (
            pair_shares(few.battles[name]).keys()
            == pair_shares(every.battles[name]).keys()
        )
        for pair, share in pair_shares(every.battles[name]).items():
            assert_same(asdict(pair_shares(few.battles[name])[pair]), asdict(share))
        elo, elo_of_every = few.board(name, "elo"), every.board(name, "elo")
        assert elo is not None
        assert elo_of_every is not None
        error = np.hypot(elo.ordering_error, elo_of_every.ordering_error)
        assert (abs(elo.rating - elo_of_every.rating) <= 3 * error + 1e-9).all()
        for field in ("n_battles", "n_prompts", "n_matches", "n_clusters", "flags"):
            np.testing.assert_equal(getattr(elo, field), getattr(elo_of_every, field))


@pytest.mark.parametrize(
    "method",
    [
        Davidson(initial_rating=1400.0, orders="both"),
        RaoKupper(initial_rating=1400.0, orders="reconciled"),
        test_bradley_terry.method(orders="reconciled"),
        test_bradley_terry.method(style=("length",)),
    ],
    ids=lambda method: f"{type(method).__name__} {method.orders}",
)
def test_every_method_takes_counts(method: RatingMethod):
    rng = np.random.default_rng(1)
    rows = [
        replace(row, style_a=STYLES[i], style_b=STYLES[j])
        for row, (i, j) in zip(drawn(600), rng.integers(3, size=(600, 2)), strict=True)
    ]
    every, few = rated(rows, method=method), rated(counted(rows), method=method)
    assert_same(without_elo(few), without_elo(every), close=1e-8)
    assert all(b.parameters for b in few.boards["method"].values()) or isinstance(
        method, BradleyTerry
    )


def test_shares_are_counted_too():
    rows = [
        replace(row, winner="model_a", verdict_ab=None, verdict_ba=None, score=score)
        for row, score in zip(drawn(600), [0.6, 0.75, 1.0] * 200, strict=True)
    ]
    assert_same(without_elo(rated(counted(rows))), without_elo(rated(rows)))


@pytest.mark.parametrize(
    "n_bootstraps", [200, pytest.param(4000, marks=pytest.mark.slow)]
)
def test_bootstraps_draw_prompts_that_are_counted(n_bootstraps: int):
    rows = drawn(800, n_models=5)
    errors = [
        [
            board.std_error
            for method in (
                test_bradley_terry.method(
                    interval="bootstrap", n_bootstraps=n_bootstraps
                ),
                test_elo.method(n_bootstraps=n_bootstraps),
            )
            for board in method.rate(
                Battles.from_rows(some).split_by_dimension()
            ).values()
        ]
        for some in (rows, counted(rows))
    ]
    # an error of n draws is known to 1 / sqrt(2 n) of itself
    margin = 1 + 4 * math.sqrt(2) / math.sqrt(2 * n_bootstraps)
    for error, again in zip(*errors, strict=True):
        known = np.isfinite(error)
        np.testing.assert_array_equal(known, np.isfinite(again))
        ratio = again[known] / error[known]
        assert ((1 / margin < ratio) & (ratio < margin)).all()


def test_every_draw_is_of_as_many_prompts_as_there_are():
    by_dimension = Battles.from_rows(counted(drawn(500))).split_by_dimension()
    played = [make_games(some, orders="both") for some in by_dimension.values()]
    shared = [
        np.isin(one.prompts, other.prompts) for one, other in (played, played[::-1])
    ]
    times = draw_prompts(played, n_bootstraps=50, seed=0)
    np.testing.assert_array_equal(times[0][:, shared[0]], times[1][:, shared[1]])
    n = sum(one.n_clusters for one in played) - shared[0].sum()
    assert (times[0].sum(axis=1) + times[1][:, ~shared[1]].sum(axis=1) == n).all()


def test_an_order_of_the_file_cannot_be_played():
    with pytest.raises(
        UserError,
        match=r"^elo\.shuffle must be true for a table of counts.*; got false",
    ):
        test_elo.method(shuffle=False).rate(
            Battles.from_rows(counted(drawn(100))).split_by_dimension()
        )


def test_counts_are_written_exported_and_joined():
    rows = counted(drawn(300))
    battles = Battles.from_rows(rows)
    assert battles.rows() == rows
    lines = "".join(encode_battles(battles)).splitlines()
    assert lines[0].endswith(f', "count": {rows[0].count}}}')
    assert "count" not in "".join(encode_battles(Battles.from_rows(drawn(5))))
    n_verdicts = sum((1 + (b.verdict_ba is not None)) * (b.count or 1) for b in rows)
    assert sum(count for _, count in iterate_verdicts(battles)) == n_verdicts
    half = Battles.from_rows(rows[:100]), Battles.from_rows(rows[100:])
    assert concatenate_battles(*half).rows() == rows
    assert concatenate_battles(*half).is_alone
    plain = drawn(20, seed=1)
    both = concatenate_battles(battles, Battles.from_rows(plain))
    assert both.rows() == [*rows, *(replace(row, count=1) for row in plain)]
    assert both.is_alone
    unnamed = [battle("m1", "m2", "model_a")]
    assert not concatenate_battles(battles, Battles.from_rows(unnamed)).is_alone


def test_equal_answers_are_counted_by_prompt():
    rows = [
        replace(row, question_id=f"q{n % 50}" if n < 100 else row.question_id)
        for n, row in enumerate(drawn(400, n_models=3))
    ]
    rows = [replace(row, equal_answers=n % 3 > 0) for n, row in enumerate(rows)]
    expected = identical_answers.count_equal_in_battles(Battles.from_rows(rows))
    assert len(expected) == 3
    assert (
        identical_answers.count_equal_in_battles(Battles.from_rows(counted(rows)))
        == expected
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_intervals_of_counts_hold_the_truth(seed: int):
    """In 300 arenas of equals, a fifth of the battles on prompts that several share."""
    rng, n_models, held = np.random.default_rng(seed), 5, []
    for _ in range(300):
        i = rng.integers(n_models, size=600)
        j = (i + 1 + rng.integers(n_models - 1, size=600)) % n_models
        prompt = np.where(
            rng.random(600) < 0.8, np.arange(600), rng.integers(600, 630, 600)
        )
        quality = rng.standard_normal((630, n_models))
        gap = quality[prompt, i] - quality[prompt, j]
        won = rng.random(600) < 1 / (1 + np.exp(-gap))
        columns = (i.tolist(), j.tolist(), won.tolist(), prompt.tolist())
        rows = [
            Battle(
                model_a=f"m{a}",
                model_b=f"m{b}",
                winner="model_a" if a_won else "model_b",
                question_id=f"q{q}",
            )
            for a, b, a_won, q in zip(*columns, strict=True)
        ]
        battles = Battles.from_rows(counted(rows))
        board = test_bradley_terry.method().rate({"d": battles})["d"]
        held += [row.ci_low <= 1400 <= row.ci_high for row in board.ratings]
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


# Files of counts

COLUMNS = {name: name for name in battle_columns.FIELDS}
STATEMENTS = re.findall(
    r"```sql\n(.*?)```", Path("docs/counts.md").read_text(encoding="utf-8"), re.S
)


def read(path: Path, **settings: Any) -> Battles:
    battles, _ = battle_files.read(
        path, **{"columns": COLUMNS, "filters": {}, **settings}
    )
    return battles


def numbered(folder: Path, *counts: Any, name: str = "b.csv") -> Path:
    rows = [
        {"model_a": "new", "model_b": "old", "winner": "new", "question_id": f"q{n}"}
        for n in range(len(counts))
    ]
    counted = zip(rows, counts, strict=True)
    return write_table(folder / name, [{**row, "count": n} for row, n in counted])


def test_the_documentation_counts_in_three_languages(tmp_path: Path):
    rows = [
        Battle(
            **{name: getattr(row, name) for name in ("model_a", "model_b", "winner")},
            question_id=row.question_id if n % 50 else None,
        )
        for n, row in enumerate(drawn(500))
    ]
    path = write_whole(tmp_path / "b.jsonl", encode_battles(Battles.from_rows(rows)))
    expected = Counter(replace(row, source="human") for row in counted(rows))
    assert len(STATEMENTS) == 3
    for statement in STATEMENTS:
        to = tmp_path / "counts.parquet"
        start = statement.index("select")
        with duckdb.connect() as connection:
            connection.execute(f"create view battles as from '{path}'")
            select = statement[start:].partition("\n) to ")[0]
            connection.execute(f"copy ({select}) to '{to}'")
        assert Counter(read(to).rows()) == expected


@pytest.mark.parametrize("count", ["0", "1.5", "-1", "two", "1_000", "1e3"])
def test_a_count_is_a_whole_number_of_battles(count: str, tmp_path: Path):
    path = numbered(tmp_path, 2, 7, count)
    with pytest.raises(UserError) as error:
        read(path)
    assert str(error.value) == (
        f'{path}:4: count must be a whole number of battles, 1 or more; got "{count}". If the column holds no '
        "counts, set battles_columns.count=null.\n  To leave out such rows: battles_on_error=drop"
    )
    assert read(path, on_error="drop").n_total() == 9
    unread = read(path, columns={**COLUMNS, "count": None})
    assert (unread.n_total(), unread.count) == (3, None)


def test_a_count_is_in_every_row_and_not_too_large(tmp_path: Path):
    with pytest.raises(
        UserError, match=r"b\.csv:3: count must be a whole number .*; got null\."
    ):
        read(numbered(tmp_path, 2, None))
    with pytest.raises(UserError, match=r"at most 2,147,483,647 battles in a row"):
        read(numbered(tmp_path, 2**31))
    rows = [{"model_a": "a", "model_b": "b", "winner": "a"} for _ in range(2)]
    path = write_table(tmp_path / "b.jsonl", [rows[0], {**rows[1], "count": 2}])
    with pytest.raises(
        UserError, match=r"has a number in count in some rows, and none in others\."
    ):
        read(path)
    assert read(numbered(tmp_path, 2.0, 3.0, name="b.parquet")).n_total() == 5


def test_what_was_counted_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = numbered(tmp_path, 12_000, 8_000)
    with caplog.at_level("INFO"):
        _, facts = battle_files.read(path, columns=COLUMNS, filters={})
    assert caplog.messages == [
        f"{path}: read as battles: 20000 used, 0 tied, 0 invalid; counts: 20,000 battles in 2 rows"
    ]
    assert facts["rows"] == {"used": 20_000, "tied": 0, "invalid": 0}
    assert facts["counts"] == "20,000 battles in 2 rows"


def test_rows_without_a_verdict_are_counted_as_battles(tmp_path: Path):
    rows = [
        {
            "model_a": "a",
            "model_b": "b",
            "winner": winner,
            "judge_model": judge,
            "count": n,
        }
        for n, winner, judge in ((9, "a", "j"), (5, "none", "j"), (7, "b", "other"))
    ]
    _, facts = battle_files.read(
        write_table(tmp_path / "b.csv", rows),
        columns=COLUMNS,
        filters={"judge_model": "j"},
        values={"none": None},
    )
    assert facts["rows"] == {"used": 9, "tied": 0, "invalid": 5, "filtered out": 7}


def test_without_a_column_of_questions_nobody_knows_whether_battles_share_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    rows = [
        {"model_a": "a", "model_b": "b", "winner": winner, "count": 3}
        for winner in "ab"
    ]
    battles = read(write_table(tmp_path / "b.csv", rows))
    assert not battles.names_prompts()
    assert "6 of 6 battles name no question, so that nobody knows" in caplog.text
    caplog.clear()
    empty = [{**row, "question_id": ""} for row in rows]
    battles = read(write_table(tmp_path / "empty.csv", empty))
    assert battles.names_prompts()
    assert (battles.n_prompts(), caplog.text) == (6, "")


def shards(folder: Path, rows: Sequence[Battle], n: int) -> None:
    """Counts by part of the prompts, as an engine leaves them: with files that are none of them."""
    parts: list[list[Battle]] = [[] for _ in range(n)]
    for row in rows:
        parts[zlib.crc32(str(row.question_id).encode()) % n].append(row)
    for i, part in enumerate(parts):
        counts = [row.to_dict() for row in counted(part)]
        write_table(folder / f"part-{i:02d}.csv", counts)
    for name in ("_SUCCESS", ".part-00.csv.crc", "part-99.csv"):
        (folder / name).touch()
    write_table(folder / "_log/0.csv", [{"committed": 1}])


@pytest.mark.system
def test_a_folder_of_shards_is_one_file(tmp_path: Path):
    rows = [replace(row, dimension="truth") for row in drawn(600)]
    write_table(tmp_path / "one.csv", [row.to_dict() for row in counted(rows)])
    shards(tmp_path / "parts", rows, 64)
    every, parts = (
        run(
            *("experiment=rate", f"battles={path}", "elo.n_perms=5"),
            *("elo.n_bootstraps=0", "figures=false", "tracker=local"),
            folder=tmp_path,
        )
        for path in ("one.csv", "parts")
    )
    found, expected = parts.read("ratings.json"), every.read("ratings.json")
    for written in (found, expected):
        written.pop("order", None)
        for dimension in written["dimensions"].values():
            del dimension["elo"]
    assert_same(found, expected)
    (facts,) = parts.read("manifest.json")["battles_files"]
    (of_one,) = every.read("manifest.json")["battles_files"]
    n = sum(len(table(path)) for path in (tmp_path / "parts").glob("part-[0-6]*.csv"))
    said = {"file": "parts", "files": "64", "counts": f"600 battles in {n} rows"}
    assert facts == {**of_one, **said}
    line = rf"parts read as elo_exp: 600 used, .*; files: 64; counts: 600 battles in {n} rows\."
    assert re.search(line, parts.page.text)


def test_a_folder_without_tables_is_refused(tmp_path: Path):
    for name in ("empty/_SUCCESS", "run/manifest.json", "run/battles.jsonl"):
        write_whole(tmp_path / name, "")
    for folder, line in (
        (
            "empty",
            "empty has no table with rows. Files whose names begin with . or _ are",
        ),
        (
            "run",
            "run is a run folder. To rate its battles again, write:\n  battles=run/battles.jsonl",
        ),
    ):
        ran = attempt("experiment=rate", f"battles={folder}", folder=tmp_path)
        assert ran.code == 2
        assert ran.err.startswith(f"elo_exp: {line}")


def test_shards_have_the_same_columns(tmp_path: Path):
    numbered(tmp_path / "parts", 1, 2, name="a.csv")
    other = [{"model_a": "a", "model_b": "b", "winner": "a", "question_id": "q"}]
    write_table(tmp_path / "parts/b.csv", other)
    ran = attempt("experiment=rate", "battles=parts", folder=tmp_path)
    assert ran.code == 2
    assert ran.err.startswith(
        "elo_exp: parts/b.csv has no column count, and parts/a.csv has it. The files of a folder must have the same "
        "columns. If they differ, list them:\n  'battles=[a.csv,b.csv]'"
    )
