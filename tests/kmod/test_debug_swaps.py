# SPDX-License-Identifier: GPL-2.0-only
"""Networks swapped under a thousand flows, in the kernel that watches memory and locks.

The guest's time stands still while the kernel computes, so no swap begins within an inference.
What a swap does to the rounds between its own steps is seen here; that it waits for a round that
has begun is not.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.guest.boot import TROUBLE

from .. import blobs
from ..kernel.kbuild import KMOD, copy_kmod
from .lab import boot, change, console, need_debug_kernel
from .test_cases import PATH, TRACING
from .test_debug import SCAN

pytestmark = pytest.mark.long
MODEL = "/sys/module/ndm_tcp/parameters/model"
FIRMWARE = "/sys/module/firmware_class/parameters/path"
FLOWS, SECONDS, SWAPS_S = 1000, 60, 100
SWAP_IN = """	struct ndm_blob *former = rcu_replace_pointer(ndm_swapped, blob, true);

	synchronize_rcu();
	kvfree(former);
"""
DEFECTS = {
    "freed too early": (
        """	struct ndm_blob *former = rcu_access_pointer(ndm_swapped);

	kvfree(former);
	synchronize_rcu();
	rcu_assign_pointer(ndm_swapped, blob);
""",
        r"BUG: KASAN: (slab-)?use-after-free in ndm_infer",
    ),
    "never freed": (
        """	rcu_replace_pointer(ndm_swapped, blob, true);
	synchronize_rcu();
""",
        r"new suspected memory leaks",
    ),
}
"""ndm_swap_in() with a mistake, and what the kernel must say of it"""


def plan(flows: int, seconds: int, delay_ms: int) -> str:
    """A script: flows that keep their windows full while two networks take turns.

    A window is a few packets; the first connection learns the link addresses, or each SYN of
    the others would be sent twice.
    """
    return f"""RCVBUF=
{PATH}
echo 0 >{TRACING}/events/ndm_tcp/ndm_tcp_round/enable
kill $server
mkdir -p /dev/firmware/ndm_tcp
cp /run/host/other.blob /dev/firmware/ndm_tcp
printf /dev/firmware >{FIRMWARE}
echo 65536 >/proc/sys/net/ipv4/tcp_max_orphans
guest in d sh -c 'echo 4096 >/proc/sys/net/ipv4/tcp_max_syn_backlog'
forth 100000 delay 20ms
guest in d /run/host/crowd take 5001 4096 & server=$!
sleep 0.1
crowd() {{ guest in s /run/host/crowd "$@"; }}
crowd send 10.2.0.2 5001 ndm_tcp 1 1
forth 100000 delay {delay_ms}ms
crowd send 10.2.0.2 5001 ndm_tcp {flows} {seconds + 1} & client=$!
/run/host/crowd swap {MODEL} {SWAPS_S * seconds} {SWAPS_S} other.blob built-in
wait $client
parameter rounds
parameter no_memory
{SCAN}
"""


def numbers(log: str) -> dict[str, float]:
    """The newest value of each `name=number` in a log."""
    return {name: float(of) for name, of in re.findall(r"\b(\w+)=([\d.]+)", log)}


def files(folder: Path, module: Path, crowd: Path) -> list[Path]:
    blob = folder / "other.blob"
    blob.write_bytes(blobs.of(blobs.other()))
    return [module, crowd, blob]


def test_a_thousand_flows_lose_nothing(flow: Path, crowd: Path, tmp_path: Path) -> None:
    need_debug_kernel()
    given = [*files(tmp_path, uml_build.build_module(KMOD, debug=True), crowd), flow]
    log = boot(tmp_path / "work", plan(FLOWS, SECONDS, 880), given, 3000, debug=True)
    seen = numbers(log)
    print(seen)
    assert seen["swaps"] == SWAPS_S * SECONDS
    assert seen["seconds"] <= SECONDS + 1
    assert seen["retransmitted"] == 0
    # Each flow had rounds, and packets arrived, from beginning to end.
    assert seen["rounds"] > FLOWS * SECONDS / 2
    assert seen["fewest"] > 0.9 * seen["acked"] / FLOWS
    assert seen["no_memory"] == 0
    assert re.search(r"debug_locks:\s+1$", log, re.MULTILINE)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_the_swap_is_found(name: str, flow: Path, crowd: Path, tmp_path: Path) -> None:
    need_debug_kernel()
    wrong, said = DEFECTS[name]
    sources = copy_kmod(tmp_path / "kmod")
    change(sources, [(SWAP_IN, wrong)])
    given = [*files(tmp_path, uml_build.build_module(sources, debug=True), crowd), flow]
    log = console(tmp_path / "work", plan(30, 3, 80), given, 600, debug=True)
    assert re.search(said, log), log[-3000:]
    assert TROUBLE.search(log)
