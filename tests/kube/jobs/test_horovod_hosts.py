"""Horovod's hosts: the script that the ConfigMap holds, run as horovodrun runs it, and who writes them when."""

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maniple.api import types
from maniple.elastic.job_spec import JobSpec, read_job_spec
from maniple.kube.jobs import manifests
from maniple.kube.jobs.executor import Executor

# What Horovod 0.28.1 reads: it splits at the colon, so there is one; the same host twice would be one host.
LINE = re.compile(r"[^:\s]+:[1-9][0-9]*")


def job() -> JobSpec:
    def role(name: str, limits: dict[str, int], size: int) -> dict[str, Any]:
        container = {"name": "main", "resources": {"limits": limits}}
        return {"name": name, "min": size, "max": 4, "template": {"spec": {"containers": [container]}}}

    roles = [role("launcher", {}, 1), role("worker", {"nvidia.com/gpu": 2}, 2)]
    body = {
        "metadata": {"name": "bert", "namespace": "ns", "uid": "12345678-9"},
        "spec": {"framework": "horovod", "roles": roles},
    }
    return read_job_spec(msgspec.convert(body, types.ElasticJob))


def generation(number: int, *workers: int) -> types.JobGeneration:
    """Of the launcher and these; their uids are of this number."""
    launcher = types.GenerationMember("bert-launcher-0", f"launcher-{number}", "launcher", 0, "10.0.0.1", 1)
    members = [
        types.GenerationMember(f"bert-worker-{one}", f"worker-{one}", "worker", one, f"10.0.1.{one}", 2)
        for one in workers
    ]
    return types.JobGeneration(number, (launcher, *members))


class Mount:
    """The ConfigMap as the kubelet mounts it: all files change at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asking: list[subprocess.Popen[str]] = []

    def write(self, of: types.JobGeneration) -> None:
        made = self._folder / f"..{time.monotonic_ns()}"
        made.mkdir()
        for name, text in manifests.hosts(job(), of)["data"].items():
            (made / name).write_text(text)
            (made / name).chmod(0o755)
            if not (link := self._folder / name).is_symlink():
                link.symlink_to(f"..data/{name}")
        new = self._folder / "..new"
        new.symlink_to(made.name)
        new.rename(self._folder / "..data")

    def ask(self, uid: str) -> "subprocess.Popen[str]":
        """As the replica with this uid; from another folder, by the whole path, as Horovod does."""
        environment = {**os.environ, "MANIPLE_POD_UID": uid}
        script = str(self._folder / "discover_hosts.sh")
        asking = subprocess.Popen(
            script, shell=True, cwd="/", env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._asking.append(asking)
        return asking

    def answer(self, uid: str) -> list[str]:
        asking = self.ask(uid)
        text, _ = asking.communicate(timeout=30)
        assert asking.returncode == 0  # else Horovod takes it for an error; the first time it gives up
        return text.splitlines()

    def close(self) -> None:
        for one in self._asking:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, 9)
            one.communicate()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    made = Mount(tmp_path)
    yield made
    made.close()


def test_each_host_is_a_line_with_its_slots_and_the_launcher_is_none(mount: Mount) -> None:
    mount.write(generation(1, 0, 1, 2))
    found = mount.answer("launcher-1")
    assert found == ["10.0.1.0:2", "10.0.1.1:2", "10.0.1.2:2"]
    assert all(LINE.fullmatch(line) for line in found)
    mount.write(generation(1, 0, 2))
    assert mount.answer("launcher-1") == ["10.0.1.0:2", "10.0.1.2:2"]


def test_there_is_no_answer_before_the_replica_takes_part(mount: Mount) -> None:
    mount.write(types.JobGeneration())
    asking = mount.ask("launcher-2")
    with pytest.raises(subprocess.TimeoutExpired):
        asking.wait(timeout=0.5)
    mount.write(generation(1, 0, 1))  # who took part before the job started over
    with pytest.raises(subprocess.TimeoutExpired):
        asking.wait(timeout=1.5)
    mount.write(generation(2, 3))
    assert asking.communicate(timeout=30)[0] == "10.0.1.3:2\n"


def test_who_takes_part_alone_is_told_so_at_once(mount: Mount) -> None:
    """Horovod 0.28.1 reads nothing as no hosts. It cannot be ended while it waits for an answer."""
    mount.write(generation(1))
    assert mount.answer("launcher-1") == []


def test_a_job_that_stops_keeps_its_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """horovodrun waits for hosts when there are none any more, and does not end when it is told to."""
    wrote: list[types.JobGeneration] = []

    async def write(_: JobSpec, given: types.JobGeneration) -> None:
        wrote.append(given)

    hands = object.__new__(Executor)
    hands.agents = None
    monkeypatch.setattr(hands, "_write_hosts", write)
    for of in (generation(1, 0, 1), types.JobGeneration(2, stop=True)):
        asyncio.run(hands.publish(job(), of, {}))
    assert [one.number for one in wrote] == [1]
