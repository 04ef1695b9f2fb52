"""What `weights_only` lets through, and what it refuses, without ranks."""

import collections
import contextlib
import copyreg
import datetime
import io
import os
import pickle
import random
import tracemalloc
import types

import numpy as np
import pytest

from allhands.arrays.loading import set_state
from allhands.ops.restricted import RestrictedUnpickler
from allhands.ops.serialization import pack, room_for, unpack

MANY = 9_000_000  # bytes, for more than one piece


def carried(obj, weights_only=True):
    """What arrives of `obj`."""
    packed = pack(obj)
    [arrived] = room_for([packed.numbers()])
    for source, target in zip(packed.sections(), arrived.sections(), strict=True):
        target[:] = source
    return unpack(arrived, weights_only)


def load(program):
    """Obey the instructions of a pickle."""
    return RestrictedUnpickler(io.BytesIO(program), None).load()


class Calls:
    """Pickles as a call of a function with arguments."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


with_attribute = collections.OrderedDict(a=1)
with_attribute.label = "x"
itself = []
itself.append(itself)
OBJECTS = {
    "none": None,
    "bool": [True, False],
    "numbers": [0, -1, 2**70, 0.5, float("inf"), 1 + 2j],
    "texts": ["", "aé", b"", b"\0", bytearray(b"ab")],
    "containers": [(), (1,), [2, [3]], {"a": {"b": 4}}, {5, 6}, frozenset({7})],
    "ranges": [range(1, 9, 2), slice(1, None)],
    "types": [int, dict, complex],
    "ordered": collections.OrderedDict(b=1, a=2),
    "counter": collections.Counter("abca"),
    "deque": collections.deque([1, 2], maxlen=3),
    "defaultdict": collections.defaultdict(list, a=[1]),
    "twice": [[1]] * 3,
    "large bytes": [b"ab" * (MANY // 2), "x"],
    "large str": "aé" * (MANY // 3),
    "large bytearray": bytearray(b"ab") * (MANY // 2),
    "many numbers": [0.5 * n for n in range(100_000)],
}


@pytest.mark.parametrize("obj", OBJECTS.values(), ids=OBJECTS)
def test_data_comes_out_as_it_went_in(obj):
    result = carried(obj)
    assert type(result) is type(obj)
    assert result == obj


def test_attributes_and_references_to_itself():
    assert carried(with_attribute).label == "x"
    loop = carried(itself)
    assert loop[0] is loop


STRUCTURED = [
    np.dtype([("a", "f4"), ("b", "S3")]),
    np.dtype([("a", "i1"), ("b", "f8", (2,))], align=True),
    np.dtype([(("title", "a"), "i2"), ("b", [("c", "u1"), ("d", ">i8")])]),
    np.dtype({"names": ["a"], "formats": ["f8"], "offsets": [8], "itemsize": 24}),
]
DTYPES = [
    np.dtype(text)
    for text in [
        "?",
        "i1",
        "u2",
        "<i4",
        ">i4",
        "f2",
        ">f8",
        "c8",
        "U5",
        ">U5",
        "S3",
        "V7",
        "O",
    ]
]
DTYPES += [np.dtype(text) for text in ["M8", "M8[D]", "m8[25s]", ">M8[ms]"]]
DTYPES += [*STRUCTURED, np.dtype(("f4", (2, 3)))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype):
    result = carried(dtype)
    assert result == dtype
    assert result.isalignedstruct == dtype.isalignedstruct
    assert result.fields == dtype.fields


@pytest.mark.parametrize(
    "shape", [(), (0,), (3,), (2, 0), (3, 4), (200, 300), (2, 3, 4)]
)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.hasobject], ids=str)
def test_arrays(dtype, shape):
    count = int(np.prod(shape)) * dtype.itemsize
    data = (b"\0" if dtype.kind in "UM" else b"\1") * count
    array = np.ndarray(shape, dtype, bytearray(data))
    for one in (
        array,
        array.T,
        array[::2] if shape else array,
        np.asfortranarray(array),
    ):
        result, expected = carried(one), carried(one, weights_only=False)
        assert result.dtype == expected.dtype  # NumPy may swap bytes
        assert result.flags == expected.flags
        assert np.array_equal(result, one)


def test_arrays_of_objects_and_scalars():
    array = np.array([{"a": 1}, [2], None], dtype=object)
    assert carried(array).tolist() == array.tolist()
    scalars = [np.float32(0.5), np.bool_(True), np.str_("ab"), np.datetime64("2020-01")]
    scalars.append(np.zeros(1, STRUCTURED[0])[0])
    for scalar in scalars:
        result = carried(scalar)
        assert type(result) is type(scalar)
        assert result == scalar
    assert carried(np.float64) is np.float64


def test_a_large_array_is_not_copied():
    packed = pack({"a": np.arange(100_000)})
    [arrived] = room_for([packed.numbers()])
    for source, target in zip(packed.sections(), arrived.sections(), strict=True):
        target[:] = source
    [buffer] = arrived.buffers
    assert np.shares_memory(unpack(arrived, weights_only=True)["a"], buffer)


class Mine:
    """A class of a user's own."""

    def __eq__(self, other):
        return vars(self) == vars(other)


REFUSED = {
    "posix.system": Calls(os.system, "exit 1"),
    "builtins.eval": Calls(eval, "1"),
    "builtins.getattr": Calls(getattr, "a", "upper"),
    "builtins.print": print,
    "builtins.type": type,
    "datetime.date": datetime.date(2020, 1, 1),
    "types.SimpleNamespace": types.SimpleNamespace(a=1),
    "numpy.ma.core._mareconstruct": np.ma.ones(2),
    f"{Mine.__module__}.Mine": Mine(),
    "numpy.loads": None,
}


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_named(name):
    obj = REFUSED[name]
    if obj is None:
        module, _, attribute = name.rpartition(".")
        program = b"\x80\x04c" + f"{module}\n{attribute}\n.".encode()
    else:
        program = pickle.dumps(obj, 4)
    with pytest.raises(pickle.UnpicklingError, match=f"global: {name} is not allowed"):
        load(program)


def test_nothing_is_run_before_the_refusal(tmp_path):
    path = tmp_path / "made"
    with pytest.raises(pickle.UnpicklingError, match=r"io\.open is not allowed"):
        carried([1, {"a": Calls(open, str(path), "w")}])
    assert not path.exists()


def instructions(*parts):
    """A pickle: names, and what is put or done after them."""
    return b"\x80\x04" + b"".join(parts) + b"."


def named(full):
    module, _, name = full.rpartition(".")
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


@pytest.mark.parametrize(
    ("program", "text"),
    [
        # The class itself gets attributes.
        (
            [named("collections.OrderedDict"), b"N}X\1\0\0\0aK\1s\x86b"],
            "changes an object of <class 'type'>",
        ),
        ([named("builtins.set"), b"K\1a"], "changes an object of <class 'type'>"),
        ([named("builtins.dict"), b"K\1K\2s"], "changes an object of <class 'type'>"),
        ([named("builtins.dict"), b"(K\1K\2u"], "changes an object of <class 'type'>"),
        ([named("builtins.set"), b"(K\1\x90"], "changes an object of <class 'type'>"),
        ([named("builtins.list"), b"(K\1e"], "changes an object of <class 'type'>"),
        # What was made is called, or taken for a class.
        ([b"]", b")R"], r"calls \[\], which it has not named"),
        ([b"]", b")\x81"], r"calls \[\], which it has not named"),
        ([b"]", b")}\x92"], r"calls \[\], which it has not named"),
        ([b"(", named("builtins.int"), b"o"], "an instruction of protocol 0 or 1"),
        ([b"(ibuiltins\nint\n"], "an instruction of protocol 0 or 1"),
        ([b"\x82\1"], "extension 1 is not allowed"),
        ([b"Psomething\n"], "persistent"),
    ],
)
def test_programs_that_go_round_the_list(program, text):
    with pytest.raises(pickle.UnpicklingError, match=text):
        load(instructions(*program))


def test_an_extension_that_is_known_already_is_refused():
    code = 0xF1
    copyreg.add_extension("os", "system", code)
    try:
        program = pickle.dumps(os.system, 4)
        with pytest.raises(pickle.UnpicklingError, match="is not allowed"):
            load(program)
        with pytest.raises(pickle.UnpicklingError, match="extension 241 is not all"):
            load(instructions(b"\x82\xf1"))
    finally:
        copyreg.remove_extension("os", "system", code)


class State:
    """Pickles as an object that is made by a call and then gets a state."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


RECONSTRUCT, SCALAR = (
    np.ones((2, 2))[::2, ::2].__reduce__()[0],
    np.int8(1).__reduce__()[0],
)
VOID = (np.dtype, ("V8", False, True))
OF_OBJECT = (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 63)


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (State(*VOID, OF_OBJECT), "has objects in parts of its elements"),
        # Numbers that are said to be references.
        (
            State(
                np.dtype, ("u8", False, True), (3, "|", None, None, None, -1, -1, 63)
            ),
            None,
        ),
        (
            State(np.dtype, ("f8",), (3, ">", None, None, None, -1, -1, 0)),
            "whole program",
        ),
        (
            State(
                np.dtype,
                ("V8", False, True),
                (3, "|", (np.dtype("f8"), (9,)), None, None, 8, 1, 0),
            ),
            "another dtype",
        ),
        (Calls(SCALAR, np.dtype("O"), b"A" * 8), "a scalar of dtype"),
        (Calls(SCALAR, np.dtype("f8"), b"A"), "out of 1 bytes"),
        (Calls(np.ndarray, (3,), np.dtype("O")), "numpy.ndarray is called"),
        (Calls(RECONSTRUCT, dict, (0,), b"b"), "only numpy.ndarray can be loaded"),
        (
            State(
                RECONSTRUCT,
                (np.ndarray, (0,), b"b"),
                (1, (9,), np.dtype("f8"), False, b"A"),
            ),
            r"shape \(9,\) .* out of 1 elements of bytes",
        ),
        (
            State(
                RECONSTRUCT,
                (np.ndarray, (0,), b"b"),
                (1, (1,), np.dtype("O"), False, b"A" * 8),
            ),
            "elements of bytes",
        ),
    ],
)
def test_numpy_is_not_told_what_its_memory_holds(obj, text):
    if text is None:
        assert carried(obj).flags == np.dtype("u8").flags
        return
    with pytest.raises(ValueError, match=text):
        carried(obj)


def test_an_array_that_others_may_see_gets_no_other_memory():
    state = 1, (1,), np.dtype("f8"), False, b"\0" * 8
    array = carried(State(RECONSTRUCT, (np.ndarray, (0,), b"b"), state))
    with pytest.raises(ValueError, match=r"of shape \(1,\) is to become another"):
        set_state(array, state)


def test_a_bytearray_that_is_cut_off():
    with pytest.raises(EOFError, match="ends 3 bytes too early"):
        load(b"\x80\x05\x96\x05" + b"\0" * 7 + b"ab")


def test_a_large_object_is_in_memory_once():
    """Of all kinds but `str`, which a decoder has to see whole."""
    for obj in (b"ab" * MANY, bytearray(b"ab") * MANY, [bytes(MANY), bytes(MANY)]):
        packed = pack(obj)
        [arrived] = room_for([packed.numbers()])
        for source, target in zip(packed.sections(), arrived.sections(), strict=True):
            target[:] = source
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        unpack(arrived, weights_only=True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak - before < 1.3 * 2 * MANY


@pytest.mark.parametrize("seed", range(10))
def test_damaged_pickles_do_no_harm(seed):
    """Bytes of pickles changed, cut and mixed: data, or some exception."""
    chance = random.Random(seed)
    kept = {
        "arrays": np.arange(5.0)[::2],
        "dtypes": STRUCTURED,
        "one": OBJECTS["deque"],
    }
    streams = [
        b"".join(bytes(section) for section in pack(obj).sections())
        for obj in (kept, [np.float32(1), np.array([{}], object)], OBJECTS["ordered"])
    ]
    num_read = 0
    for _ in range(300):
        stream = bytearray(chance.choice(streams))
        for _ in range(chance.randrange(1, 4)):
            at, other = chance.randrange(len(stream)), chance.choice(streams)
            start = chance.randrange(len(other))
            piece = other[start : start + chance.randrange(30)]
            change = chance.choice([piece, bytes([chance.randrange(256)])])
            stream[at : at + chance.randrange(3)] = change
        with contextlib.suppress(Exception):  # of whatever kind
            str(load(stream))
            num_read += 1
    assert 0 < num_read < 300
    for code in "i4", "f8", "U5":
        assert np.dtype(code).isnative
        assert np.dtype(code).str[1:] == code
