"""ImageNet's validation set in its three shapes, and selection frequencies in theirs."""

import json
import math
import shutil

import pytest
import torch

from hardsight.datasets.folders import read_imagenet_v2, read_imagenet_val, read_selection_frequency

STEMS = [f"ILSVRC2012_val_{number + 1:08d}" for number in range(6)]
WNIDS = ("n01440764", "n01443537")


def frequencies(dataset) -> list:
    return [None if math.isnan(share) else round(share, 6) for share in dataset.columns["selection_frequency"].tolist()]


def flatten(folder) -> None:
    for path in list(folder.glob("n*/*.JPEG")):
        path.rename(folder / path.name)
    for wnid in WNIDS:
        (folder / wnid).rmdir()


def test_ids_are_the_official_numbers(build, grey_of):
    dataset = read_imagenet_val(build("imagenet-val") / "imagenet" / "val")
    assert dataset.class_names == WNIDS
    assert dataset.ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.labels.tolist() == [0, 1, 0, 1, 0, 1]
    for index in range(6):
        assert (dataset[index][0].int() - grey_of(index)).abs().max() <= 2
    assert frequencies(dataset) == [0.0, 0.1, 0.2, 0.3, 0.4, None]


def test_an_image_that_is_missing_leaves_its_number(build):
    folder = build("imagenet-val") / "imagenet" / "val"
    (folder / WNIDS[1] / f"{STEMS[1]}.JPEG").unlink()
    assert read_imagenet_val(folder).ids.tolist() == [0, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["val.txt", "LOC_val_solution.csv"])
def test_one_folder_with_a_list(build, kind):
    folder = build("imagenet-val") / "imagenet" / "val"
    nested = read_imagenet_val(folder)
    flatten(folder)
    if kind == "val.txt":
        lines = [f"{stem}.JPEG {number % 2}" for number, stem in enumerate(STEMS)]
    else:
        lines = ["ImageId,PredictionString"]
        lines += [f"{stem},{WNIDS[number % 2]} 1 2 3 4 " for number, stem in reversed(list(enumerate(STEMS)))]
    (folder.parent / kind).write_text("\n".join(lines))
    flat = read_imagenet_val(folder)
    assert torch.equal(flat.labels, nested.labels)
    assert torch.equal(flat.ids, nested.ids)
    assert frequencies(flat) == frequencies(nested)


def test_neither_folders_nor_a_list(tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold one folder per class"):
        read_imagenet_val(tmp_path)


@pytest.mark.parametrize("shape", ["flat", "by image", "by class", "csv", "csv with wnid"])
def test_every_shape_of_the_table_is_the_same_table(build, tmp_path, shape):
    folder = build("imagenet-val") / "imagenet" / "val"
    share = {stem: number / 10 for number, stem in enumerate(STEMS[:5])}
    own = {stem: WNIDS[number % 2] for number, stem in enumerate(STEMS)}
    other = {stem: WNIDS[1 - number % 2] for number, stem in enumerate(STEMS)}
    path = tmp_path / ("table.csv" if shape.startswith("csv") else "table.json")
    if shape == "flat":
        content = {f"{stem}.JPEG": value for stem, value in share.items()}
    elif shape == "by image":
        content = {stem: {own[stem]: value, other[stem]: 0.99} for stem, value in share.items()}
    elif shape == "by class":
        content = {wnid: {stem: value for stem, value in share.items() if own[stem] == wnid} for wnid in WNIDS}
    if shape == "csv":
        path.write_text("filename,hsf\n" + "\n".join(f"val/{stem}.JPEG,{value}" for stem, value in share.items()))
    elif shape == "csv with wnid":
        rows = [f"{stem},{wnid[stem]},{value}" for wnid, scale in ((own, 1), (other, 0)) for stem, value in
                ((stem, scale * value) for stem, value in share.items())]  # fmt: skip
        path.write_text("image_id,wnid,frequency\n" + "\n".join(rows))
    else:
        path.write_text(json.dumps(content))
    assert frequencies(read_imagenet_val(folder, frequencies=path)) == [0.0, 0.1, 0.2, 0.3, 0.4, None]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", "image,selection_frequency\nx,1.5\n", r"must hold frequencies in \[0, 1\]; x has 1.5"),
        ("a.csv", "image,selection_frequency\nx,much\n", "could not convert|is not a table"),
        ("a.csv", "picture,share\nx,0.5\n", r"must have an image column .*; got \['picture', 'share'\]"),
        ("a.csv", ",".join(f"x{at}" for at in range(9_000)) + "\n", r"must have an image column .*\.\.\.$"),
        ("a.json", "{", "is not readable JSON"),
        ("a.json", "[" * 100_000, "is not readable JSON"),
        ("a.json", "[1, 2]", "is not a table"),
        ("a.json", '{"x": null}', "is not a table"),
        ("a.json", "7", "is not a table"),
    ],
)
def test_other_tables_are_refused(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=sentence) as refusal:
        read_selection_frequency(tmp_path / name)
    assert len(str(refusal.value)) < 1000


def test_a_table_of_other_images_is_refused(build, tmp_path):
    (tmp_path / "other.json").write_text('{"elsewhere": 0.5}')
    with pytest.raises(ValueError, match="none of its 1 images is there"):
        read_imagenet_val(build("imagenet-val") / "imagenet" / "val", frequencies=tmp_path / "other.json")


def test_v2_counts_its_folders_as_numbers(build):
    dataset = read_imagenet_v2(build("imagenetv2") / "imagenetv2-matched-frequency-format-val")
    assert dataset.class_names == tuple(str(label) for label in range(12))
    assert dataset.labels.tolist() == list(range(12))
    assert dataset.paths[10].startswith("10/")


@pytest.mark.parametrize("text", [b"a,b\n1,2\n", b"ImageId,PredictionString\nx,\n", b"\xff\xfe"])
def test_a_solution_file_without_wnids_is_refused(tmp_path, text):
    (tmp_path / "LOC_val_solution.csv").write_bytes(text)
    with pytest.raises(ValueError, match=r"is not a (CSV of ImageId and PredictionString|readable CSV table)"):
        read_imagenet_val(tmp_path)


def test_a_frequency_that_is_no_number_names_the_file(tmp_path):
    (tmp_path / "f.csv").write_text("image,hsf\na,often\n")
    with pytest.raises(ValueError, match=r"f\.csv is truncated or is not a table of images and selection frequencies"):
        read_selection_frequency(tmp_path / "f.csv")


def test_a_class_that_v2_lacks_moves_no_other_label(build):
    # A network's output k is folder k, whatever else is there.
    folder = build("imagenetv2") / "imagenetv2-matched-frequency-format-val"
    shutil.rmtree(folder / "3")
    dataset = read_imagenet_v2(folder)
    assert dataset.labels.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]
    assert [dataset.class_names[label] for label in dataset.labels.tolist()] == [
        path.split("/")[0] for path in dataset.paths
    ]
    (folder / "3").mkdir()
    with pytest.raises(ValueError, match=r"the class folder .*/3 holds no image"):
        read_imagenet_v2(folder)


def test_an_image_with_two_frequencies_is_refused(tmp_path):
    (tmp_path / "f.csv").write_text("image,hsf\na.JPEG,0.5\nb.JPEG,0.1\nval/a.JPEG,0.7\n")
    with pytest.raises(ValueError, match=r"f\.csv must give each image one frequency; a has 0\.5 and 0\.7"):
        read_selection_frequency(tmp_path / "f.csv")
    (tmp_path / "f.csv").write_text("image,hsf\na.JPEG,0.5\nval/a.JPEG,0.5\n")
    assert read_selection_frequency(tmp_path / "f.csv") == {"a": {"": 0.5}}
    (tmp_path / "f.csv").write_text("image,hsf,wnid\na.JPEG,0.5,n1\na.JPEG,0.7,n2\n")
    assert read_selection_frequency(tmp_path / "f.csv") == {"a": {"n1": 0.5, "n2": 0.7}}
