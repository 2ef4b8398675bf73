# SPDX-License-Identifier: GPL-2.0-only
"""Strict reading of TOML into dataclasses: no key more, none less, no value of another kind."""

from __future__ import annotations

import dataclasses
import difflib
import math
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from ndm_tcp.errors import NdmError

Reader = Callable[[Any, str], Any]
"""A value and where it stands, to what the dataclass holds."""

PUBLISHED_WORDS = {
    "mbps": "Mbit/s",
    "retransmissions": "retr.",
    "zero_intervals": "zero s",
    "jain": "Jain",
    "rtt_max_ms": "ms RTT at most",
    "rtt_mean_ms": "ms RTT",
}
"""numbers of [[published]] that boards show, and what they are called there"""


def _kind(value: object) -> str:
    names = {bool: "true/false", int: "a whole number", float: "a number", str: "text"}
    return names.get(type(value), "a table" if isinstance(value, dict) else "a list")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def shown(value: object) -> str:
    """A value as one short line, however deep or long it is."""
    return _SHORT.repr(value)


def fits(value: Any, want: Any, where: str, readers: Mapping[str, Reader] = {}) -> Any:
    """`value` in the type of the annotation `want`."""
    if isinstance(want, types.UnionType):  # X | None
        want = next(part for part in typing.get_args(want) if part is not type(None))
    if dataclasses.is_dataclass(want):
        return table(value, typing.cast(type, want), where, readers)
    if type(value) is int and abs(value) >= 1 << 63:
        raise NdmError(f"{where}: a number of more than 18 digits; write a smaller one")
    if want is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if want in (int, str, bool) and type(value) is want:
        return value
    expected = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    raise NdmError(f"{where}: expected {expected[want]}, got {_kind(value)} {shown(value)}")


def table(values: Any, kind: type, where: str, readers: Mapping[str, Reader] = {}) -> Any:
    """A dataclass from a TOML table.

    Args:
        values: the table.
        kind: the dataclass.
        where: file and key, for messages.
        readers: of keys that `fits` does not read, here and in tables inside.

    Raises:
        NdmError: an unknown or missing key, or a value that does not fit.
    """
    if not isinstance(values, dict):
        raise NdmError(f"{where}: expected a table, got {_kind(values)}")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            stem = key.rsplit("_", 1)[0]
            near = [name for name in fields if name.startswith(stem + "_")]
            near = near or difflib.get_close_matches(key, fields, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(fields)}"
            raise NdmError(f"{where}.{key}: unknown key{hint}")
    done: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in values:
            if field.default is dataclasses.MISSING:
                raise NdmError(f"{where}.{name}: missing; add it")
        elif name in readers:
            done[name] = readers[name](values[name], f"{where}.{name}")
        else:
            done[name] = fits(values[name], hints[name], f"{where}.{name}", readers)
    return kind(**done)


def steps(
    value: Any, where: str, limits: tuple[int, int], unit: str
) -> tuple[tuple[float, int], ...]:
    """A list of [s, value from then on], in the order of time."""
    if not isinstance(value, list):
        raise NdmError(f"{where}: expected a list of [s, {unit}], got {_kind(value)}")
    found = []
    for item in value:
        if not isinstance(item, list) or len(item) != 2:
            raise NdmError(f"{where}: expected [s, {unit}], got {shown(item)}")
        found.append((fits(item[0], float, where), fits(item[1], int, where)))
        within(where, found[-1][1], *limits, unit)
    times = [t_s for t_s, _ in found]
    if times != sorted(set(times)) or any(t_s <= 0 for t_s in times):
        raise NdmError(f"{where}: times must grow from step to step, and be above 0")
    return tuple(found)


def published(rows: list[dict[str, Any]], where: str) -> None:
    """Refuse figures of [[published]] that no table can show."""
    for number, row in enumerate(rows):
        here = f"{where}: published[{number}]"
        if not isinstance(row.get("cc"), str):
            raise NdmError(f"{here}.cc: missing, or not text; write whose figures they are")
        for key, value in row.items():
            if key in PUBLISHED_WORDS or type(value) in (int, float):
                fits(value, float, f"{here}.{key}")
            elif not isinstance(value, (str, bool)):
                raise NdmError(f"{here}.{key}: expected a number or text, got {shown(value)}")


def within(where: str, value: float, low: float, high: float, unit: str) -> None:
    """Refuse a number outside [low, high]."""
    if not low <= value <= high:
        raise NdmError(f"{where}: {value:g} is not in [{low:g}, {high:g}] {unit}".rstrip())


def one_of(where: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse another word than the known ones."""
    if value not in known:
        raise NdmError(f"{where}: {value!r} is not one of {', '.join(known)}; write one of these")
