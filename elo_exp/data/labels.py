"""Labels by people: which comparisons they see, under which names, and what they said of them.

A page of comparisons names no entrant. The id of a comparison is a keyed hash of what is compared and of which answer is
shown first. The key stays in labels/key.json of the run. It reads back every page that was made of the run.
"""

import hashlib
import hmac
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np

from elo_exp.data import column_roles, table_files
from elo_exp.data.column_roles import NO_COLUMNS, Columns
from elo_exp.errors import FileError, SettingError, format_value
from elo_exp.files import read_json, validate, write_json
from elo_exp.records import Battle, Comparison, MissingBattle, Record, canonical_json

CHOICES = ("1", "2", "tie", "both bad", "skip")
_WINNER_BY_CHOICE = {
    "1": "model_a",
    "2": "model_b",
    "tie": "tie",
    "both bad": "tie (bothbad)",
}
# Our name of each role, in a table of verdicts by people
COLUMNS = {
    "item": "question_id",
    "model_a": "model_a",
    "model_b": "model_b",
    "verdict": "winner",
    "judge": "judge",
    "cluster": "cluster",
}
_REQUIRED_ROLES = ("item", "model_a", "model_b", "verdict")
# 64 bits
_ID_DIGITS = 16
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Label(Record):
    """A row of what a page exports.

    page     which run's page it is
    browser  drawn by the browser: two files of one are by one person
    id       of the comparison, and of which answer was shown as 1
    choice   the better answer, 1 or 2; tie; both bad, which is a tie; skip, which is no label
    seconds  that it was looked at
    cluster  what its prompt has in common with others; None: as the run says. No page exports it
    """

    page: str
    browser: str
    id: str
    choice: Literal["1", "2", "tie", "both bad", "skip"]
    seconds: float | None = None
    cluster: str | None = None
    later = ("cluster",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Record):
    """What tells whose answers an id names; in hexadecimal digits."""

    key: str

    @classmethod
    def read(cls, path: Path) -> "Key":
        """Read it from a file. Raises FileError for a file that this program has not written."""
        key: Key = validate(cls, read_json(path), path)
        try:
            bytes.fromhex(key.key)
        except ValueError:
            raise FileError(
                f"{path}: key must be hexadecimal digits; got {format_value(key.key)}."
            ) from None
        return key

    @classmethod
    def draw(cls) -> "Key":
        """Draw one at random."""
        return cls(key=secrets.token_hex(_KEY_BYTES))

    @classmethod
    def read_or_create(cls, path: Path) -> "Key":
        """Read the key. If there is none yet, draw one and write it."""
        if not path.is_file():
            write_json(path, cls.draw().to_dict())
            path.chmod(0o600)
        return cls.read(path)

    @property
    def page(self) -> str:
        """The id of the run's pages."""
        return self._hash("page")

    def label_id(self, comparison: Comparison) -> str:
        """The id of a comparison whose entrant_a is shown as 1."""
        first, second = comparison.entrants
        if comparison.draw_a or comparison.draw_b:  # one of several answers
            first, second = (
                f"{first} {comparison.draw_a}",
                f"{second} {comparison.draw_b}",
            )
        return self._hash(comparison.prompt_id, comparison.dimension, first, second)

    def comparisons_by_id(
        self, comparisons: Iterable[Comparison]
    ) -> dict[str, Comparison]:
        """Return by id what a page may show: each comparison in both orders."""
        return {
            self.label_id(variant): variant
            for comparison in comparisons
            for variant in (comparison, comparison.swapped())
        }

    def _hash(self, *parts: str) -> str:
        text = canonical_json(parts).encode(errors="backslashreplace")
        return hmac.digest(bytes.fromhex(self.key), text, hashlib.sha256).hex()[
            :_ID_DIGITS
        ]


# What people see


def draw_comparisons(
    comparisons: Sequence[Comparison], n: int, *, seed: int
) -> list[Comparison]:
    """Draw comparisons in the order in which they are to be labelled; entrant_a is shown as 1.

    Uniformly: every prompt once before any twice, each time with a pair that was drawn least so far; which answer is
    shown first is drawn, too. The first n of one seed are the same whatever n is. Nothing goes by the answers: close pairs
    would be answers that are alike (docs/people.md).
    """
    rng = np.random.default_rng(seed)
    comparisons_by_prompt = defaultdict[str, list[Comparison]](list)
    for comparison in comparisons:
        comparisons_by_prompt[comparison.prompt_id].append(comparison)
    prompt_order = [
        [*comparisons_by_prompt][i] for i in rng.permutation(len(comparisons_by_prompt))
    ]
    n_drawn, sample = Counter[frozenset[str]](), list[Comparison]()
    while len(sample) < min(n, len(comparisons)):
        for prompt in filter(comparisons_by_prompt.__getitem__, prompt_order):
            candidates = comparisons_by_prompt[prompt]
            times_drawn = [
                n_drawn[frozenset(candidate.entrants)] for candidate in candidates
            ]
            fewest = np.flatnonzero(np.array(times_drawn) == min(times_drawn))
            candidate = candidates.pop(int(rng.choice(fewest)))
            n_drawn[frozenset(candidate.entrants)] += 1
            sample.append(candidate if rng.random() < 0.5 else candidate.swapped())
    return sample[:n]


def assign_to_annotators(
    comparisons: Sequence[Comparison], annotators: int, overlap: float
) -> list[list[Comparison]]:
    """Deal comparisons to annotators: to each new ones of its own, and then second opinions.

    overlap  share of the comparisons that a second annotator labels, too: the first ones of the next annotator, who
             labels them first. Of one annotator there are none.
    """
    batches = [list(comparisons[i::annotators]) for i in range(annotators)]
    if annotators == 1:
        return batches
    return [
        [*batch, *next_batch[: round(overlap * len(next_batch))]]
        for batch, next_batch in zip(batches, [*batches[1:], batches[0]], strict=True)
    ]


# What they said


def is_exported(path: Path) -> bool:
    """Whether a file holds labels that a page exported."""
    return {"page", "id", "choice"} <= table_files.read_keys(path)


def read_labels(
    paths: Sequence[Path],
    key: Key,
    comparison_by_id: Mapping[str, Comparison],
    columns: Columns = NO_COLUMNS,
) -> list[tuple[str, Label, Comparison]]:
    """Read the files of annotators. Each label has its annotator and the answers that were shown.

    A file has the rows that a page exported, and its annotator is called as the file. Or it is a table of verdicts by
    prompt and entrants, one of whose columns may name the annotators.

    comparison_by_id  the comparisons that the run made, by the ids of their labels
    columns           the column of each role that the command names
    Raises FileError for another run's page, an unknown comparison, one that stands twice in a file, and two files of one
    person; SettingError for two files of one name.
    """
    rows = list[tuple[str, Label, Comparison]]()
    owners, names = dict[str, Path](), dict[str, Path]()
    for path in paths:
        name = path.name.partition(".")[0]
        if name in names:
            raise SettingError(
                f"labels has two files called {name}: {names[name]} and {path}. Give each annotator one file, named "
                "after the annotator."
            )
        names[name] = path
        locations = dict[tuple[str, str], str]()
        for location, annotator, label in _read_file(
            path, key, comparison_by_id, columns
        ):
            if label.page != key.page:
                raise FileError.bad_file(
                    location,
                    "is of another run's page",
                    "Give the run whose page was labelled:",
                    "  run=DIR",
                )
            if label.id not in comparison_by_id:
                raise FileError.bad_file(
                    location,
                    f"labels the comparison {format_value(label.id)}, which the run does not have",
                    "Export the labels again.",
                )
            if first_location := locations.get((annotator, label.id)):
                raise FileError.bad_file(
                    location,
                    f"labels a comparison again, after {first_location}",
                    "Export the labels again.",
                )
            if (other_path := owners.setdefault(label.browser, path)) != path:
                raise FileError(
                    f"labels has two files from one browser, which count as one annotator: {other_path} and {path}. "
                    "Give only the later one."
                )
            locations[annotator, label.id] = location
            rows.append((annotator, label, comparison_by_id[label.id]))
        if not locations:
            raise FileError.bad_file(
                path, "holds no labels", "Give the file that the page exported."
            )
    return rows


def _read_file(
    path: Path, key: Key, comparison_by_id: Mapping[str, Comparison], columns: Columns
) -> Iterator[tuple[str, str, Label]]:
    """Yield labels with their places and annotators."""
    name = path.name.partition(".")[0]
    keys = table_files.read_keys(path)
    if keys and not is_exported(path):
        yield from _read_verdicts(path, key, comparison_by_id, columns)
        return
    for location, row in table_files.read_rows(path):
        cells = row
        if table_files.detect_shape(path) != "lines":
            cells = {name: table_files.to_text(value) for name, value in row.items()}
            if column_roles.is_number(seconds := cells.get("seconds")):
                cells["seconds"] = float(str(seconds))
        remedy = "Give the file that the page exported."
        yield location, name, validate(Label, dict(cells), location, remedy)


def _read_verdicts(
    path: Path, key: Key, comparison_by_id: Mapping[str, Comparison], columns: Columns
) -> Iterator[tuple[str, str, Label]]:
    """Yield the labels of a table with a prompt, two entrants and a verdict in each row; an empty verdict is skipped."""
    column_roles.refuse_absent_columns([path], columns)
    present = column_roles.select_present([path], columns)[path]
    named = column_roles.name_usual_columns(path, present, COLUMNS)
    if lacking := [role for role in _REQUIRED_ROLES if role not in named]:
        exported = "  Or give the file that the page of the run exported."
        raise column_roles.build_no_roles_error(path, lacking, exported)
    ids = defaultdict[tuple[str, ...], dict[str, str]](dict)
    for label_id, comparison in comparison_by_id.items():
        if not (comparison.draw_a or comparison.draw_b):
            compared = (comparison.prompt_id, *comparison.entrants)
            ids[compared][comparison.dimension] = label_id
    source = column_roles.name_columns(path, named, COLUMNS)
    for location, row in table_files.read_rows(source):
        cells = {
            str(name): table_files.to_text(value) or "" for name, value in row.items()
        }
        compared = tuple(cells[COLUMNS[role]] for role in _REQUIRED_ROLES[:3])
        _, model_a, model_b = compared
        annotator = cells.get("judge") or path.name.partition(".")[0]
        label = Label(
            page=key.page,
            browser=f"{path} {annotator}",
            id=_find_id(ids, compared, cells.get("dimension", ""), location),
            choice=_parse_choice(cells[COLUMNS["verdict"]], model_a, model_b, location),
            cluster=cells.get("cluster") or None,
        )
        yield location, annotator, label


def _find_id(
    ids: Mapping[tuple[str, ...], Mapping[str, str]],
    compared: tuple[str, ...],
    dimension: str,
    location: str,
) -> str:
    """Return the id of a comparison of a prompt and two entrants. Raises FileError if the run has none, or several."""
    id_by_dimension = ids.get(compared, {})
    item, model_a, model_b = compared
    if not id_by_dimension:
        example_item, example_a, example_b = next(iter(ids), ("none", "", ""))
        raise FileError.bad_file(
            location,
            f"labels {model_a} and {model_b} on {item}, which the run did not compare",
            "",
            f"  It compared, for example, {example_a} and {example_b} on {example_item}.",
        )
    if not dimension and len(id_by_dimension) == 1:
        return next(iter(id_by_dimension.values()))
    if dimension not in id_by_dimension:
        raise FileError.bad_file(
            location,
            f"has the rubric {format_value(dimension)}",
            f"Name one of the run in a column dimension: {', '.join(id_by_dimension)}.",
        )
    return id_by_dimension[dimension]


def _parse_choice(
    word: str, model_a: str, model_b: str, location: str
) -> Literal["1", "2", "tie", "both bad", "skip"]:
    """Return the choice that a word of a winner stands for. Raises FileError for another word."""
    choices: dict[str, Literal["1", "2", "tie", "both bad", "skip"]] = {
        **{"model_a": "1", "model_b": "2", model_a: "1", model_b: "2"},
        **{"tie": "tie", "tie (bothbad)": "both bad", "both_bad": "both bad"},
        **{"both bad": "both bad", "skip": "skip", "": "skip"},
    }
    if word not in choices:
        raise FileError.bad_file(
            location,
            f"has the verdict {format_value(word)}",
            f"Write {model_a}, {model_b}, model_a, model_b, tie or both_bad.",
        )
    return choices[word]


def merge_clusters(
    rows: Iterable[tuple[str, Label, Comparison]], run_clusters: Mapping[str, str]
) -> dict[str, str]:
    """Return the cluster of each prompt by its id, as the run and the labels say.

    run_clusters  the clusters of the run
    Raises FileError for a prompt in two clusters.
    """
    cluster_of = dict(run_clusters)
    for annotator, label, comparison in rows:
        if label.cluster is None:
            continue
        known_cluster = cluster_of.setdefault(comparison.prompt_id, label.cluster)
        if known_cluster != label.cluster:
            raise FileError(
                f"The labels of {annotator} have prompt {comparison.prompt_id} in cluster {label.cluster}, others in "
                f"{known_cluster}. Each prompt must be in one cluster."
            )
    return cluster_of


def votes_from_labels(
    rows: Iterable[tuple[str, Label, Comparison]],
    cluster_of: Mapping[str, str] = MappingProxyType({}),
) -> list[Battle]:
    """Make a battle of each label, of the annotator as its judge; what was skipped is left out.

    cluster_of  as `clusters` returns it
    """
    return [
        Battle(
            model_a=comparison.entrant_a,
            model_b=comparison.entrant_b,
            winner=_WINNER_BY_CHOICE[label.choice],
            question_id=comparison.prompt_id,
            judge_model=annotator,
            dimension=comparison.dimension,
            draw_a=comparison.draw_a,
            draw_b=comparison.draw_b,
            cluster=cluster_of.get(comparison.prompt_id),
        )
        for annotator, label, comparison in rows
        if label.choice != "skip"
    ]


def skipped_comparisons(
    rows: Iterable[tuple[str, Label, Comparison]],
) -> list[MissingBattle]:
    """Make a comparison without a result of each that an annotator skipped."""
    return [
        MissingBattle(
            model_a=comparison.entrant_a,
            model_b=comparison.entrant_b,
            question_id=comparison.prompt_id,
            judge_model=annotator,
            dimension=comparison.dimension,
            draw_a=comparison.draw_a,
            draw_b=comparison.draw_b,
        )
        for annotator, label, comparison in rows
        if label.choice == "skip"
    ]


def average_votes(votes: Iterable[Battle]) -> list[Battle]:
    """Make one battle of each comparison, however many have labelled it: of the mean of their labels."""
    votes_by_comparison = defaultdict[tuple[str | int | None, ...], list[Battle]](list)
    for vote in votes:
        sides = sorted([(vote.model_a, vote.draw_a), (vote.model_b, vote.draw_b)])
        votes_by_comparison[
            vote.dimension, vote.question_id, *sides[0], *sides[1]
        ].append(vote)
    battles = []
    for comparison_votes in votes_by_comparison.values():
        first_vote = comparison_votes[0]
        model_a = min(first_vote.models)
        shares = [_share(vote, model_a) for vote in comparison_votes]
        share = sum(shares) / len(shares)
        is_bad = all(vote.winner == "tie (bothbad)" for vote in comparison_votes)
        winner = "model_a" if share > 0.5 else "model_b"
        if share == 0.5:
            winner = "tie (bothbad)" if is_bad else "tie"
        is_swapped = model_a != first_vote.model_a
        battles.append(
            Battle(
                model_a=model_a,
                model_b=max(first_vote.models),
                winner=winner,
                question_id=first_vote.question_id,
                judge_model="people",
                dimension=first_vote.dimension,
                score=share if share not in (0.0, 0.5, 1.0) else None,
                draw_a=first_vote.draw_b if is_swapped else first_vote.draw_a,
                draw_b=first_vote.draw_a if is_swapped else first_vote.draw_b,
                cluster=first_vote.cluster,
            )
        )
    return battles


def _share(vote: Battle, model: str) -> float:
    """Return the share that a vote gives to one of its two models."""
    share_of_a = {"model_a": 1.0, "model_b": 0.0}.get(vote.winner, 0.5)
    return share_of_a if model == vote.model_a else 1.0 - share_of_a
