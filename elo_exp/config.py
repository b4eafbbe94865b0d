"""From the composed configuration to typed settings and built parts.

A part is built by the class that its `_target_` names. The class's fields are the schema of its settings: a misspelt
key, a wrong type or a value out of range is one line naming the setting, before any work begins.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import math
import pkgutil
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import ConfigDict, TypeAdapter, ValidationError

from elo_exp import HOME, errors
from elo_exp.entrants import Entrant
from elo_exp.experiments import Parts, ReadsFiles
from elo_exp.records import UserError
from elo_exp.results import RunInfo
from elo_exp.settings import Settings
from elo_exp.store.store import Store
from elo_exp.trackers import Tracker

logger = logging.getLogger(__name__)


@dataclass
class Schema(Settings):
    """The whole configuration: the scalar settings, and a free node for each group whose options bring their own."""

    entrant: dict[str, Any] = field(default_factory=dict)
    judge: Any = None
    oracle_judge: Any = None
    scoring: Any = None
    oracle_scoring: Any = None
    elo: Any = None
    rating: dict[str, Any] = field(default_factory=dict)
    rubric: dict[str, Any] = field(default_factory=dict)
    estimator: dict[str, Any] = field(default_factory=dict)
    tracker: Any = None


ConfigStore.instance().store(name="schema", node=Schema)
RULES = ConfigDict(
    arbitrary_types_allowed=True,
    extra="forbid",
    coerce_numbers_to_str=True,  # a revision of digits
)
OmegaConf.register_new_resolver("home", lambda path: str(HOME / path), replace=True)
OmegaConf.register_new_resolver("token", lambda: secrets.token_hex(2), use_cache=True, replace=True)


def _of_run(run: str, errand: str | None, *, _root_: DictConfig) -> str | None:
    """The first for a run, the second for plan=true and status=true, which leave no run folder."""
    return errand if _root_.plan or _root_.status else run


def _of_experiment(name: str, there: str, elsewhere: str, *, _root_: DictConfig) -> str:
    """The first in the experiment of this name, the second in all others."""
    return there if _root_.experiment.name == name else elsewhere


OmegaConf.register_new_resolver("of_run", _of_run, replace=True)
OmegaConf.register_new_resolver("of_experiment", _of_experiment, replace=True)

_ALONE = (
    "judge",
    "oracle_judge",
    "scoring",
    "oracle_scoring",
    "elo",
    "tracker",
)  # groups of which one is chosen
_LISTS = ("entrant", "rubric", "rating", "estimator")  # and several
_LIKE = ("elo", "rating", "arena")  # what is taken of a run


def take_ratings(cfg: DictConfig) -> None:
    """With like=RUN, its rating settings in place of the composed ones. Raises UserError for a folder without them and
    where some are given besides."""
    if cfg.get("like") is None:
        return
    path = Path(cfg.like) / "manifest.json"
    if cfg.experiment.name != "rate":
        raise UserError(
            f"like: found {cfg.like} with experiment={cfg.experiment.name}. It goes with experiment=rate."
        )
    for override in overrides():
        if re.split("[.=@]", override.lstrip("+~"))[0] in _LIKE:
            raise UserError(
                f"like: the settings of {cfg.like} are taken, and {override} besides. Leave one of them out."
            )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["config"]
        run = {name: found[name] for name in ("elo", "rating")} | {"arena": found.get("arena", {})}
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"like: found no rating settings in {path}. Expected the folder of a run."
        ) from None
    with open_dict(cfg):
        cfg.elo = OmegaConf.merge(cfg.elo, run["elo"])
        cfg.rating = {
            name: OmegaConf.merge(cfg.rating.get(name, {}), node)
            for name, node in run["rating"].items()
        }
        cfg.arena = OmegaConf.merge(cfg.arena, run["arena"])


def settings(cfg: DictConfig) -> Settings:
    """The scalar settings, checked. Raises UserError for an unknown key or a value out of range."""
    errors.refuse_unknown(dict(cfg), Schema, where="")
    names = [f.name for f in dataclasses.fields(Settings)]
    scalars = OmegaConf.masked_copy(cfg, list(names))
    values = OmegaConf.to_container(scalars, resolve=True)
    assert isinstance(values, dict)
    errors.refuse_unknown(values, Settings, where="")
    try:
        checked: Settings = _adapter(Settings).validate_python({"": values})[""]
    except ValidationError as error:
        raise UserError(errors.format_validation(error)) from None
    checked.check()
    return checked


def build_parts(
    cfg: DictConfig, chosen: Settings, needs: Collection[str], changed: Sequence[str] = ()
) -> Parts:
    """The parts that an experiment needs. Nothing is generated, judged or written but the empty store.

    changed  the overrides of the command
    """
    needs = _needed(chosen, needs)
    entrants = dict(cfg.entrant) if "entrant" in needs else {}
    if chosen.recorded_dir is not None:
        entrants = {name: _recorded(name, chosen.recorded_dir) for name in entrants}
    built = {str(name): _entrant(str(name), node) for name, node in entrants.items()}
    return Parts(
        entrants=_with_files(built) if chosen.allow_missing else built,
        judge=_part(cfg.judge, "judge") if "judge" in needs else None,
        oracle_judge=_oracle_judge(cfg, chosen) if "oracle_judge" in needs else None,
        scoring=_part(cfg.scoring, "scoring") if "scoring" in needs else None,
        oracle_scoring=_part(cfg.oracle_scoring, "oracle_scoring") if "scoring" in needs else None,
        rubrics=[_part(node, f"rubric.{name}") for name, node in cfg.rubric.items()]
        if "rubric" in needs
        else [],
        elo=_part(cfg.elo, "elo"),
        ratings={name: _part(node, f"rating.{name}") for name, node in cfg.rating.items()},
        rates="rating" in needs,
        estimators=_parts(cfg.estimator, "estimator") if "estimator" in needs else {},
        tracker=_part(cfg.tracker, "tracker"),
        store=Store(Path(chosen.cache_dir) / "store.sqlite"),
        named=frozenset(re.split("[=@]", override.lstrip("+~"))[0] for override in changed),
    )


def _with_files(entrants: Mapping[str, Entrant]) -> dict[str, Entrant]:
    """Leave out the entrants that read a file which is absent, with a warning."""
    kept = {}
    for name, entrant in entrants.items():
        paths = entrant.input_files.values() if isinstance(entrant, ReadsFiles) else ()
        absent = [path for path in paths if not path.exists()]
        if absent:
            logger.warning("warning: %s: found no %s. Going on without it.", name, absent[0])
        else:
            kept[name] = entrant
    return kept


def check(cfg: DictConfig, needs: Callable[[Settings], Collection[str]]) -> None:
    """Raise UserError for scalar settings that `settings` refuses, and where a part that the experiment needs has an
    unknown setting, one of another type or one without a value. Nothing is built: a part's values out of range and
    missing files are found when it is."""
    chosen = settings(cfg)
    wanted = {*_needed(chosen, needs(chosen)), "elo", "rating", "tracker"}
    if "scoring" in wanted:
        wanted |= {"oracle_scoring"}
    if chosen.recorded_dir is not None:
        wanted -= {"entrant"}
    for group in filter(wanted.__contains__, _ALONE):
        _part(cfg[group], group)
    for group in filter(wanted.__contains__, _LISTS):
        for name, node in cfg[group].items():
            _part(node, f"{group}.{name}")


def _needed(chosen: Settings, needs: Collection[str]) -> Collection[str]:
    """Of what the experiment needs, that which these settings leave to do."""
    if chosen.experiment.name == "oracle" and chosen.oracle.logged is not None:
        return {"estimator"}  # what is on record needs nobody to answer and to judge
    return needs


def build_tracker(node: Mapping[str, Any]) -> Tracker:
    """The tracker that a run had, from its manifest."""
    tracker: Tracker = _part(OmegaConf.create(dict(node)), "tracker")
    return tracker


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as resolved plain data, for the manifest and the tracker."""
    container = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def run_info(cfg: DictConfig) -> RunInfo:
    """The job that Hydra is running, in words of ours."""
    job = HydraConfig.get()
    run_dir = Path(job.runtime.output_dir)
    changed = overrides()
    swept = is_multirun()
    return RunInfo(
        run_dir=run_dir,
        name=(" ".join(changed) or run_dir.name) if swept else run_dir.name,
        group=Path(job.sweep.dir).name if swept else None,
        job_type=str(cfg.experiment.name),
        config=plain(cfg),
        overrides=changed,
    )


def overrides() -> tuple[str, ...]:
    """What the command line changed, unresolved."""
    words = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    assert isinstance(words, list)
    return tuple(str(override) for override in words)


def is_multirun() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def _oracle_judge(cfg: DictConfig, chosen: Settings) -> Any:
    """The second judge; one that is paid has a cap of its own."""
    if "budget_usd" not in cfg.oracle_judge:
        return _part(cfg.oracle_judge, "oracle_judge")
    if not OmegaConf.is_interpolation(cfg.oracle_judge, "budget_usd"):
        found = cfg.oracle_judge.budget_usd
        raise UserError(
            f"oracle_judge.budget_usd: found {found}. Leave it out: the oracle's cap is oracle.budget_usd."
        )
    cfg.oracle_judge.budget_usd = chosen.oracle.budget_usd
    judge = _part(cfg.oracle_judge, "oracle_judge")
    judge.budget_setting, judge.part = "oracle.budget_usd", "oracle_judge"
    return judge


def _recorded(name: str, folder: str) -> DictConfig:
    return OmegaConf.create(
        {
            "_target_": "elo_exp.entrants.recorded.RecordedEntrant",
            "entrant_id": str(name),
            "path": folder,
        }
    )


def _entrant(name: str, node: Any) -> Any:
    entrant = _part(node, f"entrant.{name}")
    if entrant.entrant_id != name:
        raise UserError(
            f"entrant.{name}.entrant_id: found {entrant.entrant_id!r}. Expected {name!r}: an entrant has one name, in "
            "the configuration and in every file."
        )
    return entrant


def _parts(nodes: DictConfig, group: str) -> dict[str, Any]:
    named = ((str(name), node) for name, node in nodes.items())
    return {name: _part(node, f"{group}.{name}") for name, node in named}


def _part(node: Any, where: str) -> Any:
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise UserError(
            f"{where}: nothing is chosen. Choose with {where.partition('.')[0]}=NAME; --help lists the names."
        )
    return build(OmegaConf.to_container(node, resolve=True), where)


def build(node: Any, where: str = "") -> Any:
    """Build what plain data describe: every mapping with a `_target_` becomes an object, inner ones first.

    The fields of the dataclass are the schema of its node. Raises UserError naming the setting that is wrong.
    """
    if isinstance(node, list):
        return [build(value, f"{where}.{i}") for i, value in enumerate(node)]
    if node == "???":
        raise UserError(f"{where}: has no value yet. Set it with {where}=VALUE.")
    if isinstance(node, float) and not math.isfinite(node):
        raise UserError(f"{where}: found {node}. Expected a finite number.")
    if not isinstance(node, Mapping):
        return node
    values = {str(key): build(value, f"{where}.{key}".lstrip(".")) for key, value in node.items()}
    if "_target_" not in values:
        return values
    cls = _import(values.pop("_target_"), where)
    errors.refuse_unknown(values, cls, where)
    with naming(where, cls):
        try:
            return _adapter(cls).validate_python({where: values})[where]
        except ValidationError as error:
            raise UserError(errors.format_validation(error)) from None


@functools.cache
def _adapter(cls: type) -> TypeAdapter[dict[str, Any]]:
    """Of a mapping with the object, so that the rules hold for a dataclass and those in it."""
    return TypeAdapter(dict[str, cls], config=RULES)  # type: ignore[valid-type]


@contextlib.contextmanager
def naming(where: str, cls: type) -> Iterator[None]:
    """Put the path of a part before an error that begins with the name of one of its fields."""
    try:
        yield
    except UserError as error:
        own = re.split("[:.]", str(error))[0] in {f.name for f in dataclasses.fields(cls)}
        raise UserError(f"{where}.{error}".lstrip(".") if own else str(error)) from None


def check_parts(parts: Mapping[str, Any]) -> None:
    """Let each part that can look for its files, by its name in the configuration."""
    for where, part in parts.items():
        if hasattr(part, "check"):
            with naming(where, type(part)):
                part.check()


def _import(target: str, where: str) -> type:
    place = f"{where}._target_".lstrip(".")
    try:
        found = pkgutil.resolve_name(target)
    except ModuleNotFoundError as error:
        if error.name and not target.startswith(error.name):
            raise UserError(
                f"{where}: needs the package {error.name!r}, which is not installed: pip install it."
            ) from None
        raise UserError(f"{place}: found no {target!r}. Expected the path of a class.") from None
    except (AttributeError, ValueError):
        raise UserError(f"{place}: found no {target!r}. Expected the path of a class.") from None
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise UserError(
            f"{place}: found {target!r}, which is no dataclass. Expected the path of one."
        )
    return found
