"""The cache key of a part whose author has not written one: its code and its settings."""

import dataclasses
import hashlib
import inspect
from pathlib import Path
from typing import Any

from elo_exp.errors import SettingError
from elo_exp.records import canonical_json


def make_default_key(plugin: Any, *, omitted: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the key of a part: the file that its class is written in, by its hash, and the values of its fields.

    A change of the file is a change of the part: nothing that another version of it made is found in the store. A part
    whose answers are dear, or depend on other files, writes its own `cache_key`.

    omitted  fields that change no answer
    """
    cls = type(plugin)
    name = f"{cls.__module__}.{cls.__qualname__}"
    try:
        code = Path(inspect.getfile(cls)).read_bytes()
    except (OSError, TypeError):
        raise SettingError(
            f"The class {name} has no file, and its code is part of the cache keys of its answers. Move it to a file, "
            "or write its cache_key."
        ) from None
    fields = dataclasses.fields(plugin) if dataclasses.is_dataclass(plugin) else ()
    settings = {
        f.name: getattr(plugin, f.name) for f in fields if f.name not in omitted
    }
    try:
        canonical_json(settings)
    except (TypeError, ValueError):
        raise SettingError(
            f"{name} has a setting that is no number, text, list or mapping. Write its cache_key, which returns "
            "everything that can change an answer."
        ) from None
    code_hash = hashlib.sha256(code).hexdigest()[:40]
    return {"class": name, "code": code_hash, "settings": settings}
