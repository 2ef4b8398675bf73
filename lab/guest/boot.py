# SPDX-License-Identifier: GPL-2.0-only
"""The lab's kernel as a process: start it on one CPU, watch it, end all of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.guest.plan import MARK
from ndm_tcp.lab.guest.root import ROOT, guest_root

START_NS = 1_700_000_000_000_000_000
"""CLOCK_REALTIME when the guest boots"""
TOOLS = {"iperf3": "iperf3", "ip": "iproute2", "tc": "iproute2", "taskset": "util-linux"}
TOOLS |= {"setarch": "util-linux", "insmod": "kmod", "gcc": "gcc"}
TROUBLE = re.compile(
    r"WARNING:|BUG:|UBSAN:|Oops|Kernel panic|Call Trace|general protection|"
    r"new suspected memory leaks|^(Command failed|Error: )"
)
COMMAND_LINE = (
    *("mem=2G", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"),
    *(f"init=/proc/self/cwd/{ROOT}/usr/bin/guest", "con=null", "con0=null,fd:1", "ipv6.disable=1"),
    *("time-travel=inf-cpu", f"time-travel-start={START_NS}", "panic=-1", "thash_entries=512"),
)
"""Constant: the kernel stirs it into its random numbers."""


@contextlib.contextmanager
def _one_cpu(cpu: int | None) -> Iterator[int]:
    """The CPU to use: the given one, or one that no other run uses, while there is one."""
    allowed = sorted(os.sched_getaffinity(0))
    if cpu is not None:
        if cpu not in allowed:
            raise NdmError(
                f"cpu {cpu}: not one of {', '.join(map(str, allowed))}; name one of these"
            )
        yield cpu
        return
    folder = uml_build.cache() / "cpus"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        chosen = allowed[os.getpid() % len(allowed)]
        for candidate in reversed(allowed):
            with contextlib.suppress(Timeout):
                stack.enter_context(FileLock(folder / str(candidate), blocking=False))
                chosen = candidate
                break
        yield chosen


def start_kernel(
    work: Path,
    seed: int,
    cpu: int,
    extra: tuple[str, ...] = (),
    debug: bool = False,
    patches: tuple[Path, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start the kernel on a folder with plan.sh; it prints to stdout.

    Args:
        extra: more words for the kernel's command line, such as module parameters.
        debug: take the debugging kernel.
        patches: take the kernel with these.
    """
    kernel = uml_build.build(quiet=True, debug=debug, patches=patches)
    programs = uml_build.build_programs()
    (work / ROOT).symlink_to(guest_root())
    (work / "out").mkdir()
    words = ["setarch", "-R", "taskset", "-c", str(cpu), str(kernel.vmlinux)]
    # Nothing of this process's environment: it would move the kernel's stack.
    env = {"NDM_SEED": f"{seed:020d}", "LD_PRELOAD": str(programs.getrandom), "HOME": "."}
    env["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    return subprocess.Popen(
        [*words, *COMMAND_LINE, *extra],
        cwd=work,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def session_members(session: int) -> list[int]:
    """The processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            state, _, _, number = fields.rpartition(")")[2].split()[:4]
            if int(number) == session and state not in "ZX":
                found.append(int(folder.name))
    return found


def end_kernel(process: subprocess.Popen[bytes]) -> None:
    """Kill a kernel, if it still runs, and the processes inside it.

    These have process groups of their own, but the session that was begun for the kernel.
    """
    if process.poll() is not None:
        return
    process.kill()
    patience_s = time.monotonic() + 5
    while (left := session_members(process.pid)) and time.monotonic() < patience_s:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    process.wait()


def boot(
    work: Path,
    seed: int,
    cpu: int | None,
    limit_s: float,
    extra: tuple[str, ...] = (),
    debug: bool = False,
    patches: tuple[Path, ...] = (),
) -> str:
    """Run the kernel to its end; returns its output.

    Raises:
        NdmError: it takes longer than `limit_s`, s of wall time, or is killed.
    """
    with _one_cpu(cpu) as chosen:
        process = start_kernel(work, seed, chosen, extra, debug, patches)
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            end_kernel(process)
            output = process.communicate()[0]
            last = uml_build.last_lines(output.decode(errors="replace"), 3)
            raise NdmError(
                f"no end within {limit_s:g} s; the guest's last words: {last}; "
                "run it alone on a CPU"
            ) from None
        finally:
            end_kernel(process)
    if process.returncode == -signal.SIGKILL:
        raise NdmError(
            "the guest was killed, as Linux does where memory runs out; free some, or run fewer "
            "guests at a time"
        )
    return output.decode(errors="replace").replace("\r", "")


def verdict(log: str) -> str | None:
    """The guest's error, or None if it ran to its end."""
    if re.search(rf"^{MARK} end$", log, re.MULTILINE):
        return None
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    at = next((n for n, line in enumerate(lines) if line.startswith(f"{MARK} error: ")), None)
    if at is not None:
        said = [line for line in lines[max(at - 2, 0) : at] if re.search("insmod|golden", line)]
        cause = f" ({'; '.join(said)})" if said else ""
        return lines[at].removeprefix(f"{MARK} error: ") + cause
    panic = [line for line in lines if "Kernel panic" in line]
    said = [line for line in lines if not line.startswith(MARK)]
    return (panic or [" | ".join(said[-3:])])[0] or "the kernel printed nothing"
