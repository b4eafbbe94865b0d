"""Style: counted by hand, controlled for in known worlds, against statsmodels and published data."""

import dataclasses
import json

import numpy as np
import pytest
import statsmodels.api as statsmodels
from scipy.special import expit

from elo_exp.data import battle_files
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battle_lines import encode_battles
from elo_exp.data.battles import Battles
from elo_exp.data.writing_style import FEATURES, Feature, add_style, count_style
from elo_exp.errors import UserError
from elo_exp.files import read_json, read_jsonl, write_jsonl
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle
from tests.arena_files import World, placed
from tests.commands import QUICK, Ran, run
from tests.data import COMPARISON, shared_data

ALL = list(FEATURES)


@pytest.mark.parametrize(
    ("text", "headers", "lists", "bold"),
    [
        ("Plain words, 2 * 3 and a_b_c.", 0, 0, 0),
        ("# One\n## Two\n####### none\n#none", 2, 0, 0),
        ("- a\n* b\n  + c\n1. d\n 22. e\n1.5 f\n-g", 0, 5, 0),
        ("**a** and __b__, **c\nd, ****", 0, 0, 2),
        ("```\n# comment\n- item\n**x**\n```\n- item", 0, 1, 0),
        ("", 0, 0, 0),
    ],
)
def test_markdown_is_counted_outside_of_code(text, headers, lists, bold):
    assert count_style(text) == (len(text), headers, lists, bold)


def world(
    n: int, seed: int = 1, effect: float = 0.8, source: str = "human"
) -> list[Battle]:
    """Four models; the later ones are better by .3 and write longer, and length counts `effect` a
    root mean square; every tenth answer has a header, which counts nothing."""
    rng = np.random.default_rng(seed)
    pairs = np.array([rng.choice(4, size=2, replace=False) for _ in range(n)])
    length = (rng.integers(100, 900, size=(n, 2)) * (1 + pairs)).astype(float)
    difference = length[:, 0] - length[:, 1]
    bounded = np.tanh(difference / np.sqrt((difference**2).mean()))
    x = bounded / np.sqrt((bounded**2).mean())
    won = rng.random(n) < expit(0.3 * (pairs[:, 0] - pairs[:, 1]) + effect * x)
    headers = rng.random((n, 2)) < 0.1
    return [
        Battle(
            model_a="abcd"[pairs[i, 0]],
            model_b="abcd"[pairs[i, 1]],
            winner="model_a" if won[i] else "model_b",
            question_id=f"q{i // 2}",
            source=source,
            style_a=(int(length[i, 0]), int(headers[i, 0]), 0, 0),
            style_b=(int(length[i, 1]), int(headers[i, 1]), 0, 0),
        )
        for i in range(n)
    ]


def rated(
    battles: list[Battle], style: list[Feature], **changes: object
) -> Leaderboard:
    method = BradleyTerry(
        initial_rating=1000.0,
        orders="both",
        interval="percentile",
        n_bootstraps=20,
        seed=0,
        style=style,
    )
    some = Battles.from_rows(battles)
    return dataclasses.replace(method, **changes).rate({"d": some})["d"]  # type: ignore[arg-type]


def spread(board: Leaderboard) -> float:
    return (board.row("d").rating or 0) - (board.row("a").rating or 0)


def test_at_equal_style_the_true_distances_return():
    """Without control, models that write longer are taken for better."""
    battles = world(6000)
    board = rated(battles, ["length", "headers"])
    found = board.parameters
    effect, error = (found[f"style_length_votes{end}"] for end in ("", "_std_error"))
    assert effect == pytest.approx(0.8 * POINTS_PER_LOG_ODDS, abs=4 * error)
    no_effect = found["style_headers_votes"]
    assert abs(no_effect) < 4 * found["style_headers_votes_std_error"]
    assert spread(board) == pytest.approx(0.9 * POINTS_PER_LOG_ODDS, abs=40)
    assert spread(rated(battles, [])) > 0.9 * POINTS_PER_LOG_ODDS + 80
    assert (board.label, board.interval) == (
        "Bradley-Terry with style",
        "prompt-clustered",
    )
    assert board.samples is None


def test_statsmodels_has_the_same_ratings_effects_and_errors():
    """Columns by hand: tanh of the difference over its root mean square, not centred."""
    battles = world(300)
    board = rated(battles, ["length", "headers"])
    of_a, of_b = (
        np.array([getattr(b, side)[:2] for b in battles], dtype=float)
        for side in ("style_a", "style_b")
    )
    difference = of_a - of_b
    ratio = np.tanh(difference / np.sqrt((difference**2).mean(axis=0)))
    models = [["abcd".index(m) for m in b.models] for b in battles]
    design = np.array([np.eye(4)[i] - np.eye(4)[j] for i, j in models])[:, 1:]
    x = np.hstack([design, ratio / np.sqrt((ratio**2).mean(axis=0))])
    won = np.array([b.winner == "model_a" for b in battles], dtype=float)
    glm = statsmodels.GLM(won, x, family=statsmodels.families.Binomial())
    groups = {"groups": np.arange(300) // 2, "use_correction": False}
    other = glm.fit(tol=1e-12, cov_type="cluster", cov_kwds=groups)
    theta = np.append(0.0, other.params[:3])
    expected = 1000 + POINTS_PER_LOG_ODDS * (theta - theta.mean())
    assert board.rating == pytest.approx(expected)
    names = ["style_length_votes", "style_headers_votes"]
    effects = [board.parameters[name] for name in names]
    assert effects == pytest.approx(POINTS_PER_LOG_ODDS * other.params[3:])
    errors = [board.parameters[f"{name}_std_error"] for name in names]
    factor = POINTS_PER_LOG_ODDS * np.sqrt(150 / 149)
    assert errors == pytest.approx(factor * other.bse[3:], rel=0.01)


def test_law_swapped_sides_change_nothing():
    battles = world(200)
    swap = {"model_a": "model_b", "model_b": "model_a"}
    turned = [
        dataclasses.replace(
            b,
            model_a=b.model_b,
            model_b=b.model_a,
            winner=swap[b.winner],
            style_a=b.style_b,
            style_b=b.style_a,
        )
        for b in battles
    ]
    one, other = rated(battles, ALL), rated(turned, ALL)
    assert one.rating == pytest.approx(other.rating)
    assert one.parameters == pytest.approx(other.parameters)


def test_votes_and_verdicts_have_effects_of_their_own():
    """Each as alone where the models' distances are pinned by both alike."""
    votes, verdicts = world(3000, effect=0.8), world(3000, 2, -0.4, "llm-judge")
    found = rated(votes + verdicts, ["length"]).parameters
    for whose, truth in (("votes", 0.8), ("verdicts", -0.4)):
        error = found[f"style_length_{whose}_std_error"]
        assert found[f"style_length_{whose}"] == pytest.approx(
            truth * POINTS_PER_LOG_ODDS, abs=4 * error
        )


def test_a_column_that_does_not_vary_is_dropped_and_named():
    battles = world(200)
    board = rated(battles, ALL)
    kept = {"style_length_votes", "style_headers_votes"}
    dropped = {"style_lists_votes": None, "style_bold_votes": None}
    effects = {n: x for n, x in board.parameters.items() if not n.endswith("_error")}
    assert {name for name, effect in effects.items() if effect is not None} == kept
    assert dropped.items() <= effects.items()
    plain = [
        dataclasses.replace(b, style_a=(9, 0, 0, 0), style_b=(9, 0, 0, 0))
        for b in battles
    ]
    assert rated(plain, ALL).rating == pytest.approx(rated(battles, []).rating)


def test_battles_without_texts_are_left_out_or_refused(
    caplog,
):
    battles = world(200)
    unknown = [dataclasses.replace(b, style_b=None) for b in battles[:20]]
    found = rated(unknown + battles[20:], ["length"])
    assert found.rating == pytest.approx(rated(battles[20:], ["length"]).rating)
    assert "20 battles without texts are left out" in caplog.text
    with pytest.raises(
        UserError, match="^style must be left out, as no battle has the texts"
    ):
        rated(unknown, ["length"])


def of_judge(judge: str, *, in_words: bool) -> list[Battle]:
    """The battles of llmfao as one judge sees them, with the style of the answers."""
    folder, texts = shared_data("llmfao"), {}
    for _, row in read_jsonl(folder / "responses.jsonl.gz"):
        n, *markdown = count_style(row["response"])
        n = len(row["response"].split()) if in_words else n
        texts[row["prompt_id"], row["model"]] = (n, *markdown)
    rows = [Battle.from_dict(row) for _, row in read_jsonl(folder / "battles.jsonl.gz")]
    return [
        dataclasses.replace(
            b,
            source="human",
            style_a=texts[str(b.question_id), b.model_a],
            style_b=texts[str(b.question_id), b.model_b],
        )
        for b in rows
        if b.judge_model == judge
    ]


REAL = {  # by judge: length in words, headers, length in characters
    "crowd": ((9, 39), (-41, 13), (16, 39)),
    "gpt-4": ((-15, 101), (-52, 34), (-15, 103)),
    "gpt-3.5-turbo-instruct": ((71, 34), (-8, 21), (82, 34)),
}


@pytest.mark.system
def test_what_votes_and_verdicts_on_real_answers_follow():
    """With 1.96 errors. The crowd and GPT-4 dislike headers, GPT-3.5 likes longer answers; length
    in words, and in characters as here."""
    for judge, (in_words, headers, in_characters) in REAL.items():
        words, characters = (
            rated(of_judge(judge, in_words=how), ALL).parameters
            for how in (True, False)
        )
        for found, name, expected in (
            (words, "length", in_words),
            (words, "headers", headers),
            (characters, "length", in_characters),
        ):
            own = found[f"style_{name}_votes"]
            error = found[f"style_{name}_votes_std_error"]
            rounded = round(own), round(1.96 * error)
            assert rounded == pytest.approx(expected, abs=1)


# In experiments

STYLE = "rating.bradley_terry.style=[length,bold]"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(*QUICK, STYLE, folder=tmp_path_factory.mktemp("style"))


@pytest.mark.system
def test_a_tournament_controls_for_style_and_its_battles_can_be_rated_again(ran):
    found = ran.read("ratings.json")["dimensions"]["factuality"]["bradley_terry"]
    assert "style_length_verdicts" in found["parameters"]
    assert found["parameters"]["style_bold_verdicts"] is None
    page = ran.page
    points = round(found["parameters"]["style_length_verdicts"])
    assert "Style on factuality, in points per root mean square" in page.said
    assert f"length in verdicts {points:+}".replace("-", "−") in page.said
    assert "bold in verdicts does not vary." in page.said
    path = f"{ran.run_dir}/battles.jsonl"
    given = ("experiment=rate", f"battles={path}", STYLE, "tracker=local")
    again = run(*given, "figures=false", folder=ran.folder)
    rated_again = again.read("ratings.json")["dimensions"]["factuality"][
        "bradley_terry"
    ]
    assert rated_again["ratings"] == found["ratings"]


def test_a_file_keeps_the_counts(tmp_path):
    path = tmp_path / "battles.jsonl"
    battles = [
        *add_style(
            [Battle(model_a="ann", model_b="bob", winner="tie", question_id="p1")],
            [COMPARISON],
        )
    ]
    assert battles[0].style_a == count_style(COMPARISON.response_a)
    path.write_text(
        "".join(encode_battles(Battles.from_rows(battles))), encoding="utf-8"
    )
    columns = {
        name: name for name in ("model_a", "model_b", "winner", "question_id", "source")
    }
    read, _ = battle_files.read(path, columns=columns, filters={})
    assert read.rows() == battles
    path.write_text(path.read_text().replace(", 0]", "]"), encoding="utf-8")
    with pytest.raises(
        UserError,
        match=r'battles.jsonl:1: style must be a list of counts .*; got "\[4, 0, 0\]"\.',
    ):
        battle_files.read(path, columns=columns, filters={})


@pytest.mark.system
def test_an_arena_controls_for_style_on_the_judges_scale(tmp_path):
    """Votes and verdicts have effects of their own."""
    anchors = {f"m{i}": 1000 + 40.0 * (i - 4.5) for i in range(10)}
    world = World(anchors=anchors, placed={"mine": 1100.0})
    world.write(tmp_path)
    rng = np.random.default_rng(0)
    for file in ("arena.jsonl", "responses_mine.jsonl"):
        lines = (tmp_path / file).read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        for row in rows:
            for name in row.keys() & {"response_a", "response_b", "response_text"}:
                row[name] += " indeed" * int(rng.integers(60))
        write_jsonl(tmp_path / file, rows)
    refusal = "rating.bradley_terry.style has no effect on a calibrated placement. Leave it out, or set arena.placement=raw"
    with pytest.raises(UserError, match=refusal):
        placed(world, tmp_path, STYLE)
    raw = (STYLE, "arena.placement=raw", "arena.n_battles=100")
    found = placed(world, tmp_path, *raw)
    board = found.placement.board
    assert board.label == "Bradley-Terry with style"
    names = [f"style_length_{whose}" for whose in ("votes", "verdicts")]
    assert all(board.parameters[name] is not None for name in names)
    assert board.row("mine").rating is not None
    without = found.placement.uncontrolled_board
    assert without is not None and without.label == "Bradley-Terry"
    (said,) = read_json(found.run_dir / "ratings.json")["conclusions"].values()
    assert said["sentence"].startswith("At equal style, ")
    assert (
        f"Without this control, its rating is {without.row('mine').rating:.0f} ("
        in said["sentence"]
    )
    assert said["adjusted_for"] == ["length", "bold"]
    assert said["raw_rating"] == without.row("mine").rating
    assert said["raw_rating"] != said["rating"] == board.row("mine").rating
    assert said["sentence"] in " ".join(found.report.text.split())
    alone = found.placement.human_board.parameters
    assert "style_length_votes" in alone and "style_length_verdicts" not in alone
    assert all(
        b.style_a and b.style_b
        for b in concatenate_battles(
            found.placement.judged_battles, found.placement.human_battles
        ).rows()
    )
