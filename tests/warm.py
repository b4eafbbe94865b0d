"""Imported by a server of forking.py: Hydra has found its plugins, and its grammars have read a command before."""

from hydra import compose, initialize_config_dir

import elo_exp.config  # noqa: F401  (the schema)
from elo_exp import CONF

with initialize_config_dir(str(CONF), version_base="1.3"):
    compose("config", overrides=["elo.k=8", "rubric=[factuality]"], return_hydra_config=True)
