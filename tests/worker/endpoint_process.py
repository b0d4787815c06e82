"""A real endpoint in its own process, so that tests can kill it: `python endpoint_process.py FOLDER PORT`.

It publishes FOLDER/notice.json whenever that changes, and appends acknowledgements and reports to FOLDER/heard.jsonl.
If there is a file FOLDER/over, the job is over. It creates FOLDER/ready, and FOLDER/open when it listens. It does not
listen while there is a FOLDER/closed.
"""

import asyncio
import json
import sys
from pathlib import Path

import msgspec

from maniple.kube.jobs import agent_credentials
from maniple.kube.jobs.agent_server import Ack, AgentServer, Report

JOB, UID = "team/bert", "job-uid"


async def main(folder: Path, port: int) -> None:
    credentials = agent_credentials.from_secret(json.loads((folder / "secret.json").read_text()))
    assert credentials is not None
    with (folder / "heard.jsonl").open("a") as heard:

        def hear(_job: str, message: Ack | Report) -> None:
            heard.write(json.dumps(msgspec.to_builtins(message)) + "\n")
            heard.flush()

        agents = AgentServer(credentials.token_key, hear, hear, lambda: True)
        agents.expect(JOB, UID)
        (folder / "ready").touch()
        while (folder / "closed").exists():
            await asyncio.sleep(0.01)
        await agents.start("127.0.0.1", port, agent_credentials.server_context(credentials))
        (folder / "open").touch()
        published = b""
        while True:
            notice = (folder / "notice.json").read_bytes()
            if notice and notice != published:
                agents.publish(JOB, UID, notice, json.loads(notice)["generation"])
                published = notice
            if (folder / "over").exists():
                agents.end(JOB, UID)
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
