"""The annotations with which a pod asks for GPUs beyond their number: a fraction, an amount of memory, certain models.

Readers raise ValueError with what to write instead. Validation adds the pod and the annotation.
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
    """The models in "H100=3, A100=1.5, *", the preferred one first."""
    expected = "expected models with commas between them, each with its relative speed or without, such as H100=3, A100"
    models: list[GpuModel] = []
    for entry in text.split(","):
        name, equals, speed = (part.strip() for part in entry.partition("="))
        if not name or len(name) > _LONGEST_NAME:
            raise ValueError(f"{expected}, found {text!r}")
        models.append(GpuModel(name, _speed(name, speed) if equals else 1.0))
    if len(models) > _MOST_MODELS:
        raise ValueError(f"expected at most {_MOST_MODELS} models, found {len(models)}")
    names = [model.model.lower() for model in models]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"expected each model once, found {repeated!r} a second time")
    return tuple(models)


def write_models(models: tuple[GpuModel, ...]) -> str:
    """A role's list as the annotation writes it."""
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
    """Whether the words of a model's name follow each other in the product's name."""
    if name == ANY_MODEL:
        return True
    wanted, words = _words(name), _words(product)
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words) - len(wanted) + 1))


def _words(name: str) -> list[str]:
    """NVIDIA writes A100-SXM4, AMD writes AMD_Instinct_MI300X."""
    return name.lower().replace(" ", "-").replace("_", "-").split("-")


def gpu_request_problems(annotations: dict[str, str]) -> list[tuple[str, str]]:
    """(annotation, what is wrong with it) for the annotations that ask for GPUs."""
    problems: list[tuple[str, str]] = []
    readers = (
        (GPU_FRACTION_ANNOTATION, read_fraction),
        (GPU_MEMORY_ANNOTATION, read_memory),
        (GPU_MODELS_ANNOTATION, read_models),
    )
    for key, read in readers:
        text = annotations.get(key)
        if text is not None:
            try:
                read(text)
            except ValueError as error:
                problems.append((key, str(error)))
    if GPU_FRACTION_ANNOTATION in annotations and GPU_MEMORY_ANNOTATION in annotations:
        message = f"expected none beside {GPU_FRACTION_ANNOTATION}: give one of the two"
        problems.append((GPU_MEMORY_ANNOTATION, message))
    return problems
