# SPDX-License-Identifier: GPL-2.0-only
"""Captures and logs to a dataset of rounds, split by path."""

from __future__ import annotations

import errno
import hashlib
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from ndm_tcp import files, progress
from ndm_tcp.datasets.builder import remote, workers
from ndm_tcp.datasets.builder.parts import CannotWriteError, Labeller, Task
from ndm_tcp.datasets.builder.workers import KilledError
from ndm_tcp.datasets.readers import pcap, sources
from ndm_tcp.datasets.store import card, store
from ndm_tcp.errors import NdmError

HELD_OUT = 5
"""One path in five is held out for validation, one for testing; the rest trains."""
SHARED_BYTES = 256 << 20
"""A plain capture from this size on is shared by all processes, flow by flow."""
AGAIN = "again"
"""Of a flow, until the manifest is written: an earlier source has it."""
STDIN = "-"
PASSED_ON = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Names that a shell gives to the pipes that it passes on."""
PATIENCE_S = 2.0
"""for the processes of a killed build to die"""


def assign_splits(paths: list[str]) -> dict[str, str]:
    """Path to train, val or test: by rank of a hash, so that it does not depend on order.

    Whole paths only: flows of one path resemble each other, and a split by flow or by row would
    leak.
    """
    ranked = sorted(set(paths), key=lambda path: hashlib.sha256(path.encode()).digest())
    names = {0: "val", 1: "test"}
    if len(ranked) < 3:
        return dict.fromkeys(ranked, "train")
    return {path: names.get(i % HELD_OUT, "train") for i, path in enumerate(ranked)}


def _spooled(name: str, folder: Path) -> str:
    """Standard input and other pipes as a file: readers look at a source twice."""
    if name != STDIN and not name.startswith(PASSED_ON):
        return name
    if name == STDIN and sys.stdin.isatty():
        raise NdmError("-: standard input is a terminal; redirect a log or a capture to it")
    path = folder / ("stdin" if name == STDIN else f"pipe{Path(name).name}")
    with files.replacing(path) as temporary, temporary.open("wb") as out:
        if name == STDIN:
            shutil.copyfileobj(sys.stdin.buffer, out)
            return str(path)
        try:
            with Path(name).open("rb") as pipe:
                shutil.copyfileobj(pipe, out)
        except OSError as error:
            raise NdmError(f"{name}: {files.why(error)}") from None
    return str(path)


def _discover(names: list[str], left_out: dict[str, str] | None) -> list[str]:
    """Paths and URLs of all sources, sorted."""
    if "" in names:
        raise NdmError("an empty name; write . for the working folder")
    paths = [Path(name) for name in names if not remote.is_url(name)]
    found = [str(path) for path in sources.discover(paths, left_out, stdin=True)] if paths else []
    for name in names:
        if remote.is_url(name):
            found += remote.find(name)
    return found


def _tasks(found: list[str], folder: str, jobs: int, labeller: Labeller | None) -> list[Task]:
    tasks = []
    for source in found:
        path = Path(source)
        large = not remote.is_url(source) and path.is_file()
        shared = large and sources.can_be_shared(path, SHARED_BYTES, labeller is not None)
        shares = jobs if shared else 1
        tasks += [Task(source, folder, shard, shares, labeller) for shard in range(shares)]
    return tasks


def _own_folder(out: Path) -> Path:
    return out.parent / f".{out.name}.parts"


def _name_among_builds(out: Path) -> str:
    """Of the parts' folder where other builds, and whatever else, may lie beside it."""
    whole = f"{socket.gethostname()}:{out.resolve()}"
    return f"ndm-parts-{hashlib.sha256(whole.encode()).hexdigest()[:16]}"


@contextmanager
def _parts_folder(out: Path, parts_url: str | None) -> Iterator[tuple[Path, str]]:
    """A folder of this build's own, gone when it ends but not when it is killed; and the parts'."""
    if files.shown(out) != str(out):  # Arrow cannot open it
        raise NdmError(f"{out}: not UTF-8; name another folder with -o")
    folder = _own_folder(out)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(folder / "lock", timeout=PATIENCE_S))
        except Timeout:
            raise NdmError(f"{out}: another build writes here; wait for it") from None
        for name in (store.ROUNDS, store.MANIFEST, *card.FILES):
            for rest in files.leftovers(out / name):  # of a build that was killed
                rest.unlink()
        try:
            made = not remote.exists(parts_url) if parts_url else False
            mine = f"{parts_url.rstrip('/')}/{_name_among_builds(out)}" if parts_url else ""
            yield folder, mine or str(folder)
        except (KeyboardInterrupt, SystemExit, KilledError):
            raise  # finished parts stay for the next run
        except BaseException:
            shutil.rmtree(folder)
            raise
        if parts_url:
            remote.remove(mine, parts_url if made else None)
        shutil.rmtree(folder)


def _cost(source: str) -> int:
    """Bytes that will be read: captures take two passes."""
    if remote.is_url(source):
        return 0
    path = Path(source)
    try:
        inside = [path] if path.is_file() else [p for p in path.iterdir() if p.is_file()]
        return sum(p.stat().st_size * (2 if ".pcap" in p.name else 1) for p in inside)
    except OSError:
        return 0  # the reader reports why


def _make_parts(
    tasks: list[Task], engine: str, jobs: int, keep_going: bool, quiet: bool
) -> tuple[list[dict[str, Any] | None], dict[str, str]]:
    """Facts of every task in order, None where its source could not be read; and these."""
    facts: list[dict[str, Any] | None] = [None] * len(tasks)
    failed: dict[str, str] = {}
    size = sum(_cost(task.source) for task in tasks)
    with progress.bar(size, "B", quiet, unit_scale=True, desc="reading") as bar:
        done = workers.run(tasks, engine, jobs, bar.update)
        for count, (number, outcome) in enumerate(done, start=1):
            bar.set_postfix_str(f"{count}/{len(tasks)}", refresh=False)
            if isinstance(outcome, dict):
                facts[number] = outcome
                continue
            if not keep_going or isinstance(outcome, CannotWriteError):
                done.close()  # type: ignore[attr-defined]
                raise outcome
            failed[tasks[number].source] = str(outcome)
        bar.total = bar.n
    return facts, failed


def _say_left_out(failed: dict[str, str]) -> list[dict[str, str]]:
    """Tell of the sources that could not be read; their names without folders, and why."""
    for error in failed.values():
        print(f"ndm: left out: {files.shown(error)}", file=sys.stderr)
    return [
        {"name": files.shown(Path(source).name), "error": files.shown(failed[source])}
        for source in sorted(failed)
    ]


def _publish(fresh: Path, out: Path) -> None:
    """Move the files of a finished dataset to their place, the manifest last."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (store.ROUNDS, *card.FILES, store.MANIFEST):
        if not (fresh / name).exists():  # no card
            (out / name).unlink(missing_ok=True)
            continue
        try:
            (fresh / name).replace(out / name)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with files.replacing(out / name) as temporary:
                shutil.copyfile(fresh / name, temporary)


def _merge_shards(tasks: list[Task], facts: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """One entry per source; `order` lists (part, number of the flow in it) flow by flow."""
    merged: dict[str, dict[str, Any]] = {}
    unread = {task.source for task, found in zip(tasks, facts, strict=True) if found is None}
    for task, found in zip(tasks, facts, strict=True):
        if found is None or task.source in unread:
            continue
        one = dict(found)
        numbers, part = one.pop("numbers"), one.pop("part")
        flows = [
            (number, part, place, flow)
            for place, (number, flow) in enumerate(zip(numbers, one["flows"], strict=True))
        ]
        whole = merged.setdefault(task.source, {**one, "flows": [], "skipped": Counter()})
        whole["flows"] += flows
        whole["skipped"].update(one["skipped"])
    for whole in merged.values():
        whole["flows"].sort(key=lambda entry: entry[0])
        whole["order"] = [(part, place) for _, part, place, _ in whole["flows"]]
        whole["flows"] = [flow for *_, flow in whole["flows"]]
        whole["skipped"] = dict(sorted(whole["skipped"].items()))
    return list(merged.values())


def _distinct(found: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The sources without those that repeat another one's bytes, and these."""
    first: dict[str, dict[str, Any]] = {}
    repeated = []
    for source in found:
        other = first.setdefault(source["sha256"], source)
        if other is not source:
            repeated.append({"name": source["name"], "same_as": other["name"]})
            said = f"{source['name']}: same bytes as {other['name']}; used once"
            print(f"ndm: {said}", file=sys.stderr)
    seen: set[str] = set()
    for source in first.values():
        again, here = 0, set[str]()
        for flow in source["flows"]:
            names = {flow["flow_id"], flow["fingerprint"]} - {None}
            flow[AGAIN] = not names.isdisjoint(seen)
            again += flow[AGAIN]
            here |= names  # two VLANs may have flows that look alike
        seen |= here
        if again:  # a file beside the archive that holds it, or the same packets as pcapng
            said = f"{source['name']}: {again} flows are in another source, too; used once"
            print(f"ndm: {said}", file=sys.stderr)
    return list(first.values()), repeated


def _rounds(found: list[dict[str, Any]], folder: str, splits: dict[str, str]) -> Iterator[pa.Table]:
    """The rows of all parts, source by source and flow by flow, with their split."""
    for source in found:
        with remote.writable(folder) as here:
            tables: dict[str, pa.Table] = {}
            starts: dict[str, list[int]] = {}
            counts = [flow["rounds"] for flow in source["flows"]]
            for (part, _), rows in zip(source["order"], counts, strict=True):
                if part not in tables:
                    if not remote.fetch(folder, part, here / part):
                        raise NdmError(
                            f"{folder}: {part} is not there; do the machines share this folder? "
                            "name one that they do with --parts URL"
                        )
                    tables[part] = pq.read_table(here / part).replace_schema_metadata(None)
                    starts[part] = [0]
                starts[part].append(starts[part][-1] + rows)
            for (part, place), flow in zip(source["order"], source["flows"], strict=True):
                table = tables[part].slice(starts[part][place], flow["rounds"])
                if not table.num_rows or flow[AGAIN]:
                    continue
                at = table.schema.get_field_index("split")
                split = pa.repeat(pa.scalar(splits[flow["flow_id"]]), table.num_rows)
                yield table.set_column(at, table.schema.field("split"), split)


def build(
    paths: list[Path] | list[str],
    out: Path,
    jobs: int = 1,
    keep_going: bool = False,
    quiet: bool = False,
    engine: str = "local",
    parts_url: str | None = None,
    labeller: Labeller | None = None,
    with_card: bool = True,
) -> dict[str, Any]:
    """Build a dataset; the same sources give the same bytes for any engine and number of jobs.

    Killed at any point and run again, it goes on with the parts that are whole. A capture that
    is cut short gives its whole packets, and the manifest has the byte where it ends.

    Args:
        paths: captures, logs, run folders, or folders of them; fsspec URLs of files; or - for
            standard input.
        out: the dataset's folder; replaced only once everything was read.
        jobs: processes over sources, and over the flows of large captures.
        keep_going: leave out unreadable sources.
        quiet: no progress bar.
        engine: local, or ray for the Ray cluster that is running.
        parts_url: where the parts go; None for a folder beside `out`. All machines must reach it.
        labeller: gives flows without a known path the one that their records show.
        with_card: write the card, whose pictures take seconds, too.

    Returns:
        the manifest.

    Raises:
        NdmError: a source cannot be read (unless `keep_going`), or no flow was found.
    """
    try:
        names = [str(path) for path in paths]
        return _build(names, out, jobs, keep_going, quiet, engine, parts_url, labeller, with_card)
    except OSError as error:
        raise NdmError(
            f"{out}: cannot be written ({files.why(error)}); make room, or name another folder "
            "with -o"
        ) from None
    except NdmError as error:
        copy = str(_own_folder(out) / "stdin")
        if copy not in str(error):
            raise
        raise NdmError(str(error).replace(copy, STDIN)) from None


def _build(
    names: list[str],
    out: Path,
    jobs: int,
    keep_going: bool,
    quiet: bool,
    engine: str,
    parts_url: str | None,
    labeller: Labeller | None,
    with_card: bool,
) -> dict[str, Any]:
    odd: dict[str, str] = {}
    with _parts_folder(out, parts_url) as (own, folder):
        names = [_spooled(name, own) for name in dict.fromkeys(names)]
        tasks = _tasks(_discover(names, odd if keep_going else None), folder, jobs, labeller)
        facts, failed = _make_parts(tasks, engine, jobs, keep_going, quiet)
        unread = _say_left_out(odd | failed)
        good, repeated = _distinct(_merge_shards(tasks, facts))
        flows = [f for s in good for f in s["flows"] if f["rounds"] and not f[AGAIN]]
        if not flows:
            why = _why_none(good) or next(iter((failed | odd).values()), "nothing to read")
            raise NdmError(f"{names[0]}: no usable flow ({why})")
        of_path = assign_splits([flow["group"] for flow in flows])
        splits = {flow["flow_id"]: of_path[flow["group"]] for flow in flows}
        manifest = {
            "sources": [_told(source) for source in good],
            "failed": unread,
            "repeated": repeated,
            "flows": len(flows),
            "rounds": sum(flow["rounds"] for flow in flows),
            "splits": dict(sorted(Counter(splits.values()).items())),
        }
        fresh = own / "new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        store.write(fresh, _rounds(good, folder, splits), manifest)
        if with_card:
            card.write(fresh)
        _publish(fresh, out)
    return manifest


def _told(source: dict[str, Any]) -> dict[str, Any]:
    """A source's entry in the manifest. The names of paths hold hashes of addresses: they end."""
    flows = [
        {name: value for name, value in flow.items() if name not in ("group", "fingerprint", AGAIN)}
        for flow in source["flows"]
        if not flow[AGAIN]
    ]
    return {name: value for name, value in source.items() if name != "order"} | {"flows": flows}


def _why_none(found: list[dict[str, Any]]) -> str:
    """Why no source gave a flow: the parts left out, and the kinds of packets."""
    reasons, packets = Counter[str](), pcap.CaptureReport()
    for source in found:
        reasons.update(source["skipped"])
        packets.add(pcap.CaptureReport(**source["capture"]))
    if reasons:
        return "; ".join(f"{count} x {reason}" for reason, count in reasons.items())
    return packets.unread() or ("no TCP data in it" if found else "")
