"""The papers' tables and figures as data: `hardsight study list` names them, `run` computes, `table` prints."""

from typing import Any

# The old framework, until the last study has moved: imported when asked for, since it imports torch.
_OLD = {
    "Options": "framework", "Study": "framework", "get_study": "registry", "studies": "registry",
    "read_results": "results_file", "judge_study": "running", "run_study": "running",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _OLD:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_OLD[name]}"), name)
