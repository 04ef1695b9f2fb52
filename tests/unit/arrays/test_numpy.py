"""What NumPy arrays are taken, and what is said about the rest."""

import gc
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import allhands as dist
from allhands.arrays import as_buffer, device_of, library_of
from harness.arrays import DTYPES, LAYOUTS, MOVED, Guarded
from harness.ranks import run_ranks


@pytest.mark.parametrize("dtype", [*DTYPES, *MOVED], ids=str)
def test_every_dtype_is_taken_as_it_is(dtype):
    array = np.zeros((2, 3), dtype)
    buffer = as_buffer(array, writable=True)
    assert buffer.dtype.name.lower() == dtype.name
    assert buffer.count == 6
    assert buffer.num_bytes == array.nbytes
    assert buffer.address == array.ctypes.data
    assert buffer.is_contiguous


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype(ml_dtypes.bfloat16)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_taken(layout, dtype):
    array = Guarded(np.zeros(6, dtype), layout).array
    buffer = as_buffer(array, writable=True)
    assert buffer.address == array.ctypes.data
    assert buffer.is_contiguous == array.flags.c_contiguous


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_scalars_and_empty_arrays_are_taken(shape):
    assert as_buffer(np.zeros(shape), writable=True).count == np.prod(shape)


def test_the_buffer_keeps_the_array_alive():
    class Watched(np.ndarray):
        pass

    array = np.zeros(3).view(Watched)
    watch = weakref.ref(array)
    buffer = as_buffer(array, writable=True)
    del array
    gc.collect()
    assert watch() is not None
    del buffer
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype(ml_dtypes.bfloat16)])
def test_a_read_only_array_can_be_sent_but_not_written(dtype):
    array = np.zeros(3, dtype)
    array.flags.writeable = False
    assert as_buffer(array, writable=False).count == 3
    with pytest.raises(ValueError, match=r"shape \(3,\) is read-only"):
        as_buffer(array, writable=True)


def test_an_overlapping_array_can_be_sent_but_not_written():
    array = np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,))
    assert as_buffer(array, writable=False).count == 3
    with pytest.raises(ValueError, match="elements that overlap"):
        as_buffer(array, writable=True)


@pytest.mark.parametrize(
    "array",
    [
        np.array([None]),
        np.array(["text"]),
        np.array([b"text"]),
        np.array(["2000-01-01"], "datetime64[D]"),
        np.zeros(2, "timedelta64[s]"),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2, np.dtype("float32").newbyteorder()),
        np.zeros(2, ml_dtypes.float8_e4m3),
    ],
    ids=lambda array: str(array.dtype),
)
@pytest.mark.parametrize("writable", [True, False])
def test_other_dtypes_are_refused(array, writable):
    with pytest.raises(TypeError, match=r"numpy array of dtype .* can be communicated"):
        as_buffer(array, writable=writable)


@pytest.mark.parametrize(
    "thing", [5, [1.0], None, "xx", np.float32(1), np.ma.zeros(3), object()]
)
def test_what_is_no_array_is_refused(thing):
    with pytest.raises(TypeError, match="parameter `input_tensor` of an array type"):
        as_buffer(thing, writable=False, name="input_tensor")


def test_the_core_reads_usual_arrays_itself(monkeypatch):
    def refuse(array, writable):
        raise AssertionError(f"{array.dtype} came to Python")

    monkeypatch.setattr("allhands.arrays._numpy.as_buffer", refuse)

    def body(rank):
        for dtype in DTYPES:
            if dtype != ml_dtypes.bfloat16:
                dist.broadcast(np.ones((2, 1, 3), dtype), src=0)
        with pytest.raises(AssertionError, match="came to Python"):
            dist.all_reduce(np.ones((2, 2)).T)

    run_ranks(2, body)


def test_numpy_arrays_are_on_the_cpu():
    assert device_of(np.zeros(1)) == "cpu"
    assert library_of(np.zeros(1)) is library_of(np.zeros(1).view(np.matrix))


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype(ml_dtypes.bfloat16)])
@pytest.mark.parametrize(
    ("start", "shape", "strides"),
    [(0, (11,), (1,)), (0, (6, 1), (2, 99)), (8, (3,), (-5,)), (0, (10**9,), (1,))],
)
def test_a_view_beyond_its_base_is_refused(dtype, start, shape, strides):
    base = np.zeros(10, dtype)
    strides = tuple(stride * dtype.itemsize for stride in strides)
    view = np.lib.stride_tricks.as_strided(base[start:], shape, strides)
    for writable in (False, True):
        with pytest.raises(
            ValueError, match=r"numpy array of shape \(.* beyond the mem"
        ):
            as_buffer(view, writable=writable)

    def body(rank):
        with pytest.raises(ValueError, match="beyond the memory of the array"):
            dist.broadcast(view, 0)

    run_ranks(1, body)


def test_a_view_of_an_array_that_was_made_smaller_is_refused():
    base = np.zeros(10)
    view = base[5:]
    assert as_buffer(view, writable=True).count == 5
    base.resize(7, refcheck=False)
    with pytest.raises(ValueError, match=r"shape \(5,\) and strides \(8,\) reaches"):
        as_buffer(view, writable=True)


def test_views_within_their_base_are_taken():
    base = np.zeros((4, 6))
    windows = np.lib.stride_tricks.sliding_window_view(base, (2, 3))
    backwards = np.lib.stride_tricks.as_strided(base[3], (4, 6), (-48, 8))
    record = np.zeros(3, [("a", "f8"), ("b", "i4")])
    foreign = np.frombuffer(bytearray(80))[5:]
    for view in (base[::-1, ::-1], base.T[1:], windows, backwards, base[:0], base[9:]):
        assert as_buffer(view, writable=False).count == view.size
    assert as_buffer(record["b"], writable=True).count == 3
    assert as_buffer(foreign, writable=True).count == 5


def test_a_masked_array_is_refused_for_its_mask_would_be_lost():
    class Measured(np.ma.MaskedArray):
        pass

    for kind in (np.ma.MaskedArray, Measured):
        with pytest.raises(TypeError, match="of an array type"):
            as_buffer(np.ones(3).view(kind), writable=True)


def test_a_folder_named_like_a_library_is_none():
    """Python imports it as a package that has no file."""
    source = """
import sys
from types import ModuleType
import numpy as np
sys.modules["torch"] = ModuleType("torch")
import allhands as dist
dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(np.ones(4))
"""
    done = subprocess.run(
        [sys.executable, "-c", source], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_masks_are_loaded_for_plain_arrays():
    source = """
import sys
import numpy as np
import allhands as dist
dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(np.ones((4, 4))[:, 1])
assert "numpy.ma" not in sys.modules, "loaded"
"""
    done = subprocess.run(
        [sys.executable, "-c", source], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
