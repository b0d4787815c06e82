"""Values of fields that scheduling does not read, but that a person may misspell.

They are checked in what people write. An API server has checked its own objects.
"""

import typing

OTHER_VALUES: dict[tuple[str, str], typing.Any] = {
    ("PodSpec", "restartPolicy"): typing.Literal["", "Always", "OnFailure", "Never"],
}
