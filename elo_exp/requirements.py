"""What a value must be, in words, read from the type of its field."""

import contextlib
import re
import types
import typing
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import PydanticUserError, TypeAdapter

_NAME_BY_JSON_TYPE = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list, such as [A,B]",
    "object": "a mapping, such as {A:VALUE}",
    "null": "null",
}


def find_type(cls: Any, path: Sequence[str | int]) -> Any:
    """Return the type of a value inside a class with fields; None if the path leads to no field.

    Parameters
    ----------
    cls : type
        A dataclass, a model of pydantic, a typed dictionary, or a list or a mapping of them.
    path : sequence of str or int
        Names of fields and of keys, and positions in lists, as pydantic reports them.
    """
    hint: Any = cls
    for step in path:
        hint = _unwrap(hint)
        arguments = typing.get_args(hint)
        if typing.get_origin(hint) in (dict, Mapping):
            hint = arguments[1]
        elif typing.get_origin(hint) in (list, tuple, Sequence):
            hint = arguments[0]
        elif isinstance(hint, type):
            hint = typing.get_type_hints(hint, include_extras=True).get(str(step))
        else:
            return None
    return hint


def describe_requirement(hint: Any, finding: str) -> str:
    """Return what a value of this type must be: "be a whole number of 1 or more".

    A type's description is used if it has one (elo_exp/types.py).

    Parameters
    ----------
    hint : type
        The type; None if it is not known.
    finding : str
        What pydantic says of the value, which is used if the type has no words.
    """
    schema: Mapping[str, Any] = {}
    with warnings.catch_warnings(), contextlib.suppress(PydanticUserError):
        # An alias means nothing for a type by itself
        warnings.simplefilter("ignore")
        schema = {} if hint is None else TypeAdapter(hint).json_schema()
    if "description" in schema and schema.get("type") != "object":
        return str(schema["description"])
    if choices := _list_choices(schema):
        return f"be {_join(choices)}"
    words = re.match(r".*? should (.*)|Value error, (.*)", finding, re.DOTALL)
    return (words[1] or words[2]) if words else "be of a known kind"


def _list_choices(schema: Mapping[str, Any]) -> list[str]:
    """Return what a value may be, each as words: ["a whole number of 1 or more", "null"]."""
    if "anyOf" in schema:
        return [
            choice for option in schema["anyOf"] for choice in _list_choices(option)
        ]
    # The description of a class is its docstring
    if "description" in schema and schema.get("type") != "object":
        return [schema["description"].removeprefix("be ")]
    if "enum" in schema or "const" in schema:
        return list(map(str, schema.get("enum", [schema.get("const")])))
    if (kind := schema.get("type")) == "boolean":
        return ["true", "false"]
    name = _NAME_BY_JSON_TYPE.get(kind or "", "")
    if not {"minItems", "maxItems"}.isdisjoint(schema):
        name = "a list"
    return [" ".join(filter(None, [name, _describe_bounds(schema)]))] * bool(name)


def _join(choices: Sequence[str]) -> str:
    """Join choices by "or", after a comma if one before it has several parts."""
    *earlier, last = choices
    is_long = any(re.search(r"\b(or|that)\b|,", choice) for choice in earlier)
    comma = "," if is_long else ""
    return f"{', '.join(earlier)}{comma} or {last}" if earlier else last


def _describe_bounds(schema: Mapping[str, Any]) -> str:
    words = {
        "minimum": "of {:,} or more",
        "exclusiveMinimum": "above {:,}",
        "maximum": "at most {:,}",
        "exclusiveMaximum": "below {:,}",
        "minLength": "of at least {:,} characters",
        "minItems": "with {:,} or more items",
        "maxItems": "with at most {:,} items",
    }
    if schema.get("minLength") == 1:
        return "that is not empty"
    bounds = [text.format(schema[key]) for key, text in words.items() if key in schema]
    text = re.sub(r"\b1 items", "1 item", " and ".join(bounds))
    return f"of {text}" if text.startswith("at most") else text


def _unwrap(hint: Any) -> Any:
    """Return X of X | None and of Annotated[X, ...]."""
    while typing.get_origin(hint) in (typing.Union, types.UnionType, Annotated):
        options = [
            option for option in typing.get_args(hint) if option is not type(None)
        ]
        hint = options[0]
    return hint
