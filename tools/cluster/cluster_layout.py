"""The spec of a cluster, and the folder that holds all of its files.

A folder is locked while any process of its cluster lives: an unlocked one is left over from a crash, and the next
command removes it. Two clusters can never share a folder.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tools.cluster import cgroups
from tools.cluster.certificates import Certificates

RUN_VARIABLE = "MANIPLE_CLUSTER_RUN"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
MEMORY_FOLDER = Path("/dev/shm")
MEMORY_NEEDED_BYTES = 2 << 30


class ClusterError(Exception):
    """A problem with a cluster that the user can solve."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` was asked for. Feature gates and runtime config are written as Kubernetes' flags take them."""

    name: str
    nodes: int = 0
    gpus: int = 8
    node_template: str = ""
    real_node: bool = False
    kube_scheduler: bool = False
    feature_gates: str = ""
    runtime_config: str = ""
    # The cluster stops when this process ends: a test run's, so that a killed run leaves nothing.
    owner_pid: int = 0
    ports: dict[str, int] = {}
    cgroup: str = ""

    @property
    def has_kwok(self) -> bool:
        """Simulated nodes can be created at any time, unless only the real one was requested."""
        return self.nodes > 0 or not self.real_node

    @property
    def real_node_name(self) -> str:
        return f"{self.name}-real" if self.real_node else ""


@dataclass(frozen=True)
class Layout:
    """Where things are in a cluster's folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def spec_path(self) -> Path:
        return self.folder / "spec.json"

    @property
    def spec(self) -> Spec:
        return msgspec.json.decode(self.spec_path.read_bytes(), type=Spec)

    @property
    def certificates(self) -> Certificates:
        return Certificates(self.folder / "certificates")

    @property
    def control_socket(self) -> Path:
        return self.folder / "control"

    @property
    def ready_mark(self) -> Path:
        """Exists once the whole cluster is up."""
        return self.folder / "ready"

    @property
    def kubectl_cache(self) -> Path:
        """Kubectl would write into the user's home otherwise."""
        return self.folder / "kubectl-cache"

    def log(self, component: str) -> Path:
        return self.folder / "logs" / f"{component}.log"

    def data(self, component: str) -> Path:
        return self.folder / "data" / component

    def kubeconfig(self, user: str) -> Path:
        return self.folder / "users" / f"{user}.kubeconfig"

    def is_held(self) -> bool:
        """True while the folder is there and any process of the cluster lives."""
        with self.opened() as handle:
            return handle is not None and not can_lock(handle)

    @contextmanager
    def opened(self) -> Iterator[int | None]:
        """A handle to try the lock with, None if there is no such folder; it outlives the folder."""
        try:
            handle = os.open(self.folder, os.O_RDONLY)
        except FileNotFoundError:
            yield None
            return
        try:
            yield handle
        finally:
            os.close(handle)


def can_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def run_folder() -> Path:
    """The folder of all clusters of this user: in memory if there is enough, because etcd writes a lot.

    It does not move while there are clusters.
    """
    chosen = os.environ.get(RUN_VARIABLE)
    if chosen:
        return Path(chosen).resolve()
    name = f"maniple-cluster-{os.getuid()}"
    in_memory, on_disk = MEMORY_FOLDER / name, Path(tempfile.gettempdir()) / name
    if in_memory.exists() or on_disk.exists():
        return in_memory if in_memory.exists() else on_disk
    has_room = os.access(MEMORY_FOLDER, os.W_OK) and shutil.disk_usage(MEMORY_FOLDER).free >= MEMORY_NEEDED_BYTES
    return in_memory if has_room else on_disk


def layout_of(name: str) -> Layout:
    if not NAME.fullmatch(name):
        raise ClusterError(f"cluster name {name!r}: use up to 40 small letters, digits and hyphens")
    return Layout(run_folder() / name)


def all_layouts() -> list[Layout]:
    """The layouts of all clusters that are up or starting, without those whose folder is just being created."""
    return [layout for layout in _all_folders() if layout.spec_path.exists()]


def _all_folders() -> list[Layout]:
    folder = run_folder()
    return [Layout(path) for path in sorted(folder.iterdir()) if path.is_dir()] if folder.exists() else []


@contextmanager
def only_one_at_a_time() -> Iterator[None]:
    """While this is held, no other process creates or removes a cluster's folder or chooses ports."""
    while True:
        run_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(run_folder(), os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_still(run_folder(), handle):
            break
        os.close(handle)
    try:
        yield
    finally:
        with_nothing_left = not any(run_folder().iterdir())
        if with_nothing_left:
            run_folder().rmdir()
        os.close(handle)


def _is_still(path: Path, handle: int) -> bool:
    """False if the folder was removed, and perhaps created again, while we waited for its lock."""
    try:
        return os.stat(path).st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def create(layout: Layout, spec: Spec) -> int:
    """Creates the folder and returns the handle that holds its lock. Call it with `only_one_at_a_time`."""
    layout.folder.mkdir(mode=0o700)
    handle = os.open(layout.folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    for name in ("logs", "data", "users"):
        (layout.folder / name).mkdir()
    unfinished = layout.spec_path.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.encode(spec))
    unfinished.rename(layout.spec_path)
    return handle


def remove(layout: Layout) -> None:
    """Removes what a cluster leaves outside its namespaces: its control groups and its folder."""
    if layout.spec_path.exists() and layout.spec.cgroup:
        cgroups.remove(layout.spec.cgroup)
    shutil.rmtree(layout.folder)


def remove_leftovers() -> list[str]:
    """Removes every cluster without a process. Returns their names. Call it with `only_one_at_a_time`."""
    left = [layout for layout in _all_folders() if not layout.is_held()]
    for layout in left:
        remove(layout)
    return [layout.name for layout in left]
