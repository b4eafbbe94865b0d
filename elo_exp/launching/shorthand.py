"""The words of a command, rewritten into those that Hydra reads; also those of the library.

    old.csv new.jsonl judge=sonnet        answers=["old.csv","new.jsonl"] study=own mode=own judge=sonnet
    experiment=gate old.csv new.jsonl     experiment=gate gate.baseline="old.csv" answers=["new.jsonl"]
    battles.jsonl elo.k=8                 experiment=rate battles=["battles.jsonl"] elo.k=8
    scoring=[pairwise,score]              +scoring@scoring.score=score
    scoring=score                         rubric=[] +scoring@scoring.score=score
    prompts=bank.jsonl 'entrant=[hf:a/b]' prompts.bank_path="bank.jsonl" 'entrant=[]' +entrant@entrant.b=...

A name of a file is a value: no variable in it is resolved.
"""

import difflib
import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from elo_exp.data import labelled_pairs, table_files
from elo_exp.data.answers import recognise as recognise_answers
from elo_exp.data.column_roles import (
    build_no_roles_error,
    find_likely_column,
    find_text_columns,
    refuse_absent_columns,
    refuse_unknown_role,
)
from elo_exp.data.file_kinds import Kind, find_label_roles, recognise_kinds
from elo_exp.errors import FileError, SettingError, UserError
from elo_exp.launching.composing import parse_config_dirs
from elo_exp.launching.part_words import (
    expand_entrants,
    expand_judges,
    list_judges,
    list_options,
)
from elo_exp.launching.quoting import (
    is_quoted,
    quote_value,
    shorten_word,
    split_at_commas,
    strip_quotes,
)
from elo_exp.launching.scoring_words import (
    EXPERIMENTS_WITH_SCORINGS,
    check_scorings,
    expand_scorings,
)
from elo_exp.launching.setting_names import (
    add_names_to_type,
    find_full_names,
    find_name_to_type,
    flatten_settings,
    resolve_names,
)
from elo_exp.launching.text_words import SWEEP_FLAGS, expand_texts
from elo_exp.paths import CONF, HOME

_EXPERIMENTS_WITH_STUDY = ("tournament", "gate", "audit", "answer")
_EXPERIMENTS_WITH_JUDGES = (None, "tournament", "audit")
LIST_GROUPS = ("entrant", "rubric", "rating", "estimator", "probe")
_SHIPPED_BANK = HOME / "prompts" / "bank.jsonl"
# Flags of Hydra. The next word is the value of the first kind.
_FLAGS_WITH_VALUE = (
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name"),
    *("-cn", "--config-dir", "-cd", "--experimental-rerun"),
)
_FLAGS_WITHOUT_VALUE = (
    *("--resolve", "--run", "-r", "--multirun", "-m", "--info", "-i"),
    *("--shell-completion", "-sc", "--help", "-h", "--hydra-help", "--version"),
    "--options",
)
_FLAGS_THAT_PRINT = (
    *("--help", "-h", "--hydra-help", "--version", "-sc", "--shell-completion"),
)
_INFO_VALUES = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def expand_shorthand(words: Sequence[str]) -> list[str]:
    """Return the words of a command as Hydra reads them: flags first, and no word that is a file.

    Words that have been rewritten stay as they are. Raises UserError for a word that is no flag, file
    or setting, and for files that cannot be taken together; whatever a word is, nothing else.
    """
    flags, other_words = _split_flags(words)
    if any(flag in _FLAGS_THAT_PRINT for flag in flags):
        return [*flags, *other_words]
    _refuse_flags(flags, other_words)
    files = [word for word in other_words if _is_file(word)]
    settings = [word for word in other_words if not _is_file(word)]
    for word in settings:
        if not _is_override(word):
            raise _build_unknown_word_error(word, flags, other_words)
    settings = expand_texts(resolve_names(settings), flags)
    _refuse_lists(settings)
    _refuse_judges(flags, settings)
    _refuse_unplaced(flags, settings)
    experiment = _find_experiment(settings)
    if experiment in EXPERIMENTS_WITH_SCORINGS:
        check_scorings(settings, flags)
    settings = [
        expanded
        for word in settings
        for expanded in _expand_word(word, experiment, flags)
    ]
    settings += _expand_files(files, settings)
    settings += _choose_study(settings)
    if "plan=true" in settings:  # which needs no launcher
        settings = [word for word in settings if not _is_launcher_setting(word)]
    return [*flags, *settings]


def _split_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags with their values, and the other words."""
    flags, other_words = list[str](), list[str]()
    before = ""
    for word in words:
        is_value = before in _FLAGS_WITH_VALUE or (
            before in ("--info", "-i") and word in _INFO_VALUES
        )
        is_flag = word.startswith("-") and len(word) > 1
        (flags if is_value or is_flag else other_words).append(word)
        before = "" if is_value else word
    return flags, other_words


def override_key(word: str) -> str:
    """Return the setting that an override such as +a.b=c names: a.b."""
    return re.split("[=@]", word.lstrip("+~"))[0]


def _is_override(word: str) -> bool:
    return re.match(r"~|[^-].*=", word, re.DOTALL) is not None


def _is_file(word: str) -> bool:
    """Whether a word is a file's name; a word may be too long, or no name at all."""
    try:
        return bool(word) and Path(word).is_file()
    except (OSError, ValueError):
        return False


def _is_folder(word: str) -> bool:
    try:
        return bool(word) and Path(word).is_dir()
    except (OSError, ValueError):
        return False


def _looks_like_path(word: str) -> bool:
    return re.search(r"[./\\*]", word) is not None


def _is_absent(word: str) -> bool:
    """Whether a word looks like a file that is not there."""
    return _looks_like_path(word) and not (
        _is_override(word) or _is_file(word) or _is_folder(word)
    )


def _find_experiment(settings: Sequence[str]) -> str | None:
    """The experiment that words choose, None for none."""
    chosen = [word for word in settings if override_key(word) == "experiment"]
    return chosen[-1].partition("=")[2] if chosen else None


# Values


def _escape_new_variables(text: str) -> str:
    """Escape variables in a value that may have been escaped before."""
    return re.sub(r"(?<!\\)\$\{", r"\\${", text)


def _quote_file(text: str) -> str:
    """Return the name of a file as a value; several, of a sweep, as they are."""
    if is_quoted(text) or ("," in text and not _is_file(text)) or text == "null":
        return _escape_new_variables(text)
    return quote_value(text)


# What stands for other words


def _expand_word(
    word: str, experiment: str | None, flags: Sequence[str]
) -> Iterator[str]:
    """Yield what a word stands for: itself, mostly."""
    name, _, value = word.partition("=")
    if name in ("store", "store.to"):
        # in experiment=store it stands beside the action
        name = "store.url" if (name, experiment) == ("store", "store") else name
        yield f"{name}={quote_value(value) if '://' in value and not is_quoted(value) else value}"
    elif name == "arena":
        yield from _expand_arenas(word)
    elif name.partition("@")[0] == "judge":
        yield from expand_judges(word, flags)
    elif name == "scoring" and experiment in EXPERIMENTS_WITH_SCORINGS:
        yield from expand_scorings(value)
    elif name in ("prompts", "prompts.bank_path") and value and value[0] not in "{[":
        path = strip_quotes(value)
        # Not several of a sweep, a variable or an address
        if _is_absent(path) and re.fullmatch(r"[^,$:]+\.\w+", path):
            raise FileError.not_found(path, "given as bank")
        is_shorthand = name == "prompts"
        yield f"prompts.bank_path={_quote_file(value)}" if is_shorthand else word
    elif name == "answers":
        yield f"answers={_quote_answer_files(value)}"
    elif name.startswith("columns."):
        refuse_unknown_role(name.removeprefix("columns."))
        yield f"{name}={_quote_columns(value)}"
    elif name == "entrant":
        yield from expand_entrants(word, flags)
    else:
        yield word


def _expand_arenas(word: str) -> list[str]:
    """Of arena=[one,two], which Hydra would merge into one: the first, and a union with the others."""
    chosen = re.fullmatch(r"arena=\[(.+)\]", word)
    if chosen is None:
        return [word]
    first_arena, *other_arenas = chosen[1].replace(" ", "").split(",")
    return [
        f"arena={first_arena}",
        *(f"+arena@arena.union.{n}={n}" for n in other_arenas),
    ]


def _quote_answer_files(value: str) -> str:
    """Return files of answers as values. Of {NAME:FILE}, a list: in it names are values, too."""
    inside = value[1:-1].strip()
    if (
        value.startswith("[")
        and value.endswith("]")
        and "{" not in re.sub(r"\$\{", "", inside)
    ):
        files = [
            _escape_new_variables(file) if is_quoted(file) else quote_value(file)
            for file in split_at_commas(inside)
        ]
        return f"[{','.join(files)}]"
    if value.startswith("{") and value.endswith("}"):
        return f"[{','.join(map(_quote_named_file, split_at_commas(inside)))}]"
    return (
        _escape_new_variables(value)
        if value[:1] in ("[", "{", "")
        else _quote_file(value)
    )


def _quote_columns(value: str) -> str:
    """Return the name of a column, or a list of names, as values; several of a sweep as they are."""
    if value.startswith("[") and value.endswith("]"):
        names = [strip_quotes(name) for name in split_at_commas(value[1:-1])]
        return f"[{','.join(map(quote_value, names))}]"
    return (
        value
        if is_quoted(value) or "," in value or value in ("null", "")
        else quote_value(value)
    )


def read_columns(settings: Sequence[str]) -> dict[str, Any]:
    """Return the column of each role that settings name."""
    columns = dict[str, Any]()
    for word in settings:
        name, _, value = word.partition("=")
        if name.startswith("columns.") and value not in ("null", ""):
            is_list = value.startswith("[") and value.endswith("]")
            names = split_at_commas(value[1:-1] if is_list else value)
            names = [strip_quotes(column) for column in names]
            columns[name.removeprefix("columns.")] = names if is_list else names[0]
    return columns


def _quote_named_file(item: str) -> str:
    match = re.fullmatch(r"""("[^"]*"|'[^']*'|[^:"']+):\s*(.+)""", item, re.DOTALL)
    if match is None:
        raise SettingError(
            f"answers must be names with files; got {shorten_word(item)}. Write:",
            "  'answers={NAME:FILE,NAME:FILE}'",
        )
    name, file = (strip_quotes(text.strip()) for text in match.groups())
    return f"{{name:{quote_value(name)},file:{quote_value(file)}}}"


def _is_launcher_setting(word: str) -> bool:
    return re.match(r"\W*hydra[./]launcher\b", word) is not None


# Files


def _expand_files(files: Sequence[str], settings: Sequence[str]) -> list[str]:
    """Return the words that files stand for: by what they can be read as, an experiment's setting."""
    if not files:
        return []
    experiment, keys = (
        _find_experiment(settings),
        {override_key(word) for word in settings},
    )
    if oracle_words := _expand_judged_answers(files, settings, experiment):
        return oracle_words
    if experiment not in (None, "rate", "tournament", "gate"):
        raise SettingError(
            f"experiment={experiment} reads no file without a setting. Write SETTING={files[0]}. --help lists the "
            "settings."
        )
    columns = read_columns(settings)
    kinds_by_file = {file: recognise_kinds(Path(file), columns) for file in files}
    listed = f"[{','.join(map(quote_value, files))}]"
    is_rated = experiment == "rate" or any(key.startswith("battles") for key in keys)
    for file, file_kinds in kinds_by_file.items():
        if not (is_rated or file_kinds) and _has_answer_column(Path(file)):
            refuse_absent_columns(list(map(Path, files)), columns)
            raise build_no_roles_error(Path(file), ["prompt", "answer"])
    if not is_rated and _are_answers(kinds_by_file, experiment, keys):
        if "answers" in keys:
            raise SettingError(
                f"Answers are named twice: by answers=... and by {files[0]}. Name all files in one place."
            )
        if experiment == "gate" and "gate.baseline" not in keys and len(files) == 2:
            baseline, candidate = map(quote_value, files)
            return [f"gate.baseline={baseline}", f"answers=[{candidate}]"]
        return [f"answers={listed}"]
    if experiment in ("tournament", "gate"):
        raise FileError(
            f"{files[0]} holds no answers to judge but {_format_kinds(kinds_by_file[files[0]])}. For battles and "
            "scores, use experiment=rate. docs/formats.md lists the formats."
        )
    chosen = [] if experiment else ["experiment=rate"]
    return [*chosen, f"battles={listed}"]


def _expand_judged_answers(
    files: Sequence[str], settings: Sequence[str], experiment: str | None
) -> list[str]:
    """Return the words for files of an oracle: a judge's scores and people's labels, in one file or in two; [] for others.

    Without an experiment, a file has to hold both, or people's labels beside another file.
    """
    keys = {override_key(word) for word in settings}
    if experiment not in (None, "oracle") or keys & {"judge", "oracle.fresh_dir"}:
        return []
    columns = read_columns(settings)
    roles_by_file = {file: find_label_roles(Path(file), columns) for file in files}
    label_files = [
        file for file, roles in roles_by_file.items() if roles == {"human_label"}
    ]
    answer_files = [file for file in files if file not in label_files]
    is_whole = [*roles_by_file.values()] == [{"judge_score", "human_label"}]
    is_joined = len(answer_files) == 1 and len(label_files) == 1
    if experiment == "oracle" and len(files) == 1:
        is_whole, answer_files, label_files = True, list(files), []
    if not (is_whole or is_joined):
        return []
    chosen = [] if experiment else ["experiment=oracle"]
    labels = [f"oracle.labels={quote_value(file)}" for file in label_files]
    return [*chosen, f"oracle.fresh_dir={quote_value(answer_files[0])}", *labels]


def _are_answers(
    kinds_by_file: Mapping[str, tuple[Kind, ...]],
    experiment: str | None,
    keys: set[str],
) -> bool:
    """Whether files are to be judged, in place of rated. Raises SettingError for a mix of both."""
    answers = [
        file for file, readable_as in kinds_by_file.items() if "answers" in readable_as
    ]
    rated = [
        file
        for file, readable_as in kinds_by_file.items()
        if {"battles", "scores"} & {*readable_as}
    ]
    prompts = [
        file
        for file, readable_as in kinds_by_file.items()
        if readable_as == ("prompts",)
    ]
    is_judged = "judge" in keys or experiment is not None
    for file, readable_as in kinds_by_file.items():
        if readable_as[:1] == ("labelled pairs",):
            raise _build_labelled_pairs_error(file)
    has_entrants = bool(answers or "answers" in keys or "entrant" in keys)
    if prompts and not rated and (has_entrants or len(prompts) == len(kinds_by_file)):
        raise _build_no_answers_error(prompts[0], has_entrants=has_entrants)
    if len(answers) == len(kinds_by_file):
        return is_judged or len(rated) < len(kinds_by_file)
    if len(rated) == len(kinds_by_file):
        return False
    if answers and rated:
        for file, file_kinds in kinds_by_file.items():
            if not file_kinds:
                recognise_answers(Path(file))
        lone = next(file for file in answers if file not in rated or is_judged)
        other_file = next(
            file for file in kinds_by_file if file != lone and file in rated
        )
        raise SettingError(
            f"The files are of two kinds: {lone} holds {_format_kinds(kinds_by_file[lone])}, {other_file} holds "
            f"{_format_kinds(kinds_by_file[other_file])}. Give files of one kind."
        )
    return bool(answers) or (is_judged and not rated)


def _build_labelled_pairs_error(file: str) -> SettingError:
    """Return the error for a file whose rows say which of two answers is better, but not who wrote them."""
    audit = f"  experiment=audit {shlex.quote(f'audit.gold={file}')} 'rubric=[preference]' 'probe=[]' audit.retest_share=0"
    replay = f"{audit} judge=replay {shlex.quote(f'judge.path={file}')}"
    has_verdicts = labelled_pairs.has_verdicts(table_files.read_keys(Path(file)))
    return SettingError(
        f"{file} holds labelled pairs, which say how often a judge is right and not which entrant is better. Write:",
        f"{audit} judge=NAME",
        *([f"{replay}     for the verdicts in the file"] if has_verdicts else []),
    )


def _has_answer_column(path: Path) -> bool:
    """Whether a table without any usual name of a prompt has a column that is probably of answers."""
    try:
        return find_likely_column(path, "answer") is not None
    except UserError:
        return False


def _build_no_answers_error(file: str, *, has_entrants: bool) -> UserError:
    """Return the error for a file of prompts that is given as one of answers.

    has_entrants  whether somebody answers the prompts
    """
    path, setting = Path(file), shlex.quote(f"prompts={file}")
    is_likely = find_likely_column(path, "answer") is not None
    if is_likely or (not has_entrants and find_text_columns(path)):
        below = ["  If it holds prompts and no answers, write:", f"  {setting}"]
        return build_no_roles_error(path, ["answer"], *below)
    if has_entrants:
        return SettingError(
            f"{file} holds prompts and no answers. Write:", f"  {setting}"
        )
    return SettingError(
        f"{file} holds prompts and no answers. To let models answer them first, or to rate battles whose columns "
        "have other names, write:",
        f"  {setting} 'entrant=[hf:org/model,api:name]'",
        f"  {shlex.quote(file)} columns.model_a=COLUMN columns.model_b=COLUMN columns.verdict=COLUMN",
    )


def _format_kinds(file_kinds: Sequence[Kind]) -> str:
    return " and ".join(file_kinds) or "nothing that can be read"


def _choose_study(settings: Sequence[str]) -> list[str]:
    """Return the words that judge own prompts and answers as such, where none say how."""
    experiment = _find_experiment(settings) or "tournament"
    keys = {override_key(word) for word in settings}
    banks = [word for word in settings if override_key(word) == "prompts.bank_path"]
    is_own = "answers" in keys or any(not _is_shipped(word) for word in banks)
    if experiment not in _EXPERIMENTS_WITH_STUDY or not is_own:
        return []
    added = [] if "study" in keys else ["study=own"]
    if experiment == "audit":
        return [*added, *([] if "judge" in keys or not added else ["judge=none"])]
    return [*added, *([] if "mode" in keys else ["mode=own"])]


def _is_shipped(word: str) -> bool:
    """Whether a bank is that of the study that ships."""
    path = strip_quotes(word.partition("=")[2])
    try:
        return Path(path).resolve() == _SHIPPED_BANK.resolve()
    except (OSError, ValueError):
        return False


# Mistakes


def _build_unknown_word_error(
    word: str, flags: Sequence[str], other_words: Sequence[str]
) -> UserError:
    """Return the error for a word that is no file and has no value, with what it could have meant."""
    short, settings = (
        shorten_word(word),
        [other_word for other_word in other_words if _is_override(other_word)],
    )
    names = _list_setting_names(flags, settings)
    error_class: type[UserError] = SettingError
    if word in ("help", "version"):
        line = f'"{word}" is neither a file nor a setting. Did you mean --{word}?'
    elif _is_folder(word):
        error_class, line = FileError, _explain_folder(word)
    elif word.partition(".")[0] in names:
        line = f'"{short}" is neither a file nor a setting with a value. Write {short}=VALUE without spaces.'
    elif _looks_like_path(word):
        absent = [other_word for other_word in other_words if _is_absent(other_word)]
        if "://" in word:
            return FileError.not_found(word)
        return FileError.not_found(", ".join(map(shorten_word, absent)))
    elif group := next(
        (g for g in _list_groups(flags) if word in list_options(g, flags)), None
    ):
        line = _explain_option(group, word, other_words)
    elif meant := find_full_names(word, _read_settings(flags, settings)):
        line = (
            f'"{short}" is neither a file nor a setting. Did you mean {meant[0]}=VALUE?'
        )
    elif near := find_nearest(word, names):
        line = f'"{short}" is neither a file nor a setting. Did you mean {near}=VALUE?'
    else:
        line = f'"{short}" is neither a file nor a setting. Write settings as NAME=VALUE. --help lists them.'
    return error_class(line)


def _explain_option(group: str, word: str, other_words: Sequence[str]) -> str:
    """Say how an option is chosen."""
    if group == "experiment":
        return (
            f'"{word}" is an experiment. Write {_suggest_experiment(word, other_words)}'
        )
    value = f"[{word}]" if group in LIST_GROUPS else word
    setting = shlex.quote(f"{find_name_to_type(group)}={value}")
    return f'"{word}" names a file of conf/{group}. Write {setting}'


def _explain_folder(word: str) -> str:
    """Say how to give a folder: of runs, or of files."""
    path = Path(word)
    runs = [path] if (path / "manifest.json").is_file() else []
    runs = runs or [
        manifest.parent for manifest in sorted(path.glob("*/manifest.json"))
    ]
    if runs or path.name == "outputs":
        kind = "a run" if runs == [path] else "a folder of runs"
        pattern = "..." if runs != [path] else ""
        inside = str(path) + (f"/{pattern}" if pattern else "")
        setting = shlex.quote(f"runs=[{inside}]")
        return f"{word} is {kind}. Did you mean experiment=compare {setting}?"
    setting = shlex.quote(f"battles={word}")
    return (
        f"{word} is a folder. To give its files, write {shlex.quote(f'{path}/')}*. To rate a folder of battles or "
        f"scores, write experiment=rate {setting}"
    )


def _suggest_experiment(word: str, other_words: Sequence[str]) -> str:
    """Return how an experiment is chosen, with what was named besides."""
    paths = [
        other_word
        for other_word in other_words
        if _is_file(other_word) or (other_word != word and _is_folder(other_word))
    ]
    setting = {
        "rate": "battles",
        "compare": "runs",
        "dashboard": "runs",
        "label": "run",
        "export": "folder",
    }.get(word)
    if not paths or setting is None:
        return f"experiment={word}"
    value = f"[{','.join(paths)}]" if len(paths) > 1 or setting == "runs" else paths[0]
    return f"experiment={word} {shlex.quote(f'{setting}={value}')}"


def _refuse_flags(flags: Sequence[str], other_words: Sequence[str]) -> None:
    """Raise SettingError for a flag that Hydra does not have: mostly a setting."""
    known_flags = (*_FLAGS_WITH_VALUE, *_FLAGS_WITHOUT_VALUE)
    before = ""
    for flag in flags:
        is_value, before = before in (*_FLAGS_WITH_VALUE, "--info", "-i"), flag
        name, equals, value = flag.partition("=")
        is_short = re.match(r"-[mrcpi]", name) is not None
        is_begun = len(name) > 3 and any(
            flag_name.startswith(name) for flag_name in known_flags
        )
        if (
            is_value
            or not name.startswith("-")
            or name in known_flags
            or is_begun
            or is_short
        ):
            continue
        key = name.lstrip("-").replace("-", "_")
        settings = [word for word in other_words if _is_override(word)]
        values = _read_settings(flags, settings)
        full_keys = [
            full_key
            for full_key in values
            if full_key == key or full_key.endswith(f".{key}")
        ]
        if "." in key and key.partition(".")[0] in _list_setting_names(flags, settings):
            full_keys = [key]  # of a part, such as elo.k
        if not full_keys:
            near = find_nearest(key, _list_setting_names(flags, settings))
            hint = f" Did you mean {near}=VALUE?" if near else ""
            raise SettingError(
                f"Unknown flag: {shorten_word(flag)}. Write settings as NAME=VALUE. --help lists flags and settings.{hint}"
            )
        if not equals:
            following = [word for word in other_words if not _is_override(word)]
            value = (
                following[0] if following and not _is_file(following[0]) else "VALUE"
            )
            value = "true" if isinstance(values.get(full_keys[0]), bool) else value
        meant = shlex.quote(f"{full_keys[0]}={value}")
        raise SettingError(f"{shorten_word(flag)} is not a flag. Did you mean {meant}?")


def _refuse_lists(settings: Sequence[str]) -> None:
    """Raise SettingError for several options of a group that takes one."""
    experiment = _find_experiment(settings)
    for word in settings:
        name, _, value = word.partition("=")
        options = re.fullmatch(r"\[([\w.,/ -]*)\]", value)
        if (
            options is None
            or name in (*LIST_GROUPS, "arena")
            or not (CONF / name).is_dir()
        ):
            continue
        if name == "scoring" and experiment in EXPERIMENTS_WITH_SCORINGS:
            continue
        choices = options[1].replace(" ", "")
        if "," not in choices:
            raise SettingError(
                f"{name} takes one value without brackets. Write {name}={choices or 'NAME'}."
            )
        if name == "judge":
            continue
        raise SettingError(
            f"A run has one {name}; got {word}. To run one job with each, add -m:",
            f"  -m {name}={choices}",
        )


def _refuse_judges(flags: Sequence[str], settings: Sequence[str]) -> None:
    """Raise SettingError where several judges are chosen that the command has no place for."""
    lists = [word for word in settings if list_judges(word, flags)]
    if not lists:
        return
    word, judges = lists[-1], list_judges(lists[-1], flags)
    sweep = f"  -m judge={','.join(judge.option for judge in judges)}"
    experiment = _find_experiment(settings)
    if experiment not in _EXPERIMENTS_WITH_JUDGES:
        raise SettingError(
            f"experiment={experiment} has one judge; got {word}. To run one job with each, add -m:",
            sweep,
        )
    if SWEEP_FLAGS & {*flags}:
        raise SettingError(
            f"Each job of a sweep has one judge; got {word}. Leave -m out, or sweep over the judges:",
            sweep,
        )
    for setting in settings:
        if match := re.match(r"(\+*)judge\.", setting):
            field = setting[match.end() :]
            raise SettingError(
                f"{shorten_word(setting)} does not say for which judge it is. Write:",
                f"  judges.{judges[0].name}.{field}",
            )


def _refuse_unplaced(flags: Sequence[str], settings: Sequence[str]) -> None:
    """Raise FileError for a file of the user's, chosen in a list, that does not say where it belongs."""
    for word in settings:
        group, _, value = word.partition("=")
        for name in re.findall(r"[\w./-]+", value) if group in LIST_GROUPS else ():
            for folder in parse_config_dirs(flags):
                path = folder / group / f"{name}.yaml"
                expected = f"{group}.{name.rpartition('/')[2]}"
                if path.is_file() and _read_package(path) not in (expected, "_global_"):
                    raise FileError(
                        f"{path} does not say where its settings belong. Its first line must be '# @package {expected}'."
                    )


def _read_package(path: Path) -> str | None:
    """Return what the head of a configuration file says of its place."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    head = "\n".join(
        takewhile(lambda line: not line.strip() or line.lstrip()[0] == "#", lines)
    )
    directive = re.search(r"#\s*@package\s+(\S+)", head)
    return directive[1] if directive else None


# What there is


def find_nearest(word: str, names: Sequence[str]) -> str | None:
    """Return the name that is most like a word: by its letters, or else by how it begins."""
    if close := difflib.get_close_matches(word, names, n=1):
        return close[0]
    alike = [name for name in names if name[:2] == word[:2] and len(word) > 1]
    return min(alike, key=lambda name: abs(len(name) - len(word)), default=None)


def _list_groups(flags: Sequence[str]) -> list[str]:
    folders = (CONF, *parse_config_dirs(flags))
    names = {path.name for folder in folders for path in folder.glob("[!.]*/")}
    return ["experiment", *sorted(names - {"hydra", "experiment"})]


def _list_setting_names(flags: Sequence[str], settings: Sequence[str]) -> list[str]:
    """Return the first steps of all settings of the chosen experiment."""
    names = {key.partition(".")[0] for key in _read_settings(flags, settings)}
    return sorted(add_names_to_type(names))


def _read_settings(flags: Sequence[str], settings: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the chosen experiment by dotted name, and its groups."""
    name = f"experiment/{_find_experiment(settings) or 'tournament'}.yaml"
    paths = [
        CONF / "config.yaml",
        *(folder / name for folder in (CONF, *parse_config_dirs(flags))),
    ]
    settings_found = dict[str, Any]()
    for path in paths:
        settings_found |= _read_yaml(path) if path.is_file() else {}
    if "_judged" in settings_found:
        settings_found |= _read_yaml(CONF / "judged.yaml")
    return {
        key: value
        for key, value in settings_found.items()
        if not re.match("_|hydra", key)
    }


@functools.cache
def _read_yaml(path: Path) -> dict[str, Any]:
    """Return the dotted settings of a file, and the groups that it chooses of: the included ones as _NAME."""
    try:
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    if not isinstance(node, dict):
        return {}
    groups = dict[str, Any]()
    for entry in node.pop("defaults", None) or ():
        if isinstance(entry, dict):
            groups |= {
                str(key).removeprefix("override ").lstrip("/").partition("@")[0]: None
                for key in entry
            }
        elif entry != "_self_":
            groups[f"_{str(entry).lstrip('/')}"] = None
    return groups | dict(flatten_settings(node))
