"""The user's mistakes in one line each: what was found, where, what was expected, what to do."""

from __future__ import annotations

import dataclasses
import difflib
import pickle
import re
import sys
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from pydantic import ValidationError

from elo_exp import CONF, usage
from elo_exp.records import UserError

_READ_BY = {  # settings of some experiments only
    **dict.fromkeys(
        ("battles", "battles_columns", "battles_filter", "battles_on_error"), ("rate",)
    ),
    **{"runs": ("compare", "dashboard"), "dashboard": ("dashboard",), "store": ("store",)},
    **{"arena": ("arena", "rate", "oracle"), "oracle": ("oracle",)},
}
_LAUNCHERS = {"joblib": "joblib", "submitit": "slurm", "ray": "ray"}  # the extra that brings each


def explain(error: Exception) -> str | None:
    """The user's mistake in one line; None for an error that is not the user's."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing_option(str(error.missing_cfg_file))
    if isinstance(error, HydraException | OmegaConfBaseException) and isinstance(
        cause := error.__cause__ or error, OmegaConfBaseException
    ):
        return _explain_value(cause)
    if str(error).startswith("Config group override must be"):
        return "a group was set to null. Choose one of its options; --help lists them."
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}. Check the path."
    if isinstance(error, UserError | HydraException | yaml.YAMLError):
        said = _explain_word(error) if isinstance(error, OverrideParseException) else str(error)
        return " ".join(said.split())
    return _explain_launcher(error)


def can_be_sent(error: Exception) -> bool:
    """Whether it arrives in the process of the sweep as it left that of a launcher's job. Not every class of errors can
    be made again from its words, and one that cannot ends all jobs."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def _explain_launcher(error: Exception) -> str | None:
    """The launchers need not be installed, so that their errors are known by name."""
    if type(error).__name__ in ("TerminatedWorkerError", "UncompletedJobError"):
        return "a job was killed, perhaps for its memory. Every answer so far is stored; the same command goes on."
    if str(error).startswith('Could not detect "srun"'):
        return "hydra/launcher=submitit_slurm: found no srun here. Start it where jobs are submitted to Slurm."
    return None


def _explain_word(error: OverrideParseException) -> str:
    """Of what Hydra's parser says, only an error inside a function, such as range(1,b), tells its reader anything."""
    if " while evaluating " in error.message:
        return error.message
    name, equals, _ = error.override.partition("=")
    return (
        f"{error.override}: {'cannot be read' if equals else 'has no value'}. Write name=value without spaces, a value "
        f"with a quote or any of ~ ( ) [ ] {{ }} = , in quotes of its own ('{name}=\"...\"'), and $HOME for ~, which "
        "is not expanded there."
    )


def _explain_value(error: OmegaConfBaseException) -> str:
    key = str(error.full_key or error.key or "configuration")
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and isinstance(
        error.parent_node, DictConfig
    ):
        known = [str(k) for k in error.parent_node if k not in ("_target_", "hydra")]
        hint = (
            _suggest(str(error.key), known)
            if known
            else f" Nothing is set there; add it with +{key}=VALUE."
        )
        return f"{key}: unknown setting.{_in_a_sweep(key) or hint}"
    if " is not a ListConfig" in str(error):
        found = next(
            (word.partition("=")[2] for word in sys.argv if word.startswith(f"{key}=")), "VALUE"
        )
        return f"{key}: found {found}. Expected a list: '{key}=[{found}]'."
    return f"{key}: {first_line(error)}"


def _in_a_sweep(key: str) -> str:
    """Hydra looks at a sweep's other settings before it has chosen what is swept over."""
    group = key.partition(".")[0]
    if any(word.startswith(f"{group}=") and "," in word for word in sys.argv):
        return f" In a sweep over {group}, write ++{key}=..., if all of its options have it."
    return ""


def _missing_option(name: str) -> str:
    group, _, option = name.rpartition("/")
    if group == "hydra/launcher" and (extra := option.partition("_")[0]) in _LAUNCHERS:
        return f"hydra/launcher={option}: is not installed. pip install 'elo-exp[{_LAUNCHERS[extra]}]' brings it."
    folders = (CONF, *usage.config_dirs(sys.argv[1:]))
    options = (
        sorted({path.stem for folder in folders for path in folder.glob(f"{group}/*.yaml")})
        if group
        else []
    )
    if not options:
        return f"{name}: no such configuration file in {', '.join(map(str, folders))}."
    hint = _of_recorded(option) if group == "entrant" and _is_given("recorded_dir") else ""
    return f"{group}={option}: no such {group}.{_suggest(option, options)}{hint}"


def _of_recorded(entrant: str) -> str:
    """That answers on file do not make an entrant by themselves, and what does."""
    folder = next(iter(usage.config_dirs(sys.argv[1:])), "mine")
    return (
        f" recorded_dir wants a small yaml for each name that is new: write {folder}/entrant/{entrant}.yaml of the "
        f"three lines '# @package entrant.{entrant}', 'defaults: [recorded@_here_, _self_]' and 'entrant_id: "
        f"{entrant}', and give --config-dir {folder} (docs/entrants.md)."
    )


def _is_given(name: str) -> bool:
    return any(word.startswith(f"{name}=") for word in sys.argv)


def refuse_unknown(values: Mapping[Any, Any], cls: Any, where: str) -> None:
    """Raise UserError for a key that is no field of the dataclass, nor of the dataclasses in it."""
    known = typing.get_type_hints(cls)
    names = {field.name for field in dataclasses.fields(cls)}
    for key, value in values.items():
        place = f"{where}.{key}".lstrip(".")
        if key not in names:
            raise UserError(f"{place}: unknown setting.{_suggest(key, names)}")
        options = [known[key], *typing.get_args(known[key])]  # X | None
        inner = next((option for option in options if dataclasses.is_dataclass(option)), None)
        if inner and isinstance(value, Mapping) and typing.get_origin(known[key]) is not dict:
            refuse_unknown(value, inner, place)


def format_validation(error: ValidationError) -> str:
    """The first of pydantic's findings: where, what was found, what was expected."""
    first = error.errors()[0]
    where = ".".join(str(key) for key in first["loc"] if key != "")
    found = "null" if first["input"] is None else repr(first["input"])
    if first["type"] == "unexpected_keyword_argument":
        return f"{where}: unknown setting."
    if first["type"] in ("missing", "missing_argument"):
        return f"{where}: is not set, and its class has no default."
    if first["type"] == "list_type" and isinstance(first["input"], str):
        return f"{where}: found {first['input']}. Expected a list: '{where}=[{first['input']}]'."
    expected = re.sub("(Input|String) should (be|match)", "Expected", first["msg"])
    return f"{where}: found {found}. {expected}."


def refuse_lists(overrides: Sequence[str], cfg: DictConfig) -> None:
    """Raise UserError where a group's list names an option twice, or one whose file, a copy perhaps, puts it in the
    place of another name; Hydra would keep one of the two in silence."""
    last = dict(override.partition("=")[::2] for override in overrides)  # which wins
    for group, value in last.items():
        chosen = (
            yaml.safe_load(value) if group in ("entrant", "rating", "rubric", "estimator") else None
        )
        names = chosen if isinstance(chosen, list) else []
        for name in names:
            if names.count(name) > 1:
                raise UserError(
                    f"{group}: {name!r} is chosen {names.count(name)} times. Choose each once."
                )
        places = [str(name).rpartition("/")[2] for name in names]
        lost = [
            place for place in places if place not in cfg[group] and f"~{group}.{place}" not in last
        ]
        if lost and ("_target_" in cfg[group] or len(cfg[group]) < len(names)):
            raise UserError(
                f"{group}: {lost[0]}.yaml puts what it holds elsewhere. Expected its first line to be "
                f"'# @package {group}.{lost[0]}'."
            )


def refuse_elsewhere(overrides: Sequence[str], experiment: str) -> None:
    """Raise UserError for a setting on the command line that this experiment does not read: another was meant."""
    for override in overrides:
        name = re.split("[.=@]", override.lstrip("+~"))[0]
        readers = _READ_BY.get(name, (experiment,))
        if experiment not in readers:
            raise UserError(
                f"{override}: experiment={experiment} does not read {name}. Add experiment={' or '.join(readers)}, or "
                "leave it out."
            )


def _suggest(key: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return (
        f" Did you mean {close[0]!r}?" if close else ""
    ) + f" Known here: {', '.join(sorted(known))}."


def first_line(error: Exception) -> str:
    """OmegaConf follows its message with lines on its own insides."""
    return str(error).strip().splitlines()[0]
