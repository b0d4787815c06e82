"""The programs that a cluster and its tests need, their versions, and where the built ones are kept.

The cache is outside the tree and keyed by version, so that every checkout on a machine shares it and a new version
never meets an old binary. Nothing here builds or runs anything.
"""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "MANIPLE_CLUSTER_CACHE"


@dataclass(frozen=True)
class Source:
    """A Go module that programs are built from."""

    name: str
    module: str
    version: str

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.version.removeprefix('v')}"


@dataclass(frozen=True)
class Program:
    """One binary; `build_s` is what it took on two cores, after those above it in PROGRAMS."""

    name: str
    source: Source
    package: str
    build_s: int


KUBERNETES = Source("kubernetes", "k8s.io/kubernetes", "v1.37.1")
KWOK = Source("kwok", "sigs.k8s.io/kwok", "v0.8.0")
CNI = Source("cni", "github.com/containernetworking/plugins", "v1.9.1")
HELM = Source("helm", "helm.sh/helm/v3", "v3.22.0")

# In the order in which tests need them: an interrupted build has built the most useful ones.
PROGRAMS = (
    Program("etcd", KUBERNETES, "go.etcd.io/etcd/server/v3", 60),
    Program("kube-apiserver", KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver", 360),
    Program("kube-controller-manager", KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager", 100),
    Program("kubectl", KUBERNETES, "k8s.io/kubernetes/cmd/kubectl", 25),
    Program("kwok", KWOK, "sigs.k8s.io/kwok/cmd/kwok", 120),
    Program("kube-scheduler", KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler", 20),
    Program("kubelet", KUBERNETES, "k8s.io/kubernetes/cmd/kubelet", 60),
    Program("ptp", CNI, "github.com/containernetworking/plugins/plugins/main/ptp", 8),
    Program("loopback", CNI, "github.com/containernetworking/plugins/plugins/main/loopback", 2),
    Program("host-local", CNI, "github.com/containernetworking/plugins/plugins/ipam/host-local", 2),
    Program("helm", HELM, "helm.sh/helm/v3/cmd/helm", 150),
)
BY_NAME = {program.name: program for program in PROGRAMS}
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
REAL_NODE = ("kubelet", "ptp", "loopback", "host-local")


def cache_folder() -> Path:
    """Where what was built is kept: `$MANIPLE_CLUSTER_CACHE`, or `maniple/cluster` in the user's cache."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).resolve()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "maniple" / "cluster" / f"{platform.system().lower()}-{platform.machine()}"


def source_folder(source: Source) -> Path:
    return cache_folder() / source.folder


def program_path(name: str) -> Path:
    """Where the program is once it is built."""
    return source_folder(BY_NAME[name].source) / name


def missing_programs(names: tuple[str, ...]) -> list[Program]:
    return [program for program in PROGRAMS if program.name in names and not program_path(program.name).exists()]
