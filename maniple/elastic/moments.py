"""Seconds, in which the machine counts, and moments, as statuses have them."""

from datetime import UTC, datetime


def moment(seconds: float) -> datetime:
    """To the millisecond, so that what was written reads as it was."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def seconds(moment: datetime) -> float:
    return moment.timestamp()
