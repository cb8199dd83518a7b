"""Images that could not be read, as a table of samples names them."""

import json
from typing import Any


def left_out(table: Any) -> list[str]:
    """The files that a table's metadata says were left out, each with the reason."""
    return json.loads((table.schema.metadata or {}).get(b"skipped", b"[]"))


def tell_left_out(skipped: list[str]) -> None:
    """Say which image was left out, or how many were."""
    if len(skipped) == 1:
        print(f"1 image was left out: {skipped[0]}")
    elif skipped:
        print(f"{len(skipped):,} images were left out, first {skipped[0]}; --json names all")
