"""Logs with fields: one JSON object a line for machines, or plain text for people."""

import logging
import sys

import msgspec

from maniple.api.terminal_text import printable, printable_json, printable_lines
from maniple.api.timestamps import format_micro_time

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name, **_fields(record)}
        line["message"] = record.getMessage()
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return printable_json(msgspec.json.encode(line, enc_hook=str).decode())


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = printable(f"{_time(record)} {record.levelname:7} {record.getMessage()} {fields}".rstrip())
        return f"{line}\n{printable_lines(self.formatException(record.exc_info))}" if record.exc_info else line


def set_up_logs(form: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("asyncio", "aiohttp", "kubernetes_asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    return format_micro_time(record.created)[:-4] + "Z"
