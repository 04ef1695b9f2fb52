"""The collectives of a group under torch's names, as methods.

torch's functions call these methods, and so do programs that hold a group object. All
return a handle. Ranks are ranks of the group. torch has two forms of each operation,
and each method here takes both. In the first form, arrays are in lists and come with an
options object, as in `allreduce([x], AllreduceOptions())`. In the second form, a call
passes the arrays themselves and the contents of the options, as in `allreduce(x,
ReduceOp.MAX)`. As in torch, the keyword is `tensors=[x]` in the first form and
`tensor=x` in the second.

The functions of `collectives` and `reductions` describe the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

from allhands.arrays import Array
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.work import Work
from allhands.errors import ArgumentError
from allhands.groups.several_arrays import (
    as_one,
    check_alike,
    check_source,
    listed,
    only,
    spread,
    united,
)
from allhands.options import RedOpType, ReduceOp

__all__ = ["TorchCollectives"]

WorkType = TypeVar("WorkType")
"""The class of the handles."""


class TorchCollectives(Generic[WorkType]):
    """See the module; a subclass says how it reads options and what it returns."""

    rank: Callable[[], int]
    """Returns this process's rank in the group."""
    size: Callable[[], int]
    """Returns the number of ranks of the group."""

    @property
    def _communicator(self) -> Communicator:
        """Carries out the operations."""
        raise NotImplementedError  # the subclass implements it

    def _reduce_op(self, opts: Any, op: Any) -> RedOpType | ReduceOp:
        """Return `op` if given, else that of `opts`, which may itself be one."""
        raise NotImplementedError  # the subclass implements it

    def _terms(
        self, opts: Any, timeout: timedelta | None
    ) -> tuple[timedelta | None, bool]:
        """Return the limit of a collective, and whether a wait will follow."""
        raise NotImplementedError  # the subclass implements it

    def _started(self, work: Work | None, outputs: list[Any]) -> WorkType:
        """Return the handle of `work`, which writes `outputs`."""
        raise NotImplementedError  # the subclass implements it

    def allreduce(
        self,
        tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        tensor: Any = None,
        op: RedOpType | ReduceOp | None = None,
    ) -> WorkType:
        """See `allhands.all_reduce`; `opts` may be the reduce operation itself."""
        arrays, chosen = listed(tensors, tensor), self._reduce_op(opts, op)
        if len(arrays) > 1:
            check_alike(arrays)
            united(arrays, chosen)
        terms, communicator = self._terms(opts, timeout), self._communicator
        if len(arrays) == 1:  # the usual case
            work = communicator.all_reduce(arrays[0], chosen, *terms)
            return self._started(work, arrays)
        works = [communicator.all_reduce(array, chosen, *terms) for array in arrays]
        return self._started(as_one(works, arrays), arrays)

    def allreduce_coalesced(self, tensors: list[Array], opts: Any = None) -> WorkType:
        """See `allhands.all_reduce_coalesced`."""
        chosen = self._reduce_op(opts, None)
        return self._submit(
            "all_reduce_coalesced", tensors, tensors, opts, reduce_op=chosen
        )

    def reduce(
        self,
        tensors: Any = None,
        opts: Any = None,
        op: RedOpType | ReduceOp | None = None,
        timeout: timedelta | None = None,
        *,
        tensor: Any = None,
        root: int | None = None,
    ) -> WorkType:
        """See `allhands.reduce`; `opts` may be the root itself."""
        array = only(tensors, tensor)
        chosen = self._reduce_op(opts if hasattr(opts, "reduceOp") else None, op)
        work = self._communicator.reduce(
            array, _root_of(opts, root), chosen, *self._terms(opts, timeout)
        )
        return self._started(work, [array])

    def reduce_scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        output: Any = None,
        input: Any = None,
        op: RedOpType | ReduceOp | None = None,
    ) -> WorkType:
        """See `allhands.reduce_scatter`; `opts` may be the reduce operation itself."""
        target = only(output_tensors, output)
        parts = _one_list(input_tensors if input is None else input)
        work = self._communicator.reduce_scatter(
            target, parts, self._reduce_op(opts, op), *self._terms(opts, timeout)
        )
        return self._started(work, [target])

    def reduce_scatter_single(
        self,
        output: Array,
        input: Array,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> WorkType:
        """See `allhands.reduce_scatter_single`."""
        work = self._communicator.reduce_scatter_single(
            output, input, self._reduce_op(opts, None), *self._terms(opts, timeout)
        )
        return self._started(work, [output])

    def _reduce_scatter_base(
        self, outputTensor: Array, inputTensor: Array, opts: Any = None
    ) -> WorkType:
        """See `reduce_scatter_single`."""
        return self.reduce_scatter_single(outputTensor, inputTensor, opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Array], inputs: list[Array], opts: Any = None
    ) -> WorkType:
        """Run `reduce_scatter_single` for each pair, as one operation."""
        chosen = self._reduce_op(opts, None)
        name = "reduce_scatter_single_coalesced"
        return self._submit(name, outputs, inputs, opts, reduce_op=chosen)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def broadcast(
        self,
        tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        tensor: Any = None,
        root: int | None = None,
    ) -> WorkType:
        """See `allhands.broadcast`; `opts` may be the root itself."""
        arrays, chosen = listed(tensors, tensor), _root_of(opts, root)
        source = getattr(opts, "rootTensor", 0)
        if len(arrays) > 1 or source != 0:
            check_alike(arrays)
            check_source(arrays, source)
            if chosen == self.rank():
                spread(arrays, source)
        terms, communicator = self._terms(opts, timeout), self._communicator
        works = [communicator.broadcast(array, chosen, *terms) for array in arrays]
        return self._started(as_one(works, arrays), arrays)

    def allgather(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        input_tensor: Any = None,
    ) -> WorkType:
        """See `allhands.all_gather`."""
        inputs = listed(input_tensors, input_tensor)
        if len(inputs) == 1:
            outputs = _one_list(output_tensors)
            pairs = [(outputs, inputs[0])]
        else:
            check_alike(inputs)
            outputs = [array for arrays in output_tensors for array in arrays]
            pairs = _pairs(output_tensors, inputs)
        terms, communicator = self._terms(opts, timeout), self._communicator
        works = [communicator.all_gather(*pair, *terms) for pair in pairs]
        return self._started(as_one(works, outputs), outputs)

    def allgather_coalesced(
        self, output_lists: list[list[Array]], input_list: list[Array], opts: Any = None
    ) -> WorkType:
        """See `allhands.all_gather_coalesced`."""
        return self._submit("all_gather_coalesced", output_lists, input_list, opts)

    def all_gather_single(
        self,
        output: Array,
        input: Array,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> WorkType:
        """See `allhands.all_gather_single`."""
        work = self._communicator.all_gather_single(
            output, input, *self._terms(opts, timeout)
        )
        return self._started(work, [output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[Array], inputs: list[Array], opts: Any = None
    ) -> WorkType:
        """Run `all_gather_single` for each pair, as one operation."""
        return self._submit("all_gather_single_coalesced", outputs, inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        input_tensor: Any = None,
        root: int | None = None,
    ) -> WorkType:
        """See `allhands.gather`; `opts` may be the root itself."""
        outputs, chosen = _one_list(output_tensors), _root_of(opts, root)
        tensor = only(input_tensors, input_tensor)
        self._check_list_of_root("gather: requires", "output", outputs, chosen)
        work = self._communicator.gather(
            tensor, outputs, chosen, *self._terms(opts, timeout)
        )
        return self._started(work, outputs)

    def gather_single(self, output: Array, input: Array, opts: Any = None) -> WorkType:
        """See `allhands.gather_single`; only the root's `output` is used."""
        root = _root_of(opts, None)
        gathered = output if root == self.rank() else None
        work = self._communicator.gather_single(
            input, gathered, root, *self._terms(opts, None)
        )
        return self._started(work, [output])

    gather_into_tensor = gather_single

    def scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        output_tensor: Any = None,
        root: int | None = None,
    ) -> WorkType:
        """See `allhands.scatter`; `opts` may be the root itself."""
        output, chosen = only(output_tensors, output_tensor), _root_of(opts, root)
        inputs = _one_list(input_tensors)
        self._check_list_of_root("scatter: requires", "input", inputs, chosen)
        work = self._communicator.scatter(
            output, inputs, chosen, *self._terms(opts, timeout)
        )
        return self._started(work, [output])

    def alltoall(
        self,
        output_tensors: list[Array],
        input_tensors: list[Array],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> WorkType:
        """See `allhands.all_to_all`."""
        work = self._communicator.all_to_all(
            output_tensors, input_tensors, *self._terms(opts, timeout)
        )
        return self._started(work, output_tensors)

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> WorkType:
        """See `allhands.all_to_all_single`; without split sizes they are equal."""
        splits = output_split_sizes, input_split_sizes
        work = self._communicator.all_to_all_single(
            output, input, *splits, *self._terms(opts, timeout)
        )
        return self._started(work, [output])

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> WorkType:
        """See `allhands.barrier`; devices have no effect here."""
        work = self._communicator.barrier(*self._terms(opts, timeout))
        return self._started(work, [])

    def _check_list_of_root(
        self, subject: str, which: str, arrays: list[Any], root: int
    ) -> None:
        """Refuse a list of arrays unless it is the root's, and has none missing.

        Raises:
            ArgumentError: another rank has a list, or the root has none.
        """
        if arrays and self.rank() != root:
            raise ArgumentError(
                f"{subject} empty {which} on non-root; the root is rank {root}, this "
                f"is rank {self.rank()}"
            )
        if not arrays and self.rank() == root:
            raise ArgumentError(
                f"{subject} a single-element {which} list containing a list with "
                f"{self.size()} tensors on the root, got none"
            )

    def _submit(
        self, op: str, output: list[Any], input: list[Any], opts: Any, **more: Any
    ) -> WorkType:
        """Start a collective that has no method of its own."""
        limit, _ = self._terms(opts, None)
        call = Call(op, output, input, limit, True, **more)
        return self._started(self._communicator.submit(call), output)


def _root_of(opts: Any, root: int | None) -> int:
    """Return `root` if given, else that of `opts`, which may itself be one, else 0."""
    chosen = getattr(opts, "rootRank", opts) if root is None else root
    return 0 if chosen is None else chosen


def _pairs(
    output_lists: Sequence[Sequence[Any]], inputs: list[Any]
) -> list[tuple[list[Any], Any]]:
    """Return the outputs and the input of each all_gather of several inputs.

    Each list has an output for each input of each rank, those of a rank together.

    Raises:
        ArgumentError: there is not one list per input.
    """
    num = len(inputs)
    if len(output_lists) != num:
        raise ArgumentError(
            f"all_gather: requires input/output tensor lists to have the same length, "
            f"got {num} inputs and {len(output_lists)} lists of outputs"
        )
    return [
        (list(outputs[index::num]), array)
        for outputs in output_lists
        for index, array in enumerate(inputs)
    ]


def _one_list(tensors: Any) -> list[Array]:
    """Return the list of arrays, or the only entry of a list of such lists."""
    nested = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    return list(tensors[0] if nested else tensors)
