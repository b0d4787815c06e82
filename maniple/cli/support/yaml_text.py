"""Objects as YAML that kubectl and Maniple read back unchanged."""

import re
from typing import Any

import yaml

# Plain scalars that some YAML parsers read as numbers, times or booleans: 1e-3, 08, 0o17, .5, 12:30, y.
_AMBIGUOUS = re.compile(r"[-+]?\.?\d\S*|[-+]?\.(inf|nan)|[yn]", re.ASCII | re.IGNORECASE)
_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")  # line ends for some parsers; escaped in double quotes


class _Dumper(yaml.SafeDumper):
    """Without aliases (`&id001`), which people find hard to read."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = '"' if _BREAKS.search(value) else "'" if _AMBIGUOUS.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text)


def to_yaml(value: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))
