"""prometheus: the result of `stats` in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from allhands.debug.waiting import OperationStats

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["prometheus", "prometheus_of_groups"]

_OWN = {"op", "rank", "quantile"}
_Values: TypeAlias = Iterable[tuple[tuple[str, ...], float | None]]
_Gauge: TypeAlias = tuple[
    str, str, tuple[str, ...], Callable[[OperationStats], _Values]
]


def _by_rank(values: Mapping[int, float]) -> _Values:
    return [((str(rank),), value) for rank, value in values.items()]


_GAUGES: Sequence[_Gauge] = (
    (
        "allhands_calls",
        "Calls of the operation on record.",
        (),
        lambda told: [((), told.count)],
    ),
    (
        "allhands_bytes",
        "Bytes of all these calls.",
        (),
        lambda told: [((), told.num_bytes)],
    ),
    (
        "allhands_transfer_seconds",
        "How long they took in all once the last rank had come.",
        (),
        lambda told: [((), told.transfer)],
    ),
    (
        "allhands_call_seconds",
        "A call, from when a rank came to its end there.",
        ("quantile",),
        lambda told: [(("0.5",), told.p50), (("0.99",), told.p99)],
    ),
    (
        "allhands_waiting_seconds",
        "How long the rank waited in all for those that came later.",
        ("rank",),
        lambda told: _by_rank(told.waiting),
    ),
    (
        "allhands_times_last",
        "How often the rank came last.",
        ("rank",),
        lambda told: _by_rank(told.times_last),
    ),
)


def prometheus(told: Sequence[OperationStats], **labels: str) -> str:
    """Return the result of `stats` as text for Prometheus.

    The call waits for no rank. Write the text where the node exporter finds it
    (`*.prom` in the folder of its textfile collector), push it, or serve it. Do so from
    one rank, because all have the same figures. All metrics are gauges, because they
    cover the last calls: `allhands_calls`, `allhands_bytes`,
    `allhands_transfer_seconds` and `allhands_call_seconds` (by `quantile`, 0.5 and
    0.99) by `op`; `allhands_waiting_seconds` and `allhands_times_last` by `op` and
    `rank`. Values that were not measured are left out.

    Args:
        told: the result of `stats`.
        **labels: labels for all metrics, such as `job="train7"` or `group="dp"`.

    Raises:
        ModuleNotFoundError: the package `prometheus-client` is not installed.
        ValueError: a label is named `op`, `rank` or `quantile`.

    Example:
        ```python
        told = dist.debug.stats()  # on every rank
        if dist.get_rank() == 0:
            text = dist.debug.prometheus(told, job="train7")
            pathlib.Path("/var/lib/node_exporter/allhands.prom").write_text(text)
        ```
    """
    taken = sorted(_OWN & labels.keys())
    if taken:
        raise ValueError(
            f"prometheus(told): labels of yours are called {', '.join(taken)}, as its "
            f"own are; want other names than {', '.join(sorted(_OWN))}"
        )
    return _text("prometheus(told)", list(labels), [(tuple(labels.values()), told)])


def prometheus_of_groups(
    told: Iterable[tuple[tuple[str, str], Sequence[OperationStats]]],
) -> str:
    """Return the text for several groups, each with its name and description.

    Raises:
        ModuleNotFoundError: the package `prometheus-client` is not installed.
    """
    return _text("metrics", ["group", "desc"], list(told))


_Labelled: TypeAlias = tuple[tuple[str, ...], Sequence[OperationStats]]


def _text(asked: str, names: Sequence[str], told: Sequence[_Labelled]) -> str:
    """Return the text for all of these, with labels of these `names`."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{asked}: prometheus-client is not installed; pip install "
            f"prometheus-client",
            name=error.name,
        ) from None
    registry = CollectorRegistry()
    registry.register(_Told(_metrics(names, told)))
    text: str = generate_latest(registry).decode()
    return text


class _Told:
    """The collector of a registry."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _metrics(names: Sequence[str], told: Sequence[_Labelled]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name, help, own, values in _GAUGES:
        metric = GaugeMetricFamily(name, help, labels=[*names, "op", *own])
        for labels, stats in told:
            for each in stats:
                for key, value in values(each):
                    if value is not None:
                        metric.add_metric([*labels, each.op, *key], value)
        yield metric
