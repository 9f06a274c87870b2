"""A real Slurm on this machine: munged, slurmctld and three slurmd, with fake GPUs, as any user.

python slurm/toy_cluster.py    # one to try things on: Debian's slurm-wlm and munge are enough
"""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun")
NODES = ("n1", "n2", "n3")
PATIENCE = 60.0

CONFIGURATION = """\
ClusterName=toy
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobcomp.log
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MinJobAge=600
KillWait=5
SlurmdParameters=config_overrides
GresTypes=gpu
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=4000 Gres=gpu:2"
GPUS = "NodeName={name} Name=gpu File=/dev/tty[{first}-{last}]\n"


@dataclass
class Cluster:
    """A running Slurm; its clients need `environment`."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What every client needs to find this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def say(self, *command: str, timeout: float = 30) -> str:
        """What a client prints."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def start(self) -> None:
        """Starts all daemons and waits until every node is idle."""
        host = socket.gethostname().split(".")[0]
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "state").mkdir(exist_ok=True)
        ports = free_ports(len(NODES) + 1)
        nodes = [
            NODE.format(name=name, host=host, port=port) for name, port in zip(NODES, ports, strict=False)
        ]
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=host,
                port=ports[-1],
                user=getpass.getuser(),
                folder=self.folder,
                nodes="\n".join(nodes),
                names=",".join(NODES),
            )
        )
        gres = [GPUS.format(name=name, first=2 * n, last=2 * n + 1) for n, name in enumerate(NODES)]
        (self.folder / "gres.conf").write_text("".join(gres))
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        self._run("munged", *self._munge_options())
        self._wait(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._run("slurmctld", "-D", "-c")
        self._wait(lambda: self._answers("scontrol", "ping"), "slurmctld")
        for name in NODES:
            self.start_node(name)
        self._wait(lambda: self.states() == dict.fromkeys(NODES, "idle"), "three idle nodes")

    def start_node(self, name: str) -> None:
        """Starts one node's daemon."""
        self._run(name, "-D", "-N", name, daemon="slurmd")

    def states(self) -> dict[str, str]:
        """Each node's state, in Slurm's short words."""
        lines = self.say("sinfo", "-N", "-h", "-o", "%N %t").split("\n")
        return dict(line.split() for line in lines if line)

    def stop(self) -> None:
        """Cancels all jobs, stops all daemons, and waits for them."""
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            self.say("scancel", "--user", getpass.getuser())
            self._wait(lambda: not self.say("squeue", "-h").strip(), "an empty queue")
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _run(self, name: str, *options: str, daemon: str | None = None) -> None:
        log = open(self.folder / f"{name}.out", "ab")  # noqa: SIM115 - the daemon's from now on
        executable = program(daemon or name)
        if executable is None:
            raise RuntimeError(f"there is no {daemon or name} here; install slurm-wlm and munge")
        with log:
            self.processes[name] = subprocess.Popen(
                [executable, *options],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _munge_options(self) -> list[str]:
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid"}
        files |= {"seed-file": "munge.seed", "log-file": "munge.log"}
        return [
            "--foreground",
            "--force",
            *[f"--{name}={self.folder / file}" for name, file in files.items()],
        ]

    def _answers(self, *command: str) -> bool:
        try:
            self.say(*command)
        except (RuntimeError, subprocess.TimeoutExpired):
            return False
        return True

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.1)
        raise RuntimeError(f"no {what} within {PATIENCE:.0f} s; see {self.folder}")


def program(name: str) -> str | None:
    """Where one of Slurm's programs is; daemons are not in an ordinary user's path."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


if __name__ == "__main__":
    if lacking := [name for name in PROGRAMS if program(name) is None]:
        raise SystemExit(f"error: there is no {lacking[0]} here; install Debian's slurm-wlm and munge")
    trial = Cluster(Path(tempfile.mkdtemp(prefix="slurm-")))
    for number in (signal.SIGINT, signal.SIGTERM):  # the first is ignored in what a shell starts with &
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        trial.start()
        print(f"export SLURM_CONF={trial.folder}/slurm.conf    # elsewhere; Ctrl-C here ends it", flush=True)
        while True:
            signal.pause()
    finally:
        trial.stop()
        shutil.rmtree(trial.folder, ignore_errors=True)
