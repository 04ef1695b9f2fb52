"""A Slurm of its own on fake hosts: munged and slurmctld on the first, slurmd on each.

It takes Debian's packages `slurm-wlm` and `munge`. `slurm_cluster` skips a test where
there can be none. The daemons end with the hosts.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

import pytest

from harness.fake_hosts import FakeHosts, fake_hosts
from harness.launcher import environment

_PROGRAMS = ("srun", "slurmctld", "slurmd", "munged")
_LIMIT_S = 120.0  # many times what a job takes
_CPUS = 4  # what each host claims to have; the machine need not
# What the cluster leaves out asks for control groups, accounting or other users.
_CONF = """
ClusterName=fake
SlurmctldHost={hosts[0].name}({hosts[0].address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP OverSubscribe=YES
"""
_NODE = "NodeName={name} NodeAddr={address} CPUs={cpus} State=UNKNOWN\n"


class Slurm:
    """A cluster whose nodes are `hosts`; its daemons' logs are in `folder`."""

    def __init__(self, hosts: FakeHosts, folder: pathlib.Path) -> None:
        self.hosts, self.folder = hosts, folder
        self._conf = folder / "slurm.conf"
        nodes = [
            _NODE.format(name=host.name, address=host.address, cpus=_CPUS)
            for host in hosts.hosts
        ]
        text = _CONF.format(hosts=hosts.hosts, folder=folder)
        self._conf.write_text(text + "".join(nodes))
        (folder / "state").mkdir()
        self._name_hosts()
        self._daemons: list[subprocess.Popen[bytes]] = []

    def _name_hosts(self) -> None:
        """Let the hosts know each other by name, as those of a cluster do."""
        path = self.folder / "hosts"
        lines = [f"{host.address} {host.name}\n" for host in self.hosts.hosts]
        path.write_text("".join(["127.0.0.1 localhost\n", *lines]))
        for host in self.hosts.hosts:
            host.run("mount", "--bind", str(path), "/etc/hosts")

    def start(self) -> None:
        """Start the daemons; returns when all nodes take tasks."""
        folder, key = self.folder, self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = [
            f"--{name}={folder}/munge.{name.removesuffix('-file')}"
            for name in ("socket", "pid-file", "log-file", "seed-file", "key-file")
        ]
        # Its socket is a path, so one serves all hosts.
        self._begin(0, "munged", "--foreground", "--force", *files)
        self._wait_for("munged", (folder / "munge.socket").exists)
        self._begin(0, "slurmctld", "-D")
        for number, host in enumerate(self.hosts.hosts):
            (folder / f"spool-{host.name}").mkdir()
            self._begin(number, "slurmd", "-D", "-N", host.name)
        self._wait_for("slurmctld", self._is_idle)

    def _begin(self, host: int, *command: str) -> None:
        with open(self.folder / "daemons.log", "ab") as log:
            daemon = subprocess.Popen(
                self.hosts[host].enter(*command),
                env=environment(SLURM_CONF=str(self._conf)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._daemons.append(daemon)

    def _wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            ended = [
                each.args[-4:] for each in self._daemons if each.poll() is not None
            ]
            if ended or time.monotonic() > deadline:
                raise AssertionError(
                    f"{what} did not come; ended: {ended}; {self.logs()}"
                )
            time.sleep(0.02)

    def _is_idle(self) -> bool:
        done = self.call("sinfo", "--noheader", "--states=idle", "--format=%D")
        return done.stdout.strip() == str(len(self.hosts))

    def call(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end on the first host, as users do on a login node."""
        return subprocess.run(
            self.hosts[0].enter(*command),
            env=environment(SLURM_CONF=str(self._conf), **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )

    def logs(self) -> str:
        """What the daemons have written, its last lines."""
        texts = [path.read_text()[-2000:] for path in self.folder.glob("*.log")]
        return "\n".join(texts)

    def end(self) -> None:
        """Wait for the daemons, whose hosts have ended."""
        for daemon in self._daemons:
            daemon.wait(timeout=_LIMIT_S)


@contextlib.contextmanager
def slurm_cluster(num_hosts: int) -> Iterator[Slurm]:
    """A cluster; skips the test where there can be none."""
    missing = [name for name in _PROGRAMS if not shutil.which(name)]
    if missing:
        pytest.skip(
            f"no Slurm here: no program {', '.join(missing)} (Debian, as root: "
            f"apt-get install --no-install-recommends slurm-wlm munge)"
        )
    with (
        tempfile.TemporaryDirectory(prefix="slurm") as folder,
        contextlib.ExitStack() as ending,
        fake_hosts(num_hosts) as hosts,
    ):
        slurm = Slurm(hosts, pathlib.Path(folder))
        ending.callback(slurm.end)
        slurm.start()
        yield slurm
