"""Objects as YAML that kubectl, and we ourselves, read back as they were."""

import re
from typing import Any

import yaml

# Plain scalars that one reader of YAML or another takes for a number, a time or a truth: 1e-3, 08, 0o17, .5, 12:30, y.
_NOT_FOR_ALL_A_TEXT = re.compile(r"[-+]?\.?\d\S*|[-+]?\.(inf|nan)|[yn]", re.ASCII | re.IGNORECASE)
_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")  # ends of lines to some; in double quotes they are escaped


class _Dumper(yaml.SafeDumper):
    """Without aliases (`&id001`): kubectl reads them, people do not."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = '"' if _BREAKS.search(value) else "'" if _NOT_FOR_ALL_A_TEXT.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text)


def to_yaml(value: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))
