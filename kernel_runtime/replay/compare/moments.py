"""Whether a date or time in a text is the time of the run that printed it.

A run is known by when it began and ended. A date in 2013 is data and no rule touches it; a date that lies
within its run, in both runs, was the time of day. Times without a zone may be those of any zone, so they
are looked at in steps of a quarter of an hour.

Where the record does not say when it was made (a plain notebook), its side may be any time, if the
replay's is within the replay.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

from kernel_runtime.replay.compare.bridge import Window

_SLACK = 5.0
"""seconds by which clocks may be apart, and a text later than its step"""
_QUARTER = 900
_ZONES = 56
"""quarters of an hour by which a zone may be off UTC: 14 hours"""
_LONG = 600.0
"""seconds; a step that ran longer has seen nearly every minute and second of an hour"""

_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\S+?) ?(Z|UTC|[+-]\d\d:?\d\d)?)?")
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)[_T-]?(\d\d)(\d\d)(\d\d)")
_CTIME = re.compile(r"\w{3} (\w{3}) ([ \d]\d) (\S+) (?:[A-Z]{3,4} )?(\d{4})")
_RFC = re.compile(r"(?:\w{3}, )?(\d{1,2}) (\w{3}) (\d{4})(?: (\S+)(?: (GMT|UTC|[+-]\d{4}))?)?")
_LONG_DATE = re.compile(r"(\w{3})[a-z]* (\d{1,2}), (\d{4})")
_SLASHES = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_REPR = re.compile(r"datetime\.(?:datetime|date)\(([\d, ]+)\)")
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_EPOCHS = (1e9, 1e6, 1e3, 1.0)
"""nanoseconds in a unit in which programs count since 1970"""

Moment = datetime | date | timedelta
"""a point in time, a day, a time of day"""


def both_now(recorded: str, replayed: str, first: Window | None, second: Window | None) -> bool:
    """Whether each is a time of its own run."""
    if first is None and second is None:
        return False
    one, other = parse(recorded), parse(replayed)
    if one is None or other is None or type(one) is not type(other):
        return False
    return (first is None or _within(one, first)) and (second is None or _within(other, second))


def both_epochs(recorded: float, replayed: float, first: Window | None, second: Window | None) -> bool:
    """Whether both numbers count to a time of their own run since 1970, in the same unit."""
    if first is None and second is None:
        return False
    for unit in _EPOCHS:
        one = (first is None and 1e18 <= recorded * unit < 4e18) or (
            first is not None and _epoch(recorded, unit, first)
        )
        other = (second is None and 1e18 <= replayed * unit < 4e18) or (
            second is not None and _epoch(replayed, unit, second)
        )
        if one and other:
            return True
    return False


def parse(text: str) -> Moment | None:
    """The moment that a token tells; None where it is none, or a time of day without seconds."""
    try:
        return _parse(text)
    except (ValueError, OverflowError, KeyError):
        return None


def _parse(text: str) -> Moment | None:
    if found := _CLOCK.fullmatch(text):
        return _clock(text) if found[3] else None
    if found := _ISO.fullmatch(text):
        day = date(int(found[1]), int(found[2]), int(found[3]))
        return _at(day, found[4], found[5])
    if found := _COMPACT.fullmatch(text):
        year, month, day_, hour, minute, second = map(int, found.groups())
        return datetime(year, month, day_, hour, minute, second)  # noqa: DTZ001 - of any zone
    if found := _CTIME.fullmatch(text):
        return _at(date(int(found[4]), _MONTHS[found[1]], int(found[2])), found[3], None)
    if found := _RFC.fullmatch(text):
        return _at(date(int(found[3]), _MONTHS[found[2]], int(found[1])), found[4], found[5])
    if found := _LONG_DATE.fullmatch(text):
        return date(int(found[3]), _MONTHS[found[1]], int(found[2]))
    if found := _SLASHES.fullmatch(text):
        first, second, year = map(int, found.groups())
        return date(year, first, second) if first <= 12 else date(year, second, first)
    if found := _REPR.fullmatch(text):
        fields = [int(field) for field in found[1].split(",")]
        return date(*fields) if len(fields) == 3 else datetime(*fields)  # type: ignore[arg-type]  # noqa: DTZ001
    return None


def _clock(text: str) -> timedelta:
    found = _CLOCK.fullmatch(text)
    if found is None or int(found[1]) > 23 or int(found[2]) > 59 or int(found[3] or 0) > 59:
        raise ValueError(text)
    fraction = float(f"0.{found[4]}") if found[4] else 0.0
    return timedelta(hours=int(found[1]), minutes=int(found[2]), seconds=int(found[3] or 0) + fraction)


def _at(day: date, clock: str | None, zone: str | None) -> Moment:
    if clock is None:
        return day
    moment = datetime(day.year, day.month, day.day) + _clock(clock)  # noqa: DTZ001 - of any zone
    if zone is None:
        return moment
    if zone in ("Z", "UTC", "GMT"):
        return moment.replace(tzinfo=UTC)
    sign = -1 if zone[0] == "-" else 1
    digits = zone[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]))
    return moment.replace(tzinfo=timezone(sign * offset))


def _within(moment: Moment, window: Window) -> bool:
    since, start, end = window.since / 1e9, window.start / 1e9, window.end / 1e9
    if isinstance(moment, timedelta):
        if end - start > _LONG:
            return False
        return _in_some_zone(moment.total_seconds(), start % 86400, start % 86400 + end - start, zones=200)
    if isinstance(moment, datetime):
        # a text without seconds tells a minute that may have begun before the run
        early = 60.0 if moment.second == 0 and moment.microsecond == 0 else 0.0
        if moment.tzinfo is not None:
            return since - _SLACK - early <= moment.timestamp() <= end + _SLACK
        return _in_some_zone(moment.replace(tzinfo=UTC).timestamp(), since - early, end, zones=_ZONES)
    zone = timedelta(seconds=_QUARTER * _ZONES)
    first = datetime.fromtimestamp(since, UTC) - zone
    last = datetime.fromtimestamp(end, UTC) + zone
    return first.date() <= moment <= last.date()


def _in_some_zone(seconds: float, start: float, end: float, *, zones: int) -> bool:
    """Whether some whole number of quarters of an hour brings `seconds` between start and end."""
    least = -((end + _SLACK - seconds) // _QUARTER)
    most = (seconds - start + _SLACK) // _QUARTER
    return max(least, -zones) <= min(most, zones)


def _epoch(value: float, unit: float, window: Window) -> bool:
    at = value * unit
    return window.since - _SLACK * 1e9 <= at <= window.end + _SLACK * 1e9
