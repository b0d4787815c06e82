"""Ages, counts and amounts as people read them."""

from datetime import datetime

from maniple.api.timestamps import parse_timestamp


def age(since: str | datetime | None, now: datetime) -> str:
    """`45s`, `12m`, `3h20m`, `5d`, as kubectl writes it; `-` for none."""
    if not since:
        return "-"
    start = parse_timestamp(since) if isinstance(since, str) else since
    seconds = max(0, int((now - start).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 24:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours // 24}d"


def counted(amount: int, noun: str) -> str:
    """`1 replica`, `2 replicas`"""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def number(value: float) -> str:
    """`4`, `0.25`"""
    return f"{value:.2f}".rstrip("0").rstrip(".")
