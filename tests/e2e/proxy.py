"""A relay to the API server that can cut every connection, as a bad network does."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import yaml


class Proxy:
    """Relays bytes from a port of its own; runs in a thread until it is closed."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._started = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        if not self._started.wait(10):
            raise TimeoutError("the relay did not start within 10 s")

    def cut(self) -> None:
        """All connections end at once, without a farewell."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

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

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        self._writers -= {writer, back}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while block := await reader.read(65536):
                writer.write(block)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.close()
