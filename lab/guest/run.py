# SPDX-License-Identifier: GPL-2.0-only
"""One run of a scenario in the lab's kernel: the real TCP stack in virtual time.

    path: senders s0, s1 .. -- router r -- delay m -- receiver d, each a network namespace
        r  bottleneck towards m: tbf of one packet's burst over a queue of packets
        m  netem towards d: half of the RTT, jitter, loss; towards r: the other half
    lo:   one host, netem and tbf on its loopback device

Loss by netem and loss by the queue happen on different devices of a path, so every dropped
packet has a certain cause. On the loopback device the packet's way out of the kernel shows the
cause; where netem's own queue was full, it counts as the queue's.

A run is a function of scenario, algorithm, seed, kernel, module and programs. All its files, except
for `wall_s` in result.json, are the same in every repetition on a machine. A light run gives the
same measurements as a whole one.

    scenario.toml       as given              run.toml           facts; for the dataset builder
    sender.pcap.zst     packets at senders    tcp_probe.txt.zst  the kernel's events of them
    tcp_info.jsonl.zst  state of each flow    drops.csv          every lost packet and why
    qdisc.csv.zst       queues and counters   iperf3.json.zst    and iperf3.N.json.zst per flow
    result.json         the results          kernel.log         the kernel's output
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import externals, uml_build
from ndm_tcp.lab.guest.boot import TOOLS, TROUBLE, boot, verdict
from ndm_tcp.lab.guest.collect import collect, rounded
from ndm_tcp.lab.guest.externals import Externals
from ndm_tcp.lab.guest.plan import path_batches, plan
from ndm_tcp.lab.paths import scenario as scenarios
from ndm_tcp.lab.paths.scenario import Scenario

EXAMPLE = """example:
  ndm lab run lab/scenarios/published/b-jitter-loss-rate.toml --cc ndm_tcp --seed 1 -o out/b
  ndm lab run fairness/late-flow.toml --cc mine --cc-module ~/tcp_mine -o out/mine"""

IN_TREE = (
    *("reno", "cubic", "bbr", "bic", "cdg", "westwood", "highspeed", "hybla", "htcp", "vegas"),
    *("nv", "veno", "scalable", "lp", "yeah", "illinois", "dctcp"),
)
"""Every congestion control of the kernel; dctcp without the marking it needs acts like reno."""
OUR_MODULES = ("ndm_tcp", "fixed_cwnd")
MAX_WAIT_S = 2e6
"""what poll() can wait"""
PARAMETER = re.compile(rb"(?:parm|parmtype)=(\w+):|__param_str_(\w+)")
"""of a module: in its .modinfo, and as a symbol, which those of module_param_cb() have, too"""


def _modules(
    scenario: Scenario,
    cc: str,
    module: Path | None,
    params: dict[str, Any] | None,
    others: Externals,
) -> list[tuple[Path, dict[str, Any]]]:
    """The modules that the algorithms need, those of others, and their parameters."""
    needed = scenario.algorithms(cc)
    found = others.build_modules()
    takers = found.copy()  # of the parameters
    if module is not None:
        built = module
        if module.is_dir():
            built = uml_build.build_module(module, patches=others.patches)
        if not built.is_file():
            raise NdmError(f"{module}: no such module; name a folder with a Kbuild, or a .ko")
        found.append(built)
        takers = [built]
    given = {path.stem for path in found}
    for name, sources in (("ndm_tcp", uml_build.KMOD), ("fixed_cwnd", uml_build.FIXED_CWND)):
        if name in needed and name not in given:
            found.append(uml_build.build_module(sources, patches=others.patches))
            takers = [found[-1]] if name == cc and module is None else takers
    taker = _taker(cc, params, takers) if params else None
    return [(path, params or {} if path == taker else {}) for path in found]


def _taker(cc: str, params: dict[str, Any], modules: list[Path]) -> Path:
    """The module that has these parameters."""
    has: set[str] = set()
    for path in modules:
        found = PARAMETER.findall(path.read_bytes())
        here = {(told or symbol).decode() for told, symbol in found}
        if set(params) <= here:
            return path
        has |= here
    if not modules:
        raise NdmError(f"{cc}: is not a module, it takes no parameters; leave out --param")
    unknown = ", ".join(sorted(set(params) - has)) or "these together"
    names = " and ".join(path.name for path in modules)
    known = f"those of {names} are {', '.join(sorted(has))}" if has else "leave it out"
    raise NdmError(f"--param: {cc} does not have {unknown}; {known}")


def _prepare(
    work: Path, scenario: Scenario, modules: list[Path], patches: tuple[Path, ...]
) -> None:
    """The files beside the guest's plan: modules, and the batches of tc."""
    for path in [uml_build.build_module(uml_build.WATCH, patches=patches), *modules]:
        shutil.copy(path, work)
    if scenario.link:
        for file, text in path_batches(scenario).items():
            (work / file).write_text(text, encoding="ascii")


def _require_sound(cc: str, seed: int, out: Path) -> None:
    """Refuse what no run can have."""
    if not scenarios.CC_NAME.fullmatch(cc):
        raise NdmError(f"{cc!r} is not the name of an algorithm; name one, such as cubic")
    if not 0 <= seed < 1 << 64:
        raise NdmError(f"seed: {seed} is not in [0, 2^64); choose one that is")
    if Path.cwd().is_relative_to(out.resolve()):
        raise NdmError(f"{out}: you are in this folder; name one that can be replaced")
    if out.exists() and not (out / "result.json").is_file() and any(out.iterdir()):
        raise NdmError(f"{out}: holds something else than a run; name another folder")


def _require_well(log: str, title: str, out: Path) -> None:
    """Refuse a run whose guest failed, and keep its output beside the folder.

    Raises:
        NdmError: why it failed.
    """
    if problem := verdict(log):
        failed = out.with_name(out.name + ".failed.log")
        failed.write_text(log, encoding="utf-8")
        raise NdmError(f"{title}: {problem} (all of it: {failed})")


def run(
    scenario: Scenario | Path,
    cc: str,
    seed: int,
    out: Path,
    cpu: int | None = None,
    module: Path | None = None,
    params: dict[str, Any] | None = None,
    light: bool = False,
    limit_s: float | None = None,
    events: tuple[str, ...] = (),
    others: Externals = externals.NONE,
) -> dict[str, Any]:
    """Run a scenario once.

    Args:
        scenario: or its file.
        cc: the algorithm under test.
        seed: of every random number of the guest's kernel, and of when flows begin.
        out: the folder to leave; one that holds a run is replaced.
        cpu: number of the CPU to run on; by default one without another run.
        module: a .ko for the lab's kernel, or the sources of one, loaded before the run.
        params: parameters of that module, or of ndm_tcp or fixed_cwnd if `cc` is one of them.
        light: no packets and no kernel events; for many flows or high rates.
        limit_s: wall time that it may take, s.
        events: more of the kernel's events for the trace, as "group/name"; a run that is not
            light. They move the guest's clock: it is another run than one without.
        others: patches of the guest's kernel, and modules that it loads in any case.

    Returns:
        the contents of result.json.

    Raises:
        NdmError: a tool is missing, the guest fails, or it takes too long.
    """
    if isinstance(scenario, Path):
        scenario = scenarios.load(scenario)
    _require_sound(cc, seed, out)
    scenario = scenario.begun(seed)
    uml_build.need(TOOLS)
    kernel = uml_build.build(quiet=True, patches=others.patches)
    modules = _modules(scenario, cc, module, params, others)
    limit_s = limit_s or min(max(300.0, 60 * scenario.end_s()), MAX_WAIT_S)
    with files.scratch(out) as scratch:
        work, folder = scratch / "work", scratch / "run"
        work.mkdir()
        folder.mkdir()
        _prepare(work, scenario, [path for path, _ in modules], others.patches)
        named = [(path.stem, values) for path, values in modules]
        (work / "plan.sh").write_text(plan(scenario, cc, named, light, events), encoding="ascii")
        title = f"{scenario.name} with {cc}"
        before_s = time.monotonic()
        try:
            log = boot(work, seed, cpu, limit_s, patches=others.patches)
        except NdmError as error:
            raise NdmError(f"{title}: {error}") from None
        wall_s = time.monotonic() - before_s
        _require_well(log, title, out)
        try:
            result = collect(scenario, cc, seed, work / "out", folder, light, kernel)
        except NdmError as error:
            raise NdmError(f"{title}: {error}") from None
        if params:
            result["parameters"] = {name: str(value) for name, value in params.items()}
        if others:
            result["externals"] = [list(pair) for pair in others.digests()]
        trouble = [line.strip() for line in log.splitlines() if TROUBLE.search(line)]
        if trouble:
            result["kernel_trouble"] = trouble
        result["wall_s"] = rounded(wall_s)
        (folder / "kernel.log").write_text(log, encoding="utf-8")
        text = json.dumps(result, indent=1) + "\n"
        (folder / "result.json").write_text(text, encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)
    return result


def summary(result: dict[str, Any]) -> str:
    """A result in a few lines, the published figures beside it."""
    lines = []
    for flow in result["flows"]:
        parts = [f"{flow['cc']:10} {flow['goodput_mbps']:9.3f} Mbit/s"]
        parts.append(f"{flow['retransmissions']} retransmissions")
        if "rtt_mean_ms" in flow:
            parts.append(f"RTT {flow['rtt_mean_ms']:.1f} ms (95 %: {flow['rtt_p95_ms']:.1f})")
        parts.append(
            f"{flow['zero_intervals']}/{flow['intervals']} s in which iperf3 wrote nothing"
        )
        if len(result["flows"]) > 1:
            parts.append(f"share {flow['share']:.3f}")
        lines.append(", ".join(parts))
    if "web" in result:
        web = result["web"]
        lines.append(f"{web['cc']:10} page in {web['seconds']:.3f} s ({web['mbps']:.3f} Mbit/s)")
    drops = result["drops"]
    lines.append(f"dropped {drops['random']} at random, {drops['queue']} by the queue")
    for row in result.get("published", []):
        lines.append("published: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    lines += result.get("kernel_trouble", [])
    speed = result["simulated_s"] / result["wall_s"]
    lines.append(
        f"{result['simulated_s']:.1f} s simulated in {result['wall_s']:.1f} s ({speed:.1f} times)"
    )
    return "\n".join(lines)


def parameter(text: str) -> tuple[str, str]:
    """NAME=VALUE of the command line."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"\w+", name, re.ASCII):
        raise NdmError(f"--param {text}: expected NAME=VALUE")
    if not (value.isascii() and value.isprintable()):
        raise NdmError(f"--param {name}: {value!r} is not plain ASCII text; write it in that")
    return name, value


def add_kmod(parser: argparse.ArgumentParser) -> None:
    """The option that all verbs that run guests share."""
    parser.add_argument(
        "--kmod",
        type=Path,
        help="module to load: sources, as make demo leaves, or a .ko for the lab",
    )


def module_names(kmod: Path) -> list[str]:
    """The algorithms that a module may bring, by its Kbuild or the name of the .ko.

    Raises:
        NdmError: there is no such module.
    """
    if kmod.is_file():
        return [kmod.stem]
    kbuild = kmod / "Kbuild"
    if not kbuild.is_file():
        refused = kmod.with_name("refused")
        remedy = "name one of them"
        if (refused / "Kbuild").is_file():
            remedy = f"ndm adapt advised against the network and left it in {refused}; name that"
        raise NdmError(f"--kmod {kmod}: neither a .ko nor a folder with a Kbuild; {remedy}")
    found = re.search(r"^obj-m\s*[:+]?=(.*)$", kbuild.read_text(encoding="utf-8"), re.M)
    names = re.findall(r"(\w+)\.o\b", found[1]) if found else []
    if not names:
        raise NdmError(f"{kbuild}: no line 'obj-m := NAME.o' that names the module; add one")
    return names


def require_known(
    suite: Iterable[Scenario],
    ccs: Iterable[str],
    kmod: Path | None,
    others: Externals = externals.NONE,
) -> None:
    """Refuse an algorithm that nothing in the lab has, before anything is built or booted.

    Args:
        suite: whose other flows count, too.
        ccs: under test, without parameters.
        kmod: a module that is loaded beside the known ones.
        others: that may bring more.

    Raises:
        NdmError: naming it, and those that there are.
    """
    known = [*IN_TREE, *OUR_MODULES, *(module_names(kmod) if kmod else []), *others.algorithms()]
    for scenario in suite:
        for cc in ccs:
            for name in scenario.algorithms(cc):
                if name not in known and not others.hide_names():
                    raise NdmError(
                        f"{scenario.name}: no algorithm {name}, there are: "
                        f"{' '.join(dict.fromkeys(known))}; or bring one with --kmod or --cc-module"
                    )


def split_cc(cc: str) -> tuple[str, dict[str, Any]]:
    """`fixed_cwnd:N`, or `fixed_cwnd:N:paced`, to algorithm and module parameters.

    Other names are returned as they are.

    Raises:
        NdmError: the text after the colon is something else.
    """
    name, *values = cc.split(":")
    if not values:
        return cc, {}
    if name != "fixed_cwnd" or not values[0].isdigit() or values[1:] not in ([], ["paced"]):
        wanted = "fixed_cwnd:40 or fixed_cwnd:40:paced"
        raise NdmError(f"--cc {cc}: only fixed_cwnd takes a number; write {wanted}")
    return name, {"cwnd": int(values[0])} | ({"paced": 1} if values[1:] else {})


def require_free(
    out: Path, scenario: Scenario, cc: str, seed: int, params: dict[str, str] | None = None
) -> None:
    """Refuse to replace another run than this one.

    Raises:
        NdmError: the folder holds one; names the option that replaces it.
    """
    if not (out / "result.json").is_file():
        return
    try:
        result = json.loads((out / "result.json").read_bytes())
        there = (result["scenario"], result["cc"], result["seed"])
    except (ValueError, KeyError, TypeError):
        result, there = {}, ("unknown", "unknown", 0)
    text = out / "scenario.toml"
    same = text.is_file() and text.read_text(encoding="utf-8") == scenario.text
    same = same and result.get("parameters", {}) == (params or {})
    if there != (scenario.name, cc, seed) or not same:
        raise NdmError(
            f"{out}: holds another run ({there[0]}, {there[1]}, seed {there[2]}); name another -o, "
            "or replace it with --force"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm lab run`."""
    parser.add_argument(
        "scenario", metavar="SCENARIO", type=Path, help="TOML file, or one below lab/scenarios"
    )
    parser.add_argument(
        "--cc", required=True, help="algorithm under test, such as cubic, ndm_tcp, fixed_cwnd:40"
    )
    parser.add_argument("--seed", type=int, default=1, help="of all randomness in the guest")
    parser.add_argument(
        "-o", "--out", type=files.folder, help="folder to leave (default: out/lab/...)"
    )
    parser.add_argument("--cpu", type=int, help="CPU to run on (default: a free one)")
    add_kmod(parser)
    externals.add_arguments(parser)
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the module of --cc (repeatable)",
    )
    parser.add_argument("--force", action="store_true", help="replace what another run left in -o")
    parser.add_argument("--light", action="store_true", help="no packets, no kernel events")
    parser.add_argument("--json", action="store_true", help="print result.json")


def main(args: argparse.Namespace) -> int:
    """`ndm lab run`."""
    loaded = scenarios.load(scenarios.find(args.scenario))
    out = args.out or Path("out") / "lab" / f"{loaded.name}-{args.cc.replace(':', '-')}-{args.seed}"
    cc, params = split_cc(args.cc)
    params = {name: str(value) for name, value in params.items()}
    params |= dict(parameter(text) for text in args.param)
    others = externals.given(args)
    require_known([loaded], [cc], args.kmod, others)
    if not args.force:
        require_free(out, loaded, cc, args.seed, params)
    uml_build.build(patches=others.patches)
    result = run(
        *(loaded, cc, args.seed, out, args.cpu, args.kmod, params, args.light),
        *(None, (), others),
    )
    print(json.dumps(result, indent=2) if args.json else summary(result))
    print(f"in {out}", file=sys.stderr)
    return 0
