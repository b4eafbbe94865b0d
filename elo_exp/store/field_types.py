"""The types of a stored answer, checked before a record is made of it."""

import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

# As JSON has them
_JSON_TYPES: Mapping[Any, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (int, float),
    type(None): (type(None),),
    tuple: (list,),
    Mapping: (dict,),
}


def check_types(record: Any, fields: Any) -> None:
    """Raise TypeError for the first field of another type than the record, a dataclass, has."""
    if not isinstance(fields, dict):
        raise TypeError(f"it is a {type(fields).__name__}")
    for name, allowed in _list_allowed_types(record).items():
        if name in fields and not _has_type(fields[name], allowed):
            raise TypeError(
                f"{name} has a value of the wrong type: {fields[name]!r:.40}"
            )
    usage = fields.get("usage")
    if isinstance(usage, dict) and not all(
        _has_type(n, (int,)) for n in usage.values()
    ):
        raise TypeError(f"usage has a value of the wrong type: {usage!r:.40}")


def _has_type(value: Any, allowed: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in allowed
    return isinstance(value, allowed) and (
        not isinstance(value, float) or math.isfinite(value)
    )


@functools.cache
def _list_allowed_types(record: Any) -> dict[str, tuple[type, ...]]:
    """Return the types of JSON that each field may have."""
    allowed_types = {}
    for name, hint in typing.get_type_hints(record).items():
        is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        options = typing.get_args(hint) if is_union else (hint,)
        kinds = [typing.get_origin(option) or option for option in options]
        if all(kind in _JSON_TYPES for kind in kinds) and name != "message":
            allowed_types[name] = tuple(
                json_type for kind in kinds for json_type in _JSON_TYPES[kind]
            )
    return allowed_types
