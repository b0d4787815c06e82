"""Kubernetes quantities ("500m", "16Gi", "1e3"), parsed exactly and never through a float.

The grammar is Kubernetes' own: a signed decimal number and one suffix, which is binary (Ki … Ei), decimal (n u m k M G
T P E) or an exponent (e3, E-2). `1E` is one exa, `1E3` is a thousand.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache

# The largest quantity of the API server. Larger numbers are typing errors.
LARGEST = 2**63 - 1

_SUFFIX = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{prefix: Fraction(1000**power) for power, prefix in enumerate("kMGTPE", start=1)},
    **{prefix + "i": Fraction(1024**power) for power, prefix in enumerate("KMGTPE", start=1)},
}
_FORM = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,4})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")
_EXPECTED = "expected a quantity such as 2, 500m, 1.5, 16Gi or 1e3"


class QuantityError(ValueError):
    """Text that is not a quantity. The message says what is expected."""


@lru_cache(maxsize=65536)
def parse_quantity(text: str) -> Fraction:
    """The exact value of `text`. Raises QuantityError if it is not a quantity or too large."""
    value = exact_value(text)
    if abs(value) > LARGEST:
        raise QuantityError(_too_large(text))
    return value


@lru_cache(maxsize=4096)
def exact_value(text: str) -> Fraction:
    """The same for a sum of quantities, which may be larger than a quantity."""
    match = _FORM.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise QuantityError(f"{_shown(text)} is not a quantity; {_EXPECTED}")
    sign, digits, exponent, suffix = match.groups()
    if exponent is not None and abs(int(exponent)) > 100:
        # Before 10**exponent is computed: "1e9999" must not cost a second of arithmetic.
        if int(exponent) < 0 or not digits.strip("0."):
            scale = Fraction(1, 10**100)
        else:
            raise QuantityError(_too_large(text))
    elif exponent is not None:
        scale = Fraction(10) ** int(exponent)
    else:
        scale = _SUFFIX[suffix or ""]
    value = Fraction(digits) * scale
    return -value if sign == "-" else value


def to_units(value: Fraction, *, per_unit: int) -> int:
    """`value` in units of `1/per_unit`, rounded up as the API server does (0.1m of CPU counts as 1m)."""
    return math.ceil(value * per_unit)


def format_quantity(units: float, *, per_unit: int, binary: bool = False) -> str:
    """The shortest usual text for `units / per_unit`: "7", "500m", "16Gi"."""
    if units % per_unit == 0:  # nearly always; fractions are slow
        return _format_whole(int(units) // per_unit, binary=binary)
    value = Fraction(units).limit_denominator(10**6) / per_unit
    if value.denominator == 1:
        return _format_whole(value.numerator, binary=binary)
    milli = value * 1000
    if milli.denominator == 1:
        return f"{milli.numerator}m"
    return f"{float(value):.6g}"


def _format_whole(value: int, *, binary: bool) -> str:
    if binary and value:
        for power, prefix in ((5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
            if value % 1024**power == 0:
                return f"{value // 1024**power}{prefix}"
    return str(value)


def readable_quantity(value: Fraction, *, binary: bool = False, up: bool = False) -> str:
    """For sentences and tables: "1.5", "3.29", "130.5Gi". Exact in thousandths, else rounded; `up`: never down."""
    if binary:
        units = [(Fraction(1024**power), prefix) for power, prefix in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi"))]
        fitting = [(unit, suffix) for unit, suffix in units if value >= unit] or units[:1]
        # 1100Mi stay as they were written; 133632Mi are 130.5Gi.
        exact = [entry for entry in fitting if (value / entry[0]).denominator == 1 and value < 10_000 * entry[0]]
        unit, suffix = (exact or fitting)[-1]
    else:
        unit, suffix = Fraction(1), ""
    value /= unit
    places = 1 if binary else 3 if (value * 1000).denominator == 1 else 2
    scaled = value * 10**places
    whole = math.ceil(scaled) if up else round(scaled)
    text = f"{whole // 10**places}.{whole % 10**places:0{places}d}".rstrip("0").rstrip(".")
    return f"{text}{suffix}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 64 else text[:61] + "...")


def _too_large(text: str) -> str:
    return f"{_shown(text)} is larger than 2^63-1, the largest quantity there is"


def whole_number(text: str) -> int | None:
    """A 64-bit whole number in the form in which Kubernetes compares taints: no leading zeros, no plus sign."""
    if not _WHOLE_NUMBER.fullmatch(text) or len(text) > 20:
        return None
    number = int(text)
    return number if -LARGEST - 1 <= number <= LARGEST else None
