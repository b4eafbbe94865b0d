"""The oracle experiment on tiny random models: the settings and parts of a run, made as the command makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import OmegaConf

from elo_exp import config
from elo_exp.experiments import Parts, oracle
from elo_exp.experiments.oracle import OracleResult
from elo_exp.settings import Settings
from tests.test_configs import composed

POLICIES = (
    "tiny_base",
    "tiny_clone",
    "tiny_unhelpful",
    "tiny_premium",
    "tiny_parallel_universe_prompt",
)
N_PROMPTS = 93  # of the bank, those with a reference
N_LABELS, N_PROBES = 46, 23  # a half and a quarter of them


def small(*policies: str) -> list[str]:
    """These policies, with short answers made all at once."""
    names = policies or POLICIES
    made = [
        f"entrant.{name}.{what}"
        for name in names
        for what in ("max_new_tokens=8", f"batch_size={N_PROMPTS}")
    ]
    return [f"entrant=[{','.join(names)}]", *made]


@contextmanager
def parts_of(folder: Path, *overrides: str) -> Iterator[tuple[Settings, Parts]]:
    """Checked settings and parts, with the store of the folder."""
    cfg = composed(
        "experiment=oracle",
        f"cache_dir={folder}/cache",
        "tracker=local",
        "figures=false",
        *overrides,
    )
    OmegaConf.set_struct(cfg, value=False)
    del cfg["hydra"]
    settings = config.settings(cfg)
    parts = config.build_parts(cfg, settings, oracle.NEEDS, overrides)
    with parts.store:
        oracle.check(settings, parts)
        yield settings, parts


def said(folder: Path, *overrides: str) -> str | None:
    """What is said in place of a run."""
    with parts_of(folder, *overrides) as (settings, parts):
        return oracle.errand(settings, parts)


def ran(folder: Path, *overrides: str) -> tuple[OracleResult, Parts]:
    """A run with its parts, whose store says what it has cost, and is closed."""
    with parts_of(folder, *overrides) as (settings, parts):
        return oracle.run(settings, parts), parts
