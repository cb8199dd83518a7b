"""TOML into settings: every key known, every value of its type and in its bounds, and an error that names the key."""

import contextlib
import json
import re
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator
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
    """The settings of a TOML file with `key=value` changes on top; keys of tables are written with dots.

    The value of a change is TOML, and text where it is no TOML.
    """
    try:
        text = read_text(path, _LARGEST_TOML)
        # The parser takes the square of the number of a key's parts.
        if max(part.count(".") for part in re.split(r"[,=\[\]{}\n]", text)) > _MOST_PARTS:
            raise ValueError(f"a key must have at most {_MOST_PARTS} parts")
        tree = tomllib.loads(text)
    # Also of numbers of thousands of digits, and of tables nested a thousand deep.
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} must be a TOML file: {problem}") from None
    for change in changes:
        key, equals, said = map(str.strip, change.partition("="))
        if not equals or not key:
            raise ValueError(f"a change must be written key=value; got {change!r}")
        value: Any = said
        with contextlib.suppress(tomllib.TOMLDecodeError):
            value = tomllib.loads(f"value = {said}")["value"]
        put(tree, key, value)
    return kind(**tree)


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
        return _unknown_key(kind, [str(part) for part in place])
    if error["type"] == "missing":
        return f"{key} must be given"
    if error["type"] == "value_error":
        return f"{key}.{context['error']}" if key else str(context["error"])
    if error["type"] == "literal_error":
        return str(unknown_name(key, given, re.findall(r"'([^']*)'", context["expected"])))
    # "Input should be a valid integer", "List should have at least 2 items".
    return f"{key} {re.sub('^[A-Z][a-z]+ should', 'must', error['msg'])}; got {repr(given)[:100]}"


def _table_of(hint: Any) -> type[Settings] | None:
    either = typing.get_args(hint) or (hint,)
    return next((one for one in either if isinstance(one, type) and issubclass(one, Settings)), None)


def _unknown_key(kind: Any, place: list[str]) -> str:
    """What is said of an unknown key; one that is like none may be an option that lacks its table."""
    *tables, key = place
    for name in tables:
        kind = _table_of(kind.model_fields[name].annotation)
    table, known = ".".join(tables), kind.model_fields
    said = str(unknown_name(f"a key of {table or 'the configuration'}", key, known, "keys"))
    if key == "split" and {"train", "test"} <= known.keys():
        return f"{said}: splits are chosen by {table}.train and {table}.test"
    if "options" in known and not nearest_names(key, known):
        return f"{said}: options are written {table}.options.{key}"
    return said


def keys_of(kind: type[Settings], prefix: str = "") -> list[tuple[str, str, str, str]]:
    """Every key that a file of these settings may have, as text, in the order of the fields.

    The key (those of tables with dots), its type, its default ("required" where it has none), what it means.
    """
    found = []
    for name, field in kind.model_fields.items():
        table = _table_of(field.annotation)
        if table is not None:
            found += keys_of(table, f"{prefix}{name}.")
            continue
        value = None if field.is_required() else field.get_default(call_default_factory=True)
        default = "required" if field.is_required() else "" if value is None else json.dumps(value)
        hint: Any = field.annotation
        said = _as_text(TypeAdapter(hint).json_schema())
        found.append((f"{prefix}{name}", said, default, field.description or ""))
    return found


_WORDS = {"integer": "whole number", "string": "text", "boolean": "true or false", "object": "table"}


def _as_text(schema: Mapping[str, Any]) -> str:
    """The type as it is written in TOML."""
    if "anyOf" in schema:
        return " or ".join(_as_text(one) for one in schema["anyOf"] if one["type"] != "null")
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if schema["type"] == "array":
        items = _as_text(schema["items"])
        return f"list of {items if items == 'text' else items + 's'}"
    return str(_WORDS.get(schema["type"], schema["type"]))
