"""The times at the beginnings of a text log's lines, with or without zone, date order or year.

Loggers print ISO 8601, `08/30 23:00:36` (fvcore), `01/17/2024 13:47:27` (Accelerate), `Aug 30
23:00:36` (syslog), `05-22 10:15:00` (vLLM) or `I0830 23:00:36.123` (glog, absl). Differences of
such times are exact; where no zone is given, `placed` derives their origin.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import re2

_MONTHS: Final = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_REACH: Final = 60
"""Characters of a line before its time. A choice: prefixes of ranks, pods and loggers fit; more
reads times in messages as the line's own."""
_TIME = (
    rb"\b(?:([0-9]{4})[-/]([0-9]{2})[-/]([0-9]{2})[ T,-]{1,2}"
    rb"|([0-9]{2})/([0-9]{2})/([0-9]{4}) |[EWIF]?([01][0-9])[-/]?([0-3][0-9])[ -]"
    rb"|[EWIF]([1-9])([0-3][0-9]) "  # c10's Logging.cpp pads days, but no months
    rb"|(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([ 0-3][0-9]) )"
    rb"([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]{1,9}))?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_FOUND = re2.compile(re.sub(rb"\((?!\?)", rb"(?:", _TIME))  # groups cost re2 more than the search
_PARTS = re.compile(_TIME)
_YEARLESS: Final = 2000  # stands for a year that is not logged; a leap year, so that all dates fit
_QUARTER: Final = 900.0  # seconds. Zones lie whole quarter hours apart
_ROUNDED: Final = 1.5
"""Seconds that a stamp may lie from the last write and be of it: loggers cut fractions, files are
written a little later. A choice: the last write of a copy is as near by chance, once in 300."""
Ahead: TypeAlias = Callable[[float, bool], float]
"""Seconds by which a host's clock is ahead of UTC at a time that it shows, given as if in UTC;
whether it shows that time for the second time, as in autumn."""
_DAY: Final = 86400.0  # seconds. A stamp this far after the last write is no time of the line


@dataclass(frozen=True, slots=True)
class Stamp:
    """The time of the line at byte `offset`: Unix seconds if `zoned`, else as if in UTC.

    `has_year` is false if the year is not logged; then it is `_YEARLESS` in `when`.
    """

    offset: int
    when: float
    zoned: bool
    has_year: bool


def stamps(data: bytes, offset: int = 0) -> Iterator[Stamp]:
    """The times of the lines in `data`, which begins at byte `offset` of its file."""
    text, read, line = b"", None, -1
    for match in _FOUND.finditer(data):
        start, end = match.span()
        least = max(start - _REACH - 1, 0)
        before = max(data.rfind(b"\n", least, start), data.rfind(b"\r", least, start))
        if before == line >= 0 or (before < 0 < least):
            continue  # further on in the line
        line = before
        if text != data[start:end]:
            text = data[start:end]
            read = _read(text)
        if read is not None:
            yield replace(read, offset=offset + before + 1)


def _read(text: bytes) -> Stamp | None:
    parts = _PARTS.match(text)
    if parts is None:
        return None
    *days, clock, fraction, zone = parts.groups()
    year, month, day, us_month, us_day, us_year, *short, name, name_day = days
    short_month, short_day = short[0] or short[2], short[1] or short[3]
    named = None if name is None else b"%d" % (_MONTHS.index(name) + 1)
    year, month = year or us_year, month or us_month or short_month or named
    try:
        hour, minute, second = map(int, (clock or b"").split(b":"))
        moment = datetime(
            int(year or _YEARLESS),
            int(month or 0),
            int(day or us_day or short_day or name_day or 0),
            hour,
            minute,
            second,
            tzinfo=UTC,
        ).timestamp()
    except (ValueError, OverflowError):  # digits that are no date
        return None
    moment += float(b"0." + fraction) if fraction else 0.0
    return Stamp(0, moment - _zone(zone), zone is not None, year is not None)


def _zone(zone: bytes | None) -> float:
    if zone is None or zone == b"Z":
        return 0.0
    seconds = int(zone[1:3]) * 3600.0 + int(zone[-2:]) * 60.0
    return -seconds if zone.startswith(b"-") else seconds


def placed(
    found: Iterable[Stamp], last_write: float, ahead: Ahead, *, is_last: bool
) -> list[tuple[int, float]]:
    """Offset and Unix seconds of each stamp, in order; times never fall.

    Times without a zone are of the file's other times if these have one, else `ahead` of UTC; then
    the last one was not after `last_write` (Unix seconds). Where it `is_last`, of the file's last
    line, it was not quarter hours before that either, as on a host in another zone, but at it:
    without a stamp, that line may have come after a timeout of half an hour. Stamps without a year
    are of the year in which they are nearest to those with one, else of the last year in which they
    are not after the last write.
    """
    latest = last_write + ahead(last_write, False)
    stamped = [
        each for each in _with_years(list(found), latest) if each.when <= last_write + 2 * _DAY
    ]
    if any(each.zoned for each in stamped) and not all(each.zoned for each in stamped):
        zone = _offset(stamped)
        times = [each.when if each.zoned else each.when - zone for each in stamped]
    else:
        times = _of_this_host(stamped, last_write, ahead)
        if stamped and not stamped[-1].zoned:
            by = _behind(last_write - times[-1], is_last=is_last)
            times = [when + by for when in times]
    return list(zip((each.offset for each in stamped), accumulate(times, max), strict=True))


def _of_this_host(stamped: list[Stamp], last_write: float, ahead: Ahead) -> list[float]:
    """Unix seconds of each; an hour that comes twice in autumn is the last one that fits."""
    known: dict[tuple[float, bool], float] = {}

    def unix(each: Stamp, again: bool) -> float:
        quarter = each.when // _QUARTER, again
        if quarter not in known:
            known[quarter] = ahead(each.when, again)
        return each.when - known[quarter]

    times: list[float] = []
    later = last_write + _ROUNDED
    for each in reversed(stamped):
        when = each.when if each.zoned else unix(each, True)
        if when > later and not each.zoned:
            when = unix(each, False)
        later = when
        times.append(when)
    return times[::-1]


def _behind(late: float, *, is_last: bool) -> float:
    """Seconds by which local times are wrong, of which the last is `late` before the last write."""
    quarters = round(late / _QUARTER) * _QUARTER
    is_zone = is_last and 0 < quarters <= _DAY and abs(late - quarters) <= _ROUNDED
    return late if late < -1.0 else quarters if is_zone else 0.0


def _offset(stamped: list[Stamp]) -> float:
    """Seconds by which local times are ahead of zoned ones beside them, in quarter hours."""
    near = [(one, two) for one, two in pairwise(stamped) if one.zoned != two.zoned]
    one, two = min(near, key=lambda pair: abs(pair[0].when - pair[1].when) % _QUARTER)
    local, zoned = (two, one) if one.zoned else (one, two)
    return round((local.when - zoned.when) / _QUARTER) * _QUARTER


def _with_years(found: list[Stamp], latest: float) -> list[Stamp]:
    """The stamps with years: those of the dated stamps before them, or of the first one."""
    near = next((each.when for each in found if each.has_year), None)
    dated = []
    for each in found:
        if each.has_year:
            near = each.when
        # Half a year: a log of December may go on in January.
        reach = latest if near is None else near + 183 * _DAY
        dated.append(each if each.has_year else _with_year(each, reach))
    return dated


def _with_year(stamp: Stamp, latest: float) -> Stamp:
    """The stamp in the last year in which it is at most a day after `latest` (as if in UTC)."""
    year = datetime.fromtimestamp(max(latest, 0.0) + _DAY, UTC).year
    moment = datetime.fromtimestamp(stamp.when, UTC)
    for tried in range(year, year - 9, -1):  # a leap day comes within 8 years
        try:
            when = moment.replace(year=tried).timestamp()
        except ValueError:
            continue
        if when <= latest + _DAY:
            return replace(stamp, when=when, has_year=True)
    return stamp
