"""dist.debug.check_equal: one value on all ranks, or who has another one."""

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks


def state(rank, odd=None):
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    if rank == odd:
        weights[1, 2] = np.nextafter(weights[1, 2], np.float32(9), dtype=np.float32)
    return {
        "layers": [weights[:, ::-1], (np.float64(0.5), b"x", None, True)],
        "rate": 0.1,
    }


def test_equal_values_of_all_kinds_pass():
    def body(rank):
        dist.debug.check_equal(state(rank))
        dist.debug.check_equal({})
        dist.debug.check_equal({"a": 1, "b": 2} if rank else {"b": 2, "a": 1})
        dist.debug.check_equal(np.ones(3) if rank else np.ones(6)[::2])

    run_ranks(3, body)


def test_the_odd_rank_and_the_part_are_named():
    def body(rank):
        with pytest.raises(dist.ContentMismatchError) as failed:
            dist.debug.check_equal(state(rank, odd=2))
        return str(failed.value), failed.value.ranks

    for text, ranks in run_ranks(3, body):
        assert ranks == [2]
        assert text.startswith(f"check_equal on group '0' ({__file__}:")
        assert "['layers'][0]: ranks [2] float32 2x3 " in text
        assert ", [0, 1] float32 2x3 " in text
        assert text.count("ranks [2]") == 1
        assert "give all ranks that of one, as by broadcast()" in text


def test_values_of_other_shapes_and_parts_differ():
    pairs = [
        (1, 2),
        (1, "1"),
        ({"a": 1}, {"b": 1}),
        ([1], [1, 2]),
        (np.ones(2), np.ones((1, 2))),
        (np.ones(2, np.int32), np.ones(2, np.uint32)),
        (0.0, -0.0),
        (list(range(50)), list(range(50, 100))),
    ]

    def body(rank):
        texts = []
        for pair in pairs:
            with pytest.raises(dist.ContentMismatchError) as failed:
                dist.debug.check_equal(pair[rank])
            assert failed.value.ranks == [0, 1]
            texts.append(str(failed.value))
        return texts

    one, other = run_ranks(2, body)
    assert one == other
    assert "it: ranks [0] 1, [1] 2; give" in one[0]
    assert "['b']: ranks [0] nothing, [1] 1" in one[2]
    assert "; and 47 more parts; give" in one[-1]


def test_a_group_has_its_own_values():
    def body(rank):
        pair = dist.new_group([1, 2])
        if rank:
            dist.debug.check_equal(rank > 0, group=pair)
            told = "ranks 1, 2 of the world"
            with pytest.raises(dist.ContentMismatchError, match=told):
                dist.debug.check_equal(rank, group=pair)

    run_ranks(3, body)


def test_what_is_no_value_is_refused():
    def body(rank):
        with pytest.raises(TypeError, match=r"its part \['f'\] is no array, number"):
            dist.debug.check_equal({"f": object()})
        with pytest.raises(TypeError, match="the value is no array, number or text"):
            dist.debug.check_equal({1, 2})

    run_ranks(1, body)
