"""The files of conf/, which OmegaConf reads once for all commands of a process.

To read them takes longer than all else that a small command does.
"""

from __future__ import annotations

import io
import pickle
from typing import Any
from unittest.mock import patch

from omegaconf import OmegaConf

_LOAD = OmegaConf.load
_PICKLED_SETTINGS: dict[str, bytes] = {}


def _load_once(file: Any) -> Any:
    """Return the settings of an open file: a copy of those that a file with the same text had."""
    if not hasattr(file, "read"):
        return _LOAD(file)
    text = file.read()
    if text not in _PICKLED_SETTINGS:
        copy = io.StringIO(text)
        copy.name = getattr(file, "name", "<unicode string>")  # errors name it
        _PICKLED_SETTINGS[text] = pickle.dumps(_LOAD(copy))
    return pickle.loads(_PICKLED_SETTINGS[text])


def read_settings_once() -> Any:
    """Return a context in which no text of settings is read twice."""
    return patch.object(OmegaConf, "load", _load_once)
