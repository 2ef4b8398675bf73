# SPDX-License-Identifier: GPL-2.0-only
"""From the guest's output to the files of a run."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ndm_tcp.datasets.recorder.kernel_events import POINTERS
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.guest.boot import START_NS
from ndm_tcp.lab.guest.plan import FIRST_PORT, WEB_PORT, shaped_device
from ndm_tcp.lab.guest.root import guest_root
from ndm_tcp.lab.guest.scrub import compress, iperf3_report, toml
from ndm_tcp.lab.paths import scenario as scenarios
from ndm_tcp.lab.paths.scenario import UNDER_TEST, Scenario

ZSTD_LEVEL = 9
SOCKET_RECORD = struct.Struct("<QHHHH")
QUEUE_RECORD = struct.Struct("<Q16s16s7IQ")
DROP_RECORD = struct.Struct("<QIHHHHII16s")
TCP_INFO = struct.Struct("<8B24I4Q6I4Q2I2Q")
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 80, 101)


INFO_FIELDS = (
    *("state", "ca_state", "retransmits", "probes", "backoff", "options", "wscale", "flags"),
    *("rto_us", "ato_us", "snd_mss", "rcv_mss", "unacked", "sacked", "lost", "retrans"),
    *("fackets", "last_data_sent", "last_ack_sent", "last_data_recv", "last_ack_recv", "pmtu"),
    *("rcv_ssthresh", "srtt_us", "rttvar_us", "ssthresh", "cwnd", "advmss", "reordering"),
    *("rcv_rtt_us", "rcv_space", "total_retrans", "pacing_Bps", "max_pacing_Bps"),
    *("bytes_acked", "bytes_received", "segs_out", "segs_in", "notsent_bytes", "min_rtt_us"),
    *("data_segs_in", "data_segs_out", "delivery_Bps", "busy_us", "rwnd_limited_us"),
    *("sndbuf_limited_us", "delivered", "delivered_ce", "bytes_sent", "bytes_retrans"),
)
KEPT = (
    *("state", "ca_state", "cwnd", "ssthresh", "srtt_us", "rttvar_us", "min_rtt_us", "rto_us"),
    *("snd_mss", "unacked", "sacked", "lost", "retrans", "total_retrans", "reordering"),
    *("bytes_acked", "bytes_sent", "bytes_retrans", "delivered", "delivered_ce"),
    *("segs_out", "data_segs_out", "pacing_Bps", "delivery_Bps", "notsent_bytes"),
    *("busy_us", "rwnd_limited_us", "sndbuf_limited_us"),
)
ESTABLISHED = 1


@dataclass(frozen=True)
class Polls:
    """tcp_info of one socket over time; int64 [polls] each."""

    t_ns: np.ndarray[Any, np.dtype[np.int64]]
    """CLOCK_REALTIME"""
    values: dict[str, np.ndarray[Any, np.dtype[np.int64]]]


def _read_sockets(data: bytes) -> list[dict[str, int]]:
    rows, at = [], 0
    while at + SOCKET_RECORD.size <= len(data):
        t_ns, sport, dport, _, length = SOCKET_RECORD.unpack_from(data, at)
        at += SOCKET_RECORD.size
        info = dict(zip(INFO_FIELDS, TCP_INFO.unpack_from(data, at), strict=True))
        at += length
        row = {"t_ns": t_ns, "sport": sport, "dport": dport}
        row |= {name: info[name] for name in KEPT} | {"app_limited": info["flags"] & 1}
        rows.append(row)
    return rows


def _polls(rows: list[dict[str, int]], port: int) -> Polls | None:
    """The polls of the established socket at a port of the sender."""
    ours = [row for row in rows if row["sport"] == port and row["bytes_sent"]]
    if not ours:
        return None
    columns = {name: np.array([row[name] for row in ours], dtype=np.int64) for name in ours[0]}
    return Polls(columns.pop("t_ns"), columns)


def _queue_table(data: bytes) -> str:
    table = io.StringIO()
    names = "device,kind,handle,qlen,backlog,drops,overlimits,requeues,packets,bytes"
    table.write(f"t_ns,{names}\n")
    for t_ns, device, kind, handle, *counts in QUEUE_RECORD.iter_unpack(data):
        texts = [name.rstrip(b"\0").decode() for name in (device, kind)]
        table.write(",".join(map(str, [t_ns, *texts, f"{handle >> 16:x}:", *counts])) + "\n")
    return table.getvalue()


def _drop_cause(scenario: Scenario, device: str, at_root: bool, full: bool) -> str:
    if scenario.topology == "path":
        assert scenario.link is not None
        return "queue" if device == shaped_device(scenario.link) else "random"
    # A packet that netem loses leaves through the root discipline's enqueue. So does one that
    # finds its queue full. A packet that its child drops leaves inside its dequeue.
    return "random" if at_root and not full else "queue"


def _drop_rows(
    scenario: Scenario, data: bytes, qdisc_drop: int
) -> list[tuple[int, int, int, str, int]]:
    rows = []
    for t_ns, seq, length, sport, _, reason, qlen, limit, name in DROP_RECORD.iter_unpack(data):
        device = name.rstrip(b"\0").decode()
        full = 0 < limit <= qlen
        cause = _drop_cause(scenario, device, reason == qdisc_drop, full)
        rows.append((t_ns, seq, length, cause, sport))
    return rows


def rounded(value: float, digits: int = 3) -> float:
    return round(float(value), digits)


def _rtts(srtt_us: np.ndarray) -> dict[str, float]:
    mean, p95 = srtt_us.mean() / 1e3, np.percentile(srtt_us, 95) / 1e3
    return {"rtt_mean_ms": rounded(mean), "rtt_p95_ms": rounded(p95)}


def _flow_result(
    flow: scenarios.Flow,
    cc: str,
    port: int,
    report: dict[str, Any],
    polls: Polls | None,
) -> dict[str, Any]:
    end = report["end"]
    sent, received = end["sum_sent"], end["sum_received"]
    intervals = [part["sum"] for part in report["intervals"] if not part["sum"].get("omitted")]
    result: dict[str, Any] = {
        "cc": cc if flow.cc == UNDER_TEST else flow.cc,
        "tested": flow.cc == UNDER_TEST,
        "sender": flow.sender,
        "port": port,
        "start_s": flow.start_s,
        "seconds": rounded(sent["seconds"]),
        "goodput_mbps": rounded(received["bits_per_second"] / 1e6),
        "sent_mbps": rounded(sent["bits_per_second"] / 1e6),
        "bytes": int(received["bytes"]),
        "retransmissions": int(sent["retransmits"]),
        "intervals": len(intervals),
        "zero_intervals": sum(part["bytes"] == 0 for part in intervals),
    }
    if polls is None:
        return result
    values = polls.values
    open_ = values["state"] == ESTABLISHED
    rtts_us = values["srtt_us"][open_ & (values["srtt_us"] > 0)]
    cwnd = values["cwnd"][open_]
    result["segments"] = int(values["data_segs_out"].max())
    if rtts_us.size:
        result |= _rtts(rtts_us)
        result |= {"rtt_min_ms": rounded(values["min_rtt_us"][-1] / 1e3)}
        result |= {"cwnd_mean": rounded(cwnd.mean(), 1), "cwnd_max": int(cwnd.max())}
    marks_ns = np.arange(polls.t_ns[0], polls.t_ns[0] + sent["seconds"] * 1e9 + 1, 10**9)
    acked = np.interp(marks_ns, polls.t_ns, values["bytes_acked"])
    result["silent_intervals"] = int((np.diff(acked) == 0).sum())
    return result


def _shares(results: list[dict[str, Any]], polls: list[Polls | None], t0_ns: int) -> None:
    """Each flow's part of what all delivered while all were there, into the results."""
    if not results:
        return
    rates = [float(result["goodput_mbps"]) for result in results]
    present = [poll for poll in polls if poll is not None]
    if len(present) == len(results):
        start_ns = max(int(poll.t_ns[0]) for poll in present)
        ends = [r["start_s"] + r["seconds"] for r in results]
        end_ns = t0_ns + round(min(ends) * 1e9)
        if end_ns - start_ns >= 10**9:
            together = []
            for poll in present:
                at = np.interp([start_ns, end_ns], poll.t_ns, poll.values["bytes_acked"])
                together.append(float(at[1] - at[0]) * 8e3 / (end_ns - start_ns))
            rates = together if any(together) else rates
    total = sum(rates)
    for result, rate in zip(results, rates, strict=True):
        result["common_mbps"] = rounded(rate)
        result["share"] = rounded(rate / total, 4) if total else 0.0


def jain(rates: list[float]) -> float:
    """Jain's index of fairness: 1 if all are equal, 1/n if one has all."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 0.0


def _web_result(
    text: str, errors: str, web: scenarios.Web, cc: str, rows: list[dict[str, int]]
) -> dict[str, Any]:
    objects = [tuple(map(int, line.split())) for line in text.splitlines()]
    if len(objects) != web.objects:
        said = uml_build.last_lines(errors) or "no message"
        raise NdmError(f"web: {len(objects)} of {web.objects} objects came: {said}")
    start_ns, end_ns = min(o[2] for o in objects), max(o[3] for o in objects)
    each_ms = [(o[3] - o[2]) / 1e6 for o in objects]
    ours = [row for row in rows if row["sport"] == WEB_PORT and row["srtt_us"] > 0]
    last = {row["dport"]: row for row in ours}
    rtts_us = np.array([row["srtt_us"] for row in ours if row["state"] == ESTABLISHED])
    result: dict[str, Any] = {
        "cc": cc if web.cc == UNDER_TEST else web.cc,
        "seconds": rounded((end_ns - start_ns) / 1e9, 6),
        "mbps": rounded(web.bytes * 8e3 / (end_ns - start_ns)),
        "object_ms_mean": rounded(sum(each_ms) / len(each_ms)),
        "object_ms_p95": rounded(np.percentile(each_ms, 95)),
        "retransmissions": sum(row["total_retrans"] for row in last.values()),
        "segments": sum(row["data_segs_out"] for row in last.values()),
    }
    return result | (_rtts(rtts_us) if rtts_us.size else {})


def _run_toml(
    scenario: Scenario,
    cc: str,
    seed: int,
    kernel: str,
    clock_ns: tuple[int, int],
    result: dict[str, Any],
) -> str:
    first = scenario.flows[0] if scenario.flows else None
    tested = cc if first is None or first.cc == UNDER_TEST else first.cc
    run: dict[str, object] = {"name": scenario.name, "cc": tested, "seconds": scenario.seconds}
    link = scenario.link
    if link:
        run |= {"rate_bps": link.rate_bps, "rtt_us": link.rtt_us, "loss": link.loss}
        run |= {"queue_packets": link.queue_packets, "qdisc": link.qdisc}
        run |= {"jitter_us": link.jitter_us, "reorder": link.reorder, "rate_steps": link.steps}
        if link.burst:
            run |= {f"burst_{k}": v for k, v in dataclasses.asdict(link.burst).items()}
    elif scenario.lo:
        run |= {"lo_netem": scenario.lo.netem, "lo_tbf": scenario.lo.tbf}
    run |= {"seed": seed, "kernel": kernel, "flows": len(scenario.flows)}
    run |= {"sender_port": FIRST_PORT if scenario.flows else WEB_PORT}
    clock = {"realtime_ns": clock_ns[0], "monotonic_ns": clock_ns[1]}
    facts: dict[str, object] = {f"drops_{k}": n for k, n in result["drops"].items()}
    page = result.get("web", {})
    resent = sum(flow["retransmissions"] for flow in result["flows"])
    facts["retransmitted_segments"] = resent + page.get("retransmissions", 0)
    facts["mean_mbps"] = result["total_mbps"]
    text = "# SPDX-License-Identifier: CC0-1.0\n"
    for title, values in (("", run), ("truth", facts), ("clock", clock)):
        text += f"\n[{title}]\n" if title else ""
        text += "".join(f"{key} = {toml(value)}\n" for key, value in values.items())
    return text


def _keep_trace(out: Path, folder: Path) -> None:
    stats = (out / "trace.stats").read_text(encoding="ascii")
    lost = re.search(r"overrun: (\d+)", stats)
    if lost and int(lost[1]):
        raise NdmError(f"{lost[1]} kernel events lost; shorten the run or use --light")
    lines = []
    with (out / "trace").open(encoding="ascii", errors="replace") as stream:
        for line in stream:
            if not line.startswith("#"):
                lines.append(POINTERS.sub("", line))
    compress(folder / "tcp_probe.txt.zst", "".join(lines).encode(), ZSTD_LEVEL)


def _write_tables(
    folder: Path,
    drops: list[tuple[int, int, int, str, int]],
    polls: list[dict[str, int]],
    queues: bytes,
) -> None:
    with (folder / "drops.csv").open("w", encoding="ascii", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["t_ns", "seq", "len", "cause", "sport"])
        writer.writerows(drops)
    lines = b"\n".join(orjson.dumps(row) for row in polls)
    compress(folder / "tcp_info.jsonl.zst", lines + b"\n" if lines else b"", ZSTD_LEVEL)
    compress(folder / "qdisc.csv.zst", _queue_table(queues).encode(), ZSTD_LEVEL)


def collect(
    scenario: Scenario,
    cc: str,
    seed: int,
    out: Path,
    folder: Path,
    light: bool,
    kernel: uml_build.UmlKernel,
) -> dict[str, Any]:
    """From the guest's output in `out` to the files of a run in `folder`."""
    t0_ns, mono_ns = map(int, (out / "clock").read_text().split())
    simulated_s = (int((out / "clock.end").read_text().split()[0]) - START_NS) / 1e9
    rows = _read_sockets((out / "sockets.bin").read_bytes())
    flows, polls = [], []
    for number, flow in enumerate(scenario.flows):
        errors = (out / f"flow.{number}.err").read_text(errors="replace")
        said = uml_build.last_lines(errors)
        report = iperf3_report((out / f"flow.{number}").read_bytes(), said, f"flow {number}")
        name = "iperf3.json.zst" if number == 0 else f"iperf3.{number}.json.zst"
        compress(folder / name, orjson.dumps(report), ZSTD_LEVEL)
        port = FIRST_PORT + number
        polls.append(_polls(rows, port))
        flows.append(_flow_result(flow, cc, port, report, polls[-1]))
    _shares(flows, polls, t0_ns)
    drops = _drop_rows(scenario, (out / "drops").read_bytes(), _qdisc_drop(kernel.dir))
    causes = [row[3] for row in drops]
    result: dict[str, Any] = {"scenario": scenario.name, "title": scenario.title, "cc": cc}
    result |= {"seed": seed, "kernel": kernel.release}
    result |= {"kernel_build": kernel.dir.name, "programs": guest_root().name}
    model = (out / "model").read_text().strip()
    if model:
        result["model"] = model
    result |= {"simulated_s": rounded(simulated_s), "flows": flows}
    total_mbps = sum(flow["goodput_mbps"] for flow in flows)
    if scenario.web:
        errors = (out / "web.err").read_text(errors="replace")
        text = (out / "web").read_text()
        result["web"] = _web_result(text, errors, scenario.web, cc, rows)
        total_mbps += result["web"]["mbps"]
    result["total_mbps"] = rounded(total_mbps)
    if flows:
        result["jain"] = rounded(jain([flow["common_mbps"] for flow in flows]), 4)
    result["drops"] = {cause: causes.count(cause) for cause in ("random", "queue")}
    if scenario.published:
        result["published"] = list(scenario.published)
    _write_tables(folder, drops, rows, (out / "queues.bin").read_bytes())
    if not light:
        _keep_trace(out, folder)
        compress(
            folder / "sender.pcap.zst", PCAP_HEADER + (out / "capture").read_bytes(), ZSTD_LEVEL
        )
    (folder / "scenario.toml").write_text(scenario.text, encoding="utf-8")
    text = _run_toml(scenario, cc, seed, kernel.release, (t0_ns, mono_ns), result)
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return result


def _qdisc_drop(tree: Path) -> int:
    """The number of SKB_DROP_REASON_QDISC_DROP, counted in the kernel's header."""
    text = (tree / "include" / "net" / "dropreason-core.h").read_text(encoding="utf-8")
    body = re.sub(r"/\*.*?\*/", "", text.split("enum skb_drop_reason {", 1)[1], flags=re.DOTALL)
    names = re.findall(r"^\s*SKB_(\w+)(?:\s*=[^,]*)?,", body.split("}", 1)[0], re.MULTILINE)
    return names.index("DROP_REASON_QDISC_DROP")
