"""The jobs of a sweep are composed from what was composed once: the same, to the letter, as by Hydra alone."""

from collections.abc import Iterator

import pytest
import yaml
from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from elo_exp import CONF, composing, sweeps

JOBS = [
    ["elo.k=4", "tracker=local"],
    ["elo.k=8", "tracker=local", "+mode.strata.medqa=20"],
    ["mode=pilot", "judge=lexical", "entrant=[probe_hedged,probe_partial]", "elo.k_sweep=[1,2]"],
    ["judge=lexical", "mode=pilot", "elo.n_perms=3", "elo.n_perms=5"],
    ["~elo.ties", "figures=true"],
]


@pytest.fixture(scope="module")
def loaders() -> Iterator[tuple[ConfigLoader, ConfigLoader, DictConfig]]:
    """Hydra's own, ours, and the sweep that both are in."""
    assert sweeps.SweepWatch.folder is None
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        hydras = GlobalHydra.instance().config_loader()
        composing.compose_once()
        ours = GlobalHydra.instance().config_loader()
        sweep = ["elo.k=4,8", "hydra.sweep.dir=somewhere"]
        yield hydras, ours, hydras.load_configuration("config", sweep, run_mode=RunMode.MULTIRUN)


@pytest.mark.parametrize("overrides", [*JOBS, *JOBS], ids=str)
def test_a_job_is_composed_as_by_hydra(
    loaders: tuple[ConfigLoader, ConfigLoader, DictConfig], overrides: list[str]
):
    """Each twice: composed, and made from what was remembered."""
    hydras, ours, sweep = loaders
    expected, found = (
        loader.load_sweep_config(sweep, list(overrides)) for loader in (hydras, ours)
    )
    assert OmegaConf.to_yaml(found) == OmegaConf.to_yaml(expected)
    assert found.hydra.sweep.dir == "somewhere"


def test_yaml_in_c_says_the_same_as_yaml_in_python(monkeypatch: pytest.MonkeyPatch):
    files = sorted(CONF.rglob("*.yaml"))
    in_python = [OmegaConf.load(path) for path in files]
    monkeypatch.setattr(yaml, "SafeLoader", yaml.SafeLoader)  # put back at the end
    composing.read_yaml_in_c()
    assert yaml.SafeLoader is yaml.CSafeLoader  # which the wheels of PyYAML have
    assert [OmegaConf.load(path) for path in files] == in_python


@pytest.mark.parametrize("override", ["elo.kk=3", "judge=nobody"])
def test_a_mistake_is_found_as_by_hydra(
    loaders: tuple[ConfigLoader, ConfigLoader, DictConfig], override: str
):
    hydras, ours, sweep = loaders
    said = []
    for loader in (hydras, ours):
        with pytest.raises(HydraException) as raised:
            loader.load_sweep_config(sweep, [override])
        said.append(str(raised.value))
    assert said[0] == said[1]
