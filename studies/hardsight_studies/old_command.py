"""The commands of studies that have not moved to the engine yet."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardsight_studies.framework import Study


def old(id: str) -> "Study | None":
    """The study, where it has not moved yet."""
    from hardsight_studies import registry
    from hardsight_studies.engine.study import find

    return registry.get_study(id) if find(id) is None else None


def rows() -> list[dict[str, str]]:
    """What `list` says of the studies that have not moved."""
    from hardsight_studies import registry

    return [{"id": one.id, "title": one.title, "beside": one.reference} for one in registry.studies()]


def run(study: "Study", preset: str, output: Path | None, results: Path, runs: list[str] | None, options: Any) -> None:
    """Compute, judge and say where the results file is."""
    from hardsight_studies import framework
    from hardsight_studies.running import run_study

    folder = Path("runs") / "studies" / (study.records or study.id) / preset if output is None else output
    options = framework.Options(options.device, options.at_once, options.stacked, options.clock, options.say)
    print(run_study(study, preset, folder, results, only=runs or (), options=options))


def table(study: "Study", preset: str | None, results: Path) -> None:
    """Print the study's table."""
    from hardsight_studies.results_file import made_from, read_results

    print(made_from(read_results(study, results, preset), study.table), end="")
