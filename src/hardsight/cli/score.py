"""`hardsight score`: scores of features in a file or in shards, or of a user's own model and images, as Parquet."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from hardsight.cli.printing import AsJson, one_sentence, say, say_json, say_left_out

# A side beyond this is a typing mistake, and one image of it is gigabytes.
_MOST_PIXELS = 8192
_SCORES = ("avh", "confidence", "norm", "angular_margin", "margin", "loss", "el2n", "entropy")


def score(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[FEATURES]",
            help="Features: a file (npz, safetensors, parquet) with weight and labels; or shards, a folder or a glob, "
            "local, s3:// or gs://.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "--out", "-o", help="File to write; of shards a folder. [default: scores.parquet, scores]"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="timm:NAME, hf:FOLDER, torchvision:NAME, hardsight:NAME or package.module:factory."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of images: one folder per class, or a known set.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option("--layout", help="How the data is laid out: a name of `hardsight data list`.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Which part of the data.")] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="safetensors, or a checkpoint of tensors only.")
    ] = None,
    num_classes: Annotated[
        int | None, typer.Option("--num-classes", help="Size of the head, where the builder takes it.")
    ] = None,
    classes: Annotated[
        Path | None, typer.Option("--classes", help='JSON: {"class of the data": [classes of the model], ...}.')
    ] = None,
    activation_maps: Annotated[
        int, typer.Option("--activation-maps", min=0, help="Grad-CAM of so many of the hardest images, for explore.")
    ] = 0,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="Score against the predicted class.")] = False,
    head: Annotated[
        str | None,
        typer.Option("--head", help="File of weight and bias, for features; a model's last linear layer, for images."),
    ] = None,
    scores: Annotated[list[str] | None, typer.Option("--score", help="A score to compute; may be repeated.")] = None,
    size: Annotated[str | None, typer.Option("--size", help="Input size: 224, or 224x192 (height x width).")] = None,
    mean: Annotated[
        str | None, typer.Option("--mean", help="For pixels in [0, 1]: 0.485,0.456,0.406 or 127/255.")
    ] = None,
    std: Annotated[
        str | None, typer.Option("--std", help="For pixels in [0, 1]: 0.229,0.224,0.225 or 128/255.")
    ] = None,
    interpolation: Annotated[
        str | None, typer.Option("--interpolation", help="bilinear, bicubic, nearest, ...")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1, ... [default: cuda if there]")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Images at a time.")] = 64,
    workers: Annotated[
        int,
        typer.Option("--workers", min=0, help="Processes for shards [1]; threads for images. [one a core, 8 at most]"),
    ] = 0,
    engine: Annotated[
        str | None, typer.Option("--engine", help="Where shards are scored: local, or ray, on a cluster.")
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="Of the Ray cluster. [default: this machine]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score every sample: how hard it is, by the angle to its class and by the usual scores.

    Examples:

        hardsight score features.npz -o scores.parquet

        hardsight score shards/ --head head.safetensors --out scores/ --workers 4

        hardsight score --model hf:my-vit --data photos/ -o scores.parquet

        hardsight score --model timm:resnet50 --weights mine.safetensors --num-classes 7 --data photos/
    """
    told = ("size", "mean", "std", "interpolation", "weights", "num_classes", "device", "workers", "engine", "head")
    with one_sentence(*told, scores="--score", output="--out"):
        from hardsight.hardness.scoring import choose_scores
        from hardsight.records import check_writable, write_table

        chosen = tuple(scores or _SCORES)
        choose_scores(chosen)
        if (source is None) == (model is None and data is None):
            raise ValueError("give either FEATURES, a file or shards, or --model and --data")
        flags = {
            "size": _size(size),
            "mean": _numbers("mean", mean),
            "std": _numbers("std", std),
            "interpolation": interpolation,
        }
        assumed: dict[str, Any] = {}
        notes: list[str] = []
        of_images = {"layout": layout, "split": split, "classes": classes, "weights": weights,
                     "num-classes": num_classes, "activation-maps": activation_maps or None, **flags}  # fmt: skip
        of_shards = {"engine": engine, "address": address}
        if source is not None:
            _check_not_given("--model and --data", of_images)
        if source is not None and _are_shards(source):
            from hardsight.engines.shards import score_shards

            if head is None:
                raise ValueError(
                    f"--head, a file of weight and bias, must be given for shards of features, as in {source}; images "
                    "are scored by --model and --data"
                )
            found = score_shards(
                source, output or Path("scores"), head, chosen, workers=workers or None, labelled=not unlabelled,
                device=_device(device), engine=engine or "local", address=address,
            )  # fmt: skip
            _print_shards(found, chosen, as_json)
            return
        _check_not_given("shards", of_shards)
        # Before the work, not after it.
        target = _parquet(Path(output or "scores.parquet"))
        check_writable(target)
        if source is not None:
            from hardsight.engines.files import score_file

            _check_not_given("--model and --data, or shards", {"device": device, "unlabelled": unlabelled or None})
            table = score_file(source, chosen, head=head)
        else:
            from hardsight.engines.images import open_images, score_images
            from hardsight.engines.model_spec import load_model

            if model is None or data is None:
                raise ValueError("--model and --data belong together; give both")
            if classes is not None and unlabelled:
                raise ValueError("--classes says what the labels mean and --unlabelled ignores them; give one of them")
            groups, where = None if classes is None else _groups(classes), _device(device)
            images = open_images(data, layout, split, labelled=not unlabelled)
            loaded = load_model(model, weights, num_classes=num_classes)
            preprocessing = loaded.preprocessing.changed(**flags)
            assumed = {name: getattr(preprocessing, name) for name in loaded.assumed if flags[name] is None}
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("default")
                table = score_images(
                    loaded,
                    images,
                    chosen,
                    classes=groups,
                    labelled=not unlabelled,
                    preprocessing=preprocessing,
                    head=head,
                    device=where,
                    batch_size=batch_size,
                    workers=workers,
                    origin={"root": str(data.resolve()), "layout": layout or "", "split": split or ""},
                )
            notes = [str(one.message) for one in warned]
            if activation_maps:
                from hardsight.cli.activation_maps import write_activation_maps

                rows = hardest(table, chosen[0])[:activation_maps]
                ids = table.column("id").take(rows).to_pylist()
                maps = target.with_name("grad_cam.parquet")
                write_activation_maps(maps, loaded, preprocessing, images, ids, head=head, device=where)
                notes.append(f"Grad-CAM of {len(ids):,} images: {maps}")
        write_table(target, table)
    _print(table, target, assumed, notes, as_json)


def _check_not_given(belongs_to: str, options: dict[str, Any]) -> None:
    """An option that would have no effect is an error."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"--{name} belongs to {belongs_to}; leave it out here")


def _are_shards(source: str) -> bool:
    """Whether this is a folder, a glob or an address, and no file."""
    if Path(source).exists():
        return Path(source).is_dir()
    return "://" in source or source.endswith("/") or bool(set(source) & set("*?["))


def hardest(table: Any, score: str) -> Any:
    """The rows of a table of scores, hardest by this score first."""
    import pyarrow.compute as pc

    from hardsight.files.parquet import text_metadata

    easier = text_metadata(table.schema.field(score)).get("direction") == "larger is easier"
    return pc.sort_indices(table, [(score, "ascending" if easier else "descending")])


def _print_shards(found: Any, scores: tuple[str, ...], as_json: bool) -> None:
    share = None if found.agreeing is None else found.agreeing / max(1, found.rows - found.unusable)
    if as_json:
        said = {"output": str(found.output), "samples": found.rows, "classes": found.classes, "shards": found.shards}
        said |= {"hardness_against": found.against, "agreement": share, "without_scores": found.unusable}
        say_json(said | {"scored_before": found.shards - found.made, "scores": list(scores)})
        return
    samples = f"{found.rows:,} samples in {found.shards:,} shards"
    say(f"{samples}, {found.classes:,} classes, scored against the {found.against}")
    if share is not None:
        say(f"the head agrees with {share:.1%} of the labels")
    if found.unusable:
        say(f"{found.unusable:,} samples hold NaN or infinity and have no scores")
    if found.made < found.shards:
        say(f"{found.shards - found.made:,} of the shards were scored before")
    say(f"scores: {found.output}")


def _print(table: Any, output: Path, assumed: dict[str, Any], notes: list[str], as_json: bool) -> None:
    from hardsight.files.parquet import text_metadata
    from hardsight.records import skipped_in

    metadata = text_metadata(table.schema)
    skipped = skipped_in(table)
    labels, predicted = table.column("label"), table.column("predicted")
    summary = {
        "output": str(output),
        "samples": table.num_rows,
        "classes": int(metadata["classes"]),
        "hardness_against": metadata["hardness against"],
        "agreement": None if labels.null_count else _share(labels, predicted),
        "commonest_class": None if labels.null_count else _commonest(labels),
        "assumed": assumed,
        "notes": notes,
        "skipped": skipped,
        "scores": [name for name in table.column_names if name not in ("id", "label", "predicted", "path", "domain")],
    }
    if as_json:
        say_json(summary)
        return
    say(
        f"{table.num_rows:,} samples, {summary['classes']:,} classes, scored against the {metadata['hardness against']}"
    )
    if summary["agreement"] is not None:
        say(_agreement(summary["agreement"], summary["commonest_class"], table.num_rows))
    if assumed:
        say(f"the model does not record how its images are prepared; assumed: {_as_options(assumed)}")
    for note in notes:
        say(f"note: {note}")
    say_left_out(skipped)
    say(f"scores: {output}")


def _as_options(assumed: dict[str, Any]) -> str:
    """What was assumed, as the options that set it."""
    own = "no --size, each image's own"
    return ", ".join(
        own if values is None else f"--{name} {','.join(f'{value:g}' for value in values)}"
        for name, values in assumed.items()
    )


def _share(labels: Any, predicted: Any) -> float:
    return float((labels.to_numpy() == predicted.to_numpy()).mean())


def _commonest(labels: Any) -> float:
    """The share of the labels that the commonest class has: what a model gets right that always names it."""
    import pyarrow.compute as pc

    counts = pc.value_counts(labels.combine_chunks()).field("counts")
    return float(pc.max(counts).as_py() / len(labels))


def _agreement(share: float, commonest: float, samples: int) -> str:
    text = f"the model agrees with {share:.1%} of the labels"
    # Two standard errors: a guess is sometimes lucky.
    if share == 1 or share > commonest + 2 * (commonest * (1 - commonest) / samples) ** 0.5:
        return text
    return (
        f"{text}, no more than chance (the commonest class has {commonest:.1%}): is it trained, are its classes in "
        "this order, are its images prepared as in training?"
    )


def _groups(path: Path) -> dict[str, Any]:
    from hardsight.records import read_json

    groups = read_json(path)
    if not isinstance(groups, dict) or not groups:
        raise ValueError(
            f"{path} must hold a JSON object with a list of the model's classes for each class of the data"
        )
    return groups


def _parquet(path: Path) -> Path:
    if path.suffix != ".parquet":
        raise ValueError(f"--output must end in .parquet; got {path.name!r}")
    return path


def _device(name: str | None) -> str:
    import torch

    from hardsight.validation import check_device

    return str(check_device(name or ("cuda" if torch.cuda.is_available() else "cpu")))


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) not in (1, 2) or not all(side.isdecimal() for side in sides):
        raise ValueError(f"--size must be pixels as 224 or 224x192, height x width; got {text!r}")
    if not all(1 <= int(side) <= _MOST_PIXELS for side in sides):
        raise ValueError(f"--size must be 1 to {_MOST_PIXELS} pixels a side; got {text}")
    return int(sides[0]), int(sides[-1])


def _numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """`0.5`, `0.485,0.456,0.406` or `127/255`; one number is for all channels."""
    if text is None:
        return None
    try:
        return tuple(_fraction(part) for part in text.split(","))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"--{name} must be 1 or 3 numbers as 0.485,0.456,0.406 or 127/255; got {text!r}") from None


def _fraction(text: str) -> float:
    top, _, bottom = text.partition("/")
    return float(top) / float(bottom or 1)
