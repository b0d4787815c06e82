"""The annotation `maniple.dev/gpus`: which GPUs of its node a bound pod has. Written and read only here."""

import re
from collections.abc import Iterable, Mapping

from maniple.api.labels import GPUS_ANNOTATION

EXPECTED = "GPU ids with commas between them, such as 0,1"
_LIST = re.compile(r"[^,\s]+(?:,[^,\s]+)*")


def is_assignment(text: str) -> bool:
    return _LIST.fullmatch(text) is not None


def read_assignment(annotations: Mapping[str, str]) -> str:
    """The annotation as it stands; empty: the pod has no GPUs, or nobody has said which."""
    return annotations.get(GPUS_ANNOTATION, "")


def parse_assignment(text: str) -> list[str]:
    """The ids, in order. An id may have its resource before it: nvidia.com/gpu/0."""
    return [word.strip() for word in text.split(",")] if text else []


def format_assignment(ids: Iterable[str]) -> str:
    return ",".join(ids)
