# SPDX-License-Identifier: GPL-2.0-only
"""Times in logs of ss, in whatever form `date`, `ts` and scripts write them.

A time stands on a line of its own before each call, or before every line. C knows seconds on a
line of their own, `time:` with nanoseconds and `Time:` with seconds; all other forms are
rewritten to `time:` here before C sees them. Only differences count, so a time without a date
is given one, and names of time zones are not looked at.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

DAY_NS = 86_400 * 10**9
YEAR = 2000
"""of times without one: a leap year, so that every date exists"""
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
NUMBER_UNITS = {9: 10**9, 10: 10**9, 13: 10**6, 16: 10**3, 19: 1}
"""Digits of a time since 1970 to ns per unit: s, ms, us, ns."""

_CLOCK = r"(?P<{0}h>\d?\d):(?P<{0}m>\d\d):(?P<{0}s>\d\d)(?:[.,](?P<{0}f>\d+))?(?P<{0}half>\ [AP]M)?"
_DAY_NAME = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = "(?P<{0}month>" + "|".join(MONTHS) + ")"
_OFFSET = r"\ ?(?P<{0}zone>Z|UTC|GMT|[+-]\d\d:?\d\d)?"
_NAMED_ZONE = r"(?:\ (?:[A-Z]{{2,5}}|[+-]\d\d(?:\d\d)?))?"
FORMS = {
    # 1700000000.25, 1700000000250, ...250000, ...250000000
    "number": r"(?P<number>\d{{9,19}})(?:[.,](?P<fraction>\d+))?",
    # 2022-11-21T18:57:42,5+00:00: ISO 8601, RFC 3339
    "iso": r"(?P<{0}year>\d{{4}})[-/](?P<{0}mm>\d\d)[-/](?P<{0}day>\d\d)[T_\ ]" + _CLOCK + _OFFSET,
    # Mon Nov 21 18:57:42 UTC 2022: `date` in the C locale, and ctime
    "date": _DAY_NAME
    + r"\ "
    + _MONTH
    + r"\ {{1,2}}(?P<{0}day>\d\d?)\ "
    + _CLOCK
    + _NAMED_ZONE
    + r"\ (?P<{0}year>\d{{4}})",
    # Mon 21 Nov 18:57:42 GMT 2022: `date` in British locales
    "british": r"(?:"
    + _DAY_NAME
    + r"\ )?(?P<{0}day>\d\d?)\ "
    + _MONTH
    + r"\ "
    + _CLOCK
    + _NAMED_ZONE
    + r"\ (?P<{0}year>\d{{4}})",
    # 20221121-185742, 20221121T185742Z
    "compact": r"(?P<{0}year>\d{{4}})(?P<{0}mm>\d\d)(?P<{0}day>\d\d)[-_T]"
    r"(?P<{0}h>\d\d)(?P<{0}m>\d\d)(?P<{0}s>\d\d)(?:[.,](?P<{0}f>\d+))?" + _OFFSET,
    # Mon, 21 Nov 2022 18:57:42 +0000: RFC 2822; and `date` in English locales
    "mail": r"(?:"
    + _DAY_NAME
    + r",?\ )?(?P<{0}day>\d\d?)\ "
    + _MONTH
    + r"\ (?P<{0}year>\d{{4}})\ "
    + _CLOCK
    + _OFFSET
    + r"(?:\ [A-Z]{{3,5}}(?=[\])]*\s*$))?",
    # Nov 21 18:57:42: `ts`
    "ts": _MONTH + r"\ {{1,2}}(?P<{0}day>\d\d?)\ " + _CLOCK,
    # 18:57:42.5
    "clock": _CLOCK,
}
STAMP = re.compile(
    r"[\s#=*>(\[-]*(?:(?i:time|date|timestamp|now|at)\s*[:=]?\s*)?(?:"
    + "|".join(f"(?P<{name}_form>" + form.format(name + "_") + ")" for name, form in FORMS.items())
    + r")[)\]]*[:,;]?(?=\s|$|[=*<-]+\s*$)(?P<rest>.*)",
    re.DOTALL,
)
USUAL = re.compile(
    rb"\s*(?:\d{9,10}(?:\.\d+)?\s*$|"
    rb"(?:time:\s*\d{16,19}|Time:\s*\d{9,10}(?:\.\d+)?)(?![\d.])(?:\s*$| ?\w))"
)
"""Forms that C reads by itself."""

UNDATED = {"ts": 366 * DAY_NS, "clock": DAY_NS}
"""Forms that begin again, after this many ns."""
HEADS = ("State", "Netid", "Recv-Q")
RECORD = re.compile(r"\s*(?:[\w-]+\s+){0,2}\d+\s+\d+\s+\S+:\S+\s+\S+:\S+")
"""The beginning of a socket: two queues and two addresses."""


def unusual(head: bytes) -> bool:
    """True if some line of these first bytes has a time in a form that C does not read."""
    for line in head.split(b"\n"):
        if STAMP.match(line.decode("latin-1")) and not USUAL.match(line):
            return True
    return False


def _fraction_ns(digits: str | None) -> int:
    return int((digits or "0")[:9].ljust(9, "0"))


class Stamps:
    """Rewrites the times of one log, line by line and in order."""

    def __init__(self) -> None:
        self.last_ns = 0
        self.dated = False
        """A time with a date was seen; a time without one then comes from another program."""

    def rewrite(self, text: bytes) -> bytes:
        """Whole lines with their times as `time:` and nanoseconds; the number of lines stays."""
        lines = text.decode("latin-1").split("\n")
        return "\n".join(map(self._line, lines)).encode("latin-1")

    def _line(self, line: str) -> str:
        match = STAMP.match(line)
        if match is None:
            return line
        rest = match["rest"].rstrip("\r")
        alone = not rest.strip(" \t=*-<")
        rest = rest[1:]  # without the blank that a prefix ends with
        continues = rest[:1] in (" ", "\t") and not RECORD.match(rest)
        if not (alone or continues or RECORD.match(rest) or rest.startswith(HEADS)):
            return line  # something else that begins with a time
        ns = self._ns(match)
        if ns is None:
            return line
        if alone:
            return f"time:{ns}"
        # a line that continues a record begins with a blank of its own
        return rest if continues else f"time:{ns} {rest.lstrip()}"

    def _ns(self, match: re.Match[str]) -> int | None:
        if match["number_form"]:
            unit = NUMBER_UNITS.get(len(match["number"]))
            if unit is None or (match["fraction"] and unit != 10**9):
                return None
            self.dated = True
            return int(match["number"]) * unit + _fraction_ns(match["fraction"])
        name = next(name for name in FORMS if name != "number" and match[f"{name}_form"])
        if name not in UNDATED:
            self.dated = True
        elif self.dated:
            return None
        found = {
            key.removeprefix(f"{name}_"): value
            for key, value in match.groupdict().items()
            if key.startswith(f"{name}_") and value is not None
        }
        try:
            ns = _of_parts(found)
        except ValueError:
            return None  # the 31st of a short month, or 25 o'clock
        span = UNDATED.get(name)
        while span and ns < self.last_ns - span // 2:
            ns += span  # midnight, or the year's end
        self.last_ns = max(self.last_ns, ns)
        return ns


def _of_parts(found: dict[str, str]) -> int:
    """ns since 1970.

    Raises:
        ValueError: no such date or time.
    """
    hour = int(found["h"])
    if half := found.get("half"):
        hour = hour % 12 + 12 * (half.strip() == "PM")
    month = found.get("mm")
    zone = found.get("zone", "Z")
    sign = -1 if zone[0] == "-" else 1
    hours, minutes = (zone[1:3], zone[-2:]) if zone[0] in "+-" else ("0", "0")
    offset = sign * timedelta(hours=int(hours), minutes=int(minutes))
    moment = datetime(
        int(found.get("year", YEAR)),
        int(month) if month else MONTHS.index(found.get("month", "Jan")) + 1,
        int(found.get("day", 1)),
        hour,
        int(found["m"]),
        min(int(found["s"]), 59),  # a leap second
        tzinfo=timezone(offset),
    )
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + _fraction_ns(found.get("f"))
