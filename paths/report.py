# SPDX-License-Identifier: GPL-2.0-only
"""Replays and predictions as tables, JSON, and one page with every path's flow over time."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from ndm_tcp import files, pages, plots
from ndm_tcp.errors import NdmError
from ndm_tcp.intervals import FEWEST
from ndm_tcp.paths import difference, scenario, series
from ndm_tcp.paths.model import Kind, PathModel, Value
from ndm_tcp.paths.predict import Prediction, compare
from ndm_tcp.paths.replay import MISS, Replay

REPLAYS, PREDICTIONS, PAGE = "replay.json", "prediction.json", "index.html"
RUNS = "runs"
"""folder of the lab's runs beside the models"""
FORMAT = 1
KINDS = {
    Kind.MEASURED: "",
    Kind.AT_LEAST: "at least ",
    Kind.AT_MOST: "at most ",
    Kind.ASSUMED: "assumed ",
}


@dataclass(frozen=True)
class Replays:
    """All replays of a folder of models."""

    format: int
    replays: tuple[Replay, ...]
    """of accepted models"""
    rejected: dict[str, str]
    """name of the model to the reason"""
    misses: tuple[Replay, ...] = ()
    """of rejected models, where one ran"""

    @classmethod
    def of(cls, found: Mapping[str, Replay | NdmError]) -> Replays:
        """Accepted and rejected ones."""
        rejected = {}
        for name, one in found.items():
            if isinstance(one, NdmError):
                rejected[name] = str(one).removeprefix(f"{name}: ")
            elif not one.accepted:
                rejected[name] = _why(one)
        ran = [replay for replay in found.values() if isinstance(replay, Replay)]
        good = tuple(replay for replay in ran if replay.accepted)
        return cls(FORMAT, good, rejected, tuple(r for r in ran if not r.accepted))


def _why(one: Replay) -> str:
    """A replay is not accepted."""
    miss = (
        f"its replay misses the captured goodput by {100 * one.goodput_miss:+.0f} % "
        f"(limit {100 * MISS:.0f} %{', the nearest draw' * (len(one.goodput_mbps) > 1)})"
    )
    if one.goodput_miss > 0 and one.model.app_limited > MISS:
        share = f"{one.model.app_limited:.0%}"
        miss += f"; at {share} of its ACKs or of its time the sender had no data, a replay has"
    return miss


def caution(one: Replay) -> str:
    """What an accepted model does not predict; nothing if its replay has the captured RTT, too."""
    if not one.accepted_without_rtt:
        return ""
    return (
        f"The replay's mean RTT is {abs(one.rtt_miss):.0%} "
        f"{'longer' if one.rtt_miss > 0 else 'shorter'} than the captured one, so predicted RTTs "
        "are unreliable; perhaps the path's RTT changed during the capture."
    )


def write_replays(found: Replays, folder: Path) -> None:
    """Write replay.json, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(found), indent=1).decode()
    files.write_text(folder / REPLAYS, text + "\n")


def value(v: Value, scale: float = 1.0, unit: str = "", digits: int = 4) -> str:
    """A value with its kind and interval, as text."""
    text = f"{KINDS[v.kind]}{v.value * scale:.{digits}g}"
    if v.high > v.low:
        text += f" [{v.low * scale:.{digits}g}, {v.high * scale:.{digits}g}]"
    return f"{text} {unit}".strip()


def facts(model: PathModel, replayed: str = "") -> list[tuple[str, str]]:
    """Name and text of every value of a model; replayed: the algorithm of its replay."""
    levels = "; ".join(
        (f"from {v.from_s:.1f} s " if v.from_s else "") + value(v.rate_bps, 1e-6, "Mbit/s")
        for v in model.levels[:8]
    )
    if len(model.levels) > 8:
        levels += f"; and {len(model.levels) - 8} more"
    before = " from before" if model.joined else " from the start"
    rivals = Counter(
        f"{KINDS[r.kind]}{r.cc}" + (f" from {r.start_s:.1f} s" if r.start_s else before)
        for r in model.rivals
    )
    told = (f"{n} x {rival}" if n > 1 else rival for rival, n in rivals.items())
    loss = value(model.loss, 100, "%", 3)
    if model.loss.kind == Kind.ASSUMED:
        loss = "not known"
    elif model.loss.kind == Kind.AT_MOST and not model.loss.high:
        loss = "none seen"
    if model.burst:
        loss += f", in bursts that begin at {model.burst.start:.3%} of the packets"
    order = ", packets overtake one another" if model.reorder else ", in order"
    jitter, hold = model.jitter_us.value > 0, model.ack_hold_us.value > 0
    policed, buffer = model.bucket_packets.value > 1, model.buffer_bytes
    # A log that shows no single RTT gives none of these.
    none = "not known" if model.jitter_us.kind == Kind.ASSUMED else "none seen"
    unknown = f"not known; replayed as {replayed}" if replayed else "not known"
    return [
        ("algorithm", model.cc or unknown),
        ("rate", levels),
        ("baseline RTT", value(model.rtt_us, 1e-3, "ms")),
        ("queue", f"{value(model.queue_packets, 1, 'packets', 3)}, {model.qdisc}"),
        ("policer's bucket", value(model.bucket_packets, 1, "packets", 3) if policed else none),
        ("random loss", loss),
        ("jitter", value(model.jitter_us, 1e-3, "ms", 3) + order if jitter else none),
        ("ACKs gathered for", value(model.ack_hold_us, 1e-3, "ms", 3) if hold else none),
        ("rivals", ", ".join(told) or none),
        ("receiver's buffer", f"about {buffer / 1e6:.2g} MB" if buffer else "not known"),
        *([("best constant window", f"{model.window_bdp:.2f} BDP")] if model.window_bdp else []),
        *(("cannot be known", note) for note in model.notes),
    ]


HEAD = ["path", "algorithm", "captured Mbit/s", "replayed", "captured RTT ms", "replayed", ""]


def _seeds(values: Sequence[float]) -> str:
    """Mean, lowest and highest; one number of one seed."""
    mean = sum(values) / len(values)
    spread = f" [{min(values):.2f}, {max(values):.2f}]" if len(values) > 1 else ""
    return f"{mean:.2f}{spread}"


def replay_rows(found: Replays) -> list[list[str]]:
    """A row a model: captured and replayed."""
    rows = []
    ran = (*found.replays, *found.misses)
    for r in ran:
        seen, why = r.model.seen, found.rejected.get(r.model.name)
        assert seen is not None
        rows.append(
            [
                *(r.model.name, r.cc, f"{seen.goodput_mbps:.2f}", _seeds(r.goodput_mbps)),
                *(f"{seen.rtt_mean_ms:.1f}", f"{r.replayed.rtt_mean_ms:.1f}"),
                f"rejected: {why}" if why else f"accepted{'; RTT misses' * r.accepted_without_rtt}",
            ]
        )
    others = {n: why for n, why in found.rejected.items() if n not in {r.model.name for r in ran}}
    rows += [[name, "", "", "", "", "", f"rejected: {why}"] for name, why in others.items()]
    return rows


LEAST_AHEAD = 1.01
"""of an algorithm's goodput over another's: less is significant where draws hardly differ, but
nobody would notice it"""
PREDICTION_HEAD = ["algorithm", "goodput Mbit/s", "mean RTT ms", "RTT 95 % ms", "retransmitted %"]


def runs_of(model: PathModel, draws: int) -> str:
    """What the rows of a prediction are of."""
    seconds = f"runs of {scenario.sent_s(model):.0f} s"
    if draws == 1:
        return f"{seconds}, one draw"
    return f"{seconds}; mean, lowest and highest of {draws} draws"


def prediction_rows(of_path: Mapping[str, Prediction]) -> list[list[str]]:
    """A row an algorithm: mean, lowest and highest of the draws; best goodput first."""
    rows = []
    for name, p in sorted(of_path.items(), key=lambda item: -item[1].goodput_mbps.mean):
        cells = [name]
        for measure, scale, digits in (
            *((p.goodput_mbps, 1, 2), (p.rtt_mean_ms, 1, 1), (p.rtt_p95_ms, 1, 1)),
            (p.retransmission_rate, 100, 2),
        ):
            mean, low, high = (scale * v for v in (measure.mean, measure.low, measure.high))
            brackets = f" [{low:.{digits}f}, {high:.{digits}f}]" * (len(p.draws) > 1)
            cells.append(f"{mean:.{digits}f}{brackets}")
        rows.append(cells)
    return rows


def sentence(of_path: Mapping[str, Prediction]) -> str:
    """Which algorithm gets most, and how far the others are behind it."""
    order = sorted(of_path, key=lambda name: -of_path[name].goodput_mbps.mean)
    best = order[0]
    if len(order) == 1:
        return f"{best} alone was run."
    draws = len(of_path[best].draws)
    if draws < FEWEST:
        return f"{draws} of {FEWEST} draws that a comparison needs: --draws {FEWEST}."
    ahead = {name: compare(of_path[best], of_path[name]) for name in order[1:]}
    less = [n for n, ratio in ahead.items() if ratio.significant and ratio.ratio >= LEAST_AHEAD]
    close = [n for n, ratio in ahead.items() if ratio.significant and ratio.ratio < LEAST_AHEAD]
    near = [n for n, ratio in ahead.items() if not ratio.significant]
    kinds = {
        "not significantly less": near,
        f"less by under {LEAST_AHEAD - 1:.0%}": close,
        "significantly less": less,
    }
    words = [f"{', '.join(names)} {what}" for what, names in kinds.items() if names]
    return f"{best} gets the most goodput; {'; '.join(words)}."


def over_paths(of: difference.Of, paths: difference.Paths) -> tuple[str, list[list[str]]]:
    """The last algorithm less the others over all models: what the table is, and its rows under
    `difference.HEAD`; none where the models are too few for an interval."""
    if len(of) < FEWEST:
        return "", []
    *others, one = next(iter(of.values()))
    if not others:
        return "", []
    count = difference.count(of, paths)
    what = f"{one} less the others, on {count} path{'s' * (count > 1)}; brackets: 95 % intervals"
    return what, difference.table_rows(difference.differences(of, one, paths))


def bounds(model: PathModel) -> str:
    """What lower bounds of a model mean for its predictions; empty: it has none."""
    words = []
    if any(level.rate_bps.kind == Kind.AT_LEAST for level in model.levels):
        words.append("The rate is a lower bound, so goodputs may be higher.")
    if model.queue_packets.kind == Kind.AT_LEAST:
        words.append("The queue is a lower bound, so RTTs may be higher.")
    if model.queue_packets.kind == Kind.ASSUMED:
        words.append("The queue is assumed, so RTTs may be higher or lower.")
    if model.loss.kind == Kind.ASSUMED and model.seen is not None:
        words.append("Losses are not known; with some, Reno and CUBIC get much less.")
    return " ".join(words)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Columns for a terminal; the first is set left, the others right."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [
            c.ljust(w) if k == 0 else c.rjust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


@plots.plain()
def _picture(captured: series.Series | None, replayed: series.Series, cc: str) -> str:
    """The flow over time as captured, black, and as replayed, in the algorithm's colour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.8), layout="constrained")
    panels = figure.subplots(1, 3)
    titles = ("acknowledged, Mbit/s", "smoothed RTT, ms", "lost packets per s")
    color = plots.CC.get(cc, plots.GREY)
    both = ((captured, plots.BLACK, "captured", 1.6), (replayed, color, f"replayed, {cc}", 1.2))
    for one, shade, label, width in both:
        if one is None:
            continue
        rtt = [float("nan") if v is None else v for v in one.rtt_ms]
        for panel, values in zip(panels, (one.mbps, rtt, one.lost), strict=True):
            panel.plot(one.at_s, values, color=shade, lw=width, label=label, alpha=0.85)
    for panel, title in zip(panels, titles, strict=True):
        panel.set(title=title, xlabel="s since the first ACK", ylim=(0, None))
    panels[0].legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata=plots.NO_VERSION["svg"])
    return pages.image(buffer.getvalue(), "svg+xml")


def write_page(
    folder: Path,
    found: Replays,
    imported: Sequence[PathModel],
    predictions: difference.Of,
    place: str = "",
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """One page of all models of a folder: values, flow over time, predictions.

    Args:
        folder: of the models.
        found: the replays.
        imported: models without a flow.
        predictions: name of the model to those of every algorithm.
        place: of the predictions, before the sentence on them.
        left_out: name of a model without predictions to why.
    """
    sections: list[dict[str, Any]] = []
    shown = [(r.model, r.folder, r.cc, caution(r)) for r in (*found.replays, *found.misses)]
    shown += [(model, "", "", "") for model in imported]
    for model, run, cc, but in shown:
        name = model.name
        captured = series.read(folder / f"{name}{series.SUFFIX}")
        replayed = series.of_run(folder / RUNS / "replay" / run) if run else None
        of_path = predictions.get(name, {})
        sections.append(
            {
                "name": name,
                "facts": facts(model, cc),
                "picture": _picture(captured, replayed, cc) if replayed else "",
                "drawn": "The captured flow and its replay." if captured else "The replay.",
                "scenario": scenario.text(model),
                "rejected": found.rejected.get(name, ""),
                "caution": f"Not predicted: {left_out[name]}." if name in left_out else but,
                "runs": runs_of(model, len(next(iter(of_path.values())).draws)) if of_path else "",
                "rows": prediction_rows(of_path),
                "sentence": f"{place}{sentence(of_path)} {bounds(model)}".strip()
                if of_path
                else "",
            }
        )
    whole, whole_rows = over_paths(predictions, difference.numbers(m for m, *_ in shown))
    text = pages.render(
        "paths.html.j2",
        title=f"Network paths: {folder.name}",
        head=HEAD,
        rows=replay_rows(found),
        whole=whole,
        place=place,
        whole_head=difference.HEAD,
        whole_rows=whole_rows,
        prediction_head=PREDICTION_HEAD,
        sections=sections,
    )
    files.write_text(folder / PAGE, text)
    return folder / PAGE
