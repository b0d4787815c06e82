"""A name server for pods of a cluster that has none: `python3 name_server.py HOSTS`, HOSTS is JSON, name -> address.

The file is read at each question, so that tests may add addresses later.
"""

import json
import socket
import struct
import sys
from pathlib import Path

IS_ADDRESS = struct.pack("!HH", 1, 1)  # type A, class IN
NO_ERROR, NO_SUCH_NAME = 0, 3


def answer(query: bytes, hosts: dict[str, str]) -> bytes:
    """The answer to a message with one question."""
    words, at = [], 12
    while length := query[at]:
        words.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    question = query[12 : at + 5]
    address = hosts.get(".".join(words).lower())
    said = b""
    if address is not None and question[-4:] == IS_ADDRESS:
        # The name is the question's, at byte 12; good for one second.
        said = struct.pack("!HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(address)
    code = NO_SUCH_NAME if address is None else NO_ERROR
    return query[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, 1 if said else 0, 0, 0) + question + said


def main(path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("0.0.0.0", 53))
        while True:
            query, sender = server.recvfrom(512)
            hosts = json.loads(path.read_text()) if path.exists() else {}
            server.sendto(answer(query, hosts), sender)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
