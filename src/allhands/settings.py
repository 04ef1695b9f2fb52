"""Every `ALLHANDS_*` environment variable: name, type, default, help.

No other module reads these variables. A setting is read when `get` is called, not at
import, so a program may set it before `init_process_group`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = [
    "ALL",
    "LaunchersStore",
    "Relay",
    "Setting",
    "advertise",
    "calibration",
    "check",
    "check_all",
    "debug_server",
    "debug_token",
    "dumps",
    "faults",
    "heartbeat",
    "host_id",
    "interfaces",
    "job_mark",
    "log",
    "needs_launcher",
    "patience",
    "pmi",
    "port_range",
    "record_length",
    "reduce_order",
    "replace_gloo",
    "secret",
    "sockets",
    "store",
    "tls",
    "trace",
    "transport",
    "tuning",
    "unknown",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One environment variable; `get()` reads it."""

    name: str
    parse: Callable[[str], T]
    default: T
    help: str
    is_secret: bool = False
    """Whether the value must not appear in output that others may read."""

    def get(self) -> T:
        """Return its current value, or the default if it is unset or empty.

        Raises:
            ValueError: the text is not a value of this setting.
        """
        text = os.environ.get(self.name, "")
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise ValueError(
                f"environment variable {self.name} is {text!r}: {error}"
            ) from None


secret = Setting(
    "ALLHANDS_SECRET",
    str,
    "",
    "The job's secret. If it is set, a store and its clients prove to each other that "
    "they know it before any data passes. `allhands run` makes one for a job of one "
    "node. For several nodes, set the same one on all of them.",
    is_secret=True,
)

job_mark = Setting(
    "ALLHANDS_JOB",
    str,
    "",
    "`allhands run` and `allhands bench` make it for each start of the ranks. When the "
    "job is over, or the command that started it was killed, processes that still "
    "carry it are killed, too.",
)


def _one_or_zero(text: str) -> bool:
    if text not in ("1", "0"):
        raise ValueError("it must be 1 or 0")
    return text == "1"


needs_launcher = Setting(
    "ALLHANDS_NEEDS_LAUNCHER",
    _one_or_zero,
    False,
    "`1`: in a process that no launcher started, `init_process_group()` raises an "
    "error. Otherwise it makes a world of one there.",
)

replace_gloo = Setting(
    "ALLHANDS_REPLACE_GLOO",
    _one_or_zero,
    False,
    "`1`: programs that name the backend `gloo`, of this package or of "
    "torch.distributed, get the native engine. `allhands run --replace-gloo` sets it. "
    "In programs of torch it is read when torch is imported.",
)


class Relay(NamedTuple):
    """Where the relay of a launcher listens, at 127.0.0.1."""

    port: int
    own_address: str
    """The address of this host on the way to the store."""


class LaunchersStore(NamedTuple):
    """Where the store of `allhands run` listens."""

    host: str
    port: int
    master_port: int
    """The MASTER_PORT that the launcher set: ranks that have it use this store."""
    relay: Relay | None = None
    """Through which they use it; None: they connect to the store."""

    def __str__(self) -> str:
        text = f"{self.host}:{self.port}@{self.master_port}"
        if self.relay is not None:
            text += f"/{self.relay.port}/{self.relay.own_address}"
        return text


def _launchers_store(text: str) -> LaunchersStore:
    place, _, rest = text.rpartition("@")
    host, _, port = place.rpartition(":")
    master_port, *relay = rest.split("/")
    numbers = [port, master_port, *relay[:1]]
    if not (host and all(map(str.isdecimal, numbers)) and len(relay) in (0, 2)):
        raise ValueError("it must be host:port@master_port[/relay_port/own_address]")
    through = Relay(int(relay[0]), relay[1]) if relay else None
    return LaunchersStore(host, int(port), int(master_port), through)


store: Setting[LaunchersStore | None] = Setting(
    "ALLHANDS_STORE",
    _launchers_store,
    None,
    "`allhands run` sets it: `host:port` of its store, `@`, and the `MASTER_PORT` that "
    "it has given the ranks. That port is free for the program's own use. `env://` "
    "leads to this store as long as `MASTER_PORT` has this value. On nodes other than "
    "node 0 there follow `/`, the port of the launcher's relay at 127.0.0.1, `/`, and "
    "the address of this host on the way to the store.",
)

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _tuning(text: str) -> dict[str, int]:
    values = {}
    for pair in text.split(","):
        name, equals, number = (part.strip() for part in pair.partition("="))
        unit = _UNITS.get(number[-1:].upper(), 1)
        digits = number if unit == 1 else number[:-1]
        if not (equals and name.isascii() and digits.isdecimal()):
            raise ValueError(
                f"{pair.strip()!r} is not name=number, as in chunk_bytes=512K"
            )
        values[name] = int(digits) * unit
    return values


tuning: Setting[dict[str, int]] = Setting(
    "ALLHANDS_TUNING",
    _tuning,
    {},
    "Changes of the native engine's [tuning](#tuning), as `name=number,...`. A number "
    "may end in `K`, `M`, `G` or `T`. In a group, the tuning of the rank that comes "
    "first counts.",
)


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"it must be {' or '.join(words)}")
        return text

    return read


calibration = Setting(
    "ALLHANDS_CALIBRATION",
    _one_of("yes", "no"),
    "yes",
    "Whether the [tuning](#tuning) is fitted to this host: `yes` or `no`. It is fitted "
    "to what `allhands tune` has found for this CPU, and to measured figures. If there "
    "are no figures yet, a job measures for up to 3 ms before its first operation. "
    "They are kept until the next boot.",
)

pmi = Setting(
    "ALLHANDS_PMI",
    _one_of("auto", "yes", "no"),
    "auto",
    "Whether ranks on several hosts use their launcher's PMI to agree where they meet, "
    "and on a secret. `auto`: if MPICH's `mpiexec` or a relative of it started them. "
    "`yes`: also if `srun --mpi=pmi2` did; then MPI, as by mpi4py, cannot begin in "
    "these processes. `no`: never.",
)


def _seconds(least: float, most: float, extent: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        with suppress(ValueError):
            if least <= (seconds := float(text)) <= most:
                return seconds
        raise ValueError(f"it must be a number of seconds{extent}")

    return read


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isascii() and text.isdecimal() and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"it must be a number from {least} to {most}")

    return read


log = Setting(
    "ALLHANDS_LOG",
    _one_of("error", "warning", "info", "debug", "trace"),
    "",
    "How much a rank says on stderr, see [the log](debug.md#the-log): `error`, "
    "`warning`, `info`, `debug` or `trace`. Unset: what `TORCH_CPP_LOG_LEVEL` and "
    "`TORCH_DISTRIBUTED_DEBUG` say, or else `warning`.",
)

patience = Setting(
    "ALLHANDS_PATIENCE",
    _seconds(0, math.inf, ", 0 or more"),
    10.0,
    "After so many seconds of a wait, a line on stderr says for whom. In a collective "
    "and in `init_process_group` one of the ranks that have come writes it; for a "
    "message the rank that waits; for keys and barriers of a store each rank whose "
    "program waits. A rank that finds no store writes one, too. The next line of that "
    "group, or about stores, comes after twice the time. 0: there are no lines.",
)

reduce_order = Setting(
    "ALLHANDS_REDUCE_ORDER",
    _one_of("any", "rank"),
    "any",
    "In which order a group whose ranks are on several hosts reduces large arrays. "
    "`rank`: in the order of the ranks, so that results have the [same "
    "bits](../differences.md#numerics) wherever the ranks are. `any`: in whichever "
    "order is fast. The `NativeOptions` of a group take precedence.",
)

_LONGEST_HOST_ID = 255


def _host_id(text: str) -> str:
    if not (text.isascii() and text.isprintable() and len(text) <= _LONGEST_HOST_ID):
        raise ValueError(
            f"it must be up to {_LONGEST_HOST_ID} printable ASCII characters"
        )
    return text


host_id = Setting(
    "ALLHANDS_HOST_ID",
    _host_id,
    "",
    "Ranks of one machine that have different texts here count as ranks of different "
    "hosts: they share no memory and do not look at each other's processes. It is for "
    "containers that share a machine and nothing else, and for trying on one machine "
    "what runs on several.",
)

heartbeat = Setting(
    "ALLHANDS_HEARTBEAT",
    _seconds(0.1, 86400, " from 0.1 to 86400"),
    5.0,
    "If a rank of another host gives no sign of life for so many seconds, it counts as "
    "dead, also while nobody waits for it. For this time a broken connection is made "
    "anew. The launchers of several nodes give each other twice the time.",
)

tls = Setting(
    "ALLHANDS_TLS",
    _one_or_zero,
    False,
    "`1`: data between ranks of different hosts is encrypted by TLS 1.3, with keys "
    "made of `ALLHANDS_SECRET`. Each host needs OpenSSL 3. All ranks need the same "
    "value.",
)

transport = Setting(
    "ALLHANDS_TRANSPORT",
    _one_of("tcp", "ucx", "auto"),
    "tcp",
    "What carries [large messages](../howto/several-hosts.md#ucx) between hosts: "
    "`tcp`; `ucx`, if all ranks have this value; or `auto`, which is `ucx` where "
    "InfiniBand or RoCE is up.",
)

sockets = Setting(
    "ALLHANDS_SOCKETS",
    _count(1, 16),
    1,
    "How many sockets, 1 to 16, carry [large "
    "data](../howto/several-hosts.md#several-networks) between two processes of "
    "different hosts. Each leads to the next of the interfaces on which the other "
    "process listens. All ranks need the same value.",
)

interfaces = Setting(
    "ALLHANDS_INTERFACES",
    str,
    "",
    "The network interfaces on which a rank listens for ranks of other hosts: names or "
    "beginnings of names, `=name` for this name alone, or networks, as in `ib,=eth1` "
    "or `10.1.0.0/16`. After `^` stand those that it does not use, as in "
    "`^docker,virbr`. Unset: what `GLOO_SOCKET_IFNAME` or else `NCCL_SOCKET_IFNAME` "
    "says, or else where the rank reached the store.",
)


def _places(text: str) -> list[tuple[str, int]]:
    import ipaddress  # here: the import takes milliseconds, and few processes need it

    places = []
    for item in text.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not colon or (":" in host and not host.endswith("]")):  # no port: "::1"
            host, port = item.strip(), "0"
        host = host.removeprefix("[").removesuffix("]")
        try:
            ipaddress.ip_address(host)
            if not (port.isdecimal() and int(port) < 1 << 16):
                raise ValueError(f"{port!r} is no port")
        except ValueError as error:
            raise ValueError(
                f"{item.strip()!r} is no address, nor address:port: {error}"
            ) from None
        places.append((host, int(port)))
    return places


advertise: Setting[list[tuple[str, int]]] = Setting(
    "ALLHANDS_ADVERTISE",
    _places,
    [],
    "The addresses at which ranks of other hosts reach this rank, if they differ from "
    "those at which it listens, as behind NAT: `203.0.113.7`, or `203.0.113.7:4471` if "
    "the port differs, too. Commas separate several.",
)


def _port_range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()):
        raise ValueError("it must be first-last, as in 29600-29699")
    if not 0 < int(first) <= int(last) < 1 << 16:
        raise ValueError("ports are from 1 to 65535, the first not above the last")
    return int(first), int(last)


port_range: Setting[tuple[int, int] | None] = Setting(
    "ALLHANDS_PORT_RANGE",
    _port_range,
    None,
    "The ports, as `first-last`, of which each rank takes one to listen for ranks of "
    "other hosts. A firewall has to let them through. Unset: any port.",
)

record_length = Setting(
    "ALLHANDS_RECORD_LENGTH",
    _count(0, 1 << 24),
    2048,
    "How many collectives, and how many messages, the flight recorder keeps for each "
    "group, rounded up to a power of two. Each takes 64 bytes of memory once it is "
    "recorded. 0: nothing is recorded.",
)

dumps = Setting(
    "ALLHANDS_DUMPS",
    str,
    "",
    "A folder. Each rank writes its flight record there, as `rank_<n>.json`, when an "
    "operation fails, when an exception ends the program, and on SIGUSR2 unless the "
    "program has a handler of its own. Unset: nothing is written.",
)

trace = Setting(
    "ALLHANDS_TRACE",
    str,
    "",
    "A folder. Each rank writes all its operations there while it runs, as lines of "
    "JSON in a file of its own. `allhands trace` makes a "
    "[timeline](../howto/slow.md#as-a-timeline) of these files. It is read when the "
    "world's ranks meet. Unset: nothing is written.",
)

check = Setting(
    "ALLHANDS_CHECK",
    _one_of("none", "content", "calls"),
    "none",
    "`content`: after each collective the ranks compare hashes of what must be the "
    "same on all of them, and raise an error if it is "
    "[not](debug.md#the-same-content-on-all-ranks). `calls`: before each collective "
    "on other backends than `native` the ranks compare [what they "
    "call](debug.md#the-same-calls-on-all-ranks). All ranks need the same value. It is "
    "read when a group is made.",
)

faults = Setting(
    "ALLHANDS_FAULTS",
    str,
    "",
    "What goes wrong [on demand](debug.md#faults-on-demand), for tests: "
    "`rank=1,op=all_reduce,nth=5,do=kill`. Semicolons separate several. "
    "`init_process_group` reads it. Unset: nothing.",
)


def _served_at(text: str) -> tuple[str, int]:
    places = _places(f"127.0.0.1:{text}" if text.isdecimal() else text)
    if len(places) != 1:
        raise ValueError("it must be one port, or one address:port")
    return places[0]


debug_server: Setting[tuple[str, int] | None] = Setting(
    "ALLHANDS_DEBUG_SERVER",
    _served_at,
    None,
    "Where the first rank of each host serves the [debug "
    "page](debug.md#the-debug-page) once the ranks have met: a port of 127.0.0.1, 0 "
    "for any free one, or `address:port`. A line on stderr has the page's address. "
    "Unset: nowhere.",
)

debug_token = Setting(
    "ALLHANDS_DEBUG_TOKEN",
    str,
    "",
    "What a client of the [debug page](debug.md#the-debug-page) has to know, 16 "
    "characters or more. Unset: each page makes a new one.",
    is_secret=True,
)

_settings = [each for each in globals().values() if isinstance(each, Setting)]
ALL: tuple[Setting[Any], ...] = tuple(sorted(_settings, key=lambda each: each.name))
_BY_NAME = {setting.name: setting for setting in ALL}


def check_all() -> None:
    """Read every setting, so that a mistake is told before anything has begun.

    Raises:
        ValueError: the text of one is not a value of it.
    """
    for name in filter(_BY_NAME.__contains__, os.environ):  # the fewest: a fork copies
        _BY_NAME[name].get()


def unknown() -> dict[str, str]:
    """Return the variables that are named as settings are, and what is to be said."""
    names = sorted(n for n in {*os.environ} - {*_BY_NAME} if n.startswith("ALLHANDS_"))
    return {name: _no_setting(name) for name in names}


def _no_setting(name: str) -> str:
    from difflib import get_close_matches  # here: only mistakes need it

    for near in get_close_matches(name, _BY_NAME, 1, 0.8):
        return f"is no setting; did you mean {near}?"
    return "is no setting; `allhands info` lists them"
