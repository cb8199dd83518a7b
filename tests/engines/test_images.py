"""A user's own model and images: classes matched, heads reduced and put back, files that do not decode left out."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn

from hardsight.engines.images import open_images, score_images, scored_images, thumbnails
from hardsight.engines.matching import class_row, match_classes
from hardsight.engines.model_spec import LoadedModel, load_model
from hardsight.engines.preprocessing import Preprocessing
from hardsight.hardness import score

NAMES = ("ant", "cat", "bee", "dog", "frog")


def named(table: pa.Table) -> list[str]:
    """The class names in a table of scores."""
    names: list[str] = json.loads(table.schema.metadata[b"class names"])
    return names


def loaded(outputs: int = 5, names: tuple[str, ...] | None = NAMES) -> LoadedModel:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, outputs)
    ).eval()
    return LoadedModel(model, Preprocessing((16, 16), 16), names, "test:small")


def features_of(one: LoadedModel, root: Path) -> torch.Tensor:
    images = open_images(root)
    batch = torch.stack([one.preprocessing(images[at][0]) for at in range(len(images))])
    with torch.inference_mode():
        return one.model[:-1](batch)  # type: ignore[index]


def test_classes_are_matched_by_name(photos: Path) -> None:
    one = loaded()
    head = one.model[-1]  # type: ignore[index]
    weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
    table = score_images(one, open_images(photos), ("avh", "loss"), batch_size=4)
    assert named(table) == ["cat", "dog", "frog"]
    rows = [1, 3, 4]
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    expected = score(features_of(one, photos), weight[rows], labels, bias[rows], ("avh", "loss"))
    np.testing.assert_allclose(table.column("avh").to_numpy(), expected["avh"].numpy(), rtol=1e-4)
    np.testing.assert_allclose(table.column("loss").to_numpy(), expected["loss"].numpy(), rtol=1e-4)
    assert table.column("path").to_pylist()[3] == "dog/0.png"
    assert torch.equal(head.weight, weight)
    assert isinstance(head.weight, nn.Parameter)
    assert head.weight.requires_grad


def test_classes_as_a_person_says_them(photos: Path) -> None:
    one = loaded(names=None)
    groups = {"cat": [0, 1], "dog": 2, "frog": [3]}
    table = score_images(one, open_images(photos), ("avh",), classes=groups)
    weight = one.model[-1].weight.detach()  # type: ignore[index]
    lengths = weight.norm(dim=1)
    together = weight[0] / lengths[0] + weight[1] / lengths[1]
    reduced = torch.stack([together / together.norm() * lengths[:2].mean(), weight[2], weight[3]])
    expected = score(features_of(one, photos), reduced, torch.tensor([0] * 3 + [1] * 3 + [2] * 3), scores=("avh",))
    np.testing.assert_allclose(table.column("avh").to_numpy(), expected["avh"].numpy(), rtol=1e-4)
    named = score_images(
        loaded(), open_images(photos), ("avh",), classes={"cat": ["ant", "CAT"], "dog": "bee", "frog": 3}
    )
    assert named.column("avh").equals(table.column("avh"))


def test_a_class_of_many_members_is_as_long_as_one_of_few_and_a_plain_mean_is_not() -> None:
    members = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    assert float(class_row(members).norm()) == pytest.approx(float(members.norm(dim=1).mean()), rel=1e-5)
    assert float(members.mean(0).norm()) < 0.5 * float(members.norm(dim=1).mean())
    assert torch.equal(class_row(members[:1]), members[0])
    assert class_row(torch.stack([members[0], -members[0]])).isfinite().all()
    assert class_row(torch.zeros(3, 8)).tolist() == [0.0] * 8


def test_equally_many_classes_are_matched_by_number(photos: Path) -> None:
    table = score_images(loaded(3, None), open_images(photos), ("avh",))
    assert table.column("label").to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_models_own_names_that_the_data_repeats_match_themselves(photos: Path) -> None:
    two_cranes = ("crane", "ant", "Crane")
    matched = match_classes(loaded(3, two_cranes), two_cranes, torch.zeros(3, 16, 16))
    assert matched.rows is None
    # Some names in their places and others unknown: the places agree.
    assert match_classes(loaded(3, ("cat", "dog", "toad")), ("cat", "dog", "frog"), torch.zeros(3, 16, 16)).rows is None


def test_a_head_whose_weight_is_made_of_others_is_not_reduced_in_silence(photos: Path) -> None:
    one = loaded()
    torch.nn.utils.parametrizations.weight_norm(one.model[-1])  # type: ignore[index]
    with pytest.raises(ValueError, match=r"head must hold its weight as a parameter .* '4' makes it of others"):
        score_images(one, open_images(photos), ("avh",))
    assert score_images(one, open_images(photos), ("avh",), labelled=False).num_rows == 9


def test_without_labels_in_the_models_own_classes(photos: Path) -> None:
    table = score_images(loaded(), open_images(photos), ("avh",), labelled=False)
    assert table.column("label").null_count == 9
    assert named(table) == list(NAMES)


@pytest.mark.parametrize(
    ("outputs", "names", "classes", "sentence"),
    [
        (5, None, None, r"the model has 5 classes and the data 3 \(cat, dog, frog\)"),
        (5, None, {"cat": 0, "dog": 1}, r"classes .*'frog' got \(\)"),
        (5, None, {"cat": 0, "dog": 1, "frog": []}, r"classes .*'frog' got \[\]"),
        (5, None, {"cat": 0, "dog": 1, "frog": 5}, "the model's 5 classes; for 'frog' got 5"),
        (5, NAMES, {"cat": 0, "dog": 1, "frog": "toad"}, "the model's 5 classes; for 'frog' got 'toad'"),
        (5, None, {"cat": 0, "dog": 1, "frog": 2, "cow": 3}, "named as the data names them, cat, dog, frog; got 'cow'"),
        (5, None, {"cat": True, "dog": 1, "frog": 2}, "for 'cat' got True"),
        (3, ("dog", "cat", "bird"), None, "does not name all of .* 'cat', 0 of the data's, is 1 of its own"),
        (5, ("cat", "dog", "frog", "Dog", "ant"), None, "names its classes 1 and 3 alike, 'dog'"),
        (5, ("cat", "dog", "frog", "Dog", "ant"), {"cat": 0, "dog": "dog", "frog": 2}, "1 and 3 alike, 'dog'"),
    ],
)
def test_classes_nobody_can_match(
    outputs: int, names: tuple | None, classes: dict | None, sentence: str, photos: Path
) -> None:
    with pytest.raises(ValueError, match=sentence):
        score_images(loaded(outputs, names), open_images(photos), ("avh",), classes=classes)


def test_the_head_comes_back_after_an_error() -> None:
    one = loaded()
    before = one.model[-1].weight  # type: ignore[index]
    matched = match_classes(one, ["cat", "dog"], torch.zeros(3, 16, 16))
    with matched.reduced():
        assert len(one.model[-1].weight) == 2  # type: ignore[index]
    with pytest.raises(RuntimeError), matched.reduced():
        one.model(torch.zeros(1, 7, 16, 16))
    assert one.model[-1].weight is before  # type: ignore[index]


def test_images_that_do_not_decode_are_left_out_and_named(photos: Path) -> None:
    (photos / "cat" / "0.png").write_bytes(b"no image")
    whole = (photos / "dog" / "1.png").read_bytes()
    (photos / "dog" / "1.png").write_bytes(whole[: len(whole) // 2])
    table = score_images(loaded(), open_images(photos), ("avh",), batch_size=1)
    assert table.column("id").to_pylist() == [1, 2, 3, 5, 6, 7, 8]
    skipped = json.loads(table.schema.metadata[b"skipped"])
    assert [each.split(" ")[0] for each in skipped] == ["cat/0.png", "dog/1.png"]


def test_nothing_that_decodes(photos: Path) -> None:
    for path in photos.rglob("*.png"):
        path.write_bytes(b"no image")
    with pytest.raises(ValueError, match="at least one image that decodes"):
        score_images(loaded(), open_images(photos), ("avh",))


def test_images_of_different_sizes_need_a_size(photos: Path) -> None:
    with pytest.raises(ValueError, match=r"size must be given \(--size\), as the images differ"):
        score_images(loaded(), open_images(photos), ("avh",), preprocessing=Preprocessing())


def test_images_of_different_sizes_are_one_sentence_from_other_threads_too(photos: Path) -> None:
    with pytest.raises(ValueError, match=r"^size must be given \(--size\), as the images differ: .*\)$"):
        score_images(loaded(), open_images(photos), ("avh",), preprocessing=Preprocessing(), workers=1)


def test_a_model_that_asserts_its_input(photos: Path) -> None:
    class Asserts(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.shape[-1] == 224, "Input width doesn't match model"
            return super().forward(x)

    small = loaded()
    strict = LoadedModel(Asserts(*small.model), small.preprocessing, NAMES, "")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"does not take images of shape \[3, 16, 16\] .*Input width doesn't match"):
        score_images(strict, open_images(photos), ("avh",))


def test_a_compiled_model_is_reduced_to_the_datas_classes(photos: Path) -> None:
    plain = loaded()
    compiled = LoadedModel(torch.compile(plain.model, backend="eager"), plain.preprocessing, NAMES, "")  # type: ignore[arg-type]
    expected = score_images(plain, open_images(photos), ("avh",))
    assert score_images(compiled, open_images(photos), ("avh",)).column("avh").equals(expected.column("avh"))


def test_classes_that_differ_only_in_their_spelling_are_not_matched_by_name(photos: Path) -> None:
    (photos / "dog").rename(photos / "Cat")
    with pytest.raises(ValueError, match="'Cat' is there twice"):
        score_images(loaded(), open_images(photos), ("avh",))


def test_images_the_model_does_not_take(photos: Path) -> None:
    grey = Preprocessing((16, 16), 16, mean=(0.5,), std=(0.5,))
    with pytest.raises(ValueError, match=r"does not take images of shape \[1, 16, 16\]"):
        score_images(loaded(), open_images(photos), ("avh",), preprocessing=grey)


def test_a_hugging_face_model_end_to_end(tiny_vit: Path, photos: Path) -> None:
    table = score_images(load_model(f"hf:{tiny_vit}"), open_images(photos), ("avh", "confidence"))
    assert named(table) == ["cat", "dog", "frog"]
    assert table.column("predicted").to_pylist() == [int(row) for row in table.column("predicted").to_numpy()]
    assert 0 < min(table.column("avh").to_pylist()) < max(table.column("avh").to_pylist()) < 1


def test_thumbnails_are_small_and_skip_what_is_not_there(photos: Path) -> None:
    (photos / "cat" / "0.png").write_bytes(b"no image")
    made = thumbnails(open_images(photos), ["0", "4", "99"], side=12)
    assert made.column("id").to_pylist() == ["4"]
    with Image.open(__import__("io").BytesIO(made.column("png")[0].as_py())) as picture:
        assert picture.format == "PNG"
        assert max(picture.size) == 12


def test_layouts_are_told_by_what_is_there(tmp_path: Path, photos: Path) -> None:
    assert open_images(photos).name == "photos"
    with pytest.raises(FileNotFoundError, match="is not there"):
        open_images(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="name must be one of"):
        open_images(photos, layout="nonsense")
    with pytest.raises(ValueError, match="must hold one folder for each class"):
        open_images(photos / "cat")


@pytest.mark.parametrize("place", ["MNIST/raw", "MNIST"])
@pytest.mark.parametrize("layout", ["mnist", None])
def test_a_known_set_is_found_from_its_own_folder_and_from_within(
    tmp_path: Path, place: str, layout: str | None
) -> None:
    (tmp_path / place).mkdir(parents=True)
    images, labels = np.zeros((2, 28, 28), np.uint8), np.array([3, 7], np.uint8)
    for name, values in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
        head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">i4").tobytes()
        (tmp_path / place / name).write_bytes(head + values.tobytes())
    for root in {tmp_path / "MNIST", tmp_path / place}:
        assert open_images(root, layout, "test").labels.tolist() == [3, 7]
    assert open_images(tmp_path, "mnist", "test").labels.tolist() == [3, 7]


def test_scores_written_among_the_images_do_not_change_their_layout(photos: Path) -> None:
    pq.write_table(score_images(loaded(), open_images(photos), ("avh",)), photos / "scores.parquet")
    assert len(open_images(photos)) == 9


def test_splits_are_not_taken_for_classes(photos: Path, tmp_path: Path) -> None:
    for split in ("train", "val"):
        shutil.copytree(photos, tmp_path / "both" / split)
    with pytest.raises(ValueError, match="holds the splits train, val: choose one with --split"):
        open_images(tmp_path / "both")
    assert open_images(tmp_path / "both", split="val").class_names == ("cat", "dog", "frog")
    # Classes of these names hold images, not classes.
    (photos / "cat").rename(photos / "train")
    (photos / "dog").rename(photos / "test")
    (photos / "frog").rename(photos / "val")
    assert open_images(photos).class_names == ("test", "train", "val")


def test_sets_that_need_no_folder(tmp_path: Path) -> None:
    assert len(open_images(tmp_path, layout="digits")) == 1797
    with pytest.raises(ValueError, match="data must be images; two-gaussians holds points"):
        open_images(tmp_path, layout="two-gaussians")


@pytest.mark.data
def test_known_sets_are_told_by_their_folders(data_root: Path) -> None:
    for folder, name in (("cifar-10-batches-bin", "cifar10"), ("PACS", "pacs"), ("USPS", "usps")):
        if (data_root / folder).is_dir():
            assert open_images(data_root / folder).name == name


def test_the_split_that_was_scored_is_told_by_its_labels(tmp_path: Path) -> None:
    """Ids of the test images are ids of training images, too: their pictures would be of something else."""
    folder, generator = tmp_path / "cifar-10-batches-bin", np.random.default_rng(0)
    folder.mkdir()
    for at, name in enumerate([*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"]):
        labels = (np.arange(20) * 3 + at) % 10
        pixels = generator.integers(0, 256, (20, 3072))
        (folder / f"{name}.bin").write_bytes(np.column_stack([labels, pixels]).astype(np.uint8).tobytes())
    test = open_images(folder, split="test")
    few = pa.table({"id": [3, 4, 5, 7], "label": test.labels[[3, 4, 5, 7]].numpy()})
    found = scored_images(few, folder)
    assert found is not None
    assert found.split == "test"
    # A label may have been changed since.
    changed = few.set_column(1, "label", pa.array([*few["label"].to_pylist()[:3], 9]))
    assert scored_images(changed, folder).split == "test"  # type: ignore[union-attr]
    # Without labels the first split is taken, as ever; where no split has these, none is.
    assert scored_images(few.select(["id"]), folder).split == "train"  # type: ignore[union-attr]
    none = few.set_column(1, "label", pa.array([(one + 1) % 10 for one in few["label"].to_pylist()]))
    with pytest.raises(ValueError, match="not those that were scored"):
        scored_images(none, folder)
