"""Pickles may build arrays; whatever else they ask for is refused before it happens."""

import io
import pickle
import struct

import numpy as np
import pytest

from hardsight.datasets.formats import load_arrays


def write(tmp_path, data: bytes):
    path = tmp_path / "batch"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "f4", "?"])
def test_arrays_of_every_protocol_come_back(tmp_path, protocol, dtype):
    array = (np.arange(12) % 2).reshape(3, 4).astype(dtype)
    value = {"data": array, "fortran": np.asfortranarray(array), "labels": [1, 2, 3], "pair": (1.5, "x"), "none": None}
    again = load_arrays(write(tmp_path, pickle.dumps(value, protocol)))
    np.testing.assert_array_equal(again["data"], array)
    np.testing.assert_array_equal(again["fortran"], array)
    assert again["data"].dtype == array.dtype
    assert (again["labels"], again["pair"], again["none"]) == ([1, 2, 3], (1.5, "x"), None)


def test_numpy_scalars_become_numbers(tmp_path):
    assert load_arrays(write(tmp_path, pickle.dumps([np.int64(7), np.float32(0.5)]))) == [7, 0.5]


def test_names_of_the_old_and_the_new_numpy_are_known(tmp_path):
    data = pickle.dumps(np.arange(3, dtype="i8"), 2)
    new, old = b"numpy._core.multiarray", b"numpy.core.multiarray"
    other = data.replace(new, old) if new in data else data.replace(old, new)
    assert other != data
    np.testing.assert_array_equal(load_arrays(write(tmp_path, other)), [0, 1, 2])


def test_code_is_refused_and_not_run(tmp_path, bomb):
    value, witness = bomb
    for protocol in range(6):
        path = write(tmp_path, pickle.dumps({"data": np.zeros(3), "labels": value}, protocol))
        with pytest.raises(ValueError, match=r"is rejected: it asks for .*, and only arrays are read"):
            load_arrays(path)
        assert not witness.exists()


def test_the_plain_unpickler_would_have_run_it(tmp_path, bomb):
    """The test above can fail: the same bytes do run code when they are let."""
    value, witness = bomb
    pickle.load(io.BytesIO(pickle.dumps({"labels": value})))
    assert witness.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"c__builtin__\nexec\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy\nndarray\n(K\x05tR.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"c_codecs\nencode\n(S'x'\nS'zip'\ntR.",
        b"c_codecs\nencode\n(dS'__defaults__'\n(tsb.",
        b"cnumpy\ndtype\n(S'O'\ntR.",
        b"c_codecs\nencode\n.",
        b"cnumpy\nndarray\n.",
    ],
)
def test_programs_are_refused(tmp_path, program):
    with pytest.raises(ValueError, match="is rejected"):
        load_arrays(write(tmp_path, program))


def test_objects_in_an_array_are_refused(tmp_path):
    with pytest.raises(ValueError, match="which is no plain number"):
        load_arrays(write(tmp_path, pickle.dumps(np.array([{}, []], dtype=object))))


def test_an_array_whose_bytes_do_not_fit_is_refused(tmp_path):
    data = pickle.dumps(np.zeros((3, 4), "u1"), 2).replace(b"K\x03K\x04\x86", b"K\x7fK\x7f\x86")
    with pytest.raises(ValueError, match="is truncated or is not a pickle of arrays"):
        load_arrays(write(tmp_path, data))


def test_every_truncation_is_one_sentence(tmp_path):
    data = pickle.dumps({"data": np.zeros((3, 4), "u1"), "labels": [1, 2, 3]})
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"batch is (truncated|refused)"):
            load_arrays(write(tmp_path, data[:length]))


def test_random_bytes_never_crash(tmp_path):
    generator = np.random.default_rng(0)
    whole = pickle.dumps({"data": np.zeros((3, 4), "u1"), "labels": [1, 2, 3]})
    refusals = []
    for _ in range(300):
        data = bytearray(whole)
        data[int(generator.integers(len(data)))] = int(generator.integers(256))
        try:
            load_arrays(write(tmp_path, bytes(data)))
        except ValueError as refusal:
            refusals.append(str(refusal))
    assert refusals
    assert not any("\n" in refusal for refusal in refusals)


def test_lists_nested_in_themselves_end(tmp_path):
    doubling = b"\x80\x02]q\x00" + b"".join(
        b"](h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1]) for level in range(60)
    )
    # The program leaves its lists on the stack and returns the last: 2^60 leaves if each were copied.
    value = load_arrays(write(tmp_path, doubling + b"."))
    assert value[0] is value[1]
    circular = b"\x80\x02]q\x00h\x00a."
    with pytest.raises(ValueError, match="is not a pickle of arrays"):
        load_arrays(write(tmp_path, circular))


def test_a_promise_of_many_bytes_reserves_no_memory(tmp_path):
    with pytest.raises(ValueError, match="truncated"):
        load_arrays(write(tmp_path, b"\x80\x04\x8e" + struct.pack("<Q", 1 << 50) + b"few."))
