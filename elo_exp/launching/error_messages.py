"""An error that ends a command as one line, where it is the user's: our own, Hydra's, a full disk."""

import functools
import re
import shlex
from collections.abc import Collection, Sequence

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    OmegaConfBaseException,
)

from elo_exp.console import shorten_lines
from elo_exp.errors import FileError, SettingError, UserError
from elo_exp.files import errno_advice
from elo_exp.launching.composing import (
    compose,
    parse_config_dirs,
    suggest,
    suggest_setting,
)
from elo_exp.launching.part_words import list_options
from elo_exp.launching.quoting import shorten_word
from elo_exp.launching.setting_comments import read_comments
from elo_exp.launching.setting_names import (
    find_full_names,
    find_similar_names,
    flatten_settings,
)
from elo_exp.launching.shorthand import LIST_GROUPS, override_key
from elo_exp.masking import mask_text
from elo_exp.paths import CONF

RENAMED = {
    "like": "ratings_from",
    "experiment.prefix": "name",
    "judging.use": "judging.orders",
    "oracle.calibration": "oracle.covariates=[response_length]",
    "oracle.ablation": "oracle.grid",
}
# Why an experiment does not have a setting that others have
_WHY_ABSENT = {
    (
        "audit",
        "draws",
    ): "an audit asks about answers of known quality that it makes itself. Leave draws out. "
    "audit.retest_share repeats questions, audit.n_prompts asks about fewer prompts.",
}
# How an entrant, a judge and a rubric are made without a file of conf/
_EXAMPLE_BY_GROUP = {
    "entrant": "'entrant=[{0}=api:MODEL]' api.base_url=URL",
    "judge": "judge=claude:MODEL",
    "rubric": "rubric='Which answer is more polite?'",
}
_EXTRA_BY_LAUNCHER = {"joblib": "joblib", "submitit": "slurm", "ray": "ray"}


def format_user_error(error: BaseException, words: Sequence[str] = ()) -> str | None:
    """Return the user's mistake in one line; None for an error that is not the user's.

    words  of the command, by which an error of Hydra's is told in the user's terms
    """
    line = _format_line(error, words)
    return None if line is None else shorten_lines(mask_text(line))


def choose_error_class(error: BaseException) -> type[UserError]:
    """Return the class in which the library raises a mistake of the user's that another library has found."""
    if isinstance(error, HydraException | OmegaConfBaseException):
        return SettingError
    if isinstance(error, OSError | yaml.YAMLError):
        return FileError
    return UserError


def _format_line(error: BaseException, words: Sequence[str]) -> str | None:
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _format_composition_error(error, words)
    if isinstance(error, UserError):
        return "\n".join([_one_line(error.line), *error.below])
    if isinstance(error, yaml.YAMLError):
        return _one_line(error)
    if isinstance(error, OSError) and (error.filename or errno_advice(error.errno)):
        location = f"{error.filename}: " if error.filename else ""
        advice = errno_advice(error.errno) or "Check the path."
        return f"{location}{error.strerror}. {advice}"
    return _explain_library_error(str(error), type(error).__name__)


def _format_composition_error(
    error: HydraException | OmegaConfBaseException, words: Sequence[str]
) -> str:
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _explain_missing_option(error.missing_cfg_file, words)
    if isinstance(error, OverrideParseException):
        return _explain_unreadable_word(error)
    if ambiguous := re.match(
        r"Ambiguous value for argument '(.+?)=(.*?)' *\n", str(error)
    ):
        return _explain_several_values(ambiguous[1], ambiguous[2], words)
    cause = error.__cause__ or error
    if isinstance(cause, OmegaConfBaseException):
        return _format_omegaconf_error(cause, words)
    group = re.match(r"Could not override '([\w/@]+)", str(error))
    return _explain_absent_setting(group[1], words) if group else _one_line(error)


def _format_omegaconf_error(error: OmegaConfBaseException, words: Sequence[str]) -> str:
    key = str(error.full_key or error.key or "configuration")
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and isinstance(
        error.parent_node, DictConfig
    ):
        keys = map(
            override_key, words
        )  # Hydra names the first step of a key that is not there
        full_key = next(
            (word for word in keys if f"{word}.".startswith(f"{key}.")), key
        )
        return _explain_absent_setting(
            full_key, words, [str(name) for name in error.parent_node], absent=key
        )
    if " is not a ListConfig" in str(error):
        value = next(
            (w.partition("=")[2] for w in words if override_key(w) == key), "VALUE"
        )
        return f"{key} must be a list; got {value}. Write:\n  '{key}=[{value}]'"
    return f"{key}: {_one_line(str(error).splitlines()[0])}"


def _explain_absent_setting(
    key: str, words: Sequence[str], siblings: Collection[str] = (), *, absent: str = ""
) -> str:
    """Say what to write for a setting that was renamed or belongs elsewhere, or what an unknown one may have meant.

    siblings  names beside the step of the key that does not exist
    absent    the key up to this step; "": the whole key
    """
    if new := RENAMED.get(key):
        return f"{key} is now called {new}."
    if key.startswith("judging.families."):
        name = key.removeprefix("judging.families.")
        return f"No family is known for {name}. To add one:\n  +{key}=FAMILY"
    return _explain_unknown_setting(key, words, siblings, absent)


def _explain_unknown_setting(
    key: str, words: Sequence[str], siblings: Collection[str], absent: str
) -> str:
    """Say which experiments have a setting or a group that the chosen one has not, or which name was meant."""
    group = key.partition(".")[0]
    if key != group and any(re.match(rf"{group}=[^\[]*,", word) for word in words):
        return f"Unknown setting: {key}. If every {group} of the sweep has it, write:\n  ++{key}=VALUE"
    chosen = next(
        (w.partition("=")[2] for w in words if w.startswith("experiment=")),
        "tournament",
    )
    if why := _WHY_ABSENT.get((chosen, key)):
        return f"{key} is not a setting of experiment={chosen}: {why}"
    readers = [
        name
        for name in sorted(list_options("experiment", words), key="tournament".__ne__)
        if name != chosen and key in _list_keys(name, words)
    ]
    if readers:
        return (
            f"{key} is not a setting of experiment={chosen}, but of {', '.join(readers)}. Add "
            f"experiment={readers[0]}, or leave {key} out."
        )
    names = [
        name
        for name in siblings or _list_keys(chosen, words)
        if "." not in name and name != "_target_"
    ]
    if meant := _find_meant(key, words, names):
        value = next(
            (w.partition("=")[2] for w in words if override_key(w) == key), "VALUE"
        )
        settings = [shlex.quote(f"{name}={shorten_word(value)}") for name in meant]
        return f"Unknown setting: {key}. Did you mean {' or '.join(settings)}?"
    if not names:
        return f"Unknown setting: {key}. {group} holds no settings yet. To add it:\n  +{key}=VALUE"
    absent = absent or key
    return (
        f"Unknown setting: {absent}.{suggest_setting(absent, set(names) - {'hydra'})}"
    )


def _find_meant(
    key: str, words: Sequence[str], siblings: Collection[str]
) -> Sequence[str]:
    """Return the settings that an unknown name may stand for: those of the command, or of parts that it could choose.

    siblings  which are nearer if one of them has a similar name
    """
    keys = _list_command_keys(key, words)
    if (meant := find_full_names(key, keys)) or "." in key:
        return meant
    part_keys = _list_part_settings()
    if meant := find_full_names(key, part_keys):
        return meant
    return find_similar_names(key, keys, siblings) or find_similar_names(
        key, part_keys, siblings
    )


def _list_command_keys(key: str, words: Sequence[str]) -> set[str]:
    """Return the settings of the command without the words about one of them, and without copies of settings."""
    try:
        composed = compose([word for word in words if override_key(word) != key])
    except Exception:  # another word is wrong, too
        return set()
    settings = OmegaConf.to_container(composed.cfg, resolve=False)
    return {
        name
        for name, value in flatten_settings(settings)
        if not _is_copy(name, str(value))
    }


def _is_copy(name: str, value: str) -> bool:
    """Return whether a setting takes the value of another of its name: judge.budget_usd that of judging.budget_usd."""
    last_step = name.rpartition(".")[2]
    return value.startswith("${") and last_step in re.findall(r"\w+", value)


def _list_part_settings() -> set[str]:
    """Return the settings that some judges and entrants have, as those of a part without a name of its own."""
    names = set[str]()
    for group, prefix in {"judge": "judge", "entrant": "entrant.NAME"}.items():
        for path in (CONF / group).glob("*.yaml"):
            names |= {f"{prefix}.{name}" for name in read_comments(path)}
    return names


def _explain_several_values(key: str, values: str, words: Sequence[str]) -> str:
    """Say how several values are given to a setting: in a list, or to a sweep."""
    if key in LIST_GROUPS or _is_list(key, words):
        return f"{key} takes a list in brackets; got {values}. Write:\n  '{key}=[{values}]'"
    return f"{key} takes one value; got {values}. To run one job per value, add -m:\n  -m {key}={values}"


def _is_list(key: str, words: Sequence[str]) -> bool:
    """Return whether a setting holds a list in the command without the word at fault."""
    other_words = [word for word in words if override_key(word) != key]
    try:
        return OmegaConf.is_list(OmegaConf.select(compose(other_words).cfg, key))
    except (HydraException, OmegaConfBaseException):
        return False


def _list_keys(experiment: str, words: Sequence[str]) -> set[str]:
    """Return the settings and groups that an experiment has, as dotted names."""
    folders = [f"--config-dir={folder}" for folder in parse_config_dirs(words)]
    if not folders:
        return _list_packaged_keys(experiment)
    try:
        return _compose_keys([*folders, f"experiment={experiment}"])
    except Exception:  # a file of the user's that does not compose
        return set()


@functools.cache
def _list_packaged_keys(experiment: str) -> set[str]:
    """Return the keys of an experiment of the package, whose files do not change while a notebook runs."""
    return _compose_keys([f"experiment={experiment}"])


def _compose_keys(words: Sequence[str]) -> set[str]:
    composed = compose(words)
    groups = {group.partition("@")[0] for group in composed.choices}
    return groups | set(dict(flatten_settings(OmegaConf.to_container(composed.cfg))))


def _explain_missing_option(name: str, words: Sequence[str]) -> str:
    group, _, option = name.rpartition("/")
    if (
        group == "hydra/launcher"
        and (extra := option.partition("_")[0]) in _EXTRA_BY_LAUNCHER
    ):
        return (
            f"hydra/launcher={option} is not installed. Install it:\n"
            f"  pip install 'elo-exp[{_EXTRA_BY_LAUNCHER[extra]}]'"
        )
    options = list_options(group, words) if group else []
    folders = parse_config_dirs(words)
    if not options:
        where = ", ".join(map(str, (CONF, *folders)))
        return f"Configuration file not found: {name} (looked in {where})."
    if group == "rating" and option == "elo":
        return (
            "elo is not a rating method: Elo is always computed (settings elo.k and elo.n_perms). "
            f"Methods: {', '.join(options)}."
        )
    line = f"Unknown {group}: {option}.{suggest(option, options)}"
    if not folders:
        line += (
            f" To use your own FOLDER/{group}/{option}.yaml, add --config-dir=FOLDER."
        )
    if group == "entrant" and "recorded_dir" in map(override_key, words):
        # Answers on file do not make an entrant by themselves
        folder = next(iter(folders), "mine")
        return (
            f"Unknown entrant: {option}. With recorded_dir, each new name needs a file. Write these three lines into "
            f"{folder}/entrant/{option}.yaml and add --config-dir={folder} (docs/entrants.md):"
            f"\n  # @package entrant.{option}\n  defaults: [recorded@_here_, _self_]\n  entrant_id: {option}"
        )
    if example := _EXAMPLE_BY_GROUP.get(group):
        line += f" To make one in the command:\n  {example.format(option)}"
    return line


def _explain_unreadable_word(error: OverrideParseException) -> str:
    """Keep of Hydra's text only what is wrong inside a function such as range(1,b)."""
    if " while evaluating " in error.message:
        return _one_line(error.message)
    word = error.override
    name = word.partition("=")[0]
    return (
        f"{word} cannot be read: the value holds a quote or one of ~ ( ) [ ] {{ }} = , and needs quotes of its own. "
        f"Write $HOME for ~, and:\n  '{name}=\"VALUE\"'"
    )


def _explain_library_error(message: str, kind: str) -> str | None:
    """Errors of libraries that have no class for them, or need not be installed."""
    if message.startswith("Config group override must be"):
        return "A part was set to null. Choose one of its options instead. --help lists them."
    if kind in ("TerminatedWorkerError", "UncompletedJobError"):
        return "A job was killed, perhaps because it needed too much memory. Every answer so far is stored."
    if message.startswith('Could not detect "srun"'):
        return (
            "hydra/launcher=submitit_slurm needs Slurm, and srun is not installed here. Start the sweep on a machine "
            "that submits jobs to Slurm."
        )
    return None


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
