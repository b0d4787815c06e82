"""Quantities, checked by an oracle that shares nothing with the parser: decimals and powers written by hand."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maniple.api.quantity import LARGEST, QuantityError, format_quantity, parse_quantity, readable_quantity, to_units

SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("0.000000001"),
    "u": Decimal("0.000001"),
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    "M": Decimal(1000000),
    "G": Decimal(1000000000),
    "T": Decimal(1000000000000),
    "P": Decimal(1000000000000000),
    "E": Decimal(1000000000000000000),
    "Ki": Decimal(1024),
    "Mi": Decimal(1048576),
    "Gi": Decimal(1073741824),
    "Ti": Decimal(1099511627776),
    "Pi": Decimal(1125899906842624),
    "Ei": Decimal(1152921504606846976),
}
# More digits than any text of 64 characters can need.
EXACT = Context(prec=2000)

signs = st.sampled_from(["", "+", "-"])
whole = st.text("0123456789", min_size=1, max_size=25)
part = st.text("0123456789", max_size=20)
digits = st.one_of(
    whole,  # 5
    st.builds("{}.{}".format, whole, part),  # 5.25 and 5.
    st.builds(".{}".format, st.text("0123456789", min_size=1, max_size=20)),  # .5
)
exponents = st.builds("{}{}{}".format, st.sampled_from("eE"), signs, st.integers(0, 40))
suffixes = st.one_of(st.sampled_from(sorted(SUFFIXES)), exponents)


def true_value(sign: str, number: str, suffix: str) -> Fraction:
    if suffix in SUFFIXES:
        scale = SUFFIXES[suffix]
    else:
        scale = Decimal(f"1e{int(suffix[1:])}")
    value = Fraction(EXACT.multiply(Decimal(number), scale))
    return -value if sign == "-" else value


def rounded_up(value: Fraction, per_unit: int) -> int:
    """`value` in whole units, rounded up by division with remainder."""
    quotient, remainder = divmod(value.numerator * per_unit, value.denominator)
    return quotient + (1 if remainder else 0)


@settings(max_examples=1200, deadline=None)
@given(signs, digits, suffixes)
@example("", "5.", "Gi")
@example("-", ".5", "m")
@example("+", "1", "E")
@example("", "1", "E3")
@example("", "1", "e-3")
@example("", "9223372036854775807", "")
@example("", "8", "Ei")
@example("-", "8", "Ei")
def test_quantities_are_parsed_exactly(sign: str, number: str, suffix: str) -> None:
    value = true_value(sign, number, suffix)
    if abs(value) > 2**63 - 1:
        with pytest.raises(QuantityError, match=r"is larger than 2\^63-1, the largest quantity there is"):
            parse_quantity(sign + number + suffix)
    else:
        assert parse_quantity(sign + number + suffix) == value


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        *(("1", 1000), ("1.5", 1500), ("0.1", 100), (".5", 500), ("5.", 5000), ("-1", -1000), ("+2", 2000), ("0", 0)),
        *(("1n", 1), ("1u", 1), ("999u", 1), ("1001u", 2), ("1m", 1), ("0.1m", 1), ("1.0001", 1001), ("-0.5m", 0)),
        *(("1k", 10**6), ("1M", 10**9), ("1G", 10**12), ("1T", 10**15), ("1P", 10**18), ("1E", 10**21)),
        *(("1Ki", 1024_000), ("1Mi", 1024**2 * 1000), ("0.5Gi", 1024**3 * 500), ("1Ei", 1024**6 * 1000)),
        *(("1e3", 10**6), ("1E3", 10**6), ("1e+3", 10**6), ("1e-3", 1), ("1E-4", 1), ("12e-1", 1200), ("0e9", 0)),
        *(("1e-9999", 1), ("0e9999", 0), ("-1e-9999", 0), ("0.0000001E10", 10**6)),
    ],
)
def test_cpu_is_counted_in_thousandths_rounded_up(text: str, milli: int) -> None:
    assert to_units(parse_quantity(text), per_unit=1000) == milli


@settings(max_examples=500, deadline=None)
@given(signs, digits, suffixes, st.sampled_from([1, 1000]))
def test_rounding_goes_up_and_by_less_than_one_unit(sign: str, number: str, suffix: str, per_unit: int) -> None:
    value = true_value(sign, number, suffix)
    if abs(value) <= LARGEST:
        units = to_units(parse_quantity(sign + number + suffix), per_unit=per_unit)
        assert units == rounded_up(value, per_unit)
        assert 0 <= Fraction(units, per_unit) - value < Fraction(1, per_unit)


@pytest.mark.parametrize(
    "text",
    [
        *("9223372036854775808", "8Ei", "9.3E", "9300P", "1e19", "1E+400", "1e9999", "-9223372036854775808", "-8Ei"),
        "9223372036854775807.000000001",
    ],
)
def test_values_above_the_api_servers_limit_are_too_large(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_quantity(text)
    assert str(error.value) == f"{text!r} is larger than 2^63-1, the largest quantity there is"


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ".", "-", "+", "e3", "E", "Ki", "m", "1 ", " 1", "1 Gi", "1\n", "\n1", "1gi", "1GI", "1GB", "1K"),
        *("1ki", "1Mii", "1mm", "1e", "1e+", "1e3m", "1e3Ki", "1e1.5", "1.2.3", "1,5", "1_000", "0x10", "--1", "+-1"),
        *("nan", "NaN", "inf", "Infinity", "-inf", "true", "None", "١", "１", "1µ", "½", "1e١", "\x00", "1\x00"),
        *("1" * 65, "a" * 10_000),
    ],
)
def test_an_invalid_quantity_is_refused_with_examples(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_quantity(text)
    message = str(error.value)
    assert message.endswith(" is not a quantity; expected a quantity such as 2, 500m, 1.5, 16Gi or 1e3")
    assert len(message) < 200
    assert message.isprintable()


@settings(max_examples=1200, deadline=None)
@given(st.one_of(st.text(max_size=80), st.text("0123456789.+-eEinumkMGTPK ", max_size=80)))
def test_garbage_raises_only_quantity_error(text: str) -> None:
    message, value = "", Fraction(0)
    try:
        value = parse_quantity(text)
    except QuantityError as error:
        message = str(error)
    assert message.isprintable()
    assert abs(value) <= LARGEST


@settings(max_examples=1000, deadline=None)
@given(st.integers(0, 2**53), st.sampled_from([1, 1000]), st.booleans())
@example(16 * 1024**3, 1, True)
@example(0, 1, True)
@example(500, 1000, False)
def test_formatted_quantities_parse_back_to_the_same_value(units: int, per_unit: int, binary: bool) -> None:
    text = format_quantity(float(units), per_unit=per_unit, binary=binary)
    assert to_units(parse_quantity(text), per_unit=per_unit) == units


@pytest.mark.parametrize(
    ("units", "per_unit", "binary", "text"),
    [
        (7000, 1000, False, "7"),
        (500, 1000, False, "500m"),
        (7500, 1000, False, "7500m"),
        (0, 1000, False, "0"),
        (16 * 1024**3, 1, True, "16Gi"),
        (15 * 1024**2 * 512, 1, True, "7680Mi"),
        (1024**5, 1, True, "1Pi"),
        (1000, 1, True, "1000"),
        (1024, 1, False, "1024"),
    ],
)
def test_the_usual_form_is_chosen(units: int, per_unit: int, binary: bool, text: str) -> None:
    assert format_quantity(units, per_unit=per_unit, binary=binary) == text


@settings(max_examples=300, deadline=None)
@given(st.floats(0, 2**53), st.sampled_from([1, 1000]))
def test_fractions_of_a_unit_are_shown_rounded(units: float, per_unit: int) -> None:
    """Deserved shares are not whole numbers. Their text must be a quantity that is close to the value."""
    shown = parse_quantity(format_quantity(units, per_unit=per_unit))
    true = Fraction(units) / per_unit
    assert abs(shown - true) <= true / 10**5 + Fraction(1, 10**6) / per_unit


@pytest.mark.parametrize(
    ("text", "binary", "up", "shown"),
    [
        ("1500m", False, False, "1.5"),
        ("18200m", False, False, "18.2"),
        ("0.125", False, False, "0.125"),
        ("3.28571", False, False, "3.29"),
        ("3.2801", False, True, "3.29"),
        ("1e6", False, False, "1000000"),
        ("0", False, False, "0"),
        ("0", True, False, "0"),
        ("512", True, False, "512"),
        ("16Gi", True, False, "16Gi"),
        ("1100Mi", True, False, "1100Mi"),
        ("133632Mi", True, False, "130.5Gi"),
        ("1039743340Ki", True, False, "991.6Gi"),
        ("1039700000Ki", True, True, "991.6Gi"),
    ],
)
def test_an_amount_for_people(text: str, binary: bool, up: bool, shown: str) -> None:
    assert readable_quantity(parse_quantity(text), binary=binary, up=up) == shown


@given(st.fractions(min_value=0, max_value=2**60), st.booleans())
def test_an_amount_that_is_rounded_up_is_enough(value: Fraction, binary: bool) -> None:
    shown = parse_quantity(readable_quantity(value, binary=binary, up=True))
    assert value <= shown <= value * Fraction(11, 10) + 1
