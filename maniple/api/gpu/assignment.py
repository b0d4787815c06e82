"""The annotation `maniple.dev/gpus`: the GPUs of its node that a bound pod has. Parsed and formatted only here."""

import re
from collections.abc import Iterable, Mapping

from maniple.api.labels import GPUS_ANNOTATION

EXPECTED = "GPU ids with commas between them, such as 0,1"
_LIST = re.compile(r"[^,\s]+(?:,[^,\s]+)*")


def is_assignment(text: str) -> bool:
    return _LIST.fullmatch(text) is not None


def read_assignment(annotations: Mapping[str, str]) -> str:
    """The annotation as it is. Empty: the pod has no GPUs, or none are assigned."""
    return annotations.get(GPUS_ANNOTATION, "")


def parse_assignment(text: str) -> list[str]:
    """The ids, in order. An id may have its resource as a prefix: nvidia.com/gpu/0."""
    return [word.strip() for word in text.split(",")] if text else []


def format_assignment(ids: Iterable[str]) -> str:
    return ",".join(ids)
