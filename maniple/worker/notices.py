"""Notices: one generation of a job with its members in the order of their ranks.

The endpoint, the file of the downward API and the file that the agent writes for its workers hold the same JSON.
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
    """What the controller publishes. Ranks follow the order of members; all ranks connect to the first member."""

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
        """The address of rank 0: MASTER_ADDR."""
        return self.members[0].address if self.members else ""

    def position(self, pod: str, uid: str) -> int | None:
        """The pod's position among the members. None: it leaves the job. A successor has its name but another uid."""
        for position, member in enumerate(self.members):
            if member.pod == pod and member.uid in {"", uid}:
                return position
        return None

    def first_rank(self, position: int) -> int:
        """The rank of the first process of the member at this position."""
        return sum(member.slots for member in self.members[:position])


class NoticeError(ValueError):
    """The text is not a notice."""


def parse(text: str) -> Notice:
    """Unknown fields are ignored: the controller may be newer than the pod."""
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


def local_notice(pod: str, slots: int, port: int) -> Notice:
    """A notice for workers outside of a cluster: generation 0, one member, this machine."""
    member = {"pod": pod, "address": "127.0.0.1", "slots": slots}
    return parse(json.dumps({"generation": 0, "members": [member], "port": port}))


def environment(notice: Notice, position: int, local_rank: int) -> dict[str, str]:
    """The environment of a worker process: the variables of torch's `env://` and most other frameworks."""
    member = notice.members[position]
    return {
        "RANK": str(notice.first_rank(position) + local_rank),
        "WORLD_SIZE": str(notice.size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(member.slots),
        "NODE_RANK": str(position),
        "GROUP_RANK": str(position),
        "MASTER_ADDR": notice.address,
        "MASTER_PORT": str(notice.port),
        "MANIPLE_GENERATION": str(notice.generation),
        "MANIPLE_REPLICA_COUNT": str(len(notice.members)),
    }


class NoticeFile:
    """The newest notice in a file that another process replaces. Costs one `stat` if the file is unchanged."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._version: tuple[int, int, int] | None = None
        self._notice: Notice | None = None

    def read(self) -> Notice | None:
        """The last notice that could be read: a missing or broken file changes nothing."""
        try:
            stat = os.stat(self.path)
            version = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if version != self._version:
                with open(self.path, encoding="utf-8") as file:
                    text = file.read()
                self._notice = parse(text) if text.strip() else None
                self._version = version
        except (OSError, NoticeError, UnicodeDecodeError):
            pass
        return self._notice
