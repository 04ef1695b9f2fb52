"""Stores that tests need: as users write them."""

import threading
import time

from allhands import DistStoreError, Store


def _bytes(value):
    return value.encode() if isinstance(value, str) else value


def _compare_set(store, key, expected, desired):
    with store._lock:
        if key not in store._data and expected:
            return expected
        if store._data.get(key, b"") == expected:
            store._data[key] = desired
        return store._data[key]


class LeastStore(Store):
    """What a user writes who writes the least; all else is made of `compare_set`."""

    def __init__(self):
        self._data = {}
        self._lock = threading.Lock()

    def set(self, key, value):
        if not isinstance(key, str):
            raise TypeError(f"a store's key must be str, got {key!r}")
        if not isinstance(value, str | bytes):
            raise TypeError(f"cannot set {key!r} to {value!r}")
        with self._lock:
            self._data[key] = _bytes(value)

    def get(self, key):
        if not isinstance(key, str):
            raise TypeError(f"a store's key must be str, got {key!r}")
        limit = self.timeout.total_seconds()
        deadline = time.monotonic() + limit
        while key not in self._data:
            if time.monotonic() > deadline:
                text = f"wait timeout after {limit * 1000:.0f}ms, keys: /{key}"
                raise DistStoreError(text)
            time.sleep(0.001)
        return self._data[key]

    def compare_set(self, key, expected_value, desired_value):
        return _compare_set(self, key, _bytes(expected_value), _bytes(desired_value))


class DictStore(Store):
    """What a user writes who has a dict: the primitives and nothing more."""

    def __init__(self):
        self._data = {}
        self._lock = threading.Lock()

    def set(self, key, value):
        if not isinstance(key, str) or not isinstance(value, str | bytes):
            raise TypeError(f"cannot set {key!r} to {value!r}")
        with self._lock:
            self._data[key] = _bytes(value)

    def get(self, key):
        self.wait([key])
        return self._data[key]

    def add(self, key, amount):
        if not isinstance(amount, int) or not -(2**63) <= amount < 2**63:
            raise TypeError(f"cannot add {amount!r}")
        with self._lock:
            text = self._data.get(key, b"0").decode()
            if str(int64 := _wrapped(_number(text))) != text:
                raise ValueError(f"cannot add to {text!r}")
            total = _wrapped(int64 + amount)
            self._data[key] = str(total).encode()
            return total

    def check(self, keys):
        if isinstance(keys, str):
            raise TypeError(f"not a list of keys: {keys!r}")
        return all(key in self._data for key in keys)

    def compare_set(self, key, expected_value, desired_value):
        return _compare_set(self, key, _bytes(expected_value), _bytes(desired_value))

    def delete_key(self, key):
        if not isinstance(key, str):
            raise TypeError(f"not a key: {key!r}")
        with self._lock:
            return self._data.pop(key, None) is not None

    def list_keys(self):
        with self._lock:
            return list(self._data)


def _number(text):
    try:
        return int(text)
    except ValueError:
        return 2**63  # wraps, so it never equals its text


def _wrapped(number):
    return (number + 2**63) % 2**64 - 2**63
