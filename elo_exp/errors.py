"""The user's mistakes in one line each: what was found, where, what was expected, what to do."""

import dataclasses
import difflib
import errno
import re
import sys
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    OmegaConfBaseException,
)
from pydantic import ValidationError

from elo_exp import CONF
from elo_exp.records import UserError

RENAMED = {
    "like": "ratings_from",
    "experiment.prefix": "name",
    "judging.use": "judging.orders",
    "oracle.calibration": "oracle.covariates=[response_length]",
    "oracle.ablation": "oracle.grid",
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk, quota, largest file
_LAUNCHERS = {
    "joblib": "joblib",
    "submitit": "slurm",
    "ray": "ray",
}  # the extra that brings each


def format_user_error(error: BaseException) -> str | None:
    """Return the user's mistake in one line; None for an error that is not the user's."""
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _composition(error)
    if isinstance(error, UserError | yaml.YAMLError):
        return _one_line(error)
    if isinstance(error, OSError) and error.errno in _FULL:
        return (
            f"{error.strerror}. Free some space: what is in the store stays there, and the same "
            "command goes on."
        )
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}. Check the path."
    return _known(str(error), type(error).__name__)


def _composition(error: HydraException | OmegaConfBaseException) -> str:
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing_option(error.missing_cfg_file)
    if isinstance(error, OverrideParseException):
        return _one_line(_unreadable_word(error))
    cause = error.__cause__ or error
    if isinstance(cause, OmegaConfBaseException):
        return _omegaconf(cause)
    group = re.match(r"Could not override '([\w/@]+)", str(error))
    return _foreign(group[1]) if group else _one_line(error)


def format_validation(error: ValidationError) -> str:
    """Return the first of pydantic's findings: where, what was found, what was expected."""
    first = error.errors()[0]
    where = ".".join(str(key) for key in first["loc"] if key != "")
    found = "null" if first["input"] is None else repr(first["input"])
    if first["type"] in ("missing", "missing_argument"):
        return f"{where}: is not set, and its class has no default."
    if first["type"] == "list_type" and isinstance(first["input"], str):
        return f"{where}: found {first['input']}. Expected a list: '{where}=[{first['input']}]'."
    expected = re.sub("(Input|String) should (be|match|have)", "Expected", first["msg"])
    return f"{where}: found {found}. {expected}."


def refuse_unknown(values: Mapping[Any, Any], cls: Any, where: str) -> None:
    """Raise UserError for a key that is no field of the dataclass, nor of the dataclasses in it."""
    known = typing.get_type_hints(cls)
    names = {field.name for field in dataclasses.fields(cls)}
    for key, value in values.items():
        place = f"{where}.{key}".lstrip(".")
        if key not in names:
            raise UserError(f"{place}: unknown setting.{_suggest(key, names)}")
        options = [known[key], *typing.get_args(known[key])]  # X | None
        is_dict = typing.get_origin(known[key]) is dict
        for inner in filter(dataclasses.is_dataclass, options):
            if isinstance(value, Mapping) and not is_dict:
                refuse_unknown(value, inner, place)


def refuse_lost(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError where a list of options names one twice, or one whose file puts it elsewhere; Hydra keeps one of
    the two in silence."""
    words = OverridesParser.create().parse_overrides(list(overrides))
    last = {word.key_or_group: word.value() for word in words}
    for group, names in last.items():
        node = OmegaConf.select(cfg, group.replace("/", "."), default=None)
        if not isinstance(names, list) or not isinstance(node, DictConfig):
            continue
        parts = [part for part in node.values() if isinstance(part, DictConfig)]
        for name in map(str, names):
            if names.count(name) > 1:
                raise UserError(
                    f"{group}: {name!r} is chosen {names.count(name)} times. Choose each once."
                )
            place = name.rpartition("/")[2]
            is_lost = place not in node and len(parts) < len(names)
            if is_lost and f"~{group}.{place}" not in overrides:
                raise UserError(
                    f"{group}: {place}.yaml puts what it holds elsewhere. Expected its first line "
                    f"to be '# @package {group}.{place}'."
                )


def _omegaconf(error: OmegaConfBaseException) -> str:
    key = str(error.full_key or error.key or "configuration")
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and isinstance(
        error.parent_node, DictConfig
    ):
        given = map(
            _key_of, sys.argv
        )  # Hydra names the first step of a key that is not there
        whole = next((word for word in given if f"{word}.".startswith(f"{key}.")), key)
        return _foreign(whole, [str(name) for name in error.parent_node])
    if " is not a ListConfig" in str(error):
        found = next(
            (w.partition("=")[2] for w in sys.argv if _key_of(w) == key), "VALUE"
        )
        return f"{key}: found {found}. Expected a list: '{key}=[{found}]'."
    return f"{key}: {_one_line(str(error).splitlines()[0])}"


def _key_of(word: str) -> str:
    """Of an override such as +a.b=c: a.b"""
    return re.split("[=@]", word.lstrip("+~"))[0]


def _foreign(key: str, siblings: Collection[str] = ()) -> str:
    """Say which experiments have a setting or a group that the chosen one has not."""
    if new := RENAMED.get(key):
        return f"{key}: is called {new} now."
    if key.startswith("judging.families."):
        return f"{key}: is no part of a name yet. To add it: +{key}=FAMILY."
    group = key.partition(".")[0]
    if key != group and any(re.match(rf"{group}=[^\[]*,", word) for word in sys.argv):
        return (
            f"{key}: unknown setting. In a sweep over {group}, write ++{key}=..., if all of its "
            "options have it."
        )
    chosen = next(
        (w.partition("=")[2] for w in sys.argv if w.startswith("experiment=")),
        "tournament",
    )
    readers = [
        name for name in _options("experiment") if name != chosen and key in _keys(name)
    ]
    if readers:
        return (
            f"{key}: experiment={chosen} does not have it. Add experiment={' or '.join(readers)}, "
            "or leave it out."
        )
    known = [
        name
        for name in siblings or _keys(chosen)
        if "." not in name and name != "_target_"
    ]
    hint = (
        _suggest(key.rpartition(".")[2], set(known) - {"hydra"})
        if known
        else f" Nothing is set there; add it with +{key}=VALUE."
    )
    return f"{key}: unknown setting.{hint}"


def _keys(experiment: str) -> set[str]:
    """Return the settings and groups that an experiment has, as dotted names."""
    try:
        cfg = _compose([f"experiment={experiment}"])
    except Exception:  # a file of the user's that does not compose
        return set()
    groups = {group.partition("@")[0] for group in cfg.hydra.runtime.choices}
    del cfg["hydra"]
    return groups | set(_dotted(OmegaConf.to_container(cfg)))


def _dotted(node: Any, where: str = "") -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        yield f"{where}{key}"
        yield from _dotted(value, f"{where}{key}.")


def _compose(overrides: list[str]) -> DictConfig:
    """Compose once more, in place of what Hydra was doing: the command ends with this error."""
    GlobalHydra.instance().clear()
    extra = [f"file://{folder.absolute()}" for folder in _config_dirs()]
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        given = [*overrides, f"hydra.searchpath={extra}"]
        cfg = hydra.compose("config", given, return_hydra_config=True)
    OmegaConf.set_struct(cfg, False)
    return cfg


def _config_dirs() -> list[Path]:
    """--config-dir DIR or --config-dir=DIR."""
    words = " ".join(sys.argv).replace("=", " ").split(" ")
    return [
        Path(folder)
        for flag, folder in pairwise(words)
        if flag in ("--config-dir", "-cd")
    ]


def _options(group: str) -> list[str]:
    folders = (CONF, *_config_dirs())
    return sorted(
        {path.stem for folder in folders for path in folder.glob(f"{group}/*.yaml")}
    )


def _missing_option(name: str) -> str:
    group, _, option = name.rpartition("/")
    if group == "hydra/launcher" and (extra := option.partition("_")[0]) in _LAUNCHERS:
        return (
            f"hydra/launcher={option}: is not installed. pip install "
            f"'elo-exp[{_LAUNCHERS[extra]}]' brings it."
        )
    options = _options(group) if group else []
    folders = _config_dirs()
    if not options:
        where = ", ".join(map(str, (CONF, *folders)))
        return f"{name}: no such configuration file in {where}."
    line = f"{group}={option}: no such {group}.{_suggest(option, options)}"
    if group == "entrant" and "recorded_dir" in map(_key_of, sys.argv):
        # Answers on file do not make an entrant by themselves
        folder = next(iter(folders), "mine")
        line += (
            " recorded_dir wants a small yaml for each name that is new: write "
            f"{folder}/entrant/{option}.yaml of the three lines '# @package entrant.{option}', "
            f"'defaults: [recorded@_here_, _self_]' and 'entrant_id: {option}', and give "
            f"--config-dir {folder} (docs/entrants.md)."
        )
    return line


def _unreadable_word(error: OverrideParseException) -> str:
    """Keep of Hydra's text only what is wrong inside a function such as range(1,b)."""
    if " while evaluating " in error.message:
        return error.message
    word = error.override
    name, equals, _ = word.partition("=")
    if word in ("help", "version"):
        return f"{word}: is no setting. Did you mean --{word}?"
    if not equals:
        return f"{word}: is no file and has no value. Write {word}=VALUE without spaces; --help lists settings."
    return (
        f"{word}: cannot be read. Put a value with a quote or any of ~ ( ) [ ] {{ }} = , in quotes "
        f"of its own ('{name}=\"...\"'), and write $HOME for ~."
    )


def _known(message: str, kind: str) -> str | None:
    """Errors of libraries that have no class for them, or need not be installed."""
    if message.startswith("Config group override must be"):
        return "a group was set to null. Choose one of its options; --help lists them."
    if kind in ("TerminatedWorkerError", "UncompletedJobError"):
        return (
            "a job was killed, perhaps for its memory. Every answer so far is stored."
        )
    if message.startswith('Could not detect "srun"'):
        return (
            "hydra/launcher=submitit_slurm: found no srun here. Start it where jobs are submitted "
            "to Slurm."
        )
    return None


def _suggest(key: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return (
        f" Did you mean {close[0]!r}?" if close else ""
    ) + f" Known here: {', '.join(sorted(known))}."


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
