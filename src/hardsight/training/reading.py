"""TOML into settings: every key known, every value of its type and in its bounds, and an error that names the key."""

import contextlib
import json
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from hardsight.files import read_text
from hardsight.names import nearest_names, unknown_name

_LARGEST_TOML, _MOST_PARTS = 1 << 20, 100


def _at_most(largest: int | float) -> AfterValidator:
    def check(value: Any) -> Any:
        if abs(value) > largest:
            raise PydanticCustomError("too_large", "Input should be at most {largest}", {"largest": f"{largest:.12g}"})
        return value

    return AfterValidator(check)


# What torch computes with: a counter's largest number, and a float32's.
Whole = Annotated[int, _at_most(2**63 - 1)]
Number = Annotated[float, _at_most(3e38)]
_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Settings(BaseModel):
    """A table of a configuration: its fields are the keys, their descriptions what a key means.

    What cannot be one raises a ValueError of one sentence, from a file and from Python alike.
    """

    model_config = _STRICT

    def __init__(self, /, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as problem:
            raise ValueError(_sentence(problem, type(self))) from None

    # Tables inside are then checked by pydantic itself, which says where in the whole an error is.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class Named(Settings):
    """A table that may be written as its name alone: `loss = "gr"` is `loss = { name = "gr" }`."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given


Kind = TypeVar("Kind", bound=Settings)


def read_settings(kind: type[Kind], path: Path | str, changes: Iterable[str] = ()) -> Kind:
    """The settings of a TOML file with `key=value` changes on top; keys of tables are written with dots."""
    try:
        tree = tomllib.loads(_plain_toml(read_text(path, _LARGEST_TOML)))
    # Also of numbers of thousands of digits, and of tables nested a thousand deep.
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} must be a TOML file: {problem}") from None
    for change in changes:
        apply_change(tree, change)
    return kind(**tree)


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
    """What is rejected inside is said of this key of the configuration."""
    try:
        yield
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{key}: {problem}") from None


def typed(hint: Any, value: Any, key: str) -> Any:
    """The value as a setting of this type; the error of any other names the key."""
    bounded = {int: Whole, float: Number}.get(hint, hint)
    try:
        return TypeAdapter(bounded, config=_STRICT).validate_python(value)
    except ValidationError as problem:
        raise ValueError(_sentence(problem, None, key)) from None


def _sentence(problem: ValidationError, kind: type[Settings] | None, root: str = "") -> str:
    """What is wrong first, in our words: the key, what it must be, what was given."""
    errors = problem.errors(include_url=False)
    error = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    place, given, context = error["loc"], error["input"], error.get("ctx", {})
    key = root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    key = key.removeprefix(".")
    if error["type"] == "extra_forbidden":
        assert kind is not None
        return _unknown_key(str(place[-1]), _table(kind, place[:-1]), key.rpartition(".")[0])
    if error["type"] == "missing":
        return f"{key} must be given"
    if error["type"] == "value_error":
        return f"{key}.{context['error']}" if key else str(context["error"])
    if error["type"] == "literal_error":
        return str(unknown_name(key, given, re.findall(r"'([^']*)'", context["expected"])))
    # "Input should be a valid integer", "List should have at least 2 items".
    return f"{key} {re.sub('^[A-Z][a-z]+ should', 'must', error['msg'])}; got {repr(given)[:100]}"


def _table(kind: type[Settings], place: tuple[int | str, ...]) -> Mapping[str, FieldInfo]:
    """The fields of the table at that place."""
    for part in place:
        inner = _table_of(kind.model_fields[str(part)].annotation)
        assert inner is not None
        kind = inner
    return kind.model_fields


def _table_of(hint: Any) -> type[Settings] | None:
    return next((one for one in _alternatives(hint) if isinstance(one, type) and issubclass(one, Settings)), None)


def _unknown_key(key: str, known: Mapping[str, Any], table: str) -> str:
    """What is said of an unknown key; one that is like none may be an option that lacks its table."""
    said = str(unknown_name(f"a key of {table or 'the configuration'}", key, known, "keys"))
    if key == "split" and {"train", "test"} <= known.keys():
        return f"{said}: splits are chosen by {table}.train and {table}.test"
    if "options" in known and not nearest_names(key, known):
        return f"{said}: options are written {table}.options.{key}"
    return said


class Key(NamedTuple):
    """One key of a configuration, as text: its type, its default ("required" where it has none), what it means."""

    key: str
    type: str
    default: str
    meaning: str


def keys_of(kind: type[Settings], prefix: str = "") -> list[Key]:
    """Every key that a file of these settings may have, keys of tables with dots, in the order of the fields."""
    found: list[Key] = []
    for name, field in kind.model_fields.items():
        table = _table_of(field.annotation)
        if table is not None:
            found += keys_of(table, f"{prefix}{name}.")
            continue
        value = None if field.is_required() else field.get_default(call_default_factory=True)
        default = "required" if field.is_required() else "" if value is None else json.dumps(value)
        found.append(Key(f"{prefix}{name}", _as_text(field.annotation), default, field.description or ""))
    return found


def _alternatives(hint: Any) -> tuple[Any, ...]:
    several = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return tuple(one for one in typing.get_args(hint) if one is not type(None)) if several else (hint,)


_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", dict: "table"}


def _as_text(hint: Any) -> str:
    """The type as it is written in TOML."""
    parts = []
    for one in _alternatives(hint):
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if origin is Annotated:
            parts.append(_as_text(arguments[0]))
        elif origin is typing.Literal:
            parts.append(", ".join(arguments))
        elif origin is list:
            items = _as_text(arguments[0])
            parts.append(f"list of {items if items == 'text' else items + 's'}")
        else:
            parts.append(_WORDS[origin or one])
    return " or ".join(parts)
