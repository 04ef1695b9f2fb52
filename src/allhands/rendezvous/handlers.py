"""Rendezvous: how the ranks of a job find their common store and learn their numbers.

A URL names the way. Its scheme selects a handler: a function of the URL that yields
`(store, rank, world_size)` once. The rank and world size that the caller of
`rendezvous` passes are added to the URL's query, so a handler sees only one form.

If a launcher hosts the store, every rank is a client, and the keys of each attempt get
their own prefix. So a restarted job never reads data of the previous attempt. `allhands
run` announces its store by `ALLHANDS_STORE`; torchrun, whose store is torch's, does so
by `TORCHELASTIC_USE_AGENT_STORE`. Otherwise rank 0 hosts the store.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from allhands import settings
from allhands.options import default_pg_timeout
from allhands.rendezvous.agent_store import meet_at_agent
from allhands.rendezvous.by_launcher import meet_as_launched
from allhands.rendezvous.hosted import open_store
from allhands.rendezvous.launched import (
    Launched,
    find_launched,
    is_plain,
    rank_without_size,
)
from allhands.rendezvous.place import check_place
from allhands.store import FileStore, Store
from allhands.store.arguments import as_port

__all__ = ["register_rendezvous_handler", "rendezvous"]

StoreRankSize = tuple[Store, int, int]
Handler = Callable[..., Iterator[StoreRankSize]]

_handlers: dict[str, Handler] = {}


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, **kwargs: Any
) -> Iterator[StoreRankSize]:
    """Meet the other ranks at `url`.

    The URL is one of

    - `env://`: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT from the environment, as
      launchers set them; an empty variable counts as unset. If some are missing, the
      variables of mpiexec, srun or Kubernetes,
    - `tcp://host:port`: a TCPStore there, hosted by rank 0,
    - `file:///path`: a FileStore at the path,
    - `mpi://`: MPI, which knows rank and size, for a program that mpiexec started; it
      needs mpi4py,
    - a scheme that was passed to `register_rendezvous_handler`.

    Each URL may also have `rank` and `world_size` in its query:
    `tcp://host:port?rank=0`.

    Args:
        url: where to meet, the same for all ranks.
        rank: this process's rank; -1 if the URL or the environment gives it.
        world_size: the number of ranks; -1 if the URL or the environment gives it.
        **kwargs: arguments for the handler. The handlers of this package take
            `timeout`, a timedelta: the limit of the wait for the store, and the store's
            timeout afterwards.

    Returns:
        An iterator; its first item is `(store, rank, world_size)`. It waits for no rank
        except the one that hosts the store. Asking for a second item raises
        RuntimeError: to meet again, call `rendezvous` again.

    Raises:
        ValueError: something is missing or out of range; `next` of the result raises
            it.
        RuntimeError: there is no handler for this scheme, or an argument has the wrong
            type.
        AssertionError: `rank` or `world_size` is given twice.

    Example:
        ```python
        store, rank, world_size = next(dist.rendezvous("file:///tmp/job", 0, 2))
        ```
    """
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    place = {
        "rank": _as_integer("rank", rank),
        "world_size": _as_integer("world_size", world_size),
    }
    given = {name: value for name, value in place.items() if value != -1}
    parts = urlsplit(url)
    if parts.scheme not in _handlers:
        known = ", ".join(f"{scheme}://" for scheme in sorted(_handlers))
        raise RuntimeError(
            f"No rendezvous handler for {parts.scheme}:// of {url!r}; there are "
            f"handlers for {known}, as in tcp://10.0.0.1:29500 or file:///shared/new"
        )
    if given:
        url = _with_arguments(url, parts, given)
    return _handlers[parts.scheme](url, **kwargs)


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Let `rendezvous` pass URLs of `scheme` to `handler`, in this process.

    Args:
        scheme: the text before `://`.
        handler: a function that gets the URL, with `rank` and `world_size` in its query
            if the caller passed them, and the keyword arguments of `rendezvous`. It
            returns an iterator of `(store, rank, world_size)`, for example by `yield`.

    Raises:
        RuntimeError: `scheme` has a handler already.

    Example:
        ```python
        def meet(url, **kwargs):
            query = dict(parse_qsl(urlsplit(url).query))
            yield my_store(), int(query["rank"]), int(query["world_size"])

        dist.register_rendezvous_handler("mine", meet)
        dist.init_process_group(init_method="mine://", rank=rank, world_size=size)
        ```
    """
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def _as_integer(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise RuntimeError(f"`{name}` must be an integer. {value!r}") from None


def _with_arguments(url: str, parts: SplitResult, given: dict[str, int]) -> str:
    if {"rank", "world_size"} & dict(parse_qsl(parts.query)).keys():
        raise AssertionError(
            f"The url: {url} has node-specific arguments(rank, world_size) already."
        )
    start, hash_sign, fragment = url.partition("#")
    joint = "&" if "?" in start else "?"
    return f"{start}{joint}{urlencode(given)}{hash_sign}{fragment}"


def _meet_by_environment(
    url: str, timeout: timedelta = default_pg_timeout, **_: Any
) -> Iterator[StoreRankSize]:
    query = dict(parse_qsl(urlsplit(url).query))
    has_address = all(os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT"))
    launched = _find_launched(query, has_address)
    if launched is not None and _agrees(launched, query, has_address):
        launched.show(os.environ)
        if not has_address:
            yield meet_as_launched(launched, timeout), launched.rank, launched.size
            raise RuntimeError("Unable to perform re-rendezvous using env:// method")
    rank = _number("RANK", query.get("rank") or _variable("RANK"))
    size = query.get("world_size") or _variable("WORLD_SIZE")
    world_size = _number("WORLD_SIZE", size)
    host = _variable("MASTER_ADDR").strip("[]")
    port = _number("MASTER_PORT", _variable("MASTER_PORT"))
    check_place(rank, world_size)
    launchers = settings.store.get()
    if launchers is not None and launchers.master_port == port:
        host, port, relay = launchers.host, launchers.port, launchers.relay
        store = open_store(host, port, rank, world_size, timeout, True, relay)
    elif os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = meet_at_agent(host, as_port(port), rank, timeout)
    else:
        store = open_store(host, port, rank, world_size, timeout)
    yield store, rank, world_size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


def _find_launched(query: dict[str, str], has_address: bool) -> Launched | None:
    """Return what a launcher says; incomplete variables matter only if needed."""
    if is_plain(os.environ):
        return None
    try:
        return find_launched(os.environ)
    except ValueError:
        place = ("RANK", "WORLD_SIZE")
        has_place = all(query.get(n.lower()) or os.environ.get(n) for n in place)
        if has_place and has_address:
            return None
        raise


def _agrees(launched: Launched, query: dict[str, str], has_address: bool) -> bool:
    """Return whether the caller and plain variables agree with the launcher.

    If they do not, they take precedence, and must also say where rank 0 is.
    """
    for name, own in (("RANK", launched.rank), ("WORLD_SIZE", launched.size)):
        said = query.get(name.lower()) or os.environ.get(name) or str(own)
        if said != str(own):
            if has_address:
                return False
            raise ValueError(
                f"init_process_group: {name.lower()} is {said}, but "
                f"{launched.launcher}, which started this process, says {own}: leave "
                f"it out, or set MASTER_ADDR and MASTER_PORT, too"
            )
    return True


def _meet_at_port(
    url: str, timeout: timedelta = default_pg_timeout, **_: Any
) -> Iterator[StoreRankSize]:
    parts = urlsplit(url)
    if not parts.hostname:
        raise _incomplete("tcp", "host name missing, as in tcp://host:port")
    # Not parts.port, whose errors do not show the number. An IPv6 host ends with "]".
    port = parts.netloc.rpartition("]")[2].partition(":")[2]
    if not port:
        raise _incomplete("tcp", "port number missing, as in tcp://host:port")
    rank, world_size = _place_in(parts)
    store = open_store(parts.hostname, _number("port", port), rank, world_size, timeout)
    yield store, rank, world_size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


def _meet_in_file(
    url: str, timeout: timedelta = default_pg_timeout, **_: Any
) -> Iterator[StoreRankSize]:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(
            f"{url}: a file:// URL begins with three slashes, the last being the "
            f"path's; this one names {parts.netloc!r} as a host"
        )
    if not parts.path:
        raise _incomplete("file", "path missing")
    rank, world_size = _place_in(parts)
    store = FileStore(parts.path, world_size)
    store.set_timeout(timeout)
    yield store, rank, world_size
    raise RuntimeError("Unable to perform rerendezvous using file:// method")


def _meet_by_mpi(
    url: str, timeout: timedelta = default_pg_timeout, **_: Any
) -> Iterator[StoreRankSize]:
    from allhands.rendezvous.mpi_job import meet_by_mpi  # here: for few programs

    return meet_by_mpi(url, timeout)


def _place_in(parts: SplitResult) -> tuple[int, int]:
    """Return rank and world size from the query of a URL."""
    query = dict(parse_qsl(parts.query))
    for name in ("rank", "world_size"):
        if name not in query:
            raise _incomplete(
                parts.scheme,
                f"{name.replace('_', ' ')} parameter missing: pass {name}=...",
            )
    rank = _number("rank", query["rank"])
    world_size = _number("world_size", query["world_size"])
    check_place(rank, world_size)
    return rank, world_size


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {text!r}") from None


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value and (mark := rank_without_size(os.environ)):
        raise _incomplete(
            "env",
            f"environment variable {name} expected, but not set. A launcher has "
            f"started this process as a rank ({mark}), but does not say of how many: "
            f"set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each rank, or "
            f"start the program with `allhands run --nproc-per-node N program.py`",
        )
    if not value:
        raise _incomplete(
            "env",
            f"environment variable {name} expected, but not set. Start the program "
            f"with `allhands run --nproc-per-node N program.py`, which sets it",
        )
    return value


def _incomplete(scheme: str, problem: str) -> ValueError:
    return ValueError(
        f"Error initializing allhands using {scheme}:// rendezvous: {problem}"
    )


register_rendezvous_handler("env", _meet_by_environment)
register_rendezvous_handler("tcp", _meet_at_port)
register_rendezvous_handler("file", _meet_in_file)
register_rendezvous_handler("mpi", _meet_by_mpi)
