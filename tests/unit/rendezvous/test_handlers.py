"""How URLs, arguments and the environment become a store, a rank and a world size."""

import datetime
import os
import re
import socket
import threading

import pytest

from allhands import (
    DistNetworkError,
    FileStore,
    HashStore,
    TCPStore,
    register_rendezvous_handler,
    rendezvous,
    settings,
)
from allhands._C import StoreRelay
from allhands.rendezvous import by_launcher
from allhands.rendezvous.launched import Launched
from allhands.store.route import Route
from harness.ports import needs_ipv6, reserved_port

TIMEOUT = datetime.timedelta(seconds=200)
VARIABLES = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
STORES_OF_AN_AGENT = ("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No variable of a launcher, whatever the tests run under."""
    for name in (*VARIABLES, *STORES_OF_AN_AGENT):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def variables(environment):
    for name, value in VARIABLES.items():
        environment.setenv(name, value)
    return environment


def meet(*arguments, **options):
    return next(iter(rendezvous(*arguments, **options)))


# Any URL


def test_an_unknown_scheme():
    with pytest.raises(RuntimeError, match="No rendezvous handler for foo://"):
        rendezvous("foo://")
    told = "No rendezvous handler for :// of 'host'; .* as in tcp://10.0.0.1:"
    with pytest.raises(RuntimeError, match=told):
        rendezvous("host")


def test_types_of_the_arguments():
    with pytest.raises(RuntimeError, match=r"`url` must be a string. <class 'int'>: 5"):
        rendezvous(5)
    with pytest.raises(RuntimeError, match=r"`rank` must be an integer. '0'"):
        rendezvous("env://", rank="0")
    with pytest.raises(RuntimeError, match=r"`world_size` must be an integer. 1.0"):
        rendezvous("env://", world_size=1.0)


@pytest.mark.parametrize("query", ["rank=0", "world_size=1", "rank=0&world_size=1"])
@pytest.mark.parametrize("place", [(0, -1), (-1, 1), (0, 1)])
def test_a_place_given_twice(query, place):
    url = f"tcp://127.0.0.1:0?{query}"
    message = re.escape(
        f"The url: {url} has node-specific arguments(rank, world_size) already."
    )
    with pytest.raises(AssertionError, match=message):
        rendezvous(url, *place)


@pytest.mark.parametrize(
    ("rank", "world_size", "message"),
    [
        (2, 2, r"rank must be in \[0, 2\), got 2"),
        (-2, 2, r"rank must be in \[0, 2\), got -2"),
        (0, 0, "world_size must be positive, got 0"),
        (0, 10**9, "world_size must be at most 1048576, got 1000000000"),
    ],
)
@pytest.mark.parametrize("url", ["file:///tmp/never", "tcp://127.0.0.1:0", "env://"])
def test_a_place_that_is_none(variables, url, rank, world_size, message):
    with pytest.raises(ValueError, match=message):
        meet(url, rank, world_size)


@pytest.mark.parametrize("scheme", ["file", "tcp", "env"])
def test_one_rendezvous_is_one_meeting(variables, tmp_path, scheme):
    rest = {"file": str(tmp_path / "store"), "tcp": "127.0.0.1:0"}.get(scheme, "")
    meetings = rendezvous(f"{scheme}://{rest}", 0, 1, timeout=TIMEOUT)
    assert next(meetings)[1:] == (0, 1)
    again = "rerendezvous" if scheme == "file" else "re-rendezvous"  # torch's texts
    with pytest.raises(RuntimeError, match=f"perform {again} using {scheme}:// method"):
        next(meetings)


# Handlers of the user


def test_a_handler_of_the_user():
    calls = []

    def handler(url, **options):
        calls.append((url, options))
        yield HashStore(), 3, 4

    register_rendezvous_handler("mine", handler)
    _store, rank, world_size = meet("mine://place?a=b", 0, 1, timeout=TIMEOUT)
    assert (rank, world_size) == (3, 4)
    meet("mine://place?a=b")
    assert calls == [
        ("mine://place?a=b&rank=0&world_size=1", {"timeout": TIMEOUT}),
        ("mine://place?a=b", {}),
    ]


def test_a_scheme_has_one_handler():
    message = "Rendezvous handler for tcp:// already registered"
    with pytest.raises(RuntimeError, match=message):
        register_rendezvous_handler("tcp", lambda url: iter(()))


# file://


def test_file(tmp_path):
    path = tmp_path / "store"
    one, *place = meet(f"file://{path}", 0, 2, timeout=TIMEOUT)
    assert place == [0, 2]
    assert isinstance(one, FileStore)
    assert one.path == str(path)
    assert one.timeout == TIMEOUT
    other, *place = meet(f"file://{path}?rank=1&world_size=2")
    assert place == [1, 2]
    one.set("k", "v")
    assert other.get("k") == b"v"
    del one, other
    assert not path.exists()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("file://?rank=0&world_size=1", "path missing"),
        ("file:///tmp/never?rank=0", "world size parameter missing"),
        ("file:///tmp/never?world_size=1", "rank parameter missing"),
    ],
)
def test_file_that_is_incomplete(url, problem):
    message = f"Error initializing allhands using file:// rendezvous: {problem}"
    with pytest.raises(ValueError, match=message):
        meet(url)


def test_file_with_two_slashes():
    with pytest.raises(ValueError, match=r"three slashes.* 'shared' as a host"):
        meet("file://shared/store", 0, 1)


def test_file_with_a_bad_number():
    with pytest.raises(ValueError, match="must be a number, got 'a'"):
        meet("file:///tmp/never?rank=a&world_size=1")


# tcp://


@needs_ipv6
def test_a_store_takes_an_address_as_urls_write_it():
    host = TCPStore("[::1]", 0, is_master=True)
    assert host.host == "::1"
    assert TCPStore("::1", host.port).add("n", 1) == 1


@pytest.mark.parametrize(
    "host", ["127.0.0.1", pytest.param("[::1]", marks=needs_ipv6), "localhost"]
)
def test_tcp(host):
    one, *place = meet(f"tcp://{host}:0", 0, 2, timeout=TIMEOUT)
    assert place == [0, 2]
    assert isinstance(one, TCPStore)
    assert one.timeout == TIMEOUT
    url = f"tcp://{host}:{one.port}?rank=1&world_size=2&use_libuv=0"
    other, *place = meet(url, timeout=TIMEOUT)
    assert place == [1, 2]
    one.set("k", "v")
    assert other.get("k") == b"v"


def test_rank_0_may_host_two_worlds_at_one_port():
    one = meet("tcp://127.0.0.1:0", 0, 1)[0]
    other = meet(f"tcp://127.0.0.1:{one.port}", 0, 1)[0]
    one.set("k", "v")
    assert other.get("k") == b"v"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("tcp://127.0.0.1?rank=0&world_size=1", "port number missing, as in tcp"),
        ("tcp://127.0.0.1:?rank=0&world_size=1", "port number missing"),
        ("tcp://[::1]?rank=0&world_size=1", "port number missing"),
        ("tcp://:1?rank=0&world_size=1", "host name missing"),
        ("tcp://127.0.0.1:0?rank=0", "world size parameter missing: pass world_"),
        ("tcp://127.0.0.1:0?world_size=1", "rank parameter missing"),
    ],
)
def test_tcp_that_is_incomplete(url, problem):
    message = f"Error initializing allhands using tcp:// rendezvous: {problem}"
    with pytest.raises(ValueError, match=message):
        meet(url)


def test_tcp_ports_out_of_range():
    message = r"port must have value from 0 to 65535 but was 99999\."
    with pytest.raises(ValueError, match=message):
        meet("tcp://127.0.0.1:99999", 0, 1)


# env://


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", *(pytest.param(a, marks=needs_ipv6) for a in ("::1", "[::1]"))],
)
def test_env(variables, address):
    variables.setenv("MASTER_ADDR", address)
    variables.setenv("WORLD_SIZE", "2")
    one, *place = meet("env://", timeout=TIMEOUT)
    assert place == [0, 2]
    assert one.timeout == TIMEOUT
    variables.setenv("MASTER_PORT", str(one.port))
    variables.setenv("RANK", "1")
    other, *place = meet("env://", timeout=TIMEOUT)
    assert place == [1, 2]
    one.set("k", "v")
    assert other.get("k") == b"v"


@pytest.mark.parametrize("url", ["env://?rank=1&world_size=3", "env://"])
def test_arguments_beat_the_environment(variables, url):
    host = meet("tcp://127.0.0.1:0", 0, 3)[0]
    variables.setenv("MASTER_PORT", str(host.port))
    place = () if "?" in url else (1, 3)
    assert meet(url, *place)[1:] == (1, 3)


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_variable_that_is_not_set(variables, name, is_empty):
    if is_empty:
        variables.setenv(name, "")
    else:
        variables.delenv(name)
    message = (
        "Error initializing allhands using env:// rendezvous: "
        f"environment variable {name} expected, but not set. "
        "Start the program with `allhands run"
    )
    with pytest.raises(ValueError, match=message):
        meet("env://")


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_PORT"])
def test_a_variable_that_is_no_number(variables, name):
    variables.setenv(name, "abc")
    with pytest.raises(ValueError, match=rf"^{name} must be a number, got 'abc'$"):
        meet("env://")


def test_env_port_out_of_range(variables):
    variables.setenv("MASTER_PORT", "99999")
    message = r"port must have value from 0 to 65535 but was 99999\."
    with pytest.raises(ValueError, match=message):
        meet("env://")


def test_env_leads_to_the_launchers_store_unless_the_port_was_changed(variables):
    agent = TCPStore("127.0.0.1", 0, is_master=True)
    with reserved_port() as port, reserved_port() as other:
        variables.setenv("MASTER_PORT", str(port))
        variables.setenv("ALLHANDS_STORE", f"127.0.0.1:{agent.port}@{port}")
        variables.setenv("TORCHELASTIC_RESTART_COUNT", "2")
        meet("env://", timeout=TIMEOUT)[0].set("k", "v")
        assert agent.list_keys() == ["attempt_2/k"]
        variables.setenv("MASTER_PORT", str(other))
        own = meet("env://", timeout=TIMEOUT)[0]
        assert own.port == other


def test_env_leads_to_the_launchers_store_through_its_relay(variables):
    agent = TCPStore("127.0.0.1", 0, is_master=True)
    secret = settings.secret.get()
    relay = StoreRelay("127.0.0.1", agent.port, secret, TIMEOUT.total_seconds())
    with reserved_port() as port:
        variables.setenv("MASTER_PORT", str(port))
        text = f"10.1.2.3:{agent.port}@{port}/{relay.port}/fe80::1%eth0"
        variables.setenv("ALLHANDS_STORE", text)
        store = meet("env://", timeout=TIMEOUT)[0]
    store.set("k", "v")
    assert agent.list_keys() == ["attempt_0/k"]
    assert relay.traffic().connections == 2  # one for the last will
    # Where ranks of other hosts are is told by the way of the relay, not to it.
    assert store._route() == Route("10.1.2.3", "fe80::1%eth0")
    assert not store._route().stays_here


BAD_STORES = [
    "x",
    "a:1",
    "1@2",
    ":1@2",
    "a:b@2",
    "a:1@",
    "a:1@2/",
    "a:1@2/3",
    "a:1@2/b/c",
]


@pytest.mark.parametrize("text", BAD_STORES)
def test_a_launchers_store_that_is_none(variables, text):
    variables.setenv("ALLHANDS_STORE", text)
    with pytest.raises(ValueError, match="must be host:port@master_port"):
        meet("env://")


def test_a_store_that_does_not_come_is_told_of_while_it_is_looked_for(
    environment, capfd
):
    environment.setenv("ALLHANDS_PATIENCE", "0.1")
    with reserved_port() as port:
        url = f"tcp://127.0.0.1:{port}?rank=1&world_size=2"
        with pytest.raises(DistNetworkError, match="timed out after"):
            meet(url, timeout=datetime.timedelta(seconds=2.2))
        [line] = capfd.readouterr().err.splitlines()
    start = (
        "allhands: [rank1] waiting: rank 1 (this process) goes on looking for the "
        "store, for 2 s: "
    )
    assert line.startswith(start)
    assert f"127.0.0.1:{port}: Connection refused" in line


def test_a_store_that_comes_after_some_time_has_the_whole_timeout(environment, capfd):
    environment.setenv("ALLHANDS_PATIENCE", "0.1")
    with reserved_port() as port:
        url = f"tcp://127.0.0.1:{port}"
        found = []
        thread = threading.Thread(
            target=lambda: found.append(meet(url, 1, 2, timeout=TIMEOUT)[0])
        )
        thread.start()
        while "goes on looking" not in capfd.readouterr().err:
            thread.join(0.01)
            assert thread.is_alive()
        host, *_ = meet(url, 0, 2, timeout=TIMEOUT)
        thread.join()
    host.set("k", "v")
    assert found[0].get("k") == b"v"
    assert found[0].timeout == TIMEOUT


def test_what_will_not_get_better_is_raised_at_once(environment, capfd):
    environment.setenv("ALLHANDS_PATIENCE", "5")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(DistNetworkError, match="address already in use"):
            meet(url, 0, 2, timeout=TIMEOUT)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "file://{}"])
def test_a_number_of_seconds_is_told_how_to_be_a_timeout(url, tmp_path):
    with pytest.raises(TypeError, match=r"got 5: pass timedelta\(seconds=5\)"):
        meet(url.format(tmp_path / "store"), 0, 1, timeout=5)


# env:// with what mpiexec and others set


@pytest.fixture
def of_mpiexec(environment):
    """Rank 1 of 2, the other on another host."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MPI_LOCALRANKID"):
        environment.delenv(name, raising=False)
    for name, value in {"PMI_RANK": 1, "PMI_SIZE": 2, "MPI_LOCALNRANKS": 1}.items():
        environment.setenv(name, str(value))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        environment.setenv(name, "")  # so that they are unset again
    return environment


def test_who_is_not_told_how_many_there_are_learns_what_to_set(environment):
    environment.setenv("PMIX_RANK", "3")
    with pytest.raises(
        ValueError,
        match=r"RANK expected.*\(PMIX_RANK=3\), but .*: set RANK, WORLD_SIZE",
    ):
        meet("env://")


def test_an_address_goes_with_the_launchers_ranks(of_mpiexec):
    host = TCPStore("127.0.0.1", 0, is_master=True)
    of_mpiexec.setenv("MASTER_ADDR", "127.0.0.1")
    of_mpiexec.setenv("MASTER_PORT", str(host.port))
    store, *place = meet("env://", timeout=TIMEOUT)
    assert (store.port, place) == (host.port, [1, 2])
    assert os.environ["RANK"] == "1"
    assert os.environ["LOCAL_WORLD_SIZE"] == "1"
    assert meet("env://", 3, 4)[1:] == (3, 4)


def test_what_contradicts_the_launcher_needs_an_address(of_mpiexec):
    with pytest.raises(
        ValueError, match=r"rank is 3, but mpiexec, .* says 1: .*MASTER"
    ):
        meet("env://", 3, 4)
    of_mpiexec.setenv("WORLD_SIZE", "7")
    with pytest.raises(ValueError, match="world_size is 7, but mpiexec"):
        meet("env://")


def test_who_says_all_needs_nothing_of_the_launcher(environment):
    """A pod of Kubernetes that is not told how many there are is told by the caller."""
    host = TCPStore("127.0.0.1", 0, is_master=True)
    environment.setenv("JOB_COMPLETION_INDEX", "1")
    environment.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(ValueError, match="set WORLD_SIZE"):
        meet("env://", 1, 4)
    environment.setenv("MASTER_PORT", str(host.port))
    assert meet("env://", 1, 4)[1:] == (1, 4)
    with pytest.raises(ValueError, match="set WORLD_SIZE"):
        meet("env://", 1)
    environment.setenv("RANK", "1")
    assert meet("env://?world_size=4")[1:] == (1, 4)


def test_ranks_on_several_hosts_need_mpi_or_an_address(of_mpiexec):
    of_mpiexec.setattr(by_launcher, "why_no_mpi", lambda: "none")
    message = r"mpiexec started 2 ranks, not all on .*install mpi4py.*set MASTER_ADDR"
    with pytest.raises(ValueError, match=message):
        meet("env://")


def test_that_no_secret_is_carried_is_said_once(environment, capfd):
    environment.setattr(by_launcher, "_is_noted", False)
    environment.setenv("ALLHANDS_SECRET", "")
    task = Launched("srun", 0, 2, "7.0.0", 0, 1, "127.0.0.1", 0)
    with reserved_port() as port:
        environment.setenv("MASTER_PORT", str(port))
        for _ in range(2):
            store = by_launcher.meet_as_launched(task, TIMEOUT)
            assert store.port == port
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith(
        "allhands: [rank0] meeting: srun carries no secret: whoever reaches 127.0.0.1"
    )
