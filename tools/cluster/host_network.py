"""What a cluster with a real node needs outside its namespaces: its control group, and ways in and out of its network.

The cluster has its own network, which nothing on the machine can reach. A thread here listens on the machine's
loopback and connects inside, to the API server: a thread that has entered the network's namespace makes its sockets
there, while the socket it already listens on stays where it was made. The same the other way round for one port, where
pods reach a server that runs on the machine.
"""

import asyncio
import ctypes
import json
import os
import queue
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tools.cluster import cgroups
from tools.cluster.client import wait_until
from tools.cluster.cluster_layout import Layout
from tools.cluster.component_commands import PORT_FOR_PODS
from tools.cluster.process_keeper import STOP_S, dies_with

CLONE_NEWNET = 0x40000000
CHUNK_BYTES = 1 << 16
NAMESPACES = ("--mount", "--net", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc", "--propagation=private")


def run(layout: Layout, lock: int, report: int, stop: type[BaseException]) -> None:
    """Runs the cluster in its own namespaces until it ends, its owner ends, or `stop` is raised by a signal."""
    spec = layout.spec
    cgroups.create(spec.cgroup)
    listener = socket.create_server(("127.0.0.1", spec.ports["apiserver"]), backlog=128)
    inside = [
        sys.executable,
        "-m",
        "tools.cluster.cluster_process",
        str(layout.folder),
        str(lock),
        str(report),
        "inside",
    ]
    with layout.log("runner").open("ab") as log:
        process = subprocess.Popen(
            ["unshare", *NAMESPACES, *inside],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=dies_with(os.getpid()),  # noqa: PLW1509 - no other thread runs yet
            pass_fds=[lock, report],
        )
    try:
        _enter_when_there(process.pid, listener, spec.ports["agents"])
        _wait_for_the_end(process, spec.owner_pid)
    except stop:
        pass
    finally:
        _end(process, layout)
        listener.close()


def _wait_for_the_end(process: subprocess.Popen[bytes], owner_pid: int) -> None:
    handles = [os.pidfd_open(process.pid)]
    if owner_pid:
        handles.append(os.pidfd_open(owner_pid))
    select.select(handles, [], [])


def _end(process: subprocess.Popen[bytes], layout: Layout) -> None:
    """Asks the process inside to stop, and kills it if it does not; `unshare` ends with its child."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.connect(str(layout.control_socket))
        control.sendall(json.dumps({"do": "stop"}).encode() + b"\n")
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _enter_when_there(pid: int, listener: socket.socket, port_out: int) -> None:
    """Starts forwarding as soon as the process has its own network."""
    network, ours = Path(f"/proc/{pid}/ns/net"), Path("/proc/self/ns/net").readlink()

    def is_there() -> bool:
        with suppress(OSError):
            return network.readlink() != ours
        return True

    wait_until("the cluster's network namespace", is_there, timeout_s=10, every_s=0.01)
    handle = os.open(network, os.O_RDONLY)
    listeners: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
    threading.Thread(target=_forward_inside, args=(handle, listener, port_out, listeners), daemon=True).start()
    # A thread is in the network of the one that started it: this one is outside.
    threading.Thread(target=lambda: asyncio.run(_forward(listeners.get(), port_out)), daemon=True).start()


def _forward_inside(
    network: int, listener: socket.socket, port_out: int, listeners: "queue.SimpleQueue[socket.socket]"
) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(network, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter the cluster's network")
    os.close(network)
    # Made in here and served by a thread outside: pods connect to it, and it connects to the machine's loopback.
    listeners.put(socket.create_server(("0.0.0.0", port_out), backlog=128))
    asyncio.run(_forward(listener, PORT_FOR_PODS))


async def _forward(listener: socket.socket, port: int) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))

    server = await asyncio.start_server(connect, sock=listener)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()
