"""Timestamps as Kubernetes writes them (2026-01-31T12:00:00Z), and the seconds that decisions count in."""

from datetime import UTC, datetime

import msgspec

EXAMPLE = "a time such as 2026-01-31T12:00:00Z"
_FIRST_S = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST_S = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
LAST_YEAR = 9999  # times in this year are refused: adding to them may overflow


def parse_timestamp(text: str) -> datetime:
    """Always with a time zone. Raises ValueError if the text is not a timestamp before LAST_YEAR."""
    try:
        timestamp = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise ValueError(f"expected {EXAMPLE}, found {text!r:.80}") from None
    if timestamp.year >= LAST_YEAR:
        raise ValueError(f"expected {EXAMPLE}, found {text!r:.80}")
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)


def format_timestamp(time: datetime | float) -> str:
    """To the second, rounded down. A number is seconds since 1970, cut to the years 1 to 9999."""
    seconds = to_seconds(time) if isinstance(time, datetime) else time
    timestamp = datetime.fromtimestamp(min(max(seconds, _FIRST_S), _LAST_S), UTC)
    return timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").zfill(20)  # Linux writes the year 1 with one digit


def format_micro_time(seconds: float) -> str:
    """To the microsecond, as Kubernetes writes events and leases."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_seconds(seconds: float) -> datetime:
    """Rounded to milliseconds, so that a timestamp is the same after it was written and read."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def to_seconds(timestamp: datetime | None) -> float:
    """Seconds since 1970, 0 for None. A time without a time zone is UTC."""
    if timestamp is None:
        return 0.0
    return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).timestamp()
