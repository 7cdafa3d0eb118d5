"""The machine itself: Python, cores, memory, disk, files, ports, sockets, clock."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import trunkline
from trunkline.cli.checkup.finding import Finding, Subject, missing, note, ok
from trunkline.cli.dev.ports import is_free
from trunkline.pipeline.cache import cache_folder

OLDEST_PYTHON = (3, 11)
GIB = 1024**3
MIB = 1024**2
_USUAL_PORTS = (7400, 8400)  # those that `trunkline config init` writes
_SOCKET_FOLDER = 60  # bytes; Spark appends a long name, and the kernel has room for 107
_UNSYNCHRONISED = 5
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def python(_: Subject) -> Finding:
    found = f"{sys.version.split()[0]}, {sys.executable}"
    wanted = ".".join(str(part) for part in OLDEST_PYTHON)
    if sys.version_info < OLDEST_PYTHON:
        return missing("Python", found, f"install Python {wanted} or newer, and make the environment with it")
    return ok("Python", found)


def cores(_: Subject) -> Finding:
    count = len(os.sched_getaffinity(0))
    return judge_cores(count, os.cpu_count() or count)


def judge_cores(usable: int, all_of_them: int) -> Finding:
    found = f"{usable}" if usable == all_of_them else f"{usable} of {all_of_them} may be used"
    if usable < 2:
        return note("cores", found, "give the machine a second core: the pipeline's batches wait for the node's work")
    return ok("cores", found)


def memory(_: Subject) -> Finding:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(lines[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))
    return judge_memory(available, min([total, *(limit for file in _LIMITS if (limit := _number(file)))]))


def _number(file: Path) -> int | None:
    text = file.read_text().strip() if file.exists() else ""
    return int(text) if text.isdigit() else None


def judge_memory(available: int, total: int) -> Finding:
    available = min(available, total)
    found = f"{available / GIB:.1f} GiB of {total / GIB:.1f} GiB are free"
    if available < 0.3 * GIB:
        return missing("memory", found, "free some: a node with its Postgres takes 0.3 GiB")
    if available < 2 * GIB:
        return note("memory", found, "free some: a pipeline takes 1.2 GiB, the demo 2 GiB")
    return ok("memory", found)


def disk(subject: Subject) -> list[Finding]:
    places = {"working folder": subject.folder, "cache": cache_folder(), "temporary files": Path(tempfile.gettempdir())}
    if subject.config is not None:
        places["runtime folder"] = next(
            folder for folder in (subject.config.runtime, *subject.config.runtime.parents) if folder.exists()
        )
    return [
        judge_disk(f"disk: {name}", folder, shutil.disk_usage(folder).free, os.access(folder, os.W_OK))
        for name, folder in places.items()
    ]


def judge_disk(name: str, folder: Path, free: int, writable: bool) -> Finding:
    found = f"{free / GIB:.1f} GiB are free in {folder}"
    if not writable:
        return note(name, f"{folder} cannot be written", "work in a folder of yours, or set TRUNKLINE_CACHE, TMPDIR")
    if free < 200 * MIB:
        return missing(name, found, f"free some: du -xhd1 {folder} | sort -h")
    if free < 2 * GIB:
        return note(name, found, f"free some: du -xhd1 {folder} | sort -h")
    return ok(name, found)


def open_files(_: Subject) -> Finding:
    return judge_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))


def judge_open_files(soft: int, hard: int) -> Finding:
    endless = resource.RLIM_INFINITY
    found = f"at most {'any number' if soft == endless else soft} per process"
    if soft != endless and soft < 1024:
        return note("open files", found, f"ulimit -n {4096 if hard == endless else min(4096, hard)}")
    return ok("open files", found)


def ports(subject: Subject) -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as error:
        return missing("ports on loopback", str(error), "ip link set lo up")
    if subject.config is not None:
        return ok("ports on loopback", "they can be had")
    return judge_ports({port: is_free(port) for port in _USUAL_PORTS})


def judge_ports(free: dict[int, bool]) -> Finding:
    taken = [str(port) for port, is_it in free.items() if not is_it]
    if taken:
        listeners = f"{' and '.join(taken)}, of `trunkline config init`, {'is' if len(taken) == 1 else 'are'} taken"
        return note("ports on loopback", listeners, "ss -ltnp shows by whom; else write others into link.listen, api.listen")
    return ok("ports on loopback", f"they can be had; {' and '.join(str(port) for port in free)} are free")


def sockets(subject: Subject) -> Finding:
    runtime = subject.config.runtime if subject.config is not None else Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder, socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.bind(f"{folder}/s")
        except OSError as error:
            return note("unix sockets", f"the pipeline's Python workers use TCP: {error}", "export TMPDIR=/tmp")
    return judge_sockets(runtime / f"spark-{os.getpid()}" / "sockets")


def judge_sockets(folder: Path) -> Finding:
    room = _SOCKET_FOLDER - len(os.fsencode(folder.absolute()))
    if room < 0:
        return note("unix sockets", f"{folder} is {-room} bytes too deep: Python workers use TCP", "choose a shorter `runtime`")
    return ok("unix sockets", "the pipeline's Python workers use them")


def clock(_: Subject) -> Finding:
    installed = Path(trunkline.__file__).stat().st_mtime
    return judge_clock(time.time(), installed, _kept_in_step())


def _kept_in_step() -> bool:
    """What the kernel says; it does not know about a clock that a virtual machine's host sets."""
    room = ctypes.create_string_buffer(1024)  # struct timex with room to spare; modes 0 changes nothing
    return bool(ctypes.CDLL(None).adjtimex(room) != _UNSYNCHRONISED)


def judge_clock(now: float, installed: float, in_step: bool) -> Finding:
    found = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if now < installed - 86_400:
        return missing("clock", f"{found}, before this was installed: certificates would fail", "timedatectl set-ntp true")
    if not in_step:
        return note("clock", f"{found}; the kernel says that nobody keeps it in step", "timedatectl set-ntp true")
    return ok("clock", f"{found}, kept in step")


def namespaces_work() -> bool:
    if not shutil.which("unshare"):
        return False
    words = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def namespaces(_: Subject) -> Finding:
    if namespaces_work():
        return ok("user namespaces", "they can be made")
    if os.geteuid() != 0:
        return ok("user namespaces", "they cannot be made, and only root needs them")
    return note(
        "user namespaces", "they cannot be made", "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=1000"
    )
