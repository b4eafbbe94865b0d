"""Labels by people: which comparisons they see, under which names, and what they said of them.

A page of comparisons names no entrant. The id of a comparison is a keyed hash of what is compared and of which answer is
shown first; the key stays here, in labels/key.json of the run, and with it every page that was ever made of the run can be
read back.
"""

import hashlib
import hmac
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np

from elo_exp.files import checked, read_json, read_jsonl, write_json
from elo_exp.records import (
    Battle,
    Comparison,
    MissingBattle,
    Record,
    UserError,
    canonical_json,
)

CHOICES = ("1", "2", "tie", "both bad", "skip")
_WINNERS = {"1": "model_a", "2": "model_b", "tie": "tie", "both bad": "tie (bothbad)"}
_DIGITS = 16  # of an id: 64 bits
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
        """Read it from a file. Raises UserError for a file that this program has not written."""
        found: Key = checked(cls, read_json(path), path)
        try:
            bytes.fromhex(found.key)
        except ValueError:
            raise UserError(
                f"{path}: found {found.key!r:.40} as key. Expected hexadecimal digits."
            ) from None
        return found

    @classmethod
    def of(cls, path: Path) -> "Key":
        """Read it, or draw one and write it where there is none yet."""
        if not path.is_file():
            drawn = cls(key=secrets.token_hex(_KEY_BYTES))
            write_json(path, drawn.to_dict())
            path.chmod(0o600)
        return cls.read(path)

    @property
    def page(self) -> str:
        """The id of the run's pages."""
        return self._hashed("page")

    def id(self, shown: Comparison) -> str:
        """The id of a comparison whose entrant_a is shown as 1."""
        first, second = shown.entrants
        if shown.draw_a or shown.draw_b:  # one of several answers
            first, second = f"{first} {shown.draw_a}", f"{second} {shown.draw_b}"
        return self._hashed(shown.prompt_id, shown.dimension, first, second)

    def ids(self, comparisons: Iterable[Comparison]) -> dict[str, Comparison]:
        """Return by id what a page may show: each comparison in both orders."""
        return {
            self.id(shown): shown
            for comparison in comparisons
            for shown in (comparison, comparison.swapped())
        }

    def _hashed(self, *parts: str) -> str:
        text = canonical_json(parts).encode(errors="backslashreplace")
        return hmac.digest(bytes.fromhex(self.key), text, hashlib.sha256).hex()[
            :_DIGITS
        ]


# What people see


def drawn(comparisons: Sequence[Comparison], n: int, *, seed: int) -> list[Comparison]:
    """Draw comparisons in the order in which they are to be labelled; entrant_a is shown as 1.

    Uniformly: every prompt once before any twice, each time with a pair that was drawn least so far; which answer is
    shown first is drawn, too. The first n of one seed are the same whatever n is. Nothing goes by the answers: close pairs
    would be answers that are alike (docs/people.md).
    """
    rng = np.random.default_rng(seed)
    left = defaultdict[str, list[Comparison]](list)
    for comparison in comparisons:
        left[comparison.prompt_id].append(comparison)
    order = [[*left][i] for i in rng.permutation(len(left))]
    n_drawn, found = Counter[frozenset[str]](), list[Comparison]()
    while len(found) < min(n, len(comparisons)):
        for prompt in filter(left.__getitem__, order):
            some = left[prompt]
            chances = [n_drawn[frozenset(one.entrants)] for one in some]
            fewest = np.flatnonzero(np.array(chances) == min(chances))
            one = some.pop(int(rng.choice(fewest)))
            n_drawn[frozenset(one.entrants)] += 1
            found.append(one if rng.random() < 0.5 else one.swapped())
    return found[:n]


def dealt(
    shown: Sequence[Comparison], annotators: int, overlap: float
) -> list[list[Comparison]]:
    """Deal comparisons to annotators: to each new ones of its own, and then second opinions.

    overlap  share of the comparisons that a second annotator labels, too: the first ones of the next annotator, who
             labels them first. Of one annotator there are none.
    """
    own = [list(shown[i::annotators]) for i in range(annotators)]
    if annotators == 1:
        return own
    return [
        [*mine, *after[: round(overlap * len(after))]]
        for mine, after in zip(own, [*own[1:], own[0]], strict=True)
    ]


# What they said


def read(
    paths: Sequence[Path], key: Key, known: Mapping[str, Comparison]
) -> list[tuple[str, Label, Comparison]]:
    """Read the files of annotators: of each label its annotator, whom the file is called after, and what was shown.

    known  comparisons by id
    Raises UserError for another run's page, an unknown comparison, one that stands twice in a file, and two files of one
    person.
    """
    rows = list[tuple[str, Label, Comparison]]()
    owners, names = dict[str, Path](), dict[str, Path]()
    for path in paths:
        name = path.name.partition(".")[0]
        if name in names:
            raise UserError(
                f"labels: {names[name]} and {path} are both called {name}. Give each annotator one file, named "
                "after whoever labelled."
            )
        names[name] = path
        places = dict[str, str]()
        for place, row in read_jsonl(path):
            label = checked(Label, row, place, " Expected a row that a page exported.")
            if label.page != key.page:
                raise UserError(
                    f"{place}: is of another run's page. Give the run whose page was labelled: run=DIR."
                )
            if label.id not in known:
                raise UserError(
                    f"{place}: found the comparison {label.id!r:.40}, which is none of the run's. Export the "
                    "labels anew."
                )
            if first := places.get(label.id):
                raise UserError(
                    f"{place}: labels a comparison again, after {first}. Expected each once: export the labels "
                    "anew."
                )
            if (other := owners.setdefault(label.browser, path)) != path:
                raise UserError(
                    f"labels: {other} and {path} are by one browser, and count as one person's. Give the "
                    "later one alone."
                )
            places[label.id] = place
            rows.append((name, label, known[label.id]))
        if not places:
            raise UserError(f"{path}: holds no labels. Expected what a page exported.")
    return rows


def clusters(
    rows: Iterable[tuple[str, Label, Comparison]], of_run: Mapping[str, str]
) -> dict[str, str]:
    """Return the cluster of each prompt by its id, as the run and the labels say.

    of_run  as the run says
    Raises UserError for a prompt in two clusters.
    """
    found = dict(of_run)
    for annotator, label, shown in rows:
        if label.cluster is None:
            continue
        known = found.setdefault(shown.prompt_id, label.cluster)
        if known != label.cluster:
            raise UserError(
                f"labels: {annotator} has prompt {shown.prompt_id!r} in cluster {label.cluster!r}, and elsewhere it is in "
                f"{known!r}. Expected one cluster of each prompt."
            )
    return found


def votes(
    rows: Iterable[tuple[str, Label, Comparison]],
    cluster_of: Mapping[str, str] = MappingProxyType({}),
) -> list[Battle]:
    """Make a battle of each label, of the annotator as its judge; what was skipped is left out.

    cluster_of  as `clusters` returns it
    """
    return [
        Battle(
            model_a=shown.entrant_a,
            model_b=shown.entrant_b,
            winner=_WINNERS[label.choice],
            question_id=shown.prompt_id,
            judge_model=annotator,
            dimension=shown.dimension,
            draw_a=shown.draw_a,
            draw_b=shown.draw_b,
            cluster=cluster_of.get(shown.prompt_id),
        )
        for annotator, label, shown in rows
        if label.choice != "skip"
    ]


def skipped(
    rows: Iterable[tuple[str, Label, Comparison]],
) -> list[MissingBattle]:
    """Make a comparison without a result of each that an annotator skipped."""
    return [
        MissingBattle(
            model_a=shown.entrant_a,
            model_b=shown.entrant_b,
            question_id=shown.prompt_id,
            judge_model=annotator,
            dimension=shown.dimension,
            draw_a=shown.draw_a,
            draw_b=shown.draw_b,
        )
        for annotator, label, shown in rows
        if label.choice == "skip"
    ]


def joined(votes: Iterable[Battle]) -> list[Battle]:
    """Make one battle of each comparison, however many have labelled it: of the mean of their labels."""
    said = defaultdict[tuple[str | int | None, ...], list[Battle]](list)
    for vote in votes:
        sides = sorted([(vote.model_a, vote.draw_a), (vote.model_b, vote.draw_b)])
        said[vote.dimension, vote.question_id, *sides[0], *sides[1]].append(vote)
    found = []
    for own in said.values():
        one = own[0]
        first = min(one.models)
        shares = [_share(vote, first) for vote in own]
        share = sum(shares) / len(shares)
        is_bad = all(vote.winner == "tie (bothbad)" for vote in own)
        winner = "model_a" if share > 0.5 else "model_b"
        if share == 0.5:
            winner = "tie (bothbad)" if is_bad else "tie"
        is_turned = first != one.model_a
        found.append(
            Battle(
                model_a=first,
                model_b=max(one.models),
                winner=winner,
                question_id=one.question_id,
                judge_model="people",
                dimension=one.dimension,
                score=share if share not in (0.0, 0.5, 1.0) else None,
                draw_a=one.draw_b if is_turned else one.draw_a,
                draw_b=one.draw_a if is_turned else one.draw_b,
                cluster=one.cluster,
            )
        )
    return found


def _share(vote: Battle, model: str) -> float:
    """What a vote gives to one of its two models."""
    of_first = {"model_a": 1.0, "model_b": 0.0}.get(vote.winner, 0.5)
    return of_first if model == vote.model_a else 1.0 - of_first
