"""Where the studies' texts are from, and English that is always there to test with."""

import argparse
import collections
import csv
import datetime
import decimal
import json
import logging
import os
import pathlib
import random
import re
import statistics
import string
import threading
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq

# Letters of a document: shorter ones say too little, longer ones do not fit a small model.
_SHORTEST, _LONGEST = 80, 400
_INSTALLED = Path("/usr/share/games/fortunes")
_MODULES = (
    argparse, collections, csv, datetime, decimal, json, logging, os, pathlib, random, re, statistics, string,
    threading,
)  # fmt: skip


def data_file(*parts: str) -> Path:
    """A file or folder below $HARDSIGHT_DATA; one that is not there raises."""
    path = Path(os.environ.get("HARDSIGHT_DATA", "")).joinpath(*parts)
    if not path.exists():
        raise ValueError(f"texts must be in $HARDSIGHT_DATA/{'/'.join(parts)}; {path} is not there")
    return path


def fortunes(language: str = "") -> list[str]:
    """The texts of Debian's fortunes, in the order of the files' names; a line of % stands between two."""
    folder = _INSTALLED / language if _INSTALLED.is_dir() else data_file("fortunes", language)
    files = sorted(one for one in folder.iterdir() if one.is_file() and one.suffix not in (".dat", ".u8"))
    return _of_fitting_length([text for one in files for text in re.split(r"(?m)^%\s*$", one.read_text("utf-8"))])


def books() -> list[str]:
    """Other English to begin with: `rated_texts`, and the paragraphs of all plain texts in $HARDSIGHT_DATA/books."""
    rated = pq.read_table(data_file("rated_texts", "texts-with-ratings.parquet"), columns=["text"])
    files = sorted(data_file("books").glob("*.txt"))
    paragraphs = [part for one in files for part in re.split(r"\n\s*\n", one.read_text("utf-8")) if part.strip()]
    return [" ".join(text.split()) for text in (*rated.column("text").to_pylist(), *paragraphs)]


def docstrings() -> list[str]:
    """What Python's own modules say of their functions, classes and methods."""
    found: list[str] = []
    for module in _MODULES:
        for holder in (module, *(one for one in vars(module).values() if isinstance(one, type))):
            if isinstance(holder, ModuleType) or holder.__module__ == module.__name__:
                found += [
                    one.__doc__ for one in vars(holder).values() if isinstance(getattr(one, "__doc__", None), str)
                ]
    return _of_fitting_length(found)


def _of_fitting_length(texts: list[str]) -> list[str]:
    """Each text once, on one line."""
    lines = dict.fromkeys(" ".join(text.split()) for text in texts)
    return [text for text in lines if _SHORTEST <= len(text) <= _LONGEST]
