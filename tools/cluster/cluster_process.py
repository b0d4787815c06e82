"""The process that runs a cluster: starts the components in order, then waits for requests to stop, kill or start one.

It ends on request, when its owner ends, or when a component does not start, and then removes everything, including
the cluster's folder. If it is killed, the system ends its children, and the next command removes the folder.
Run as `python -m tools.cluster.cluster_process FOLDER LOCK REPORT`, the last two being open file handles.
"""

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from tools.cluster import cluster_layout as folders
from tools.cluster import component_commands, host_network, kwok, real_node
from tools.cluster.client import Client
from tools.cluster.cluster_layout import ClusterError, Layout
from tools.cluster.process_keeper import Keeper

COME_UP_S = 180.0


class Stop(BaseException):
    """Raised at any point of the runner when it must end."""


class Runner:
    def __init__(self, layout: Layout, lock: int, report: int) -> None:
        self._layout = layout
        self._spec = layout.spec
        self._report = report
        self._keeper = Keeper(layout, lock)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(layout.control_socket))
        self._listener.listen(16)
        self._watched: list[Any] = [self._listener]
        if self._spec.owner_pid and not self._spec.real_node:
            self._watched.append(os.pidfd_open(self._spec.owner_pid))
        self._client = Client(layout, component_commands.server_port(self._spec))

    def run(self) -> None:
        """Until the end, whatever ends it."""
        try:
            self._bring_up()
            self._layout.ready_mark.touch()
            report(self._report, "ready")
            while True:
                self._attend(1.0)
        except Stop:
            pass
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._client.close()
            self._keeper.stop_all()

    def _bring_up(self) -> None:
        etcd, apiserver, *others = component_commands.control_plane(self._layout, self._spec)
        self._keeper.add(etcd)
        self._keeper.add(apiserver)
        self._wait("the API server", self._client.is_ready)
        # The controller manager gives up after ten seconds without an API server: started when there is one.
        for component in others:
            self._keeper.add(component)
        if self._spec.has_kwok:
            self._create("/apis/rbac.authorization.k8s.io/v1/clusterroles", [kwok.ROLE])
            self._create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", [kwok.ROLE_BINDING])
            self._keeper.add(component_commands.kwok(self._layout, self._spec, kwok.write_config(self._layout)))
        if self._spec.real_node:
            self._create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", [real_node.LOGS_AND_EXEC])
            self._start_real_node()
        self._create("/api/v1/nodes", kwok.nodes(self._spec.nodes, self._spec.gpus, self._spec.node_template))
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait("the default service account", lambda: self._client.exists(account))
        wanted = self._spec.nodes + (1 if self._spec.real_node else 0)
        self._wait(f"{wanted} ready nodes", lambda: self._ready_nodes() >= wanted, every_s=0.1 + wanted / 1000)

    def _start_real_node(self) -> None:
        self._keeper.add(real_node.containerd(self._layout))
        self._wait("containerd", real_node.containerd_answers)
        real_node.import_images(self._layout)
        self._keeper.add(real_node.kubelet(self._layout, self._spec))

    def _create(self, path: str, objects: list[dict[str, Any]]) -> None:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda body: self._client.post(path, body), objects))

    def _ready_nodes(self) -> int:
        return sum(map(kwok.is_ready, self._client.get("/api/v1/nodes?resourceVersion=0")["items"]))

    def _wait(self, what: str, condition: Callable[[], bool], every_s: float = 0.05) -> None:
        deadline = time.monotonic() + COME_UP_S
        while not condition():
            self._keeper.check()
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {COME_UP_S:.0f} s for {what}")
            self._attend(every_s)

    def _attend(self, timeout_s: float) -> None:
        """Answers requests that come within this time."""
        readable, _, _ = select.select(self._watched, [], [], timeout_s)
        self._keeper.reap()
        for each in readable:
            if each is not self._listener:
                raise Stop
            connection, _ = self._listener.accept()
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        request: dict[str, Any] = {}
        with suppress(OSError):
            connection.settimeout(5)
            request = json.loads(connection.makefile().readline() or "{}")
            try:
                answer: dict[str, Any] = {"ok": self._do(request)}
            except ClusterError as error:
                answer = {"error": str(error)}
            connection.sendall(json.dumps(answer).encode() + b"\n")
        if request.get("do") == "stop":
            raise Stop

    def _do(self, request: dict[str, Any]) -> Any:
        match request:
            case {"do": "status"}:
                return self._keeper.status()
            case {"do": "start", "component": name}:
                return self._keeper.start(name)
            case {"do": "signal", "component": name, "number": number}:
                return self._keeper.signal(name, number)
            case {"do": "import", "path": path, "image": name} if self._spec.real_node:
                return real_node.import_image(Path(path), name)
            case {"do": "stop"}:
                return None
        raise ClusterError(f"unknown request {request}")


def report(handle: int, line: str) -> None:
    """Reports to the process that waits for the cluster, if there is one."""
    with suppress(OSError):
        os.write(handle, line.encode() + b"\n")


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise Stop


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    layout = Layout(Path(arguments[0]))
    lock, report_handle = int(arguments[1]), int(arguments[2])
    is_inside = arguments[3:] == ["inside"]
    try:
        if is_inside:
            real_node.prepare_namespaces()
        if is_inside or not layout.spec.real_node:
            Runner(layout, lock, report_handle).run()
        else:
            host_network.run(layout, lock, report_handle, Stop)
    except Exception as error:
        report(report_handle, f"failed: {error}")
        raise
    finally:
        if not is_inside:
            with folders.only_one_at_a_time():
                folders.remove(layout)


if __name__ == "__main__":
    main(sys.argv[1:])
