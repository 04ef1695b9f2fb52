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
    "The job's secret. Where it is set, a store and its clients prove to each "
    "other that they know it before any data passes. `allhands run` makes one for a "
    "job of one node; with several nodes it is for you to set, on all.",
    is_secret=True,
)

job_mark = Setting(
    "ALLHANDS_JOB",
    str,
    "",
    "Made by `allhands run` for each start of the ranks, and by `allhands bench`. "
    "Processes that still carry it when the job is over, or the command that started "
    "them was killed, are killed too.",
)


def _one_or_zero(text: str) -> bool:
    if text not in ("1", "0"):
        raise ValueError("it must be 1 or 0")
    return text == "1"


needs_launcher = Setting(
    "ALLHANDS_NEEDS_LAUNCHER",
    _one_or_zero,
    False,
    "1: in a process that nobody has launched, `init_process_group()` is an error, "
    "where it makes a world of one otherwise.",
)

replace_gloo = Setting(
    "ALLHANDS_REPLACE_GLOO",
    _one_or_zero,
    False,
    "1: the backend `gloo` is the native engine, in programs of this package and of "
    "torch.distributed; `allhands run --replace-gloo` sets it. For the latter it is "
    "read as torch is imported.",
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
    "Set by `allhands run`: `host:port` of its store, `@`, and the `MASTER_PORT` that "
    "it has given the ranks, which is free for a program's own use. `env://` leads to "
    "that store as long as `MASTER_PORT` is this one. On nodes other than node 0, `/`, "
    "the port of the launcher's relay at 127.0.0.1, `/`, and the address of this host "
    "on the way to the store follow.",
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
    "Changes of the native engine's [tuning](#tuning), as `name=number,...`; a number "
    "may end in `K`, `M`, `G` or `T`. For a group, the one of the rank that comes "
    "first holds.",
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
    "Whether the [tuning](#tuning) is fitted to this host: `yes` or `no`. By what "
    "`allhands tune` has found for this CPU, and by figures, which a job takes up to 3 "
    "ms to look for before its first operation, until they are found; then they are "
    "kept for this boot.",
)


pmi = Setting(
    "ALLHANDS_PMI",
    _one_of("auto", "yes", "no"),
    "auto",
    "Whether ranks on several hosts agree by their launcher's PMI where they meet, and "
    "on a secret: `auto`, those that MPICH's `mpiexec` or a relative has started; "
    "`yes`, those of `srun --mpi=pmi2`, too: there MPI cannot begin in these processes "
    "any more, as by mpi4py; `no`, none.",
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
    "`TORCH_DISTRIBUTED_DEBUG` say, and else `warning`.",
)

patience = Setting(
    "ALLHANDS_PATIENCE",
    _seconds(0, math.inf, ", 0 or more"),
    10.0,
    "Seconds of waiting after which a line on stderr says for whom: in a collective or "
    "`init_process_group` by one of the ranks that have come, for a message by the "
    "rank that waits for it, for keys and barriers of a store by each rank whose "
    "program waits for them; also by a rank that finds no store. The next line of that "
    "group, or about stores, takes twice as long. 0: there is none.",
)


reduce_order = Setting(
    "ALLHANDS_REDUCE_ORDER",
    _one_of("any", "rank"),
    "any",
    "In which order a group whose ranks are on several hosts reduces large arrays. "
    "`rank`: in that of the ranks, so that results have the [same bits]"
    "(../differences.md#numerics) wherever the ranks are. `any`: whichever is fast. "
    "Groups that were made with `NativeOptions` do as these say.",
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
    "Ranks of one machine with another text here count as on another host: they share "
    "no memory and do not look at each other's processes. For containers that share a "
    "machine and nothing else, and to try on one machine what runs on several.",
)


heartbeat = Setting(
    "ALLHANDS_HEARTBEAT",
    _seconds(0.1, 86400, " from 0.1 to 86400"),
    5.0,
    "Seconds without a sign of life after which a rank of another host counts as dead, "
    "also while nobody waits for it, and for which a broken connection is made anew. "
    "The launchers of several nodes wait twice as long for each other.",
)

tls = Setting(
    "ALLHANDS_TLS",
    _one_or_zero,
    False,
    "1: what passes between ranks of different hosts is encrypted by TLS 1.3, with "
    "keys made of `ALLHANDS_SECRET`. It takes OpenSSL 3 on each host. The same on all "
    "ranks.",
)

transport = Setting(
    "ALLHANDS_TRANSPORT",
    _one_of("tcp", "ucx", "auto"),
    "tcp",
    "By what [large messages](../howto/several-hosts.md#ucx) go between hosts: `tcp`; "
    "`ucx`, on all ranks; or `auto`, which is `ucx` where InfiniBand or RoCE is up.",
)

sockets = Setting(
    "ALLHANDS_SOCKETS",
    _count(1, 16),
    1,
    "Over how many sockets [large data](../howto/several-hosts.md#several-networks) "
    "goes between two processes of different hosts, 1 to 16. Each leads to the next of "
    "the interfaces on which the other one listens. The same on all ranks.",
)

interfaces = Setting(
    "ALLHANDS_INTERFACES",
    str,
    "",
    "On which network interfaces a rank listens for ranks of other hosts: names or how "
    "they begin, `=name` for that one alone, or networks, as in `ib,=eth1` or "
    "`10.1.0.0/16`; after `^` what is not to be taken, as in `^docker,virbr`. Unset: "
    "what `GLOO_SOCKET_IFNAME` says, or else `NCCL_SOCKET_IFNAME`; unset too: where "
    "the rank reached the store.",
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
    "Addresses at which ranks of other hosts reach this one, where they are not those "
    "at which it listens, as behind NAT: `203.0.113.7`, or `203.0.113.7:4471` where "
    "the port differs, too; several with commas between.",
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
    "The ports, as `first-last`, of which each rank takes one where it listens for "
    "ranks of other hosts: what a firewall has to let through. Unset: any.",
)

record_length = Setting(
    "ALLHANDS_RECORD_LENGTH",
    _count(0, 1 << 24),
    2048,
    "How many collectives and how many messages the flight recorder keeps of each "
    "group, rounded up to a power of two; each takes 64 bytes of memory, once a group "
    "has so many. 0: nothing is recorded.",
)

dumps = Setting(
    "ALLHANDS_DUMPS",
    str,
    "",
    "A folder where each rank writes its flight record, as `rank_<n>.json`, when an "
    "operation fails, when an exception ends the program, and on SIGUSR2, unless the "
    "program has a handler of its own. Unset: nothing is written.",
)

trace = Setting(
    "ALLHANDS_TRACE",
    str,
    "",
    "A folder where each rank writes all its operations while it runs, as lines of "
    "JSON in a file of its own, which `allhands trace` makes a [timeline]"
    "(../howto/slow.md#as-a-timeline) of. Read as the world's ranks meet. Unset: "
    "nothing is written.",
)

check = Setting(
    "ALLHANDS_CHECK",
    _one_of("none", "content"),
    "none",
    "`content`: after each collective the ranks compare hashes of what must be the "
    "same on them, and raise where it is [not](debug.md#the-same-content-on-all-ranks)"
    ". All ranks need the same. Read where a group is made.",
)

faults = Setting(
    "ALLHANDS_FAULTS",
    str,
    "",
    "What is to go wrong [on demand](debug.md#faults-on-demand), for tests: "
    "`rank=1,op=all_reduce,nth=5,do=kill`, several with `;` between. Read by "
    "`init_process_group`. Unset: nothing.",
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
    "Where the first rank of each host serves the [debug page](debug.md#the-debug-page)"
    ", once the ranks have met: a port of 127.0.0.1, 0 for any that is free, or "
    "`address:port`. A line on stderr has the page's address. Unset: nowhere.",
)

debug_token = Setting(
    "ALLHANDS_DEBUG_TOKEN",
    str,
    "",
    "What a client of the [debug page](debug.md#the-debug-page) has to know, 16 "
    "characters or more. Unset: each page has a new one.",
    is_secret=True,
)

ALL: tuple[Setting[Any], ...] = (
    *(advertise, calibration, check, debug_server, debug_token, dumps, faults),
    *(heartbeat, host_id, interfaces, secret, job_mark, log, patience),
    *(needs_launcher, pmi, port_range, record_length, reduce_order),
    *(replace_gloo, sockets, store, tls, trace, transport, tuning),
)
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
