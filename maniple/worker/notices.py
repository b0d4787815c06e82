"""A notice: one generation of a job, its members in the order of their ranks, and what follows for one replica.

The endpoint, the file of the downward API and the file that the agent writes for its workers all hold the same JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """One pod of a generation; `slots` is how many ranks it has."""

    pod: str
    uid: str
    role: str
    index: int
    address: str
    slots: int


@dataclass(frozen=True)
class Notice:
    """What the controller says. Ranks follow the order of members; the first one's pod is where all others meet."""

    job: str
    generation: int
    members: tuple[Member, ...]
    port: int
    grace_s: float
    stop: bool
    text: str

    @property
    def size(self) -> int:
        """The number of ranks of all members together: WORLD_SIZE."""
        return sum(member.slots for member in self.members)

    @property
    def address(self) -> str:
        """Where rank 0 is: MASTER_ADDR."""
        return self.members[0].address if self.members else ""

    def place_of(self, pod: str, uid: str) -> int | None:
        """Where among the members this pod is; None: it is to leave. A pod made anew has its name, but another uid."""
        for place, member in enumerate(self.members):
            if member.pod == pod and member.uid in {"", uid}:
                return place
        return None

    def first_rank(self, place: int) -> int:
        """The rank of the first process of that member."""
        return sum(member.slots for member in self.members[:place])


class NoticeError(ValueError):
    """What was read is no notice."""


def parse(text: str) -> Notice:
    """Reads one; unknown fields are left alone, as the controller may be newer than the pod."""
    try:
        raw = json.loads(text)
        members = tuple(
            Member(
                pod=str(member["pod"]),
                uid=str(member.get("uid") or ""),
                role=str(member.get("role", "")),
                index=int(member.get("index", 0)),
                address=str(member["address"]),
                slots=int(member.get("slots", 1)),
            )
            for member in raw["members"]
        )
        return Notice(
            job=str(raw.get("job", "")),
            generation=int(raw["generation"]),
            members=members,
            port=int(raw.get("port", 0)),
            grace_s=float(raw.get("graceSeconds", 30)),
            stop=bool(raw.get("stop", False)),
            text=text,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoticeError(f"not a notice: {error!r} in {text[:200]!r}") from error


def alone(pod: str, slots: int, port: int) -> Notice:
    """The notice of somebody who runs without Maniple: generation 0, one member, this machine."""
    member = {"pod": pod, "address": "127.0.0.1", "slots": slots}
    return parse(json.dumps({"generation": 0, "members": [member], "port": port}))


def environment(notice: Notice, place: int, local_rank: int) -> dict[str, str]:
    """What a worker process reads: the names that torch's `env://` and most other frameworks know."""
    mine = notice.members[place]
    return {
        "RANK": str(notice.first_rank(place) + local_rank),
        "WORLD_SIZE": str(notice.size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(mine.slots),
        "NODE_RANK": str(place),
        "GROUP_RANK": str(place),
        "MASTER_ADDR": notice.address,
        "MASTER_PORT": str(notice.port),
        "MANIPLE_GENERATION": str(notice.generation),
        "MANIPLE_REPLICA_COUNT": str(len(notice.members)),
    }


class NoticeFile:
    """The newest notice in a file that somebody else replaces; asking costs one look at its time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._notice: Notice | None = None

    def read(self) -> Notice | None:
        """The newest readable one; a file that is being replaced, or broken, leaves what was read before."""
        try:
            found = os.stat(self.path)
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                with open(self.path, encoding="utf-8") as file:
                    text = file.read()
                self._notice = parse(text) if text.strip() else None
                self._seen = seen
        except (OSError, NoticeError, UnicodeDecodeError):
            pass
        return self._notice
