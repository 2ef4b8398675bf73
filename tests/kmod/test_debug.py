# SPDX-License-Identifier: GPL-2.0-only
"""The module in a kernel that watches: KASAN, UBSAN, lockdep, kmemleak; clean, and able to object.

`make test-debug` builds that kernel; once it is in the cache, `make test-long` runs this too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.guest.boot import TROUBLE

from ..kernel.kbuild import KMOD, copy_kmod
from .lab import boot, console, need_debug_kernel
from .test_cases import PATH

pytestmark = pytest.mark.long
LEAKS = "/sys/kernel/debug/kmemleak"
# kmemleak believes in a leak five seconds after the allocation, and only at a second look.
SCAN = f"""
kill $server || true
sleep 70
rmmod ndm_tcp
sleep 6
echo scan >{LEAKS}
sleep 6
echo scan >{LEAKS}
cat {LEAKS}
grep debug_locks: /proc/lockdep_stats
"""
SUITE = f"""
insmod /run/host/ndm_kunit.ko
rmmod ndm_kunit
state tcp_tw_reuse 1
flow send 10.2.0.2 5000 ndm_tcp send:1500000 info
sleep 2
forth 60 delay 20ms 8ms rate 8mbit loss 2%
flow send 10.2.0.2 5000 ndm_tcp send:700000 cc:cubic send:300000 cc:ndm_tcp send:700000 info
sleep 2
forth 60 delay 20ms rate 8mbit
flow send 10.2.0.2 5000 ndm_tcp send:2000000 sleep:5000 send:300000 info & client=$!
sleep 1
forth 60 delay 20ms rate 8mbit loss 100%
sleep 2
forth 60 delay 20ms rate 8mbit
wait $client
sleep 2
for n in s d; do guest in $n sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_ecn'; done
forth 1000 delay 20ms rate 8mbit loss 1% ecn
flow send 10.2.0.2 5000 ndm_tcp send:1000000 info
sleep 2
echo 65536 >/proc/sys/net/ipv4/tcp_max_orphans
guest in d sh -c 'echo 4096 >/proc/sys/net/ipv4/tcp_max_syn_backlog'
forth 3000 delay 20ms rate 50mbit
flow many 10.2.0.2 5000 ndm_tcp 1000 15000 300
n=0
while [ $n -lt 20 ]; do
	sleep 3
	until rmmod ndm_tcp 2>/dev/null; do sleep 1; done
	insmod /run/host/ndm_tcp.ko
	n=$((n + 1))
done
counter TCPTimeouts
echo loaded=$n
{SCAN}
"""
SHORT = f"flow send 10.2.0.2 5000 ndm_tcp send:400000\n{SCAN}"

MAIN = (
    "static NDM_COMMON void "
    "ndm_ack_arrived(struct sock *sk, const struct rate_sample *rs, bool advanced)\n{"
)
INIT = "static void ndm_init(struct sock *sk)\n{"
RELEASE = "static void ndm_release(struct sock *sk)\n{"
GLOBALS = """
static DEFINE_SPINLOCK(ndm_test_a);
static DEFINE_SPINLOCK(ndm_test_b);
static void ndm_test_lock(spinlock_t *first, spinlock_t *second)
{
	spin_lock_bh(first);
	spin_lock(second);
	spin_unlock(second);
	spin_unlock_bh(first);
}
"""
DEFECTS = {
    "out of bounds on the heap": (
        [(INIT, "u8 *p = kmalloc(13, GFP_ATOMIC); OPTIMIZER_HIDE_VAR(p); p[13] = 1; kfree(p);")],
        r"BUG: KASAN: slab-out-of-bounds in ndm_init",
    ),
    "used after it was freed": (
        [(INIT, "u8 *p = kmalloc(13, GFP_ATOMIC); kfree(p); OPTIMIZER_HIDE_VAR(p); p[0] = 1;")],
        r"BUG: KASAN: slab-use-after-free in ndm_init",
    ),
    "out of bounds on the stack": (
        [(MAIN, "u8 p[13]; u32 n = 13; OPTIMIZER_HIDE_VAR(n); WRITE_ONCE(*(p + n), 1);")],
        r"BUG: KASAN: stack-out-of-bounds in ndm_",
    ),
    "shift too far": (
        [(MAIN, "u32 n = 40; OPTIMIZER_HIDE_VAR(n); n = 1U << n; OPTIMIZER_HIDE_VAR(n);")],
        r"UBSAN: shift-out-of-bounds in .*ndm_hooks\.h",
    ),
    "never freed": (
        [(INIT, "u8 *p = kmalloc(13, GFP_ATOMIC); OPTIMIZER_HIDE_VAR(p);")],
        r"unreferenced object 0x",
    ),
    "memory never released": (
        [(RELEASE, "((struct ndm *)inet_csk_ca(sk))->memory = NULL;")],
        r"Objects remaining in ndm_memory|unreferenced object 0x",
    ),
    "asleep in a softirq": (
        [(MAIN, "might_sleep();")],
        r"BUG: sleeping function called from invalid context at .*ndm_hooks\.h",
    ),
    "locks in either order": (
        [
            (INIT, "ndm_test_lock(&ndm_test_a, &ndm_test_b);"),
            (RELEASE, "ndm_test_lock(&ndm_test_b, &ndm_test_a);"),
        ],
        r"WARNING: possible circular locking dependency detected",
    ),
}
"""What is put at the start of a function, and what the kernel must say of it."""


def test_the_suite_is_clean(flow: Path, tmp_path: Path) -> None:
    need_debug_kernel()
    sources = copy_kmod(tmp_path / "kunit")
    kbuild = sources / "Kbuild"
    kbuild.write_text("NDM_KUNIT := 1\n" + kbuild.read_text())
    modules = [uml_build.build_module(path, debug=True) for path in (KMOD, sources)]
    plan = f"RCVBUF=\n{PATH}\n{SUITE}"
    log = boot(tmp_path / "work", plan, [*modules, flow], 900, debug=True)
    assert "DONE 1000, 0 switches left" in log and "loaded=20" in log
    assert re.search(r"^TCPTimeouts=[1-9]", log, re.MULTILINE)
    assert re.search(r"# ndm_tcp: pass:[1-9]\d* fail:0 ", log)
    # An objection would have switched lockdep off.
    assert re.search(r"debug_locks:\s+1$", log, re.MULTILINE)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str, flow: Path, tmp_path: Path) -> None:
    need_debug_kernel()
    insertions, said = DEFECTS[name]
    sources = copy_kmod(tmp_path / "kmod")
    hooks, path = sources / "ndm_hooks.h", sources / "ndm_tcp.c"
    text = hooks.read_text()
    for place, code in insertions:
        assert text.count(place) == 1
        # The report names the function that has the defect, not one that it was inlined into.
        apart = place.replace("static void", "static noinline void")
        text = text.replace(place, f"{apart}\n\t{code}")
    hooks.write_text(text)
    module = path.read_text()
    start = module.index("static DEFINE_PER_CPU")
    added = GLOBALS if "ndm_test_lock" in text else ""
    path.write_text(module[:start] + added + module[start:])
    built = uml_build.build_module(sources, debug=True)
    plan = f"RCVBUF=\n{PATH}\n{SHORT}"
    log = console(tmp_path / "work", plan, [built, flow], 300, debug=True)
    assert re.search(said, log), log[-3000:]
    assert TROUBLE.search(log)
