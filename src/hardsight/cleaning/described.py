"""What a table says of its columns, for readers that do without torch."""

import pyarrow as pa


def is_shown(field: pa.Field) -> bool:
    """Whether a column holds what people are to see of a sample, and no score."""
    return (field.metadata or {}).get(b"kind") == b"shown"


def require_column(table: pa.Table, name: str) -> None:
    """One sentence where a column is missing."""
    if name not in table.column_names:
        raise ValueError(f"table must have a column {name!r}; it has {', '.join(table.column_names) or 'none'}")
