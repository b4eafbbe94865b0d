"""Families of models, read from their names: who is kin of the judge.

A judge may prefer what its own family wrote (self-preference, Zheng et al. 2023; Panickssery et al. 2024).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from elo_exp.records import Record

# Programs that run models of any family, and APIs that serve them
_PROGRAM_NAMES = re.compile("llama[._-]?cpp|openai[._-]?compatible", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFamily(Record):
    """The models that are of the judge's family.

    family  of the judge; None where its name tells none
    models  of that family, in the order in which they were given
    others  the other models
    """

    family: str | None = None
    models: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def is_unequal(self) -> bool:
        """Whether the judge is kin of some and not of others."""
        return bool(self.models and self.others)

    def to_diagnosis(self, *, is_allowed: bool) -> "KinDiagnosis":
        """Return it as a diagnosis of the judge.

        Parameters
        ----------
        is_allowed : bool
            Whether the user takes the judge in spite of it.

        Returns
        -------
        KinDiagnosis
        """
        return KinDiagnosis(
            family=self.family,
            models=self.models,
            others=self.others,
            is_allowed=is_allowed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KinDiagnosis(JudgeFamily):
    """Which entrants are of the judge's family, and whether the user takes the judge in spite of it."""

    is_allowed: bool = False


def find_judge_family(
    families: Mapping[str, str], judge: str, models: Mapping[str, Sequence[str]]
) -> JudgeFamily:
    """Return which models are of the judge's family.

    Parameters
    ----------
    families : mapping of str to str
        By part of a name, as judging.families.
    judge : str
        The name of its model.
    models : mapping of str to sequence of str
        By model, the names that may tell its family, as `names` gives them.

    Returns
    -------
    JudgeFamily
        Without a family where no name tells the judge's.
    """
    judge_family = find_family(families, judge)
    kin_models = [
        model
        for model, model_names in models.items()
        if judge_family is not None
        and find_family(families, *model_names) == judge_family
    ]
    other_models = [model for model in models if model not in kin_models]
    return JudgeFamily(
        family=judge_family, models=tuple(kin_models), others=tuple(other_models)
    )


def list_family_hints(entrant: object) -> list[str]:
    """Return the names of an entrant that may tell its family.

    Parameters
    ----------
    entrant : object
        An entrant; what it has of `model`, `path` and `entrant_id` is read.

    Returns
    -------
    list of str
        The most telling first: its model, the file of its weights or answers, its name. Of a path only
        the last part is a name of a model.
    """
    model, path = (str(getattr(entrant, name, "")) for name in ("model", "path"))
    is_path = model[:1] in tuple("/.~") or model.count("/") > 1
    file = PurePath(path)
    candidates = [
        PurePath(model).name if is_path else model,
        file.name if file.suffix else "",
        str(getattr(entrant, "entrant_id", "")),
    ]
    return [name for name in candidates if name]


def find_family(families: Mapping[str, str], *names: str) -> str | None:
    """Return the family of a model, from the first of its names that tells it.

    A part of a name tells it where no letter stands on either side: `o1` is in `o1-mini`, not in
    `foo1`. Case does not matter. Of several parts the longest does, so that a whole name goes before
    its parts.

    Parameters
    ----------
    families : mapping of str to str
        By part of a name, as judging.families.
    *names : str
        Of one model, the most telling first.

    Returns
    -------
    str or None
        None where no name does.
    """
    for name in names:
        model_name = _PROGRAM_NAMES.sub("", name)
        parts = [part for part in families if _contains_part(model_name, part)]
        if parts:
            return families[max(parts, key=len)]
    return None


def _contains_part(name: str, part: str) -> bool:
    letter = r"[^\W\d_]"
    pattern = rf"(?<!{letter}){re.escape(part)}(?!{letter})"
    return re.search(pattern, name, re.IGNORECASE) is not None
