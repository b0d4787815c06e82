"""Keys that stand twice in one map of JSON. Decoders take the last value and say nothing."""

import json

_LARGEST = 32 * 1024**2  # characters; larger texts are dumps, which no person wrote


class _RepeatedKeyError(Exception):
    pass


def repeated_key(text: str | bytes) -> str | None:
    """A key that stands twice in one map. None if there is none, or if it is not JSON."""
    if len(text) > _LARGEST:
        return None

    def check(pairs: list[tuple[str, object]]) -> None:
        if len(dict(pairs)) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise _RepeatedKeyError(key)
                seen.add(key)

    try:
        json.loads(text, object_pairs_hook=check)
    except _RepeatedKeyError as error:
        return str(error)
    except (ValueError, RecursionError):
        pass
    return None
