"""The page of Figure 22: which comes first on the path of an adversarial example, from results alone."""

from collections.abc import Mapping
from typing import Any

from hardsight_studies.avh.people import title_of
from hardsight_studies.avh.subjects import trained_here
from hardsight_studies.framework import markdown_table, provenance
from hardsight_studies.wording import plural


def table(results: Mapping[str, Any]) -> str:
    """What came out in all, both attacks on every network, then each network in a sentence."""
    heads = (
        "network", "attack", "radius", "images", "switched", "norm at the switch, share of the first",
        "share whose norm shrinks", "lowest norm at the switch or before", "norm half-way first, share",
        "its lead, share of the way",
    )  # fmt: skip
    rows, sentences = [], []
    for key, one in results["networks"].items():
        for attack in ("pgd", "fgsm"):
            of = one[attack]
            numbers = [of[name] for name in ("norm_at_switch", "shrinks", "lowest_before_switch", "norm_first", "lead")]
            cells = [title_of(key), attack.upper(), f"{one['radius']:.4f}", f"{one['images']:,}", f"{of['switched']:,}"]
            rows.append([*cells, *map(_interval, numbers)])
        sentences.append(f"- {sentence(title_of(key), one['pgd'])}")
    parts = [
        result(results["networks"]),
        provenance(results) + trained_here(results),
        _LEGEND,
        markdown_table(heads, rows),
        "Each network under PGD:",
        "\n".join(sentences),
        _LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


_LEGEND = """**How to read the table.** One row for each network and attack. Brackets are 95 % bootstrap intervals over
images.

- `radius`: the largest change of a pixel, as a share of its range; `images`: those that the network classifies right.
- `switched`: how many of them the attack takes to another class.
- `norm at the switch, share of the first`: the norm where the prediction switches, divided by that of the unchanged
  image; the mean over the images that switch. `share whose norm shrinks`: the share of them where it is below 1.
- `lowest norm at the switch or before`: the share of paths whose norm is smallest at the switch or earlier.
- `norm half-way first, share`: the share of the compared paths on which the norm has made half of its change before the
  angle has.
- `its lead, share of the way`: how much earlier it has, as a share of the way to the switch; negative if the angle
  is earlier."""
_LIMITS = """**What one may conclude.** The paper shows one example. Here all images that can be attacked are
measured, but which change comes first is asked only of paths on which the norm shrinks and the angle grows for two
steps or more. Networks that were trained against attacks, and other attacks, may differ. Each network is one
training."""


def result(networks: Mapping[str, Any]) -> str:
    """Of how many networks the norm is first."""
    found = [_first(one["pgd"]) for one in networks.values()]
    return (
        "**Result.** In the paper's example the features first become shorter and then turn away from their class. "
        f"Under PGD this is the order in {found.count(_NORM_FIRST)} of {plural(len(found), 'network')}: the norm has "
        "made half of its change before the angle."
    )


_NORM_FIRST = "the norm comes first"


def _first(of: Mapping[str, Any]) -> str:
    """Which comes first on average, by more than chance."""
    if of["lead"] is None:
        return "unknown"
    low, high = of["lead"]["low"], of["lead"]["high"]
    return _NORM_FIRST if low > 0 else "the angle comes first" if high < 0 else "neither comes first"


def sentence(title: str, of: Mapping[str, Any]) -> str:
    """Whether the norm shrinks first and the angle turns then, over all examples that PGD switches."""
    if of["lead"] is None:
        return f"**{title}**: too few examples switch to say."
    at_switch, first, lead = (_interval(of[name]) for name in ("norm_at_switch", "norm_first", "lead"))
    return (
        f"**{title}**: {_first(of)}. PGD takes {of['switched']:,} images to another class. Of these, "
        f"{of['shrinks']['mean']:.0%} have a smaller norm at the switch; on average it is {at_switch} of the first. "
        f"{of['compared']:,} paths can be compared: the norm is half-way before the angle in a share of {first}, by "
        f"{lead} of the way on average."
    )


def _interval(number: Mapping[str, Any] | None) -> str:
    return "" if number is None else f"{number['mean']:.3f} [{number['low']:.3f}, {number['high']:.3f}]"
