"""From the composed configuration to checked objects: every node with a `_target_` becomes one.

The root is such a node: its `_target_` is the experiment, and its keys are the experiment's fields, besides those that
every run has. The fields of a dataclass are the schema of its node: pydantic checks types and ranges, `__post_init__`
what concerns several fields. Building reads no file and makes no call; files are for a part's `check()`.
"""

import contextlib
import dataclasses
import difflib
import inspect
import itertools
import keyword
import math
import os
import pkgutil
import re
import secrets
import threading
import traceback
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobRuntime
from hydra.types import RunMode
from hydra.version import VersionBase, getbase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc
from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from elo_exp.console import URL_PASSWORD_PATTERN
from elo_exp.errors import (
    FileError,
    RunNeeds,
    SettingError,
    UserError,
    describe_mistake,
)
from elo_exp.experiments import Experiment, refuse_absent
from elo_exp.formatting import shorten_override
from elo_exp.launching.setting_comments import find_comment
from elo_exp.launching.setting_names import (
    MAX_SUGGESTIONS,
    NAME_IN_FILES,
    add_names_to_type,
    find_full_names,
)
from elo_exp.launching.sweep_objective import check_name as check_headline
from elo_exp.masking import current_mask
from elo_exp.paths import CONF, HOME
from elo_exp.requirements import describe_requirement, find_type
from elo_exp.runs.sweep_record import sweep_if_any
from elo_exp.store.answer_store import Store
from elo_exp.store.caps import Caps
from elo_exp.store.database import check_url
from elo_exp.trackers import RunInfo, Tracker
from elo_exp.types import NonNegative

RULES = ConfigDict(
    arbitrary_types_allowed=True,
    extra="forbid",
    coerce_numbers_to_str=True,  # a revision of digits
)
# The value of ${oc.env:NAME} while a configuration is resolved for those who read it
_MARK = f"elo_exp_{secrets.token_hex(8)}_"
_MARKED = re.compile(rf"{_MARK}(.+?)_{_MARK}")
# The setting that a message begins with
_OPENING_SETTING = re.compile(r"[\w.]+(?=: | must | is not set)")
# More names than these are listed by a command of their own
_MAX_NAMES_LISTED = 8
# Paths of a configuration that are used as they are read
_READ_BACK = ("cache_dir",)
_is_readable_copy = ContextVar("_is_readable_copy", default=False)


def _read_variable(name: str, *default: Any) -> str | None:
    """Return the value of a variable, or a mark in its place."""
    if _is_readable_copy.get() and name in os.environ:
        return f"{_MARK}{name}_{_MARK}"
    value: str | None = oc.env(name, *default)
    return value


OmegaConf.register_new_resolver("oc.env", _read_variable, replace=True)
OmegaConf.register_new_resolver("home", lambda path: str(HOME / path), replace=True)
OmegaConf.register_new_resolver(
    "token", lambda: secrets.token_hex(2), use_cache=True, replace=True
)


# Hydra has one search path for the process
_COMPOSING = threading.Lock()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComposedConfig:
    """A composed configuration, and what Hydra would do with it.

    run_dir  the folder that a run of it would have
    choices  the option taken of each group
    """

    cfg: DictConfig
    run_dir: Path
    choices: Mapping[str, Any]


def compose(words: Sequence[str]) -> ComposedConfig:
    """Compose the configuration of a command, also inside another application of Hydra, which keeps its own.

    words  overrides, and --config-dir=DIR. Raises Hydra's and OmegaConf's errors.
    """
    folders = [f"file://{folder.absolute()}" for folder in parse_config_dirs(words)]
    override_words = [word for word in words if not word.startswith("-")]
    if folders:
        override_words.append(f"hydra.searchpath={folders}")
    with (
        _COMPOSING,
        _keep_outer_application(),
        hydra.initialize_config_dir(str(CONF), "elo_exp", version_base="1.3"),
    ):
        cfg = hydra.compose("config", override_words, return_hydra_config=True)
        run_dir = Path(cfg.hydra.run.dir).absolute()
        choices = dict(cfg.hydra.runtime.choices)
    OmegaConf.set_struct(cfg, False)
    del cfg["hydra"]
    return ComposedConfig(cfg=cfg, run_dir=run_dir, choices=choices)


@contextlib.contextmanager
def _keep_outer_application() -> Iterator[None]:
    """Give back what Hydra has for the whole process: the application, the version that it behaves as, the job's name."""
    application, base, job = GlobalHydra.instance(), getbase(), JobRuntime.instance()
    outer, names = application.hydra, job.conf
    application.hydra, job.conf = None, names.copy()
    try:
        yield
    finally:
        application.hydra = outer
        GlobalHydra.set_instance(application)  # Hydra leaves a copy in its place
        VersionBase.instance().version_base = base
        job.conf = names


def put_values(cfg: DictConfig, values: Mapping[str, Any]) -> None:
    """Put values into a composed configuration as they are, by dotted name: no text of them is an interpolation."""
    for key, value in values.items():
        OmegaConf.update(cfg, key, _escape_interpolations(value), merge=False)


def _escape_interpolations(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(r"(?<!\\)(\\*)\$\{", lambda match: rf"{match[1] * 2}\${{", value)
    if isinstance(value, Mapping):
        return {str(key): _escape_interpolations(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_escape_interpolations(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value


def parse_config_dirs(words: Sequence[str]) -> list[Path]:
    """Return the folders of --config-dir DIR and --config-dir=DIR."""
    flag = re.compile("(?<=^--config-dir)=")
    parts = [piece for word in words for piece in flag.split(word, maxsplit=1)]
    return [
        Path(folder)
        for name, folder in itertools.pairwise(parts)
        if name in ("--config-dir", "-cd")
    ]


@dataclasses.dataclass(kw_only=True)
class RunSettings:
    """What every run has; conf/config.yaml.

    plan  show what a run would cost, and stop before its first side effect
    """

    name: str
    plan: bool
    tracker: Tracker
    figures: bool | None  # None: not in the jobs of a sweep
    resume: bool
    headline: str | None  # None: the experiment's own, or Elo's where Elo is swept
    cache_dir: Annotated[str, Field(min_length=1)]
    store: str | None
    wait_minutes: NonNegative
    caps: Caps

    def __post_init__(self) -> None:
        if self.store is not None:
            check_url(self.store)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A run's checked objects, and the configuration that they were built from.

    config  as files and trackers have it: ${oc.env:NAME} by its name, secrets by those of their variables
    """

    config: dict[str, Any]
    settings: RunSettings
    experiment: Experiment

    def open_store(self) -> Store:
        """Open the store; what is kept beside the answers is in `cache_dir`, wherever they are."""
        folder = Path(self.settings.cache_dir)
        wait: Any = next(iter(self.experiment.list_judges().values()), None)
        if not hasattr(wait, "wait_minutes"):
            wait = self.settings
        return Store(
            self.settings.store or folder / "store.sqlite",
            folder=folder,
            wait_minutes=wait.wait_minutes,
            reads_first=True,
        )

    def refuse_absent(self, *, with_parts: bool = True) -> None:
        """Raise FileError for the first input file or folder that is not there.

        with_parts  also for those of parts, such as models, which may be on other machines
        """
        experiment = self.experiment
        files = experiment.list_input_files() if with_parts else experiment.input_files
        refuse_absent(files)

    def check_files(self, needs: RunNeeds) -> None:
        """Let the experiment and each of its parts look for their files.

        needs  takes what a plan does without, such as the files of a model
        """
        self.experiment.check_files()
        for where, part in [
            *self.experiment.list_parts().items(),
            ("tracker", self.settings.tracker),
        ]:
            if hasattr(part, "check"):
                with needs.collect(), _prefix_errors(where, type(part)):
                    part.check()


def prepare(cfg: DictConfig, overrides: Sequence[str]) -> Job:
    """Check a composed configuration and build its objects. Raises SettingError naming the setting that is wrong."""
    _complete_rubrics(cfg)
    _refuse_lost_options(cfg, overrides)
    _refuse_absent_parts(cfg, overrides)
    _empty_mappings(cfg, overrides)
    names = [str(name) for name in cfg if name != "hydra"]
    config = _resolve_config(OmegaConf.masked_copy(cfg, names))
    _refuse_passwords(config)
    if "_target_" not in config:
        raise SettingError(
            "The experiment's file has no _target_, or does not begin with the line '# @package _global_'."
        )
    cls = _import_experiment(config["_target_"])
    try:
        config = cls.prepare(config, overrides)
        readable_config, config = _make_readable(config), _make_plain(config)
        if cls.plans is Experiment.plans:
            del readable_config["plan"]
        of_run = {field.name for field in dataclasses.fields(RunSettings)}
        run = {name: value for name, value in config.items() if name in of_run}
        if isinstance(run["store"], Mapping):  # that of experiment=store
            run["store"] = run["store"]["url"]
        of_experiment = {
            name: value
            for name, value in config.items()
            if name not in of_run or (name == "store" and isinstance(value, Mapping))
        }
        run["_target_"] = "elo_exp.launching.composing.RunSettings"
        settings = build(run, words=overrides)
        experiment = build(of_experiment, words=overrides)
        check_headline(settings.headline, experiment)
        return Job(config=readable_config, settings=settings, experiment=experiment)
    except UserError as error:
        line = _name_source_setting(error.line, cfg)
        raise error.reword(line, *error.below) from None


class _NamedText(str):
    """A text that comes from the environment. `shown` names its variables."""

    __slots__ = ("shown",)
    shown: str


class _NamedInt(int):
    shown: str


class _NamedFloat(float):
    shown: str


def _resolve_config(cfg: DictConfig) -> dict[str, Any]:
    """Resolve a configuration. What comes from the environment knows the names of its variables."""
    values = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(values, dict)
    token = _is_readable_copy.set(True)
    try:
        readable = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException:  # a function that cannot read the mark
        readable = OmegaConf.to_container(cfg, resolve=False)
    finally:
        _is_readable_copy.reset(token)
    assert isinstance(readable, dict)
    config: dict[str, Any] = _attach_names(values, readable)
    return config | {k: v for k, v in values.items() if k in _READ_BACK}


def _attach_names(value: Any, readable: Any) -> Any:
    if isinstance(value, dict):
        inner = (
            readable if isinstance(readable, dict) else dict.fromkeys(value, readable)
        )
        return {
            str(name): _attach_names(inner_value, inner.get(name))
            for name, inner_value in value.items()
        }
    if isinstance(value, list):
        readable_values = (
            readable if isinstance(readable, list) else [readable] * len(value)
        )
        return list(map(_attach_names, value, readable_values))
    name = _MARKED.sub(r"${oc.env:\1}", readable) if isinstance(readable, str) else ""
    if "${oc.env:" not in name:
        return value
    if isinstance(value, str):
        text = _NamedText(value)
        text.shown = name
        return text
    if type(value) in (int, float):
        number = _NamedInt(value) if isinstance(value, int) else _NamedFloat(value)
        number.shown = name
        return number
    return value


_Named = _NamedText | _NamedInt | _NamedFloat


def _make_readable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as files and trackers have it."""
    names: dict[str, Any] = _map_leaves(
        config, lambda value: value.shown if isinstance(value, _Named) else value
    )
    readable: dict[str, Any] = current_mask().values(names)
    return readable | {k: v for k, v in config.items() if k in _READ_BACK}


def _make_plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as objects are built from it."""
    kinds = {_NamedText: str, _NamedInt: int, _NamedFloat: float}
    values: dict[str, Any] = _map_leaves(
        config, lambda value: kinds.get(type(value), lambda plain: plain)(value)
    )
    return values


def _map_leaves(node: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(node, dict):
        return {name: _map_leaves(value, change) for name, value in node.items()}
    if isinstance(node, list):
        return [_map_leaves(value, change) for value in node]
    return change(node)


def _refuse_passwords(node: Any, where: str = "") -> None:
    """Raise SettingError for a URL with a password: settings are written to files, and sent to trackers."""
    if isinstance(node, str) and URL_PASSWORD_PATTERN.search(node):
        is_store = node.startswith("postgres")
        secret = (
            "The password is read from PGPASSWORD or ~/.pgpass"
            if is_store
            else "Keys are read from the environment"
        )
        raise SettingError(
            f"{where} holds a URL with a password, and settings are written to files and trackers. "
            f"Leave the password out. {secret}."
        )
    items = (
        node.items()
        if isinstance(node, Mapping)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, value in items:
        _refuse_passwords(value, f"{where}.{key}".lstrip("."))


def _refuse_lost_options(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise SettingError where a list of options names one twice, or one whose file puts it elsewhere; Hydra keeps one of
    the two in silence."""
    words = OverridesParser.create().parse_overrides(list(overrides))
    values = {(word.key_or_group, word.is_add()): word.value() for word in words}
    for (group, _), names in values.items():
        node = OmegaConf.select(cfg, group.replace("/", "."), default=None)
        if not isinstance(names, list) or not isinstance(node, DictConfig):
            continue
        parts = [child for child in node.values() if isinstance(child, DictConfig)]
        for name in map(str, names):
            if names.count(name) > 1:
                raise SettingError(
                    f"{group} names {name} {names.count(name)} times. Name it once."
                )
            option = name.rpartition("/")[2]
            is_lost = option not in node and len(parts) < len(names)
            if is_lost and f"~{group}.{option}" not in overrides:
                raise SettingError(
                    f"{group}/{option}.yaml does not say where its settings belong. Its first line must be "
                    f"'# @package {group}.{option}'."
                )


def _complete_rubrics(cfg: DictConfig) -> None:
    """Give a rubric that is only a text its name, and for the rest the settings of rubric=preference."""
    rubrics = OmegaConf.select(cfg, "rubric", default=None)
    for name in [*rubrics] if isinstance(rubrics, DictConfig) else ():
        node = rubrics[name]
        if (
            isinstance(node, DictConfig)
            and "text" in node
            and node.get("_target_") is None
        ):
            base = OmegaConf.load(CONF / "rubric" / "preference.yaml")
            own_settings = {"dimension": str(name), "path": None}
            rubric = OmegaConf.merge(base, own_settings, node)
            OmegaConf.update(cfg, f"rubric.{name}", rubric, merge=False)


def _refuse_absent_parts(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Raise SettingError for a setting that is added to an entrant or a judge that is not chosen."""
    words = OverridesParser.create().parse_overrides(list(overrides))
    for key in [word.key_or_group for word in words if not word.is_delete()]:
        group, _, name_and_field = key.partition(".")
        name, dot, _ = name_and_field.partition(".")
        node = OmegaConf.select(cfg, f"{group}.{name}", default=None) if dot else None
        if (
            group not in ("entrant", "judges")
            or not isinstance(node, DictConfig)
            or "_target_" in node
        ):
            continue
        chosen = [
            other_name for other_name in map(str, cfg[group]) if other_name != name
        ]
        settings = [f"{group}.{n}.{f}" for n in chosen for f in map(str, cfg[group][n])]
        meant = find_full_names(key, settings)
        hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
        raise SettingError(
            f"{key} belongs to no chosen {group.removesuffix('s')}: these are {', '.join(chosen) or 'none'}.{hint}"
        )


def _empty_mappings(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Let KEY={} leave a mapping with what else is given of it: Hydra merges, which would change nothing."""
    words = OverridesParser.create().parse_overrides(list(overrides))
    keys_given = {word.key_or_group for word in words}
    for word in words:
        node = OmegaConf.select(cfg, word.key_or_group, default=None)
        if word.value() == {} and isinstance(node, DictConfig):
            keys = map(str, node)
            remaining_keys = [
                key for key in keys if f"{word.key_or_group}.{key}" in keys_given
            ]
            OmegaConf.update(
                cfg,
                word.key_or_group,
                OmegaConf.masked_copy(node, remaining_keys),
                merge=False,
            )


def describe_run(job: Job) -> RunInfo:
    """Describe the job that Hydra is running."""
    application = HydraConfig.get()
    run_dir, override_words = Path(application.runtime.output_dir), read_overrides()
    name, group = run_dir.name, None
    if is_multirun():
        name = _format_swept_values(override_words) or name
        sweep = sweep_if_any(_find_sweep_folder())
        group = sweep.group if sweep else _find_sweep_folder().name
    kind = str(application.runtime.choices["experiment"])
    return describe_job(job, run_dir, kind, override_words, name=name, group=group)


def describe_job(
    job: Job,
    run_dir: Path,
    kind: str,
    override_words: Sequence[str],
    *,
    name: str,
    group: str | None = None,
) -> RunInfo:
    """Describe a job to trackers and manifest.

    kind   the experiment
    given  words of the command
    name   of the run in trackers; group is that of its sweep
    """
    run_labels = job.experiment.make_tracker_labels()
    tags = {
        "mode": job.config.get("mode", {}).get("name"),
        "judge": run_labels.get("judge_model"),
        "experiment": kind,
    }
    return RunInfo(
        run_dir=run_dir,
        name=name,
        group=group,
        job_type=kind,
        config={key: value for key, value in job.config.items() if key != "_target_"},
        overrides=tuple(override_words),
        labels=run_labels,
        tags=tuple(f"{key}:{value}" for key, value in tags.items() if value),
    )


def _format_swept_values(override_words: Sequence[str]) -> str:
    """Return the overrides of a job that differ from those of others, such as "k=16 n_perms=500"."""
    words = {
        word.partition("=")[0].lstrip("+"): shorten_override(word)
        for word in override_words
    }
    keys = [key for key in read_swept_keys() if key in words] or list(words)
    last = [key.rpartition(".")[2] for key in keys]
    names = last if len(set(last)) == len(last) else keys
    return " ".join(
        f"{name}={words[key].partition('=')[2]}"
        for name, key in zip(names, keys, strict=True)
    )


def read_overrides() -> tuple[str, ...]:
    """What the command line changed, unresolved."""
    words = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    assert isinstance(words, list)
    return tuple(str(word) for word in words)


def read_swept_keys() -> tuple[str, ...]:
    """The keys that the sweep varies whose job this is; none of a single run."""
    sweep = sweep_if_any(_find_sweep_folder()) if is_multirun() else None
    return sweep.swept if sweep else ()


def _find_sweep_folder() -> Path:
    application = HydraConfig.get()
    return Path(application.runtime.cwd) / application.sweep.dir


def is_multirun() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def build(node: Any, where: str = "", words: Sequence[str] = ()) -> Any:
    """Build what plain data describe: every mapping with a `_target_` becomes an object, inner ones first.

    Raises SettingError naming the setting that is wrong.
    """
    if isinstance(node, list):
        return [build(value, f"{where}.{i}", words) for i, value in enumerate(node)]
    if node == "???":
        raise _explain_unset(where, words)
    if isinstance(node, float) and not math.isfinite(node):
        raise SettingError.bad_value(where, node, "be a finite number")
    if not isinstance(node, Mapping):
        return node
    values = {
        str(key): build(value, f"{where}.{key}".lstrip("."), words)
        for key, value in node.items()
    }
    if "_target_" not in values:
        return values
    cls = _import_class(values.pop("_target_"), where)
    _refuse_unknown(values, cls, where)
    values = {_field_name(key): value for key, value in values.items()}
    with _prefix_errors(where, cls):
        try:
            # A mapping with the object, so that the rules hold for a dataclass and those in it
            adapter = TypeAdapter(dict[str, cls], config=RULES)  # type: ignore[valid-type]
            built_object = adapter.validate_python({where: values})[where]
        except ValidationError as error:
            raise _explain_first_finding(error, cls) from None
        except (PydanticUserError, SchemaError) as error:
            raise SettingError(
                f"The class {cls.__qualname__} has a field whose type cannot be checked: {error}"
            ) from None
    for name in getattr(cls, "required_attributes", ()):
        if not hasattr(built_object, name):
            raise SettingError(
                f"{where}: the class {cls.__qualname__} has no attribute {name}. Add a field, `{name}: str`, or set it "
                "in the class."
            )
    return built_object


def _field_name(key: str) -> str:
    """The field of a setting: a word of Python's has an underscore behind it there."""
    return f"{key}_" if keyword.iskeyword(key) else key


def _setting_name(field: str) -> str:
    word = field.removesuffix("_")
    return word if keyword.iskeyword(word) else field


@contextlib.contextmanager
def _prefix_errors(where: str, cls: type) -> Iterator[None]:
    """Put the path of a part before an error that begins with the name of one of its fields."""
    try:
        yield
    except UserError as error:
        setting = _OPENING_SETTING.match(error.line)
        is_field = setting is not None and setting[0].partition(".")[0] in {
            _setting_name(f.name) for f in dataclasses.fields(cls)
        }
        line = f"{where}.{error.line}".lstrip(".") if is_field else error.line
        raise error.reword(line, *error.below) from None


def _refuse_unknown(values: Mapping[Any, Any], cls: Any, where: str) -> None:
    """Raise SettingError for a key that is no parameter of the dataclass, nor of the dataclasses in it."""
    hints = {
        _setting_name(name): hint for name, hint in typing.get_type_hints(cls).items()
    }
    names = {_setting_name(name) for name in inspect.signature(cls).parameters}
    for key, value in values.items():
        setting = f"{where}.{key}".lstrip(".")
        if key not in names:
            line = f"Unknown setting: {setting}.{suggest_setting(setting, names)}"
            raise SettingError(*line.split("\n"))
        options = [hints[key], *typing.get_args(hints[key])]  # X | None
        is_dict = typing.get_origin(hints[key]) is dict
        for inner in filter(dataclasses.is_dataclass, options):
            if isinstance(value, Mapping) and not is_dict:
                _refuse_unknown(value, inner, setting)


def suggest(key: str, names: Collection[str]) -> str:
    """Return a question with the names that are close to this one, else the known names if they are few."""
    if close := difflib.get_close_matches(key, list(names), n=MAX_SUGGESTIONS):
        return f" Did you mean {' or '.join(close)}?"
    if len(names) > _MAX_NAMES_LISTED:
        return " --options lists all names."
    return f" Choose from {', '.join(sorted(names))}."


def suggest_setting(setting: str, siblings: Collection[str]) -> str:
    """Return what a setting that does not exist could have meant, and how to list those beside it."""
    if name := NAME_IN_FILES.get(setting):
        return f" In a YAML file or a mapping it is called {name}."
    if setting.endswith(".system_prompt"):
        return " It belongs to judges and entrants that are language models."
    parent, _, last = setting.rpartition(".")
    prefix = f"{parent}." if parent else ""
    siblings = add_names_to_type(siblings, parent)
    close = difflib.get_close_matches(last, list(siblings), n=MAX_SUGGESTIONS)
    if close:
        names = " or ".join(f"{prefix}{name}" for name in close)
        return f" Did you mean {names}?"
    if len(siblings) <= _MAX_NAMES_LISTED:
        names = ", ".join(f"{prefix}{name}" for name in sorted(siblings))
        return f" Choose from {names}." if names else ""
    package = f" --package {parent}" if parent else ""
    return f" To list all:\n  python -m elo_exp --cfg job{package}"


def _explain_unset(setting: str, words: Sequence[str]) -> SettingError:
    """Return the error for a setting that must be given, with what its file says of it.

    words  of the command, which choose the file
    """
    comment = find_comment(setting, words)
    about, _, example = comment.partition(", e.g. ")
    about = f": {about}" if about else ""
    # The example names the part as its file does
    example = re.sub(r"^[\w.]+(?==)", setting, example) or f"{setting}=VALUE"
    return SettingError(f"{setting} is not set{about}.", f"  {example}")


def _explain_first_finding(error: ValidationError, cls: type) -> SettingError:
    """Return the error for pydantic's first finding about the settings of a dataclass, in the words of its fields."""
    finding = error.errors()[0]
    # The first step is the place of the dataclass itself
    steps = finding["loc"][1:]
    setting = ".".join(_setting_name(str(key)) for key in finding["loc"] if key != "")
    value = finding["input"]
    if finding["type"] in ("missing", "missing_argument"):
        return SettingError(
            f"{setting} is not set and has no default. Set it:", f"  {setting}=VALUE"
        )
    if finding["type"] == "list_type" and isinstance(value, str):
        return SettingError.bad_value(
            setting, value, "be a list", f"  '{setting}=[{value}]'"
        )
    requirement = describe_requirement(find_type(cls, steps), finding["msg"])
    return SettingError.bad_value(setting, value, requirement)


def _import_class(target: str, where: str) -> type:
    setting = f"{where}._target_".lstrip(".")
    try:
        resolved = pkgutil.resolve_name(target)
    except UserError:
        raise
    except Exception as error:
        if path := _find_imported_file(error):
            raise FileError(
                f"{setting} names {target}, which cannot be imported. {describe_mistake(error, path)}"
            ) from error
        if not isinstance(error, ModuleNotFoundError | AttributeError | ValueError):
            raise
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and not target.startswith(missing):
            raise UserError(
                f"{where} needs the Python package {missing}, which is not installed."
            ) from None
        location = (
            f" Python found no module {missing}, neither installed nor in the current folder."
            if missing
            else ""
        )
        raise SettingError(
            f"{setting} must be the path of a class, as module.Class; got {target}.{location}"
        ) from None
    if not (isinstance(resolved, type) and dataclasses.is_dataclass(resolved)):
        raise SettingError(
            f"{setting} must be the path of a dataclass, and {target} is not one."
        )
    if inspect.isabstract(resolved):
        methods = sorted(resolved.__abstractmethods__)
        raise SettingError(
            f"{setting}: the class {target} lacks the method {' and the method '.join(methods)}. Its base class says "
            "what each returns."
        )
    return resolved


def _find_imported_file(error: Exception) -> str | None:
    """Return the file with whose code an import has failed; None if Python did not find or did not import a file."""
    if isinstance(error, SyntaxError):
        return error.filename
    paths = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    imports = [
        i for i, path in enumerate(paths) if path.startswith("<frozen importlib")
    ]
    return next(iter(paths[imports[-1] + 1 :]), None) if imports else None


def _import_experiment(target: str) -> type[Experiment]:
    cls = _import_class(target, "")
    if not issubclass(cls, Experiment):
        raise SettingError(
            f"_target_ must be a subclass of elo_exp.experiments.Experiment, and {target} is not one."
        )
    return cls


def _name_source_setting(line: str, cfg: DictConfig) -> str:
    """Name the setting that a part's setting is taken from: judging.orders for rating.bradley_terry.orders."""
    key = _OPENING_SETTING.match(line)
    parent, _, last = key[0].rpartition(".") if key else ("", "", "")
    node = OmegaConf.select(cfg, parent, default=None) if parent else None
    if (
        isinstance(node, DictConfig)
        and last in node
        and OmegaConf.is_interpolation(node, last)
    ):
        word = str(OmegaConf.to_container(node, resolve=False)[last])  # type: ignore[call-overload,index]
        if source := re.fullmatch(r"\$\{(?:oc\.select:)?([\w.]+)(?:,[^}]*)?\}", word):
            return f"{source[1]}{line.removeprefix(f'{parent}.{last}')}"
    return line
