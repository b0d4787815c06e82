"""What a pod's annotations ask of GPUs beyond their number: a part of each, so much memory, certain models.

Readers raise ValueError with what to write instead; validation puts the pod and the annotation in front of it.
"""

from decimal import Decimal, InvalidOperation

from maniple.api.labels import GPU_FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION, GPU_MODELS_ANNOTATION
from maniple.api.quantity import parse_quantity, to_units
from maniple.api.types import GpuModel

ANY_MODEL = "*"
WHOLE = 1000  # thousandths of a GPU

_MOST_MODELS = 32
_LONGEST_NAME = 63
_FASTEST = 1_000_000


def read_fraction(text: str) -> int:
    """Thousandths of a GPU in "0.25"."""
    expected = f"expected a part of a GPU between 0.001 and 1 in steps of 0.001, such as 0.25, found {text!r}"
    try:
        milli = Decimal(text.strip()) * WHOLE
    except InvalidOperation:
        raise ValueError(expected) from None
    if not milli.is_finite() or milli != int(milli) or not 1 <= milli <= WHOLE:
        raise ValueError(expected)
    return int(milli)


def read_memory(text: str) -> int:
    """Bytes in "8Gi"."""
    try:
        amount = to_units(parse_quantity(text.strip()), per_unit=1)
    except ValueError:
        amount = 0
    if amount <= 0:
        raise ValueError(f"expected an amount of memory above 0, such as 8Gi, found {text!r}")
    return amount


def read_models(text: str) -> tuple[GpuModel, ...]:
    """The models in "H100=3, A100=1.5, *", the one liked best first."""
    expected = "expected models with commas between them, each with its relative speed or without, such as H100=3, A100"
    models: list[GpuModel] = []
    for entry in text.split(","):
        name, equals, speed = (part.strip() for part in entry.partition("="))
        if not name or len(name) > _LONGEST_NAME:
            raise ValueError(f"{expected}, found {text!r}")
        models.append(GpuModel(name, _speed(name, speed) if equals else 1.0))
    _check_models(models)
    return tuple(models)


def _check_models(models: list[GpuModel]) -> None:
    names = [model.model.lower() for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"expected each model once, found {twice!r} a second time")
    if len(models) > _MOST_MODELS:
        raise ValueError(f"expected at most {_MOST_MODELS} models, found {len(models)}")


def write_models(models: tuple[GpuModel, ...]) -> str:
    """The annotation's form of a role's list."""
    return ", ".join(model.model if model.speed == 1 else f"{model.model}={model.speed:g}" for model in models)


def _speed(name: str, text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= _FASTEST:
        raise ValueError(f"{name}: expected a relative speed above 0, such as {name}=1.5, found {text!r}")
    return speed


def matches(name: str, product: str) -> bool:
    """Whether a model's name means this product: its words stand in the product's one after the other."""
    if name == ANY_MODEL:
        return True
    wanted, words = _words(name), _words(product)
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words) - len(wanted) + 1))


def _words(name: str) -> list[str]:
    """NVIDIA writes A100-SXM4, AMD writes AMD_Instinct_MI300X."""
    return name.lower().replace(" ", "-").replace("_", "-").split("-")


def wish_problems(annotations: dict[str, str]) -> list[tuple[str, str]]:
    """(annotation, what is wrong with it) for the annotations that ask for GPUs."""
    found: list[tuple[str, str]] = []
    readers = (
        (GPU_FRACTION_ANNOTATION, read_fraction),
        (GPU_MEMORY_ANNOTATION, read_memory),
        (GPU_MODELS_ANNOTATION, read_models),
    )
    for name, read in readers:
        text = annotations.get(name)
        if text is not None:
            try:
                read(text)
            except ValueError as error:
                found.append((name, str(error)))
    if GPU_FRACTION_ANNOTATION in annotations and GPU_MEMORY_ANNOTATION in annotations:
        found.append((GPU_MEMORY_ANNOTATION, f"expected none beside {GPU_FRACTION_ANNOTATION}: give one of the two"))
    return found
