"""Features of samples, where a table has them: places on a map, and the nearest samples by angle."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from hardsight.files.parquet import Parquet, Shards

# Columns of lists that are no features.
_NO_FEATURES = frozenset({"probabilities", "neighbours"})
_MOST_DIMENSIONS, _PIECE = 8192, 1 << 15
# UMAP of more samples than this takes longer than a person waits.
_MOST_FOR_UMAP = 20_000


def holds_features(field: pa.Field) -> bool:
    """Whether a column is one of lists of fractional numbers."""
    kind = field.type
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return listed and pa.types.is_floating(kind.value_type) and field.name not in _NO_FEATURES


def read_directions(file: Parquet | Shards, name: str) -> np.ndarray | None:
    """The directions of a column's lists, [rows, dim] of unit length; None where the lists are not equally long.

    What is missing, zero or not finite has no direction: it is zero.
    """
    found, at = np.zeros((0, 0), np.float32), 0
    for batch in file.batches([name]):
        column = batch.column(0)
        lengths = column.value_lengths().drop_null().unique().to_pylist()
        if not found.size and lengths:
            dimensions = lengths[0]
            if not 2 <= dimensions <= _MOST_DIMENSIONS:
                return None
            found = np.zeros((file.rows, dimensions), np.float32)
        if lengths and lengths != [found.shape[1]]:
            return None
        values = column.flatten().to_numpy(zero_copy_only=False)
        rows = at + np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        if lengths:
            wide = values.reshape(len(rows), -1).astype(np.float64)
            wide[~np.isfinite(wide).all(1)] = 0.0
            # By the largest part first: the square of a number that float64 holds may be none.
            wide /= np.maximum(np.abs(wide).max(1, keepdims=True), 1e-300)
            found[rows] = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-300)
        at += len(column)
    return found if found.size else None


def places_of(directions: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
    """Name, title and values of the coordinates: two principal components, and UMAP's where it is installed."""
    for at, values in enumerate(principal_components(directions).T, 1):
        yield f"pca_{'xy'[at - 1]}", f"Principal component {at}", values
    if 3 <= len(directions) <= _MOST_FOR_UMAP:
        try:
            from umap import UMAP
        except ImportError:
            return
        places = UMAP(n_neighbors=min(15, len(directions) - 1), random_state=0, n_jobs=1).fit_transform(directions)
        for at, values in enumerate(np.asarray(places, np.float32).T, 1):
            yield f"umap_{'xy'[at - 1]}", f"UMAP {at}", values


def principal_components(directions: np.ndarray) -> np.ndarray:
    """The first two principal components, [rows, 2]; of each the largest part is positive."""
    mean = directions.mean(0, dtype=np.float64)
    products = np.zeros((directions.shape[1],) * 2)
    for start in range(0, len(directions), _PIECE):
        centred = directions[start : start + _PIECE] - mean
        products += centred.T @ centred
    vectors = np.linalg.eigh(products)[1][:, :-3:-1]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(0), [0, 1]])
    places = [(directions[at : at + _PIECE] - mean) @ vectors for at in range(0, len(directions), _PIECE)]
    return np.concatenate(places).astype(np.float32)


def nearest(directions: np.ndarray, row: int, count: int) -> list[int]:
    """The rows whose directions lie at the smallest angles to that of `row`, nearest first."""
    own = directions[row]
    if not own.any():
        return []
    pieces = range(0, len(directions), _PIECE)
    cosines = np.concatenate([directions[at : at + _PIECE] @ own for at in pieces])
    cosines[row] = -np.inf
    first = np.argpartition(-cosines, min(count, len(cosines) - 1))[:count]
    return [int(at) for at in first[np.argsort(-cosines[first], kind="stable")] if at != row]
