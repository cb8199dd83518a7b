"""TOML into typed dataclasses: every key known, every value of its type, and an error that names the key.

A table that has a name may be written as its name alone: `loss = "gr"` is `loss = { name = "gr" }`.
"""

import contextlib
import dataclasses
import json
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hardsight.files import read_text
from hardsight.names import check_name, nearest_names, unknown_name

Settings = TypeVar("Settings")
_LARGEST_TOML, _MOST_PARTS = 1 << 20, 100
# What torch computes with: a float32's largest number, and a counter's.
_LARGEST_FLOAT, _LARGEST_INT = 3e38, 2**63 - 1


def read_settings(kind: type[Settings], path: Path | str, changes: Iterable[str] = ()) -> Settings:
    """The settings of a TOML file with `key=value` changes on top; keys of tables are written with dots."""
    try:
        tree = tomllib.loads(_plain_toml(read_text(path, _LARGEST_TOML)))
    # Also of numbers of thousands of digits, and of tables nested a thousand deep.
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} must be a TOML file: {problem}") from None
    for change in changes:
        apply_change(tree, change)
    return build(kind, tree)


def _plain_toml(text: str) -> str:
    """The text, whose keys have a few parts each: the parser takes the square of their number."""
    if max(part.count(".") for part in re.split(r"[,=\[\]{}\n]", text)) > _MOST_PARTS:
        raise ValueError(f"a key must have at most {_MOST_PARTS} parts")
    return text


def apply_change(tree: dict[str, Any], change: str) -> None:
    """Set one key of the tree, `optimizer.lr=0.05`; the value is TOML, and text where it is no TOML."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"a change must be written key=value; got {change!r}")
    put(tree, key.strip(), _value(text.strip()))


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set one key of the tree; keys of tables are written with dots."""
    *tables, name = key.split(".")
    for table in tables:
        if isinstance(tree.get(table), str):
            tree[table] = {"name": tree[table]}
        tree = tree.setdefault(table, {})
        if not isinstance(tree, dict):
            raise ValueError(f"{key} cannot be set: {table} is no table")
    tree[name] = value


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


@contextlib.contextmanager
def about(key: str) -> Iterator[None]:
    """What is refused inside is said of this key of the configuration."""
    try:
        yield
    except (ValueError, TypeError) as refusal:
        raise ValueError(f"{key}: {refusal}") from None


def build(kind: type[Settings], tree: Mapping[str, Any], prefix: str = "") -> Settings:
    """The dataclass from a tree of plain values; unknown keys are refused with the nearest known one."""
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in tree:
        if key not in fields:
            raise _unknown_key(key, fields, prefix)
    given = {key: typed(hints[key], value, f"{prefix}{key}") for key, value in tree.items()}
    for name, field in fields.items():
        if name not in given and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{prefix}{name} must be given")
    try:
        return kind(**given)
    except ValueError as refusal:
        raise ValueError(f"{prefix}{refusal}") from None


def _unknown_key(key: str, known: Mapping[str, Any], prefix: str) -> ValueError:
    """The refusal of a key; one that is like none may be an option that lacks its table."""
    table = f"a key of {prefix.removesuffix('.')}" if prefix else "a key of the configuration"
    refusal = unknown_name(table, key, known, "keys")
    if key == "split" and {"train", "test"} <= known.keys():
        return ValueError(f"{refusal}: splits are chosen by {prefix}train and {prefix}test")
    if "options" in known and not nearest_names(key, known):
        return ValueError(f"{refusal}: options are written {prefix}options.{key}")
    return refusal


def typed(hint: Any, value: Any, key: str) -> Any:
    """The value as a setting of type `hint`; refuses any other, naming the key."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, str) and any(field.name == "name" for field in dataclasses.fields(hint)):
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise ValueError(f"{key} must be a table; got {value!r}")
        return build(hint, value, f"{key}.")  # type: ignore[arg-type]
    if origin in (typing.Union, types.UnionType):
        return _one_of_several(arguments, value, key)
    if origin is typing.Literal:
        check_name(key, value, arguments)
        return value
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise ValueError(f"{key} must be a list; got {value!r}")
        items = [typed(arguments[0], item, f"{key}[{index}]") for index, item in enumerate(value)]
        return items if origin is list else tuple(items)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ValueError(f"{key} must be a table; got {value!r}")
        return dict(value)
    return _plain(hint, value, key)


def _one_of_several(arguments: tuple[Any, ...], value: Any, key: str) -> Any:
    refusals = []
    for argument in arguments:
        if argument is type(None):
            if value is None:
                return None
            continue
        try:
            return typed(argument, value, key)
        except ValueError as refusal:
            refusals.append(refusal)
    raise refusals[0]


_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _plain(hint: Any, value: Any, key: str) -> Any:
    if hint is Any:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ValueError(f"{key} must be {_WORDS.get(hint, hint.__name__)}; got {value!r}")
    if hint is float and not abs(value) <= _LARGEST_FLOAT:
        raise ValueError(f"{key} must be a finite number of at most {_LARGEST_FLOAT:g}; got {value!r}")
    if hint is int and not abs(value) <= _LARGEST_INT:
        raise ValueError(f"{key} must be a whole number of at most 63 bits; got {str(value)[:100]}")
    return value


class Key(NamedTuple):
    """One key of a configuration, as text: its type, its default ("required" where it has none), what it means."""

    key: str
    type: str
    default: str
    meaning: str


def keys_of(kind: type, prefix: str = "") -> list[Key]:
    """Every key that a file of these settings may have, keys of tables with dots, in the order of the dataclasses.

    The meaning is the text of the field's `Annotated` type.
    """
    found: list[Key] = []
    hints, plain = typing.get_type_hints(kind, include_extras=True), typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        table = next((one for one in _alternatives(plain[field.name]) if dataclasses.is_dataclass(one)), None)
        if isinstance(table, type):
            found += keys_of(table, f"{prefix}{field.name}.")
            continue
        meaning = next(iter(getattr(hints[field.name], "__metadata__", ())), "")
        found.append(Key(f"{prefix}{field.name}", _as_text(plain[field.name]), _default(field), meaning))
    return found


def _alternatives(hint: Any) -> tuple[Any, ...]:
    several = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return tuple(one for one in typing.get_args(hint) if one is not type(None)) if several else (hint,)


def _as_text(hint: Any) -> str:
    """The type as it is written in TOML."""
    parts = []
    for one in _alternatives(hint):
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if origin is typing.Literal:
            parts.append(", ".join(arguments))
        elif origin in (list, tuple):
            items = _as_text(arguments[0])
            parts.append(f"list of {items if items == 'text' else items + 's'}")
        else:
            parts.append("table" if origin is dict else _WORDS[one].removeprefix("a "))
    return " or ".join(parts)


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "required"
    return "" if value is None else json.dumps(value)
