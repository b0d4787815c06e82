"""Counts and sets by key that are kept up to date. A key that counts nothing is not kept."""

from collections.abc import Hashable
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Member = TypeVar("_Member", bound=Hashable)


def count_up(counts: dict[_Key, int], key: _Key) -> None:
    counts[key] = counts.get(key, 0) + 1


def count_down(counts: dict[_Key, int], key: _Key) -> bool:
    """Whether that was the last one."""
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True


def discard(members: dict[_Key, set[_Member]], key: _Key, member: _Member) -> None:
    members[key].discard(member)
    if not members[key]:
        del members[key]
