"""Structs in Thrift's compact protocol, in which Parquet writes its footer and the headers of its pages.

Only wanted fields are kept; all else is passed over, so that a header takes no more memory than its numbers.
"""

from typing import Any

# Kinds of values, by Thrift's numbers for them.
INT32, INT64 = 5, 6
_TRUE, _FALSE, _BYTE, _INT16, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 4, 7, 8, 9, 10, 11, 12
_DEEPEST = 16

# A field's number and what it must be: one of the kinds above, a struct's fields, or those of the structs of a list.
Fields = dict[int, Any]


def read_struct(data: bytes, at: int, wanted: Fields, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The wanted fields of a struct by their numbers, and where it ends; IndexError where the bytes end before it.

    As in Thrift's own readers, a field of another kind than the wanted one is passed over.
    """
    found: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, at = _integer(data, at, 16)
        value, at = _value(data, at, kind, wanted.get(number), depth)
        if value is not None:
            if number in found:
                # Readers differ in what they make of it.
                raise ValueError(f"field {number} comes twice")
            found[number] = value
    return found, at + 1


def _value(data: bytes, at: int, kind: int, wanted: Any, depth: int) -> tuple[Any, int]:
    """A value, or None where another kind is wanted; and where it ends."""
    if kind in (INT32, INT64, _INT16):
        whole, at = _integer(data, at, 64 if kind == INT64 else 32)
        return whole if kind == wanted else None, at
    if kind in (_TRUE, _FALSE):
        return None, at
    if kind == _BYTE:
        return None, at + 1
    if kind == _DOUBLE:
        return None, at + 8
    if kind == _BINARY:
        length, at = _unsigned(data, at)
        if at + length > len(data):
            raise IndexError
        return None, at + length
    if depth >= _DEEPEST:
        raise ValueError(f"it must be nested at most {_DEEPEST} deep")
    if kind == _STRUCT:
        fields = wanted if isinstance(wanted, dict) else {}
        value, at = read_struct(data, at, fields, depth + 1)
        return value if fields else None, at
    if kind in (_LIST, _SET):
        return _list(data, at, wanted if kind == _LIST else None, depth + 1)
    if kind == _MAP:
        return None, _after_map(data, at, depth + 1)
    raise ValueError(f"Thrift has no values of kind {kind}")


def _list(data: bytes, at: int, wanted: Any, depth: int) -> tuple[list[Any] | None, int]:
    head, at = data[at], at + 1
    count, kind = head >> 4, head & 15
    if count == 15:
        count, at = _unsigned(data, at)
    fields = wanted[0] if isinstance(wanted, list) and kind == _STRUCT else None
    if kind in (_TRUE, _FALSE, _BYTE):
        return None, at + count
    found = []
    for _ in range(count):
        value, at = _value(data, at, kind, fields, depth)
        if fields is not None:
            found.append(value)
    return None if fields is None else found, at


def _after_map(data: bytes, at: int, depth: int) -> int:
    count, at = _unsigned(data, at)
    if not count:
        return at
    kinds, at = data[at], at + 1
    for _ in range(count):
        for kind in (kinds >> 4, kinds & 15):
            # Inside a container a yes or a no takes a byte.
            at = at + 1 if kind in (_TRUE, _FALSE) else _value(data, at, kind, None, depth)[1]
    return at


def _integer(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """A whole number of so many bits: what is above them is dropped, as Thrift's readers do."""
    value, at = _unsigned(data, at)
    value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    if data[at] < 128:
        return data[at], at + 1
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a whole number has more than ten bytes")
