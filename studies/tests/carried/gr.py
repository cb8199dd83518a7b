"""Where the numbers of the old results of Gradient Rescaling are now."""

import json

from carried_over import Keys, spread
from hardsight_studies.engine.rows import PUBLISHED, read


def numbers(study: str, preset: str) -> dict[Keys, float]:
    """Every number of the old results by its path, taken from the rows and points."""
    rows, found = read(study, PUBLISHED, preset), {}
    for row in rows:
        kind = ",".join(f"{name}={row.settings[name]}" for name in ("rate", "method", "beside"))
        for metric in row.metrics:
            found |= spread(("accuracies", kind, metric), rows.number(metric, **row.settings))
        found["seeds_of", kind, "0"] = row.seed
    for point in rows.points.to_pylist():
        settings = json.loads(point["settings"])
        kind = ",".join(f"{name}={settings[name]}" for name in ("rate", "method", "beside"))
        at = sum(keys[:3] == ("curves", kind, point["series"]) for keys in found)
        found["curves", kind, point["series"], str(at)] = point["y"]
        found["curves", kind, "epoch", str(at)] = point["x"]
    return found
