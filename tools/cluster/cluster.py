"""A cluster as tests and the command line use it: up, down, kubeconfigs of users, killing components."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tools.cluster import build, cgroups, component_commands, kubeconfig, kwok, pytorch, real_node
from tools.cluster import cluster_layout as folders
from tools.cluster.certificates import NODE_ADDRESS
from tools.cluster.client import PATIENCE_S, ApiError, Client, is_free, wait_until
from tools.cluster.cluster_layout import ClusterError, Layout, Spec
from tools.cluster.component_commands import PORTS
from tools.cluster.go_build import Say
from tools.cluster.program_versions import CONTROL_PLANE, REAL_NODE, cache_folder, program_path

ROOT = Path(__file__).resolve().parent.parent.parent
# Below what the system hands out for outgoing connections, so that a killed component finds its port free again.
PORT_RANGE = range(20000, 32000)
UP_S = 240.0
DOWN_S = PATIENCE_S
END_S = 10.0
IMPORT_S = 300.0


def silent(_line: str) -> None:
    """Says nothing."""


class Cluster:
    """A running cluster. `up` makes one, `attach` finds one that is up."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.spec = layout.spec
        self.name = layout.name

    @classmethod
    def up(cls, spec: Spec, say: Say = silent) -> "Cluster":
        """Builds what is missing, starts a cluster and waits until it is ready; it runs until `down`."""
        layout = folders.layout_of(spec.name)
        _check_real_node(spec)
        build.ensure(say, programs_for(spec), with_packages=spec.real_node)
        kwok.nodes(spec.nodes, spec.gpus, spec.node_template)
        started = time.monotonic()
        lock = _claim(layout, spec, say)
        try:
            _write_identities(layout, layout.spec)
            report = _start_runner(layout, lock)
        finally:
            os.close(lock)
        _wait_for_report(spec.name, report)
        say(f"cluster {spec.name} is up after {time.monotonic() - started:.1f} s")
        return cls(layout)

    @classmethod
    def attach(cls, name: str, timeout_s: float = UP_S) -> "Cluster":
        """A cluster that is up or coming up, perhaps started by another process."""
        layout = folders.layout_of(name)
        deadline = time.monotonic() + timeout_s
        while not layout.ready_mark.exists():
            if not layout.is_held():
                raise ClusterError(f"there is no cluster {name}: `python -m tools.cluster up --name {name}` makes one")
            if time.monotonic() > deadline:
                raise ClusterError(f"cluster {name} did not come up in {timeout_s:.0f} s")
            time.sleep(0.05)
        return cls(layout)

    @classmethod
    def up_or_attach(cls, spec: Spec, say: Say = silent) -> "Cluster":
        """For several processes that share a cluster: the first starts it, the others wait for it."""
        try:
            return cls.attach(spec.name)
        except ClusterError:
            pass
        try:
            return cls.up(spec, say)
        except ClusterError:
            if not folders.layout_of(spec.name).is_held():
                raise
            return cls.attach(spec.name)

    def down(self) -> None:
        """Stops everything and waits until nothing is left."""
        with self.layout.opened() as handle:
            if handle is None:
                return
            with suppress(ClusterError):
                self._ask({"do": "stop"})
            wait_until(f"cluster {self.name} to end", lambda: folders.can_lock(handle), DOWN_S)
        with folders.only_one_at_a_time():
            folders.remove_leftovers()

    # Who talks to it.

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.spec.ports['apiserver']}"

    def kubeconfig(self, user: str = "admin", groups: list[str] | None = None) -> Path:
        """The kubeconfig of a user; one other than `admin` gets a certificate and only the rights that RBAC grants."""
        if user == "admin":
            return self.layout.kubeconfig("admin")
        name = kubeconfig.user_file_name(user, groups or [])
        with kubeconfig.only_one_at_a_time(self.layout):
            if not self.layout.kubeconfig(name).exists():
                self.layout.certificates.issue(name, user, groups)
                kubeconfig.write(self.layout, name, self.spec.ports["apiserver"])
        return self.layout.kubeconfig(name)

    def service_account_kubeconfig(self, namespace: str, name: str, hours: int = 24) -> Path:
        """The kubeconfig of a service account, with a new token: exactly the rights of a pod with this account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        with self.client() as client:
            answer = client.post(path, request | {"spec": {"expirationSeconds": hours * 3600}})
        file_name = f"account-{namespace}-{name}"
        kubeconfig.write(self.layout, file_name, self.spec.ports["apiserver"], token=answer["status"]["token"])
        return self.layout.kubeconfig(file_name)

    def client(self, user: str = "admin", groups: list[str] | None = None) -> Client:
        if user != "admin":
            self.kubeconfig(user, groups)
            user = kubeconfig.user_file_name(user, groups or [])
        return Client(self.layout, self.spec.ports["apiserver"], user)

    def kubectl(self, *arguments: str, user: str = "admin", text: str | None = None) -> str:
        """Runs kubectl and returns its output; raises with its error message."""
        command = [
            str(program_path("kubectl")),
            f"--kubeconfig={self.kubeconfig(user)}",
            f"--cache-dir={self.layout.kubectl_cache}",
            *arguments,
        ]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def create_namespace(self, name: str) -> None:
        """Creates a namespace and waits until pods can be created in it: they need its service account.

        It also waits for the ConfigMap that the cluster puts into every namespace.
        """
        with self.client() as client:
            client.post("/api/v1/namespaces", {"metadata": {"name": name}})
            for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
                whole = f"/api/v1/namespaces/{name}/{path}"
                wait_until(f"{path} of namespace {name}", lambda whole=whole: client.exists(whole))  # type: ignore[misc]

    def create_nodes(self, nodes: list[dict[str, Any]], timeout_s: float = PATIENCE_S) -> None:
        """Creates simulated nodes (`kwok.node` returns one) and waits until they are ready."""
        names = [each["metadata"]["name"] for each in nodes]
        with self.client() as client:
            for each in nodes:
                client.post("/api/v1/nodes", each)
            for name in names:
                path = f"/api/v1/nodes/{name}"
                wait_until(f"node {name} to be ready", lambda path=path: kwok.is_ready(client.get(path)), timeout_s)  # type: ignore[misc]

    def delete_nodes(self, names: list[str]) -> None:
        with self.client() as client:
            for name in names:
                with suppress(ApiError):
                    client.delete(f"/api/v1/nodes/{name}")

    # The real node.

    def import_torch(self) -> str:
        """Imports the PyTorch image into the real node. Returns its name, for pods with `imagePullPolicy: Never`."""
        self._ask({"do": "import", "path": str(pytorch.image()), "image": pytorch.IMAGE}, IMPORT_S)
        return pytorch.IMAGE

    @property
    def way_out(self) -> tuple[str, int]:
        """Where pods on the real node reach a server that listens on this port of the machine's loopback."""
        return NODE_ADDRESS, self.spec.ports["agents"]

    # Its parts.

    def status(self) -> dict[str, int | None]:
        """The process id of each component, None for those that do not run."""
        status: dict[str, int | None] = self._ask({"do": "status"})
        return status

    def kill(self, component: str, number: int = signal.SIGKILL) -> None:
        """Sends a component a signal; returns when it has ended. It stays down until `start`."""
        self._ask({"do": "signal", "component": component, "number": int(number)})

    def start(self, component: str) -> None:
        """Starts a component that was killed, on the data it had."""
        self._ask({"do": "start", "component": component})

    def restart(self, component: str, number: int = signal.SIGKILL) -> None:
        """Kills and starts a component, and waits until the API server is ready again."""
        self.kill(component, number)
        self.start(component)
        self.wait_until_ready()

    def wait_until_ready(self, timeout_s: float = PATIENCE_S) -> None:
        with self.client() as client:
            wait_until("the API server", client.is_ready, timeout_s)

    def log(self, component: str) -> str:
        return self.layout.log(component).read_text(errors="replace")

    def _ask(self, request: dict[str, Any], timeout_s: float = DOWN_S) -> Any:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(timeout_s)
            try:
                control.connect(str(self.layout.control_socket))
                control.sendall(json.dumps(request).encode() + b"\n")
                line = control.makefile().readline()
            except OSError as error:
                raise ClusterError(f"cluster {self.name} does not answer: {error}") from None
        answer = json.loads(line or '{"error": "it ended"}')
        if "error" in answer:
            raise ClusterError(f"cluster {self.name}: {answer['error']}")
        return answer["ok"]


def programs_for(spec: Spec) -> tuple[str, ...]:
    """The programs that such a cluster needs."""
    return (
        *CONTROL_PLANE,
        *(("kwok",) if spec.has_kwok else ()),
        *(("kube-scheduler",) if spec.kube_scheduler else ()),
        *(REAL_NODE if spec.real_node else ()),
    )


def clean_up() -> list[str]:
    """Removes what crashed clusters left; their names."""
    with folders.only_one_at_a_time():
        return folders.remove_leftovers()


def why_no_real_node() -> str:
    """Why a real node cannot run here, in one line; empty if it can."""
    if os.geteuid() != 0:
        return "a real node needs root, for namespaces, mounts and control groups"
    if not cgroups.can_be_made():
        return "a real node needs control groups that can be written"
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], check=False).returncode:
        return "a real node needs namespaces, which this machine does not allow"
    return ""


def _check_real_node(spec: Spec) -> None:
    if not spec.real_node:
        return
    reason = why_no_real_node()
    if reason:
        raise ClusterError(reason)
    for place in (cache_folder(), folders.run_folder(), ROOT, Path(sys.executable)):
        if any(place.is_relative_to(each) for each in real_node.HIDDEN):
            hidden = ", ".join(real_node.HIDDEN)
            raise ClusterError(f"a real node's namespaces hide {place}: use a place that is not below {hidden}")


def _claim(layout: Layout, spec: Spec, say: Say) -> int:
    """Makes the cluster's folder and returns the handle that holds its lock.

    It waits for a cluster of the same name that is just ending and still has its folder.
    """
    deadline = time.monotonic() + END_S
    while True:
        with folders.only_one_at_a_time():
            for name in folders.remove_leftovers():
                say(f"removed what was left of cluster {name}")
            if not layout.folder.exists():
                group = f"maniple-{spec.name}-{os.getpid()}" if spec.real_node else ""
                return folders.create(layout, msgspec.structs.replace(spec, ports=_free_ports(), cgroup=group))
        if _answers(layout) or time.monotonic() > deadline:
            raise ClusterError(f"cluster {spec.name} is up already: take another --name, or `down` it first")
        time.sleep(0.05)


def _answers(layout: Layout) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        try:
            control.connect(str(layout.control_socket))
        except OSError:
            return False
    return True


def _free_ports() -> dict[str, int]:
    """Ports that are free and not reserved by another cluster."""
    taken = {port for layout in folders.all_layouts() for port in layout.spec.ports.values()}
    ports: dict[str, int] = {}
    for name in PORTS:
        while True:
            port = random.choice(PORT_RANGE)
            if port not in taken and is_free(port):
                break
        taken.add(port)
        ports[name] = port
    return ports


def _write_identities(layout: Layout, spec: Spec) -> None:
    layout.certificates.issue_all(spec.real_node_name)
    for user in kubeconfig.COMPONENT_USERS:
        port = spec.ports["apiserver"] if user == "admin" else component_commands.server_port(spec)
        kubeconfig.write(layout, user, port)
    if spec.real_node:
        kubeconfig.write(layout, "kubelet", component_commands.server_port(spec))


def _start_runner(layout: Layout, lock: int) -> int:
    """Starts the process that runs the cluster; returns the handle on which it reports the outcome."""
    reader, writer = os.pipe()
    runner = [sys.executable, "-m", "tools.cluster.cluster_process", str(layout.folder), str(lock), str(writer)]
    with layout.log("runner").open("ab") as log:
        # Forked once more, so that it is nobody's child and leaves no zombie in a test run.
        subprocess.run(
            ["setsid", "--fork", *runner],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock, writer],
            check=True,
        )
    os.close(writer)
    return reader


def _wait_for_report(name: str, report: int) -> None:
    with os.fdopen(report) as lines:
        line = lines.readline().strip()
    if line != "ready":
        raise ClusterError(f"cluster {name} did not come up: {line.removeprefix('failed: ') or 'its runner ended'}")
