"""`hardsight adapt`: labels in one domain, none in the other; self-training carries them over."""

import os
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from hardsight.cli.printing import AsJson, one_sentence, say, say_json

_SELECTORS = "avh, avh-inclusive, avh-slides, cbst, crst, crst-mrkld, crst-lrent, confidence or argmax"

_OPTIONS = (
    "model", "selector", "rounds", "epochs_per_round", "source_epochs", "portion", "portion_step", "portion_cap",
    "batch_size", "seed", "device", "test", "shift",
)  # fmt: skip


def adapt(
    source: Annotated[
        str, Argument(help="Labelled domain: a data set (mnist, pacs:photo) or a folder of class folders.")
    ],
    target: Annotated[
        str, Argument(help="Domain without labels: the same, or a folder of images. Its labels only measure.")
    ],
    model: Annotated[str, Option("--model", "-m", help="Network by name; see docs/models.md.")] = "lenet",
    selector: Annotated[str, Option("--selector", "-s", help=f"Who chooses: {_SELECTORS}.")] = "avh",
    rounds: Annotated[int, Option(help="Rounds of selection and retraining.")] = 7,
    epochs_per_round: Annotated[int, Option(help="Epochs of each round.")] = 1,
    source_epochs: Annotated[
        int | None, Option(help="Epochs on the source alone, first. [default: 1000 steps, at least 3 epochs]")
    ] = None,
    regenerate: Annotated[str, Option(help="Make pseudo-labels again every `round` or `epoch`.")] = "round",
    portion: Annotated[float, Option(help="Share of each predicted class to label in the first round.")] = 0.20,
    portion_step: Annotated[float, Option(help="What each round adds to it.")] = 0.05,
    portion_cap: Annotated[float, Option(help="What it may grow to.")] = 0.50,
    when_empty: Annotated[str, Option(help="When nothing is selected: `stop`, or `go_on`.")] = "stop",
    lr: Annotated[float, Option(help="Learning rate of SGD with momentum 0.9; rounds take three tenths of it.")] = 0.03,
    shift: Annotated[
        int | None, Option(help="Shift training images by up to so many pixels. [default: width / 14]")
    ] = None,
    batch_size: Annotated[int, Option(help="Samples a step, half of them target.")] = 128,
    size: Annotated[int | None, Option(help="Height and width in pixels. [default: the network's]")] = None,
    limit: Annotated[int | None, Option(help="Take so many samples of each domain, drawn by the seed.")] = None,
    test: Annotated[str | None, Option(help="Labelled samples of the target domain, for measuring.")] = None,
    data: Annotated[Path | None, Option(help="Folder of the data sets. [default: $HARDSIGHT_DATA]")] = None,
    seed: Annotated[int, Option(help="Decides weights, order and draws.")] = 0,
    device: Annotated[str | None, Option(help="Left out: a GPU where there is one.")] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Folder of the record. [default: runs/adapt-SOURCE-TARGET]")
    ] = None,
    restart: Annotated[bool, Option("--restart", help="Start over instead of going on where it stopped.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train on a labelled domain, adapt to one without labels by self-training, and leave a record.

    Started again, it goes on after the last complete epoch.

    Examples:

        hardsight adapt mnist usps --test usps:test

        hardsight adapt photos/ sketches/ --model cnn9 --selector cbst --rounds 10 -o runs/sketches
    """
    with one_sentence(*_OPTIONS, name="--model"):
        from functools import partial

        import torch

        from hardsight.datasets.augment import Augmentation
        from hardsight.domains import SelfTraining
        from hardsight.names import check_name

        if not 0 < lr < float("inf"):
            raise ValueError(f"--lr must be a finite number above 0; got {lr}")
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed must be at least 0 and fit 63 bits; got {seed}")
        check_name("--regenerate", regenerate, ("round", "epoch"))
        check_name("--when-empty", when_empty, ("stop", "go_on"))
        plan = SelfTraining(
            selector,
            rounds=rounds,
            epochs_per_round=epochs_per_round,
            source_epochs=source_epochs,
            regenerate=regenerate,  # type: ignore[arg-type]
            portion=portion,
            portion_step=portion_step,
            portion_cap=portion_cap,
            when_empty=when_empty,  # type: ignore[arg-type]
            optimizer=partial(torch.optim.SGD, lr=lr, momentum=0.9, weight_decay=5e-4),
            augmentation=None if shift is None else Augmentation(shift=shift),
            batch_size=batch_size,
            seed=seed,
        )
        for name, count in (("size", size), ("limit", limit)):
            if count is not None and count < 1:
                raise ValueError(f"--{name} must be at least 1; got {count}")
        network, domains = _prepare(source, target, test, model, data, size, limit, seed)
        done = plan.fit(
            network,
            domains[0],
            domains[1],
            test=domains[2] if test else None,
            folder=output or Path("runs") / f"adapt-{_plain(source)}-{_plain(target)}",
            device=device,
            resume=not restart,
            name=f"{domains[0].name} to {domains[1].name}",
            say=partial(say, error=as_json, flush=True),
        )
    if int(os.environ.get("RANK", "0")):
        return  # one of several processes speaks for all
    if as_json:
        say_json({"folder": str(done.folder), "rounds": done.rounds, "notes": done.notes})
    else:
        say(f"record: {done.folder}")


def _prepare(
    source: str, target: str, test: str | None, model: str, data: Path | None, size: int | None, limit: int | None,
    seed: int,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """A fresh network, and the domains in its size."""
    import torch

    from hardsight import models
    from hardsight.domains.data import read_domain, same_channels

    torch.manual_seed(seed)
    pixels = models.create(model).input_shape[-1] if size is None else size
    first = read_domain(source, data, size=pixels)
    names = [target, *([test] if test else [])]
    rest = [read_domain(name, data, size=pixels, class_names=first.class_names) for name in names]
    generator = torch.Generator().manual_seed(seed)
    domains = []
    for one in same_channels(first, *rest):
        some = limit is not None and limit < len(one)
        domains.append(one.subset(torch.randperm(len(one), generator=generator)[:limit].sort().values) if some else one)
    options: dict[str, Any] = {"image_size": pixels} if "image_size" in models.options(model) else {}
    torch.manual_seed(seed)
    channels = domains[0].images.shape[1]
    return models.create(model, num_classes=first.num_classes, in_channels=channels, **options), domains


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in Path(name).name).strip("-")
