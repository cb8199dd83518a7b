"""`hardsight score`: scores of features in a file or in shards, or of a user's own model and images, as Parquet."""

import warnings
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from hardsight.cli.printing import AsJson, one_sentence, say, say_json, say_left_out

# A side beyond this is a typing mistake, and one image of it is gigabytes.
_MOST_PIXELS = 8192
# How much of a picture's light the strongest part of a map takes, and of which colour.
_STRENGTH, _COLOUR = 0.6, (1.0, 0.35, 0.0)
_SCORES = ("avh", "confidence", "norm", "angular_margin", "margin", "loss", "el2n", "entropy")


def score(
    source: Annotated[
        str | None,
        Argument(
            metavar="[FEATURES]",
            help="Features: a file (npz, safetensors, parquet) with weight and labels; or shards, a folder or a glob, "
            "local, s3:// or gs://.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        Option("--output", "--out", "-o", help="File to write; of shards a folder. [default: scores.parquet, scores]"),
    ] = None,
    model: Annotated[
        str | None, Option(help="timm:NAME, hf:FOLDER, torchvision:NAME, hardsight:NAME or package.module:factory.")
    ] = None,
    data: Annotated[Path | None, Option(help="Folder of images: one folder per class, or a known set.")] = None,
    layout: Annotated[str | None, Option(help="How the data is laid out: a name of `hardsight data list`.")] = None,
    split: Annotated[str | None, Option(help="Which part of the data.")] = None,
    weights: Annotated[Path | None, Option(help="safetensors, or a checkpoint of tensors only.")] = None,
    num_classes: Annotated[int | None, Option(help="Size of the head, where the builder takes it.")] = None,
    classes: Annotated[Path | None, Option(help='JSON: {"class of the data": [classes of the model], ...}.')] = None,
    activation_maps: Annotated[int, Option(min=0, help="Grad-CAM of so many of the hardest images, for explore.")] = 0,
    unlabelled: Annotated[bool, Option("--unlabelled", help="Score against the predicted class.")] = False,
    head: Annotated[
        str | None, Option(help="File of weight and bias, for features; a model's last linear layer, for images.")
    ] = None,
    scores: Annotated[list[str] | None, Option("--score", help="A score to compute; may be repeated.")] = None,
    size: Annotated[str | None, Option(help="Input size: 224, or 224x192 (height x width).")] = None,
    mean: Annotated[str | None, Option(help="For pixels in [0, 1]: 0.485,0.456,0.406 or 127/255.")] = None,
    std: Annotated[str | None, Option(help="For pixels in [0, 1]: 0.229,0.224,0.225 or 128/255.")] = None,
    interpolation: Annotated[str | None, Option(help="bilinear, bicubic, nearest, ...")] = None,
    device: Annotated[str | None, Option(help="cpu, cuda, cuda:1, ... [default: cuda if there]")] = None,
    batch_size: Annotated[int, Option(min=1, help="Images at a time.")] = 64,
    workers: Annotated[
        int, Option(min=0, help="Processes for shards [1]; threads for images. [one a core, 8 at most]")
    ] = 0,
    engine: Annotated[str | None, Option(help="Where shards are scored: local, or ray, on a cluster.")] = None,
    address: Annotated[str | None, Option(help="Of the Ray cluster. [default: this machine]")] = None,
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
        from hardsight.records import check_writable, read_json, write_table

        chosen = tuple(scores or _SCORES)
        choose_scores(chosen)
        if (source is None) == (model is None and data is None):
            raise ValueError("give either FEATURES, a file or shards, or --model and --data")
        flags: dict[str, Any] = {"size": _size(size), "interpolation": interpolation}
        flags |= {"mean": _numbers("mean", mean), "std": _numbers("std", std)}
        assumed: dict[str, Any] = {}
        notes: list[str] = []
        of_images = {"layout": layout, "split": split, "classes": classes, "weights": weights,
                     "num-classes": num_classes, "activation-maps": activation_maps or None, **flags}  # fmt: skip
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
        _check_not_given("shards", {"engine": engine, "address": address})
        # Before the work, not after it.
        target = Path(output or "scores.parquet")
        if target.suffix != ".parquet":
            raise ValueError(f"--output must end in .parquet; got {target.name!r}")
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
            groups, where = None if classes is None else read_json(classes), _device(device)
            if classes is not None and (not isinstance(groups, dict) or not groups):
                raise ValueError(
                    f"{classes} must hold a JSON object with a list of the model's classes for each class of the data"
                )
            images = open_images(data, layout, split, labelled=not unlabelled)
            loaded = load_model(model, weights, num_classes=num_classes)
            preprocessing = loaded.preprocessing.changed(**flags)
            assumed = {name: getattr(preprocessing, name) for name in loaded.assumed if flags[name] is None}
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("default")
                origin = {"root": str(data.resolve()), "layout": layout or "", "split": split or ""}
                table = score_images(
                    loaded, images, chosen, classes=groups, labelled=not unlabelled, preprocessing=preprocessing,
                    head=head, device=where, batch_size=batch_size, workers=workers, origin=origin,
                )  # fmt: skip
            notes = [str(one.message) for one in warned]
            if activation_maps:
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
    labels, share, commonest = table.column("label"), None, None
    if not labels.null_count:
        share = float((labels.to_numpy() == table.column("predicted").to_numpy()).mean())
        # What a model gets right that always names the same class.
        commonest = max(labels.value_counts().field("counts").to_pylist()) / len(labels)
    summary = {
        "output": str(output),
        "samples": table.num_rows,
        "classes": int(metadata["classes"]),
        "hardness_against": metadata["hardness against"],
        "agreement": share,
        "commonest_class": commonest,
        "assumed": assumed,
        "notes": notes,
        "skipped": skipped,
        "scores": [name for name in table.column_names if name not in ("id", "label", "predicted", "path", "domain")],
    }
    if as_json:
        say_json(summary)
        return
    classes = f"{summary['classes']:,} classes"
    say(f"{table.num_rows:,} samples, {classes}, scored against the {metadata['hardness against']}")
    if share is not None and commonest is not None:
        # Two standard errors: a guess is sometimes lucky.
        chance = commonest + 2 * (commonest * (1 - commonest) / table.num_rows) ** 0.5
        doubt = (
            f", no more than chance (the commonest class has {commonest:.1%}): is it trained, are its classes in this "
            "order, are its images prepared as in training?"
        )
        say(f"the model agrees with {share:.1%} of the labels{'' if share == 1 or share > chance else doubt}")
    if assumed:
        options = [
            "no --size, each image's own" if one is None else f"--{name} {','.join(f'{value:g}' for value in one)}"
            for name, one in assumed.items()
        ]
        say(f"the model does not record how its images are prepared; assumed: {', '.join(options)}")
    for note in notes:
        say(f"note: {note}")
    say_left_out(skipped)
    say(f"scores: {output}")


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
        return tuple(float(Fraction(part)) for part in text.split(","))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"--{name} must be 1 or 3 numbers as 0.485,0.456,0.406 or 127/255; got {text!r}") from None


def write_activation_maps(
    path: Path, loaded: Any, preprocessing: Any, images: Any, ids: Sequence[int], *, head: str | None, device: str
) -> None:
    """Grad-CAM for the predicted class over each of these images, as the model sees it: grey, with the map in red."""
    import torch

    from hardsight.explain import grad_cam
    from hardsight.records import write_thumbnails

    where = {identity: at for at, identity in enumerate(images.ids.tolist())}
    model, colour = loaded.model.to(device), torch.tensor(_COLOUR)
    kept, pictures = [], []
    for one in ids:
        try:
            prepared = preprocessing(images[where[one]][0])
        except ValueError:
            continue
        heat = _STRENGTH * grad_cam(model, prepared[None].to(device), size="input", head=head)[0].cpu()[..., None]
        grey = prepared.float().mean(0)[..., None]
        grey = (grey - grey.min()) / (grey.max() - grey.min()).clamp(min=1e-12)
        kept.append(one)
        pictures.append((255 * (grey * (1 - heat) + heat * colour)).round().to(torch.uint8).numpy())
    write_thumbnails(path, kept, pictures)
