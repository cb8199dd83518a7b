"""Pages are left out, not failed for, where what draws them is not installed."""

import importlib


def left_out() -> str | None:
    """Why no page can be made here, in words that stand in its place; None where one can."""
    for package in ("jinja2", "matplotlib"):
        try:
            importlib.import_module(package)
        except ImportError:
            return f"left out, it needs {package}: pip install jinja2 matplotlib"
    return None
