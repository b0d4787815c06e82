"""A log that is followed through connections that end anywhere, cleanly or not: each line once, none left out."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from maniple.api.errors import InputError
from maniple.kube.transport.client import ApiError, UnansweredError
from maniple.kube.user.job_logs import Choice, _Log
from maniple.kube.user.replica_pod import read_replica_pod

# Where an answer ends (a byte of the log), and how: as if all were said, broken, or refused.
ENDS = st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["clean", "broken", "refused"])), max_size=8)
TEXTS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=12), max_size=12)


class Log:
    """What the kubelet has of one pod, and how its answers end. Times are asked for by the second, as it takes them.

    `after`: what becomes of the pod when all was sent. It has ended, and its container may be removed; or it is
    deleted, and another may be in its place.
    """

    def __init__(self, texts: list[str], ends: list[tuple[int, str]], last_is_half: bool, after: str) -> None:
        self._lines = [(f"2026-01-01T00:00:{i // 5:02}.{i:09}Z", text) for i, text in enumerate(texts)]
        self._ends = list(ends)
        self._newline = "" if last_is_half else "\n"
        self._after = after
        self._is_all_sent = False
        self.client = self

    @asynccontextmanager
    async def stream(self, _: str, query: Mapping[str, str], __: float) -> AsyncIterator[AsyncIterator[bytes]]:
        since = query.get("sinceTime", "")[:19]
        left = [f"{time} {text}" for time, text in self._lines if time[:19] >= since]
        whole = ("\n".join(left) + self._newline).encode() if left else b""
        at, how = self._ends.pop(0) if self._ends else (len(whole), "clean")
        if how == "refused":
            raise ApiError(403, "Forbidden", "no rights are known yet")
        if self._is_all_sent:
            whole = self._afterwards(whole)
        self._is_all_sent = not self._ends and at >= len(whole)
        yield self._blocks(whole[:at], how)

    def _afterwards(self, whole: bytes) -> bytes:
        if self._after == "removed":
            raise ApiError(400, "BadRequest", "unable to retrieve container logs")
        words = b"unable to retrieve container logs for containerd://x"
        return {"replaced": b"2026-01-01T00:01:00.000000000Z of another\n", "words": words}.get(self._after, whole)

    async def _blocks(self, content: bytes, how: str) -> AsyncIterator[bytes]:
        for start in range(0, len(content), 7):
            yield content[start : start + 7]
        if how == "broken":
            raise UnansweredError("broken")

    async def get(self, _: str) -> bytes:
        if not self._is_all_sent:
            return pod("Running")
        if self._after == "deleted":
            raise ApiError(404, "NotFound", "gone")
        return pod("Running", uid="v") if self._after == "replaced" else pod("Succeeded")


def pod(phase: str, uid: str = "u") -> bytes:
    meta = {"name": "bert-worker-0", "namespace": "ns", "uid": uid}
    labels = {"maniple.dev/job": "bert", "maniple.dev/role": "worker", "maniple.dev/index": "0"}
    spec = {"containers": [{"name": "main", "image": "train"}], "nodeName": "n"}
    return json.dumps({"metadata": meta | {"labels": labels}, "spec": spec, "status": {"phase": phase}}).encode()


def followed(log: Any) -> list[str]:
    replica = read_replica_pod(msgspec.Raw(pod("Running")))
    assert replica is not None
    taken: list[str] = []
    choice = Choice(is_chosen=lambda _: True)
    asyncio.run(_Log(log, replica, choice, lambda _, text: taken.append(text)).follow())
    return taken


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maniple.kube.transport.client.Backoff.pause_s", counted)


def counted(backoff: Any, _: float = 0.0) -> float:
    backoff.failures += 1
    return 0.0


@given(TEXTS, ENDS, st.booleans(), st.sampled_from(["ended", "removed", "words", "deleted", "replaced"]))
@example(["one", "two"], [(45, "clean")], False, "ended")
@example(["one", "two"], [(99, "broken")], True, "words")
@example(["one", "two"], [(99, "broken")], False, "removed")
@example(["one", "two"], [(45, "clean"), (0, "refused")], True, "deleted")
@settings(deadline=None, max_examples=300)
def test_every_line_is_taken_once_wherever_answers_end_and_nothing_else(
    texts: list[str], ends: list[tuple[int, str]], last_is_half: bool, after: str
) -> None:
    """No words of the kubelet's own, and none of another pod of the same name."""
    assume([how for _, how in ends].count("refused") <= 5)
    # Before it is refused it was allowed.
    assert followed(Log(texts, [(0, "clean"), *ends], last_is_half, after)) == texts


@pytest.mark.parametrize("how", ["clean", "broken"])
def test_refusals_count_from_when_it_was_last_allowed(how: str) -> None:
    ends = [(0, "clean"), *[(0, "refused"), (0, how)] * 20]
    assert followed(Log(["one"], ends, False, "ended")) == ["one"]


def test_a_log_that_was_never_allowed_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="bert-worker-0: you may not do this"):
        followed(Log(["one"], [(0, "refused")], False, "ended"))


def test_a_log_that_is_allowed_no_more_is_refused_in_the_end() -> None:
    with pytest.raises(InputError, match="you may not do this"):
        followed(Log(["one"], [(10, "clean"), *[(0, "refused")] * 9], False, "ended"))
