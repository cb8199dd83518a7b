"""The interface: what is refused, what survives, and how files become tensors."""

import dataclasses
import io
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from hardsight.datasets import ArrayDataset, FileDataset, Skipped
from hardsight.datasets.formats import decode


def small(**changes) -> ArrayDataset:
    values = {
        "images": torch.arange(5 * 3 * 2 * 2, dtype=torch.uint8).reshape(5, 3, 2, 2),
        "labels": torch.tensor([0, 1, 2, 1, -1]),
        "class_names": ("a", "b", "c"),
        "name": "small",
        "split": "all",
    }
    return ArrayDataset(**{**values, **changes})


def files(root, paths, **changes) -> FileDataset:
    values = {"labels": torch.zeros(len(paths), dtype=torch.int64), "class_names": ("a",), "name": "f", "split": "all"}
    return FileDataset(root=root, paths=tuple(paths), **{**values, **changes})


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_ids_left_out_are_positions_and_counts_leave_out_the_unlabelled():
    dataset = small()
    assert dataset.ids.tolist() == [0, 1, 2, 3, 4]
    assert dataset.class_counts().tolist() == [1, 2, 1]


def test_it_is_said_in_one_line_whatever_its_size(tmp_path):
    data = ArrayDataset(
        name="dots",
        split="train",
        images=torch.zeros(2000, 1, 4, 4, dtype=torch.uint8),
        labels=torch.zeros(2000, dtype=torch.int64),
        class_names=("a", "b"),
    )
    assert repr(data) == "ArrayDataset('dots', 'train', samples=2000, classes=2)"
    many = files(tmp_path, [f"a/{at}.png" for at in range(3)])
    assert repr(many) == "FileDataset('f', 'all', samples=3, classes=1)"


def test_a_domain_is_a_subset():
    dataset = small(domains=torch.tensor([0, 1, 0, 1, 1]), domain_names=("sketch", "photo"))
    assert dataset.in_domain("photo").ids.tolist() == [1, 3, 4]
    with pytest.raises(ValueError, match=r"domain must be one of sketch, photo; got 'paint'"):
        dataset.in_domain("paint")
    with pytest.raises(ValueError, match="of which there are none; got 'photo'"):
        small().in_domain("photo")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"labels": torch.tensor([0, 1])}, "labels must have one row for each of the 5 samples; got 2 rows"),
        ({"labels": torch.tensor([0, 1, 2, 3, 0])}, r"labels must lie in \[-1, 2\]; got 0 to 3"),
        ({"labels": torch.zeros(5)}, "labels must be int64"),
        ({"ids": torch.arange(4)}, "ids must have one row"),
        ({"columns": {"votes": torch.zeros(4, 10)}}, "votes must have one row for each of the 5 samples; got 4 rows"),
        ({"domains": torch.zeros(5, dtype=torch.int64)}, r"domains must lie in \[0, -1\]"),
        ({"images": torch.zeros(5, 3, 2, 2)}, "images must be uint8"),
        ({"images": torch.zeros(5, 12, dtype=torch.uint8)}, "images must be uint8"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        small(**changes)


@pytest.mark.parametrize(
    ("indices", "sentence"),
    [
        ([5], r"indices must lie in \[0, 4\]"),
        ([-1], "indices must lie in"),
        (torch.ones(5, dtype=torch.bool), "indices must be a list of integers, for a mask"),
        (torch.zeros(2, 2, dtype=torch.int64), "indices must be a list of integers"),
    ],
)
def test_indices_outside_are_refused(indices, sentence):
    with pytest.raises(ValueError, match=sentence):
        small().subset(indices)


def test_an_empty_subset_is_a_data_set():
    empty = small().subset([])
    assert len(empty) == 0
    assert empty.class_counts().tolist() == [0, 0, 0]


def test_a_data_set_travels_to_a_worker_process(tmp_path):
    dataset = small(columns={"votes": torch.eye(5)})
    again = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(again.images, dataset.images)
    assert torch.equal(again.columns["votes"], dataset.columns["votes"])
    assert pickle.loads(pickle.dumps(files(tmp_path, ["a.png"]))).paths == ("a.png",)


def test_it_cannot_be_changed_by_accident():
    with pytest.raises(dataclasses.FrozenInstanceError):
        small().labels = torch.zeros(5, dtype=torch.int64)


class TestDecoding:
    def test_pixels_are_those_of_the_file(self):
        pixels = torch.randint(0, 256, (5, 7, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        assert torch.equal(decode(encoded(Image.fromarray(pixels.numpy()))), pixels.permute(2, 0, 1))

    @pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "CMYK", "I;16"])
    def test_every_mode_becomes_three_channels(self, mode):
        kind = "JPEG" if mode == "CMYK" else "PNG"
        assert decode(encoded(Image.new(mode, (4, 3)), kind)).shape == (3, 3, 4)

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
    def test_sixteen_bits_of_grey_are_scaled_and_not_cut_off(self, kind):
        eight = torch.arange(0, 256, 5, dtype=torch.uint8).reshape(4, 13)
        sixteen = Image.fromarray(eight.numpy().astype(np.uint16) * 257)
        assert torch.equal(decode(encoded(sixteen, kind)), eight.expand(3, 4, 13))

    @pytest.mark.parametrize("kind", ["PNG", "TIFF"])
    def test_sixteen_bits_are_turned_upright(self, kind):
        exif = Image.Exif()
        exif[0x0112] = 6
        picture = Image.fromarray(np.full((3, 5), 40_000, np.uint16))
        assert decode(encoded(picture, kind, exif=exif)).shape == (3, 5, 3)

    @pytest.mark.parametrize("kind", [np.int32, np.float32])
    def test_pixels_without_a_known_white_are_refused(self, kind):
        with pytest.raises(ValueError, match="do not say what white is; save it with 8 or 16 bits"):
            decode(encoded(Image.fromarray(np.ones((3, 4), kind)), "TIFF"))

    def test_the_exif_tag_turns_the_picture_upright(self):
        image = Image.new("RGB", (4, 2))
        image.putpixel((0, 0), (255, 0, 0))
        exif = Image.Exif()
        exif[0x0112] = 6  # "rotate by 90 degrees clockwise to show"
        upright = decode(encoded(image, "PNG", exif=exif))
        assert upright.shape == (3, 4, 2)
        assert upright[0, 0, 1] == 255

    def test_crop_keeps_proportions_and_squash_does_not(self):
        image = Image.new("RGB", (40, 20), (0, 0, 0))
        image.paste((255, 255, 255), (10, 0, 30, 20))
        data = encoded(image)
        assert decode(data, 10, "crop")[:, :, 1:-1].min() == 255
        assert 100 < decode(data, 10, "squash").float().mean() < 155
        assert decode(data, (6, 8)).shape == (3, 6, 8)

    def test_a_large_jpeg_shrinks_to_nearly_the_same_picture(self):
        ramp = torch.linspace(0, 255, 512).to(torch.uint8).expand(512, 512).unsqueeze(-1).expand(-1, -1, 3)
        image = Image.fromarray(ramp.contiguous().numpy())
        fast, exact = decode(encoded(image, "JPEG", quality=95), 32), decode(encoded(image), 32)
        assert (fast.int() - exact.int()).abs().max() <= 4

    @pytest.mark.parametrize("cut", [0, 1, 20, 60])
    def test_what_is_cut_off_does_not_decode(self, cut):
        with pytest.raises(ValueError, match="does not decode as an image"):
            decode(encoded(Image.effect_noise((32, 32), 50), "JPEG")[:cut])

    def test_a_jpeg_of_several_pictures_gives_the_first(self):
        first, second = Image.new("RGB", (4, 3), (200, 0, 0)), Image.new("RGB", (4, 3))
        assert decode(encoded(first, "MPO", save_all=True, append_images=[second]))[0].min() > 190

    def test_postscript_is_not_handed_to_an_interpreter(self):
        data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n(ran) print\n%%EOF\n"
        with Image.open(io.BytesIO(data)) as opened:
            assert opened.format == "EPS"  # Pillow alone would take it
        with pytest.raises(ValueError, match="does not decode as an image"):
            decode(data)

    def test_a_picture_that_would_fill_the_memory_is_refused(self, monkeypatch):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
        with pytest.raises(ValueError, match="does not decode"):
            decode(encoded(Image.new("RGB", (8, 8))))


class TestFiles:
    def test_loading_equals_decoding_one_by_one(self, tmp_path, save_picture):
        paths = [f"{number}.png" for number in range(7)]
        for number, path in enumerate(paths):
            save_picture(tmp_path / path, number)
        dataset = files(tmp_path, paths)
        loaded = dataset.load(workers=2)
        assert torch.equal(loaded.images, torch.stack([dataset.decode(index) for index in range(7)]))
        assert dataset.load(3).images.shape == (7, 3, 3, 3)

    def test_what_does_not_decode_is_listed_and_ids_stay(self, tmp_path, save_picture):
        for number in range(4):
            save_picture(tmp_path / f"{number}.png", number)
        (tmp_path / "1.png").write_bytes(b"no picture")
        (tmp_path / "2.png").unlink()
        dataset = files(
            tmp_path,
            [f"{number}.png" for number in range(4)],
            ids=torch.tensor([10, 11, 12, 13]),
            columns={"row": torch.arange(4)},
            skipped=(Skipped("earlier.png", "no such file", 9),),
        )
        loaded = dataset.load()
        assert loaded.ids.tolist() == [10, 13]
        assert loaded.columns["row"].tolist() == [0, 3]
        assert [(skip.path, skip.id) for skip in loaded.skipped] == [("earlier.png", 9), ("1.png", 11), ("2.png", 12)]
        assert loaded.skipped[2].reason == "no such file"
        assert dataset.unreadable() == loaded.skipped[1:]
        with pytest.raises(ValueError, match=r"^1.png is unreadable: it does not decode as an image"):
            dataset[1]

    def test_sizes_that_differ_need_a_size(self, tmp_path, save_picture):
        save_picture(tmp_path / "a.png", 0, (4, 4))
        save_picture(tmp_path / "b.png", 1, (5, 4))
        with pytest.raises(ValueError, match=r"size must be given because the images differ: b.png is \[3, 4, 5\]"):
            files(tmp_path, ["a.png", "b.png"]).load()

    def test_loading_fits_as_it_is_told(self, tmp_path):
        # A dark left edge: cutting the middle loses it, squashing does not.
        picture = Image.new("RGB", (30, 10), (200, 200, 200))
        picture.paste((0, 0, 0), (0, 0, 8, 10))
        picture.save(tmp_path / "wide.png")
        dataset = files(tmp_path, ["wide.png"]).resized(10)
        assert dataset.load().images.min() == 200
        assert dataset.load(fit="squash").images.min() < 50
        assert dataset.resized(10, "squash").load().images.min() < 50
        assert dataset.resized(10, "squash").load(10).images.min() < 50
        assert dataset.resized(20, "squash").resized(10).load().images.min() < 50

    def test_a_size_without_pixels_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="size must be at least 1 pixel; got 0"):
            files(tmp_path, ["0.png"]).resized(0)

    def test_nothing_readable_is_one_sentence(self, tmp_path):
        with pytest.raises(ValueError, match="holds no image that can be read"):
            files(tmp_path, ["a.png"]).load()

    @pytest.mark.parametrize("path", ["../outside.png", "/etc/passwd", "a/../../outside.png", "c:\\outside.png"])
    def test_a_path_outside_is_never_opened(self, tmp_path, save_picture, path):
        save_picture(tmp_path / "outside.png", 0)
        (tmp_path / "root").mkdir()
        with pytest.raises(ValueError, match="points outside the root"):
            files(tmp_path / "root", [path])[0]

    def test_a_link_that_leads_outside_is_never_followed(self, tmp_path, save_picture):
        save_picture(tmp_path / "outside.png", 0)
        save_picture(tmp_path / "root" / "inside.png", 0)
        (tmp_path / "root" / "out.png").symlink_to(tmp_path / "outside.png")
        (tmp_path / "root" / "in.png").symlink_to("inside.png")
        dataset = files(tmp_path / "root", ["in.png", "out.png"])
        assert dataset[0][0].shape == (3, 4, 6)
        with pytest.raises(ValueError, match="a link in the path leads outside the root"):
            dataset[1]

    def test_the_root_itself_may_be_a_link(self, tmp_path, save_picture):
        save_picture(tmp_path / "real" / "a.png", 0)
        (tmp_path / "linked").symlink_to(tmp_path / "real")
        assert files(tmp_path / "linked", ["a.png"])[0][0].shape == (3, 4, 6)

    @pytest.mark.parametrize(("size", "fit"), [(0, "crop"), ((3, 0), "crop"), (-2, "squash")])
    def test_sizes_below_one_are_refused(self, tmp_path, size, fit):
        with pytest.raises(ValueError, match="size must be at least 1 pixel"):
            files(tmp_path, ["a.png"]).resized(size, fit)


def test_indices_are_not_rounded():
    assert len(small().subset([])) == 0
    with pytest.raises(ValueError, match=r"indices must be a list of integers, .*; got torch\.float32"):
        small().subset(torch.tensor([0.5]))


def test_a_path_of_any_length_is_said_shortly():
    assert len(str(Skipped("x" * 100_000, "no such file", 3))) < 300
