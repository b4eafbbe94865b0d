"""What Hydra does more often or more slowly than it needs to, and where it could look closer.

Hydra composes a run twice, to see whether the configuration makes a sweep of it and to run it; and every job of a sweep
anew and twice, to see whether it can be and to run it; what it has composed the first time nobody checks. It reads YAML
in Python.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import InterpolationKeyError, InterpolationResolutionError


def read_yaml_in_c() -> None:
    """Let Hydra parse with libyaml, where PyYAML has it, in a seventh of the time: a run reads some twenty files."""
    if yaml.__with_libyaml__:
        setattr(yaml, "SafeLoader", yaml.CSafeLoader)  # noqa: B010  (mypy has no other word for it)


def take_mode_from_the_command() -> None:
    """Let Hydra compose for its mode only where the command sets hydra.mode: in all other cases -m tells."""
    compose = Hydra.get_mode

    def get_mode(self: Hydra, config_name: str | None, overrides: list[str]) -> Any:
        said = any(override.lstrip("+~").startswith("hydra.mode") for override in overrides)
        return compose(self, config_name, overrides) if said else None

    setattr(Hydra, "get_mode", get_mode)  # noqa: B010  (mypy has no other word for it)


def check_before_jobs(check: Callable[[DictConfig], None]) -> None:
    """Let Hydra, which composes all jobs before the first one runs, give each configuration to `check` as the job will
    have it."""

    def validate(self: Any, batch: Sequence[Sequence[str]]) -> None:
        jobs: Iterable[Sequence[str]] = batch
        if type(self).__name__ == "BasicSweeper":  # Hydra's own knows all its batches at the first
            jobs = itertools.chain.from_iterable(self.overrides) if self.batch_index == 1 else ()
        for number, overrides in enumerate(jobs):
            _check_job(
                self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides)),
                number,
                check,
            )

    setattr(Sweeper, "validate_batch_is_legal", validate)  # noqa: B010  (mypy has no other word for it)


def _check_job(job: DictConfig, number: int, check: Callable[[DictConfig], None]) -> None:
    running = HydraConfig.instance().cfg
    with flag_override(job, ["struct", "readonly"], False):
        job.hydra.job.num = job.hydra.job.id = number
        job.hydra.runtime.output_dir = str(
            Path(job.hydra.sweep.dir, str(job.hydra.sweep.subdir)).absolute()
        )
        HydraConfig.instance().set_config(job)
        del job["hydra"]
    try:
        check(job)
    except InterpolationKeyError:
        raise
    except InterpolationResolutionError:
        pass  # what another resolver says may be there only when and where the job runs
    finally:
        HydraConfig.instance().cfg = running


def compose_once() -> None:
    """Give the running Hydra a loader that remembers; to be called before a sweep begins."""
    hydra = GlobalHydra.instance().hydra
    if hydra is not None:
        hydra.config_loader = RememberingLoader(hydra.config_loader.get_search_path())


class RememberingLoader(ConfigLoaderImpl):
    """Composes the choices of groups once, and sets each job's values in a copy, as Hydra does in what it composed."""

    def __init__(self, config_search_path: Any) -> None:
        super().__init__(config_search_path)
        self.repository = _RememberingRepository(config_search_path)
        self._composed: dict[tuple[str, ...], bytes] = {}

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        overrides = OverridesParser.create().parse_overrides(sweep_overrides)
        choices = tuple(
            str(override.input_line) for override in overrides if self._is_choice(override)
        )
        if choices not in self._composed:
            self._composed[choices] = pickle.dumps(
                super().load_sweep_config(master_config, list(choices))
            )
        job = cast(DictConfig, pickle.loads(self._composed[choices]))
        self._apply_overrides_to_config([o for o in overrides if not self._is_choice(o)], job)
        names = job.hydra.job.config.override_dirname
        job.hydra.overrides.task = [override.input_line for override in overrides]
        job.hydra.job.override_dirname = get_overrides_dirname(
            overrides, kv_sep=names.kv_sep, item_sep=names.item_sep, exclude_keys=names.exclude_keys
        )
        OmegaConf.copy_cache(from_config=master_config, to_config=job)
        return job

    def _is_choice(self, override: Override) -> bool:
        return not isinstance(override.value(), dict) and self.repository.group_exists(
            override.key_or_group
        )


class _RememberingRepository(ConfigRepository):
    def __init__(self, config_search_path: Any) -> None:
        super().__init__(config_search_path)
        self._files: dict[tuple[str, ...], bytes] = {}

    def __deepcopy__(self, memo: object) -> _RememberingRepository:
        """Each composition works on a copy, which remembers the same files."""
        twin = copy.copy(self)
        twin.sources = list(self.sources)
        return twin

    def load_config(self, config_path: str) -> ConfigResult | None:
        place = (config_path, *(source.path for source in self.sources))
        if place not in self._files:
            self._files[place] = pickle.dumps(super().load_config(config_path))
        return cast("ConfigResult | None", pickle.loads(self._files[place]))
