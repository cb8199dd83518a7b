"""Archives: unpacked whole or not at all, and never outside the folder."""

import bz2
import gzip
import io
import lzma
import random
import shutil
import tarfile
import zipfile

import pytest

from hardsight.datasets.archives import unpack


def make_tar(path, entries, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in entries.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = content
                archive.addfile(member)
    return path


def make_zip(path, entries):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


GOOD = {"set/a.bin": b"1" * 5000, "set/inner/b.bin": b"2", "notes.txt": b"3"}


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_a_good_archive_is_unpacked(tmp_path, kind):
    path = tmp_path / f"set.{kind}"
    if kind == "zip":
        make_zip(path, GOOD)
    else:
        make_tar(path, GOOD, "w:" + kind.removeprefix("tar").removeprefix("."))
    folder = tmp_path / "data"
    assert unpack(path, folder) == ("notes.txt", "set")
    assert {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*.*")} == GOOD
    with pytest.raises(ValueError, match=r"is there already, and .* would write over it"):
        unpack(path, folder)


def test_a_tar_is_unpacked_where_tarfile_knows_no_filters(tmp_path, monkeypatch):
    """As in the Python 3.11.2 of some systems: the filters came with 3.11.4."""

    def extractall(self, path=".", members=None, *, numeric_owner=False):
        pytest.fail("without a filter it would take over owners and modes")

    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    assert unpack(make_tar(tmp_path / "set.tar", GOOD, "w"), tmp_path / "data") == ("notes.txt", "set")
    assert (tmp_path / "data" / "set" / "a.bin").read_bytes() == GOOD["set/a.bin"]


@pytest.mark.parametrize("time", ["nan", "1e400"])
def test_a_time_that_there_is_not_does_not_matter(tmp_path, time):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a.txt")
        member.size, member.pax_headers = 3, {"mtime": time}
        archive.addfile(member, io.BytesIO(b"abc"))
    assert unpack(tmp_path / "a.tar", tmp_path / "data") == ("a.txt",)
    assert (tmp_path / "data" / "a.txt").read_bytes() == b"abc"


def test_modes_and_owners_of_a_tar_are_not_taken_over(tmp_path):
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        for name, mode, kind in (("set", 0o000, tarfile.DIRTYPE), ("set/a", 0o6777, tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.mode, member.type, member.uid, member.gid = mode, kind, 12345, 12345
            archive.addfile(member)
    unpack(tmp_path / "set.tar", tmp_path / "data")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file").touch()
    for found, plain in (("data/set", "plain"), ("data/set/a", "plain/file")):
        found, plain = (tmp_path / found).stat(), (tmp_path / plain).stat()
        assert (found.st_mode, found.st_uid) == (plain.st_mode, plain.st_uid)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "set/../../evil", "..\\evil", "C:\\evil"])
def test_an_entry_outside_refuses_the_whole_archive(tmp_path, name):
    folder = tmp_path / "inner" / "data"
    for path in (make_zip(tmp_path / "a.zip", {"good": b"1", name: b"2"}), make_tar(tmp_path / "a.tgz", {name: b"2"})):
        with pytest.raises(ValueError, match=r"is rejected: its entry .* points outside the folder"):
            unpack(path, folder)
        assert not folder.exists()
        assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    path = make_tar(tmp_path / "a.tar", {"link": (kind, "/etc/passwd"), "link/x": b"1"}, "w")
    with pytest.raises(ValueError, match="its entry 'link' is neither a file nor a folder"):
        unpack(path, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_link_in_a_zip_is_refused(tmp_path):
    entry = zipfile.ZipInfo("link")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(ValueError, match="is neither a file nor a folder"):
        unpack(tmp_path / "a.zip", tmp_path / "data")


@pytest.mark.parametrize("kind", ["zip", "tar", "tgz"])
def test_a_truncated_archive_leaves_nothing(tmp_path, kind):
    noise = random.Random(0).randbytes(20000)
    path = tmp_path / f"whole.{kind}"
    whole = (
        make_zip(path, {"a": noise})
        if kind == "zip"
        else make_tar(path, {"a": noise}, "w" if kind == "tar" else "w:gz")
    ).read_bytes()
    cut = tmp_path / f"cut.{kind}"
    for length in (0, 10, 600, len(noise) // 2):
        cut.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is truncated or is not a zip or tar archive"):
            unpack(cut, tmp_path / "data")
        assert not (tmp_path / "data").exists()


def test_no_archive_at_all(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the archive .* is not there"):
        unpack(tmp_path / "a.zip", tmp_path)


@pytest.mark.parametrize(("place", "bits"), [("flags", 1), ("method", 97)])
def test_what_zipfile_cannot_unpack_is_one_sentence(tmp_path, place, bits):
    make_zip(tmp_path / "a.zip", {"a/b.txt": b"hello"})
    raw = bytearray((tmp_path / "a.zip").read_bytes())
    offsets = {"flags": (6, 8), "method": (8, 10)}[place]
    for mark, offset in zip((b"PK\x03\x04", b"PK\x01\x02"), offsets, strict=True):
        raw[raw.find(mark) + offset] |= bits
    (tmp_path / "a.zip").write_bytes(raw)
    with pytest.raises(ValueError, match="is encrypted, or compressed in a way that is not known here"):
        unpack(tmp_path / "a.zip", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_home_folder_may_be_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    make_zip(tmp_path / "a.zip", {"a/b.txt": b"hello"})
    assert unpack("~/a.zip", "~/data") == ("a",)
    assert (tmp_path / "data" / "a" / "b.txt").read_bytes() == b"hello"


def test_a_tar_that_ends_in_a_zip_is_a_tar(tmp_path):
    inner = make_zip(tmp_path / "inner.zip", {"other/x.txt": b"inner"}).read_bytes()
    outer = make_tar(tmp_path / "outer.tar", {"set/a.txt": b"1", "set/extra.zip": inner}, "w:")
    # What a zip reader believes: it finds the directory of the inner archive near the end of the outer one.
    assert zipfile.is_zipfile(outer)
    assert unpack(outer, tmp_path / "data") == ("set",)
    assert (tmp_path / "data" / "set" / "extra.zip").read_bytes() == inner


def test_a_tar_cut_between_two_files_leaves_nothing(tmp_path):
    whole = make_tar(tmp_path / "whole.tar", {"set/a.txt": b"1" * 1000, "set/b.txt": b"2"}, "w:").read_bytes()
    first_file = 512 + 1024
    (tmp_path / "cut.tar").write_bytes(whole[:first_file])
    with pytest.raises(ValueError, match=r"cut\.tar is truncated"):
        unpack(tmp_path / "cut.tar", tmp_path / "data")
    assert not (tmp_path / "data").exists()
    # One block of zeros after the last file is an end; the rest is filling.
    (tmp_path / "short.tar").write_bytes(whole[: first_file + 2 * 512 + 512])
    assert unpack(tmp_path / "short.tar", tmp_path / "data") == ("set",)


def test_an_archive_of_nothing_is_refused(tmp_path):
    # A download that reserved its place and stopped is all zeros, which reads as a tar without files.
    (tmp_path / "zeros.tar").write_bytes(bytes(20_480))
    for path in (tmp_path / "zeros.tar", make_zip(tmp_path / "empty.zip", {}), make_tar(tmp_path / "empty.tgz", {})):
        with pytest.raises(ValueError, match=rf"{path.name} holds nothing"):
            unpack(path, tmp_path / "data")
        assert not (tmp_path / "data").exists()


def test_a_zip_whose_names_are_no_text_is_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"nam\u00e9.txt": b"1"})
    path.write_bytes(path.read_bytes().replace("\u00e9".encode(), b"\xff\xfe"))
    with pytest.raises(ValueError, match=r"a\.zip is truncated or is not a zip or tar archive"):
        unpack(path, tmp_path / "data")


def test_a_compressed_tar_is_unpacked_only_where_its_checksum_holds(tmp_path):
    """Python's tarfile stops at the last member, before the sum that gzip keeps of all of them."""
    with gzip.open(tmp_path / "a.tgz", "wb", compresslevel=0) as file:
        file.write(make_tar(tmp_path / "a.tar", GOOD, "w").read_bytes())
    data = (tmp_path / "a.tgz").read_bytes()
    place = data.index(b"1" * 5000) + 100
    (tmp_path / "a.tgz").write_bytes(data[:place] + b"7" + data[place + 1 :])
    with pytest.raises(ValueError, match=r"a\.tgz is truncated or is not a zip or tar archive"):
        unpack(tmp_path / "a.tgz", tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.bz2", "tar.xz"])
def test_a_byte_that_was_turned_over_is_noticed_in_one_sentence_or_changes_nothing(tmp_path, kind):
    path = tmp_path / f"set.{kind}"
    small = {"set/a.bin": bytes(range(40)), "set/b.bin": b"2" * 90}
    if kind == "zip":
        make_zip(path, small)
    else:
        make_tar(path, small, "w:" + kind.removeprefix("tar."))
    data = path.read_bytes()
    sentences = []
    for place in range(0, len(data), 2):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        folder = tmp_path / f"data{place}"
        try:
            unpack(path, folder)
        except ValueError as refusal:
            sentences.append(str(refusal))
            assert not folder.exists()
        else:
            # Where the names are another's, the sums of a zip's contents hold.
            assert sorted(file.read_bytes() for file in folder.rglob("*.*")) == sorted(small.values())
    assert len(sentences) > 20
    assert all(str(path) in one and "\n" not in one for one in sentences)


def test_a_zip_whose_parts_lie_before_its_beginning_is_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"set/a.bin": b"1" * 50, "set/b.bin": b"2" * 50})
    data = path.read_bytes()
    # Python counts all places from the end, and so comes out before the beginning of what was shortened.
    path.write_bytes(data[20:])
    with pytest.raises(ValueError, match=r"a\.zip is truncated or is not a zip or tar archive"):
        unpack(path, tmp_path / "data")


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "10"},
        {"GNU.sparse.map": "0,1", "GNU.sparse.size": "1000000000000"},
        {"size": "-5"},
    ],
)
def test_what_a_tar_says_of_its_members_beside_the_truth_is_refused(tmp_path, headers):
    """A file that is said to be of a terabyte takes none in the archive, and all of the disk it is unpacked to."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("set/a.txt")
        member.size, member.pax_headers = 3, headers
        archive.addfile(member, io.BytesIO(b"abc"))
    with pytest.raises(ValueError, match=r"a\.tar is (truncated or is not|rejected)"):
        unpack(path, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def header(name="set/a.bin", size=0, kind=tarfile.REGTYPE):
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


END = bytes(1024)
BOMBS = {
    "a pax header of 2^60 bytes": lambda: header("pax", 1 << 60, tarfile.XHDTYPE) + bytes(512),
    "a global header of 2^60 bytes": lambda: header("pax", 1 << 60, tarfile.XGLTYPE) + bytes(512),
    "a name of 2^40 bytes": lambda: header("long", 1 << 40, tarfile.GNUTYPE_LONGNAME) + bytes(512),
    "a link of 2^40 bytes": lambda: header("long", 1 << 40, tarfile.GNUTYPE_LONGLINK) + bytes(512),
    "one later": lambda: header() + header("pax", 1 << 60, tarfile.XHDTYPE) + bytes(512),
    "headers of headers": lambda: header("x", 0, tarfile.XHDTYPE) * 5000 + header() + END,
    "a file of 2^40 bytes": lambda: header(size=1 << 40) + bytes(4096),
    "70,000 files": lambda: header() * 70_000 + END,
    "a file without an end": lambda: header(size=-5) + END,
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("packed", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["tar", "gz", "bz2", "xz"])
def test_a_tar_that_becomes_too_much_is_refused_in_one_sentence(tmp_path, bomb, packed):
    path = tmp_path / "set.tar"
    path.write_bytes(packed(BOMBS[bomb]()))
    if bomb == "70,000 files" and packed is bytes:
        pytest.skip("where nothing is packed, no more comes out than was there")
    with pytest.raises(ValueError, match=r"set\.tar is (rejected|truncated)") as refusal:
        unpack(path, tmp_path / "data")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "data").exists()


def test_zeros_behind_the_end_of_a_tar_are_not_read_to_their_end(tmp_path):
    path = tmp_path / "set.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header() + END)
        for _ in range(600):
            file.write(bytes(1 << 20))
    with pytest.raises(ValueError, match=r"set\.tar\.gz is rejected"):
        unpack(path, tmp_path / "data")


def test_a_zip_of_zeros_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(3):
            with archive.open(f"set/{number}", "w") as file:
                for _ in range(200):
                    file.write(bytes(1 << 20))
    with pytest.raises(ValueError, match=r"set\.zip is rejected"):
        unpack(path, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_what_the_disk_does_not_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))
    with pytest.raises(ValueError, match="1,000 bytes"):
        unpack(make_zip(tmp_path / "set.zip", GOOD), tmp_path / "data")
