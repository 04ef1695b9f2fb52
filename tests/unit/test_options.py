"""ReduceOp is a namespace and a class at once, as in torch.distributed."""

import copy
import pickle
from datetime import timedelta

import pytest

from allhands import (
    AllreduceOptions,
    DebugLevel,
    GatherOptions,
    ReduceOp,
    default_pg_timeout,
    reduce_op,
    supports_complex,
)
from allhands.options import RedOpType, as_timedelta, to_seconds

NAMES = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"]


def test_numbers_are_those_of_torch():
    assert [getattr(ReduceOp, name).value for name in NAMES] == list(range(9))


def test_plain_operations_count_as_reduce_ops():
    assert type(ReduceOp.SUM) is ReduceOp.RedOpType is RedOpType
    assert isinstance(ReduceOp.SUM, ReduceOp)
    assert isinstance(ReduceOp(ReduceOp.SUM), ReduceOp)
    assert not isinstance(0, ReduceOp)


@pytest.mark.parametrize("name", NAMES)
def test_an_object_equals_its_operation(name):
    op = getattr(ReduceOp, name)
    assert ReduceOp(op) == op
    assert op == ReduceOp(op)
    assert hash(ReduceOp(op)) == hash(op)
    assert ReduceOp(op) != ReduceOp.PREMUL_SUM(3.0)


@pytest.mark.parametrize(
    "op", [ReduceOp.MAX, ReduceOp(ReduceOp.MAX), ReduceOp.PREMUL_SUM(2.0)]
)
def test_copies_and_pickles_are_equal(op):
    for twin in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        assert twin == op
        assert type(twin) is type(op)


def test_an_operation_is_known_with_any_factor():
    halved = ReduceOp.PREMUL_SUM(0.5)
    assert halved == ReduceOp.PREMUL_SUM
    assert halved != ReduceOp.SUM
    assert {ReduceOp.PREMUL_SUM: "scaled"}[halved] == "scaled"


def test_operations_and_levels_read_as_torchs():
    assert all(ReduceOp.RedOpType)  # none counts as nothing, as 0 would
    assert [str(level) for level in DebugLevel] == [
        "DebugLevel.OFF",
        "DebugLevel.INFO",
        "DebugLevel.DETAIL",
    ]
    assert f"{DebugLevel.INFO}" == "DebugLevel.INFO"


def test_options_refuse_what_they_do_not_have():
    with pytest.raises(AttributeError, match="rootrank"):
        GatherOptions().rootrank = 1


def test_only_premul_sum_has_a_factor():
    assert ReduceOp.PREMUL_SUM(2.0).factor == 2.0
    assert ReduceOp.PREMUL_SUM(2.0).op is ReduceOp.PREMUL_SUM
    assert ReduceOp.PREMUL_SUM(2.0) != ReduceOp.PREMUL_SUM(3.0)
    assert ReduceOp.PREMUL_SUM(2**53 + 1).factor == 2**53 + 1
    with pytest.raises(OverflowError, match="too large"):
        ReduceOp.PREMUL_SUM(10**400)
    with pytest.raises(
        RuntimeError, match=r"Only PREMUL_SUM .* a factor, got RedOpType\.SUM"
    ):
        ReduceOp.SUM(2.0)
    with pytest.raises(RuntimeError, match="Only PREMUL_SUM supports accessing factor"):
        _ = ReduceOp(ReduceOp.SUM).factor


def test_reprs_say_which():
    assert repr(ReduceOp.SUM) == "<RedOpType.SUM: 0>"
    assert str(ReduceOp.SUM) == "RedOpType.SUM"
    assert repr(ReduceOp.PREMUL_SUM(0.5)) == "ReduceOp.PREMUL_SUM(0.5)"


def test_an_object_is_made_of_an_operation_only():
    with pytest.raises(TypeError, match="RedOpType, got 5"):
        ReduceOp(5)


def test_the_old_spelling_warns():
    with pytest.warns(FutureWarning, match=r"please use `allhands\.ReduceOp`"):
        assert reduce_op.SUM is ReduceOp.SUM
    with pytest.warns(FutureWarning, match=r"please use `allhands\.ReduceOp`"):
        assert reduce_op.__members__["MAX"] is ReduceOp.MAX


def test_timeouts_are_timedeltas():
    assert default_pg_timeout == timedelta(minutes=30)
    assert to_seconds(timedelta(minutes=1)) == 60.0
    remedy = r"timedelta, got 5: pass timedelta\(seconds=5\)$"
    with pytest.raises(TypeError, match=remedy):
        to_seconds(5)
    with pytest.raises(TypeError, match=r"of type datetime\.timedelta, got '5'$"):
        to_seconds("5")


def test_a_float_is_a_limit_in_seconds_as_torchs_classes_have_it():
    assert as_timedelta(0.5) == timedelta(milliseconds=500)
    assert to_seconds(0.5) == 0.5
    for limit in (-0.5, timedelta(seconds=-0.5)):
        with pytest.raises(ValueError, match=r"must not be negative, got -0\.5 s"):
            as_timedelta(limit)
    for number in ("inf", "nan"):
        with pytest.raises(ValueError, match=f"must be a time limit, got {number} s"):
            as_timedelta(float(number))


def test_which_operations_take_complex_numbers():
    able = {op.name for op in RedOpType if supports_complex(op)}
    assert able == {"SUM", "AVG", "PRODUCT", "PREMUL_SUM"}
    assert supports_complex(ReduceOp.PREMUL_SUM(2))
    assert not supports_complex(ReduceOp(ReduceOp.MAX))


def test_options_of_calls_hold_what_torchs_hold():
    options = AllreduceOptions()
    assert isinstance(options.reduceOp, ReduceOp)
    options.reduceOp = ReduceOp.MAX
    assert options.reduceOp.op is ReduceOp.MAX
    options.reduceOp = ReduceOp.PREMUL_SUM(2.0)
    assert options.reduceOp.factor == 2.0
    options.timeout = 2.5  # seconds
    assert options.timeout == timedelta(seconds=2.5)
    for name, value in ("reduceOp", "sum"), ("timeout", "soon"), ("timeout", 5):
        with pytest.raises(TypeError):
            setattr(options, name, value)
