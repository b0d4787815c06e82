"""Timestamps as Kubernetes writes them (2026-01-31T12:00:00Z), and the seconds that decisions count in."""

from datetime import UTC, datetime

import msgspec

EXAMPLE = "a time such as 2026-01-31T12:00:00Z"
LAST_YEAR = 9999  # adding a second or a time zone to a time in this year may give one that cannot be written


def parse_timestamp(text: str) -> datetime:
    """With its time zone. Raises ValueError if the text is no timestamp, or its year is LAST_YEAR or later."""
    try:
        timestamp = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise ValueError(f"expected {EXAMPLE}, found {text!r:.80}") from None
    if timestamp.year >= LAST_YEAR:
        raise ValueError(f"expected {EXAMPLE}, found {text!r:.80}")
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)


def format_timestamp(time: datetime | float) -> str:
    """To the second, rounded down. A number is seconds since 1970."""
    timestamp = time.astimezone(UTC) if isinstance(time, datetime) else datetime.fromtimestamp(time, UTC)
    return timestamp.strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """To the microsecond, as Kubernetes writes events and leases."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_seconds(seconds: float) -> datetime:
    """To the millisecond, so that a timestamp reads back as it was written."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def to_seconds(timestamp: datetime | None) -> float:
    """Seconds since 1970; 0 for none. Without a time zone it is UTC."""
    if timestamp is None:
        return 0.0
    return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).timestamp()
