# SPDX-License-Identifier: GPL-2.0-only
"""The plan of a run's guest: its network, its traffic and its records, as shell and tc."""

from __future__ import annotations

import shlex
from typing import Any

from ndm_tcp.lab.paths.scenario import RECEIVE_BYTES, SEND_BYTES, UNDER_TEST, Link, Scenario

FIRST_PORT = 20_001
"""port at the sender of the first flow; the next have the next ones"""
WEB_PORT = 20_901
SERVER_PORT = 5201
POLL_US = 10_000
SETTLE_S = 1.0
"""from the servers' start to the first flow"""
EVENTS = ("tcp_probe", "tcp_cong_state_set", "tcp_retransmit_skb")
MARK = "NDM-LAB"
MAC = "02:00:00:00:00:01"  # of both ends of every wire: without ARP they must be the same
TCP_MEM_PAGES = "262144 327680 393216"
"""tcp_mem of tcp(7), of 4 KiB; the guest has 2 GiB"""
PATIENCE = "LD_PRELOAD=/usr/lib/patience"


def _percent(chance: float) -> str:
    return f"{chance * 100:.7f}%"


def _netem(link: Link, rtt_us: int, forward: bool) -> str:
    """netem's words for one direction, which has half of the RTT."""
    words = f"limit 1000000 delay {rtt_us / 2:g}us"
    if forward and link.jitter_us:
        words += f" {link.jitter_us}us"
        if link.jitter_distribution != "uniform":
            words += f" distribution {link.jitter_distribution}"
    late = (forward and link.jitter_us) or link.rtt_steps
    if late and not link.reorder:
        words += " rate 1000gbit"  # with a rate, netem lets nobody overtake
    loss = link.loss if forward else link.ack_loss
    if forward and link.burst:
        burst = link.burst
        chances = (burst.start, burst.end, burst.loss, link.loss)
        words += " loss gemodel " + " ".join(map(_percent, chances))
    elif loss:
        words += f" loss random {_percent(loss)}"
    hold_us = link.slot_us if forward else link.ack_hold_us
    if hold_us[1]:
        words += " slot {}us {}us".format(*hold_us)
    return words


def _delays(link: Link, verb: str, rtt_us: int) -> list[str]:
    """tc's lines for the propagation of both directions."""
    thin = "stab overhead -14 " * bool(link.ack_rate_bps)  # only a root has one; its child sees it
    return [
        f"qdisc {verb} dev m0 root handle 1: netem {_netem(link, rtt_us, True)}",
        f"qdisc {verb} dev b1 root handle 1: {thin}netem {_netem(link, rtt_us, False)}",
    ]


def _thin_acks(link: Link) -> list[str]:
    """tc's lines for the rate of the other direction, behind its propagation."""
    if not link.ack_rate_bps:
        return []
    packets = link.ack_queue_packets
    words = f"tbf rate {link.ack_rate_bps}bit burst {100 + 1500} limit {packets}"
    return [
        f"qdisc add dev b1 parent 1:1 handle 10: {words}",
        f"qdisc add dev b1 parent 10:1 handle 20: pfifo limit {packets}",
    ]


def shaped_device(link: Link) -> str:
    """The device of the bottleneck."""
    return "s0" if link.shaper == "sender" else "b0"


def _shaped_space(link: Link) -> str:
    """The namespace of that device."""
    return "s0" if link.shaper == "sender" else "r"


def _bottleneck(link: Link, verb: str, rate_bps: int) -> str:
    """tc's line for the device of the bottleneck, which counts IP packets, not frames.

    tbf hands its `limit` to a child that is a fifo at every change, and uses it for nothing
    else: so it is the queue's length in packets.
    """
    where = f"qdisc {verb} dev {shaped_device(link)} root handle 1:"
    if link.qdisc == "cake":
        return f"{where} cake bandwidth {rate_bps}bit overhead 0 besteffort"
    burst = 100 + 1500 * link.bucket_packets
    words = f"tbf rate {rate_bps}bit burst {burst} limit {link.queue_packets}"
    return f"{where} {'stab overhead -14 ' * (verb == 'add')}{words}"


def _leaf(link: Link) -> list[str]:
    packets = link.queue_packets
    kinds = {"droptail": f"pfifo limit {packets}", "fq_codel": f"fq_codel limit {packets}"}
    kinds["fq"] = f"fq limit {packets} flow_limit {packets}"
    if link.qdisc == "cake":
        return []
    return [f"qdisc add dev {shaped_device(link)} parent 1:1 handle 10: {kinds[link.qdisc]}"]


def _wire(here: tuple[str, str], there: tuple[str, str], offloads: bool = False) -> str:
    """A veth pair; (name, namespace) of both ends. Without offloads one segment is one packet."""
    ends = [f"{name} netns {space} address {MAC} arp off" for name, space in (here, there)]
    gso = "" if offloads else " gso_max_segs 1"
    return f"link add {ends[0]}{gso} type veth peer name {ends[1]}"


def path_batches(scenario: Scenario) -> dict[str, str]:
    """File to contents: the batches of `ip` and `tc`, per namespace."""
    link = scenario.link
    assert link is not None
    count = scenario.senders()
    spaces = [*(f"s{i}" for i in range(count)), "r", "m", "d"]
    root = [f"netns add {space}" for space in spaces]
    root += [_wire((f"s{i}", f"s{i}"), (f"r{i}", "r"), link.offloads) for i in range(count)]
    root += [_wire(("b0", "r"), ("b1", "m")), _wire(("m0", "m"), ("d0", "d"))]
    ip: dict[str, list[str]] = {space: ["link set lo up"] for space in spaces}

    def address(space: str, device: str, value: str) -> None:
        ip[space] += [f"addr add {value}/24 dev {device}", f"link set {device} up"]

    for i in range(count):
        address(f"s{i}", f"s{i}", f"10.1.{i}.2")
        address("r", f"r{i}", f"10.1.{i}.1")
        ip[f"s{i}"].append(f"route add default via 10.1.{i}.1")
    address("r", "b0", "10.2.0.1")
    address("m", "b1", "10.2.0.2")
    address("m", "m0", "10.3.0.1")
    address("d", "d0", "10.3.0.2")
    ip["r"].append("route add default via 10.2.0.2")
    ip["m"].append("route add default via 10.2.0.1")
    ip["d"].append("route add default via 10.3.0.1")
    tc: dict[str, list[str]] = {"r": [], "m": []}
    tc.setdefault(_shaped_space(link), []).extend(
        [_bottleneck(link, "add", link.rate_bps), *_leaf(link)]
    )
    for number, flow in enumerate(scenario.flows):
        first = all(flow.sender != other.sender for other in scenario.flows[:number])
        if first and flow.extra_rtt_us:
            netem = f"limit 1000000 delay {flow.extra_rtt_us}us"
            tc["r"].append(f"qdisc add dev r{flow.sender} root handle 1: netem {netem}")
    tc["m"] += _delays(link, "add", link.rtt_us) + _thin_acks(link)
    files = {"net.ip": root} | {f"{space}.ip": lines for space, lines in ip.items()}
    files |= {f"{space}.tc": lines for space, lines in tc.items()}
    files["steps"] = [f"{at_s:f} {_bottleneck(link, 'change', bps)}" for at_s, bps in link.steps]
    if link.rtt_steps:
        files["rtt_steps"] = [
            f"{at_s:f} {line}"
            for at_s, us in link.rtt_steps
            for line in _delays(link, "change", us)
        ]
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def _places(scenario: Scenario) -> tuple[list[str], str, list[str]]:
    """Namespaces of the senders, of the receiver, and of the queues."""
    if scenario.topology == "lo":
        return ["-"], "-", ["-"]
    assert scenario.link is not None
    queues = dict.fromkeys(["r", "m", _shaped_space(scenario.link)])
    return [f"s{i}" for i in range(scenario.senders())], "d", list(queues)


def _addresses(scenario: Scenario, sender: int) -> tuple[str, str]:
    """(sender's, receiver's)"""
    if scenario.topology == "lo":
        return "127.0.0.1", "127.0.0.1"
    return f"10.1.{sender}.2", "10.3.0.2"


def _network_lines(scenario: Scenario) -> list[str]:
    if scenario.lo:
        lines = ["ip link set lo up"]
        lines.append(f"tc qdisc add dev lo root handle 1: netem {scenario.lo.netem}")
        if scenario.lo.tbf:
            lines.append(f"tc qdisc add dev lo parent 1: handle 10: tbf {scenario.lo.tbf}")
        return lines
    senders, receiver, queues = _places(scenario)
    lines = ["ip -batch /run/host/net.ip"]
    lines += [f"ip -n {n} -batch /run/host/{n}.ip" for n in (*senders, "r", "m", receiver)]
    lines += [f"guest in {n} tc -batch /run/host/{n}.tc" for n in queues]
    forward = "echo 1 >/proc/sys/net/ipv4/ip_forward"
    lines += [f"guest in {n} sh -c {shlex.quote(forward)}" for n in ("r", "m")]
    return lines


def _buffer_lines(scenario: Scenario) -> list[str]:
    send, receive = SEND_BYTES, RECEIVE_BYTES
    lines = []
    if scenario.host.buffer_bytes:
        send = receive = scenario.host.buffer_bytes
        # Both ends are one small machine, which by default would spend an eighth of its memory on
        # TCP and, beyond a sixteenth, close windows and drop what has arrived.
        lines = [f"echo {TCP_MEM_PAGES} >/proc/sys/net/ipv4/tcp_mem"]
    words = f"echo 4096 16384 {send} >/proc/sys/net/ipv4/tcp_wmem; "
    words += f"echo 4096 131072 {receive} >/proc/sys/net/ipv4/tcp_rmem; "
    words += "echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save"
    words += "; echo 1 >/proc/sys/net/ipv4/tcp_ecn" * scenario.host.ecn
    senders, receiver, _ = _places(scenario)
    spaces = dict.fromkeys([*senders, receiver])
    lines += [f"guest in {space} sh -c {shlex.quote(words)}" for space in spaces]
    return lines


def _trace_kb(scenario: Scenario) -> int:
    """Room for an event per data packet, and for the many retransmissions of a flood, KiB."""
    rate_bps = scenario.link.rate_bps if scenario.link else 200_000_000
    packet_bytes = 1500 if scenario.link else 20_000
    events = rate_bps / 8 / packet_bytes * scenario.end_s()
    return int(min(max(65_536, events * 250 / 1024), 524_288))


def _trace_lines(scenario: Scenario, light: bool, events: tuple[str, ...] = ()) -> list[str]:
    """The same commands for both: their number moves the guest's clock and random numbers."""
    tracing = "/sys/kernel/tracing"
    lines = [f"echo {8_192 if light else _trace_kb(scenario)} >{tracing}/buffer_size_kb"]
    lines.append(f"echo mono >{tracing}/trace_clock")
    for event in EVENTS:
        folder = f"{tracing}/events/tcp/{event}"
        lines.append(f"echo 'sport >= {FIRST_PORT} && sport < {FIRST_PORT + 999}' >{folder}/filter")
        lines.append(f"echo {int(not light)} >{folder}/enable")
    lines += [f"echo 1 >{tracing}/events/{event}/enable" for event in events]
    return lines


def _traffic_lines(scenario: Scenario, cc: str) -> list[str]:
    """Servers, then flows at their times, all in the background; then wait for the flows."""
    senders, receiver, _ = _places(scenario)
    lines, clients = [], []
    for number, flow in enumerate(scenario.flows):
        source, sink = _addresses(scenario, flow.sender)
        port = SERVER_PORT + number
        lines.append(
            f"guest in {receiver} env {PATIENCE} NDM_COALESCE_US={scenario.host.read_wait_us} "
            f"iperf3 -s -1 -4 -B {sink} -p {port} >server.{number} 2>&1 &"
        )
        algorithm = cc if flow.cc == UNDER_TEST else flow.cc
        words = f"env {PATIENCE} iperf3 -4 -c {sink} -p {port} -B {source}"
        words += f" --cport {FIRST_PORT + number} -C {algorithm} -t {flow.seconds:g}"
        words += " -i 1 -J --repeating-payload --connect-timeout 60000"
        clients.append((flow.start_s, f"guest in {senders[flow.sender]} {words}", f"flow.{number}"))
    if scenario.web:
        web = scenario.web
        source, _ = _addresses(scenario, web.sender)
        algorithm = cc if web.cc == UNDER_TEST else web.cc
        lines.append(f"guest in {senders[web.sender]} guest serve {WEB_PORT} {algorithm} &")
        words = f"fetch {source} {WEB_PORT} {web.objects} {web.bytes} {web.connections}"
        clients.append((web.start_s, f"guest in {receiver} guest {words}", "web"))
    lines.append(f"sleep {SETTLE_S}")
    lines.append("guest clock >clock")
    for start_s, command, output in clients:
        lines.append(
            f'( sleep {start_s:.9g}; {command} >{output} 2>{output}.err ) & flows="$flows $!"'
        )
    if scenario.link and scenario.link.steps:
        space = _shaped_space(scenario.link)
        lines.append(f"guest in {space} sh -c 'guest at /run/host/steps | tc -batch -' &")
    if scenario.link and scenario.link.rtt_steps:
        lines.append("guest in m sh -c 'guest at /run/host/rtt_steps | tc -batch -' &")
    lines.append("for flow in $flows; do wait $flow || true; done")
    return lines


def plan(
    scenario: Scenario,
    cc: str,
    modules: list[tuple[str, dict[str, Any]]],
    light: bool,
    events: tuple[str, ...] = (),
) -> str:
    """The guest's script; it runs with `set -e`."""
    senders, _, routers = _places(scenario)
    lines = [f'fail() {{ echo {MARK} error: "$@"; exit 1; }}']
    prefix = "lo" if scenario.topology == "lo" else "s"
    lines.append(
        f"insmod /run/host/ndm_watch.ko sender={prefix} capture={int(not light)} "
        "|| fail the lab\\'s own module ndm_watch does not load"
    )
    for name, parameters in modules:
        words = " ".join(shlex.quote(f"{key}={value}") for key, value in parameters.items())
        lines.append(f"insmod /run/host/{name}.ko {words} || fail module {name} does not load")
    available = "/proc/sys/net/ipv4/tcp_available_congestion_control"
    for name in scenario.algorithms(cc):
        lines.append(
            f"grep -qw -e {name} {available} || "
            f"fail no algorithm {name}, there are: $(cat {available})"
        )
    lines += _network_lines(scenario) + _buffer_lines(scenario)
    lines.append("cat /sys/module/ndm_tcp/parameters/model_hash >model 2>/dev/null || true")
    lines += _trace_lines(scenario, light, events)
    spaces = f"sockets.bin {','.join(senders)} queues.bin {','.join(routers)}"
    lines.append(f"guest poll {POLL_US} {spaces} & poller=$!")
    lines += _traffic_lines(scenario, cc)
    rtt_s = 0.5
    if link := scenario.link:
        rtt_s = max([link.rtt_us, *(us for _, us in link.rtt_steps)]) / 1e6
    lines.append(f"sleep {2 * rtt_s + 0.1:g}")
    lines += ["kill $poller", "wait $poller", "guest clock >clock.end"]
    out = "/run/host/out"
    if not light:
        lines.append("echo 0 >/sys/kernel/tracing/tracing_on")
        lines.append("cat /sys/kernel/tracing/per_cpu/cpu0/stats >trace.stats")
        lines.append(f"cat /sys/kernel/tracing/trace >{out}/trace")
        lines.append(f"cat /proc/ndm_capture >{out}/capture || fail the capture is too large")
    lines.append(f"cat /proc/ndm_drops >{out}/drops || fail too many drops")
    return "\n".join(lines) + "\n"
