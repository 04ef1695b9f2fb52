"""Arrays of every dtype and layout with guard bytes, and what reductions must give.

`Guarded` puts an array into a larger block of known bytes; `check` then holds that
nothing of the block but the array's own elements has changed.
"""

import functools

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INTEGERS = [
    np.dtype(f"{kind}{8 * size}") for kind in ("int", "uint") for size in (1, 2, 4, 8)
]
FLOATS = [np.dtype("float16"), BFLOAT16, np.dtype("float32"), np.dtype("float64")]
COMPLEX = [np.dtype("complex64"), np.dtype("complex128")]
BOOL = np.dtype("bool")
DTYPES = [BOOL, *INTEGERS, *FLOATS, *COMPLEX]
MOVED = [  # but not reduced
    np.dtype(getattr(ml_dtypes, f"float8_{name}"))
    for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
]

# By dimensions; `Guarded` makes "expanded" where all values are the same.
FLAT = ("contiguous", "every_other", "reversed", "column", "unaligned")
LAYOUTS = (*FLAT, "transposed", "cube", "cube_turned", "cube_sliced", "cube_reversed")
_GUARD = 64  # bytes before and after
_KNOWN = np.arange(256, dtype=np.uint8) | 0x41  # and again and again


class Guarded:
    """An array of `values` in guarded memory, of one to three dimensions."""

    def __init__(self, values, layout, block=None):
        """`block(num_bytes)` gives the memory, as bytes."""
        self.layout = layout
        self.dtype = values.dtype
        self.count = values.size
        itemsize = values.dtype.itemsize
        num_bytes = 2 * _GUARD + (3 * self.count + 4) * itemsize
        self.memory = (block or _private)(num_bytes)
        _fill(self.memory)
        self.array = self._carve(self.memory)
        self.array[...] = values.reshape(self.array.shape)
        self._before = self.memory.copy()
        self.expected = None  # of an array that is only read: what stays in it

    def _carve(self, memory):
        """The view of `memory` that this layout means."""
        start = _GUARD + (1 if self.layout == "unaligned" else 0)
        cells = memory[start:][: 3 * self.count * self.dtype.itemsize]
        cells = cells.view(self.dtype)
        if self.layout == "every_other":
            return cells[: 2 * self.count : 2]
        if self.layout == "reversed":
            return cells[: self.count][::-1]
        if self.layout == "column":
            return cells.reshape(self.count, 3)[:, 1]
        if self.layout == "transposed":
            rows = next(n for n in (3, 2, 1) if self.count % n == 0)
            return cells[: self.count].reshape(-1, rows).T
        if self.layout == "expanded":
            return np.lib.stride_tricks.as_strided(cells, (self.count,), (0,))
        if self.layout.startswith("cube"):
            return self._carve_cube(cells)
        return cells[: self.count]

    def _carve_cube(self, cells):
        """Three dimensions: in order, turned, every other one, or backwards."""
        a = next(n for n in (3, 2, 1) if self.count % n == 0)
        b = next(n for n in (5, 4, 2, 1) if self.count // a % n == 0)
        c = self.count // (a * b)
        whole = cells[: self.count].reshape(a, b, c)
        if self.layout == "cube_turned":
            return whole.transpose(2, 0, 1)
        if self.layout == "cube_sliced":
            wide = cells[: 2 * self.count].reshape(a, 2 * b, c)
            return wide[:, 1::2].transpose(1, 0, 2)
        if self.layout == "cube_reversed":
            return whole[::-1, :, ::-1]
        return whole

    def values(self):
        """The elements in row-major order."""
        return self.array.reshape(-1).copy()

    def check(self):
        """Hold that only the array's elements were written."""
        allowed = self._before.copy()
        self._carve(allowed)[...] = self.array
        if not np.array_equal(self.memory, allowed):  # which is soon told
            np.testing.assert_array_equal(self.memory, allowed)


def _fill(memory):
    """Write the known bytes."""
    whole = memory[: memory.size // _KNOWN.size * _KNOWN.size]
    whole.reshape(-1, _KNOWN.size)[:] = _KNOWN
    memory[whole.size :] = _KNOWN[: memory.size - whole.size]


def _private(num_bytes):
    return np.empty(num_bytes, np.uint8)


def as_tensors(arguments):
    """The arrays among `arguments` as torch tensors, if torch can have all of them."""
    arrays = [a for a in _flat(arguments) if isinstance(a, np.ndarray)]
    if any(stride < 0 for array in arrays for stride in array.strides):
        return arguments
    return [
        [_as_tensor(item) for item in argument]
        if isinstance(argument, list)
        else _as_tensor(argument)
        for argument in arguments
    ]


def _flat(arguments):
    for argument in arguments:
        yield from argument if isinstance(argument, list) else [argument]


def _as_tensor(value):
    if not isinstance(value, np.ndarray):
        return value
    import torch  # its tests are skipped where it is missing

    may_write = value.flags.writeable
    if not may_write:
        value.flags.writeable = True  # or torch warns
    if value.dtype == BFLOAT16:
        tensor = torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(value)
    if not may_write:
        value.flags.writeable = False
    return tensor


def random_values(generator, dtype, count):
    """Values of a dtype that keep sums and products of 8 ranks finite.

    Sometimes all the same, so that an expanded array can have them.
    """
    if count > 1 and generator.random() < 0.1:
        return np.repeat(random_values(generator, dtype, 1), count)
    if dtype == BOOL:
        return generator.integers(0, 2, count).astype(bool)
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, count, dtype, endpoint=True)
    if dtype in COMPLEX:
        parts = generator.uniform(-2, 2, (2, count))
        return (parts[0] + 1j * parts[1]).astype(dtype)
    return generator.uniform(-2, 2, count).astype(dtype)


def supports(op, dtype):
    """Whether the reduction named `op` means anything for `dtype`."""
    if op in ("MIN", "MAX"):
        return dtype not in COMPLEX
    if op in ("BAND", "BOR", "BXOR"):
        return dtype == BOOL or dtype in INTEGERS
    return dtype != BOOL or op not in ("AVG", "PREMUL_SUM")


def check_reduced(result, inputs, op, factors=None):
    """Hold that `result` is the reduction of `inputs`, one per rank."""
    dtype = inputs[0].dtype
    if op == "PREMUL_SUM" and dtype in INTEGERS:
        wrapped = np.array([f % 2**64 for f in factors], np.uint64).astype(dtype)
        return check_reduced(result, list(map(np.multiply, inputs, wrapped)), "SUM")
    if op == "PREMUL_SUM":
        return _check_close(result, inputs, op, factors)
    if op in _EXACT and (op != "SUM" or dtype not in FLOATS + COMPLEX):
        if dtype in FLOATS + COMPLEX and op == "PRODUCT":
            return _check_close(result, inputs, op)
        expected = functools.reduce(_EXACT[op], inputs).astype(dtype)
        np.testing.assert_array_equal(result, expected)
        return None
    if op == "AVG" and dtype in INTEGERS:
        sums = [sum(map(int, column)) for column in zip(*inputs, strict=True)]
        quotients = [abs(s) // len(inputs) * (1 if s >= 0 else -1) for s in sums]
        np.testing.assert_array_equal(result, np.array(quotients, dtype))
        return None
    return _check_close(result, inputs, op)


_EXACT = {
    "SUM": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def _check_close(result, inputs, op, factors=None):
    """Compare with the same in float64 or complex128, within the dtype's rounding."""
    dtype = inputs[0].dtype
    wide = np.complex128 if dtype in COMPLEX else np.float64
    exact = [values.astype(wide) for values in inputs]
    if factors is not None:
        exact = list(map(np.multiply, exact, factors))
    expected = functools.reduce(np.multiply if op == "PRODUCT" else np.add, exact)
    scale = functools.reduce(
        np.multiply if op == "PRODUCT" else np.add, [abs(values) for values in exact]
    )
    if op == "AVG":
        expected, scale = expected / len(inputs), scale / len(inputs)
    # 16-bit floats are rounded once; the others at every step.
    steps = 1 if dtype.itemsize == 2 else 2 * len(inputs)
    unit = ml_dtypes.finfo(dtype) if dtype == BFLOAT16 else np.finfo(dtype)
    limit = steps * float(unit.eps) * scale + float(unit.tiny)
    assert np.all(abs(result.astype(wide) - expected) <= limit)
