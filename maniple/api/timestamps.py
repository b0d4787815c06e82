"""Moments in annotations, written as Kubernetes writes them: 2026-01-31T12:00:00Z."""

from datetime import UTC, datetime

import msgspec

A_MOMENT = "a time such as 2026-01-31T12:00:00Z"
LAST_YEAR = 9999  # in it, a second more, or another time zone, is a time that cannot be written


def read_moment(text: str) -> datetime:
    """With its time zone; ValueError if it is none, or too far away to be written."""
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise ValueError(f"expected {A_MOMENT}, found {text!r:.80}") from None
    if moment.year >= LAST_YEAR:
        raise ValueError(f"expected {A_MOMENT}, found {text!r:.80}")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
