"""A relay to the API server that can cut every connection, as a bad network does."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import yaml


class Proxy:
    """Relays bytes from its own port; runs in a thread until it is closed."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._loop: asyncio.AbstractEventLoop
        self._over: asyncio.Event
        self._writers: set[asyncio.StreamWriter] = set()
        self._relaying: set[asyncio.Task[None] | None] = set()
        self._started = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        if not self._started.wait(10):
            raise TimeoutError("the relay did not start within 10 s")

    def cut(self) -> None:
        """Cuts all connections at once."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(timeout=10)
        assert not self._thread.is_alive(), "the relay did not end within 10 s"

    def kubeconfig(self, original: Path, to: Path) -> Path:
        """A copy of a kubeconfig that goes through the relay."""
        content = yaml.safe_load(original.read_text())
        for entry in content["clusters"]:
            entry["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        to.write_text(yaml.safe_dump(content))
        to.chmod(0o600)
        return to

    def _abort_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._over.wait()
        server.close()
        while self._relaying:
            self._abort_all()
            await asyncio.sleep(0.01)  # until clients have noticed, and connections that were about to open are open

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relaying = asyncio.current_task()
        self._relaying.add(relaying)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
        else:
            self._writers |= {writer, back}
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
            self._writers -= {writer, back}
        self._relaying.remove(relaying)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while block := await reader.read(65536):
                writer.write(block)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.close()
