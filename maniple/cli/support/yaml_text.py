"""Objects as YAML that kubectl and Maniple read back unchanged."""

import re
from typing import Any

import yaml

from maniple.api.terminal_text import printable_lines

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
    return _dump(value, Dumper=_Dumper, width=110)


def plain_yaml(value: Any) -> str:
    """Plain values, as short as PyYAML writes them."""
    return _dump(value, Dumper=yaml.SafeDumper)


def _dump(value: Any, **how: Any) -> str:
    text = str(yaml.dump(value, sort_keys=False, allow_unicode=True, **how))
    # With a character that a terminal would not show as it is, all that is not ASCII is escaped in double quotes.
    return text if printable_lines(text) == text else str(yaml.dump(value, sort_keys=False, **how))
