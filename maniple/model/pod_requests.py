"""What a pod requests, in our units, and equal requests under one number. Needs no arrays: quick commands read it too.

Amounts are whole numbers of a unit: thousandths for CPU and extended resources, bytes for memory, one for pods.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from maniple.api.gpu.requests import WHOLE, read_fraction, read_memory
from maniple.api.kubernetes import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from maniple.api.labels import GPU_FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION
from maniple.api.meta import ResourceList
from maniple.api.quantity import exact_value, parse_quantity, readable_quantity, to_units
from maniple.api.types import GPU_RESOURCES

_NO_RESOURCES: dict[str, int] = {}

RESIZE_PENDING = "PodResizePending"  # the condition of a pod whose resize has to wait


def is_extended(name: str) -> bool:
    """Whether it is an extended resource, such as a GPU: Kubernetes counts whole ones."""
    return "/" in name and not name.startswith("attachable-volumes")


def per_unit(name: str) -> int:
    """Our units in one unit of the resource: 1000 for CPU and extended resources, which may be divided, else 1."""
    return 1000 if name == "cpu" or is_extended(name) else 1


def is_binary(name: str) -> bool:
    return name in ("memory", "ephemeral-storage", "storage") or name.startswith("hugepages-")


def amounts(resources: ResourceList) -> dict[str, int]:
    """A resource list in our units."""
    return {name: _units(str(value), per_unit(name)) for name, value in resources.items()}


@lru_cache(maxsize=65536)
def _units(text: str, per_unit: int) -> int:
    return to_units(parse_quantity(text), per_unit=per_unit)


@lru_cache(maxsize=65536)
def readable(name: str, text: str) -> str:
    """A quantity of the resource as people read it."""
    return readable_quantity(exact_value(text), binary=is_binary(name))


def pod_requests(spec: PodSpec, status: PodStatus | None = None) -> dict[str, int]:
    """The resources that a pod requests, computed as the kubelet does.

    Containers run together. An init container runs beside the sidecars (init containers with restartPolicy Always) that
    are declared before it. A limit without a request counts as a request. Pod-level requests replace the sum.
    `status` is given for a pod that is resized in place: the larger of what it has and what it asks for counts, and
    only what it has if its node can never give it the rest.
    """
    if (
        len(spec.containers) == 1
        and status is None
        and not (spec.init_containers or spec.overhead or spec.resources.requests or spec.resources.limits)
    ):
        return dict(_list_requests(spec.containers[0].resources))
    asked = _total(spec, lambda container: _list_requests(container.resources))
    pod_level = _pod_level(spec.resources, asked)
    if status is None:
        total = {**asked, **pod_level}
    else:
        resize = _Resize(status)
        total = resize.larger(asked, *resize.pod_has() or (_total(spec, resize.allocated), _total(spec, resize.actual)))
        if pod_level:
            total.update(pod_level if status.resources is None else resize.larger(pod_level, *resize.pod_level()))
    _add(total, amounts(spec.overhead))
    return total


def _pod_level(resources: ResourceRequirements, asked: Mapping[str, int]) -> dict[str, int]:
    """What is requested for the pod as a whole. As in the API server, a limit counts as a request only of resources
    that no container requests, and of huge pages.
    """
    requests = amounts(resources.requests)
    for name, value in amounts(resources.limits).items() if resources.limits else ():
        is_shared = name in asked and not name.startswith("hugepages-")
        requests.setdefault(name, asked[name] if is_shared else value)
    return requests


def _total(spec: PodSpec, requests_of: Callable[[Container], dict[str, int]]) -> dict[str, int]:
    """What the containers take together, or at most while the pod starts."""
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, requests_of(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        requests = dict(requests_of(container))
        if container.restart_policy == "Always":
            _add(sidecars, requests)
            requests = dict(sidecars)
        else:
            _add(requests, sidecars)
        _raise(peak, requests)
    _add(total, sidecars)
    _raise(total, peak)
    return total


def is_resized(pod: Pod) -> bool:
    """Whether a pod on a node has other resources than its spec says, because it is resized in place."""
    status, spec = pod.status, pod.spec
    if not spec.node_name:
        return False
    if _is_refused(status):
        return True
    for written, seen in (
        (spec.containers, status.container_statuses),
        (spec.init_containers, status.init_container_statuses),
    ):
        if seen:
            by_name = {container.name: container.resources.requests for container in written}
            for container in seen:
                requests = by_name.get(container.name)
                if requests is not None and _differs(requests, container.resources, container.allocated_resources):
                    return True
    if not status.allocated_resources and status.resources is None:
        return False
    of_pod = spec.resources.requests or (spec.containers[0].resources.requests if len(spec.containers) == 1 else {})
    return _differs(of_pod, status.resources, status.allocated_resources)


def _differs(requests: ResourceList, has: ResourceRequirements | None, allocated: ResourceList) -> bool:
    return bool(
        (has is not None and has.requests and has.requests != requests) or (allocated and allocated != requests)
    )


def _is_refused(status: PodStatus) -> bool:
    """Whether the node can never grant the resize."""
    pending = (condition.reason for condition in status.conditions if condition.type == RESIZE_PENDING)
    return next(pending, "") == "Infeasible"


class _Resize:
    """What a pod that is resized in place has now, from its status: granted by the node, and in effect."""

    def __init__(self, status: PodStatus) -> None:
        self._status = status
        self._by_name = {c.name: c for c in (*status.init_container_statuses, *status.container_statuses)}
        self._is_refused = _is_refused(status)

    def pod_has(self) -> tuple[dict[str, int], ...]:
        """What the pod as a whole has. Empty if its node does not say."""
        granted, actual = self._status.allocated_resources, self._status.resources
        if not granted or actual is None or not actual.requests:
            return ()
        return amounts(granted), amounts(actual.requests)

    def pod_level(self) -> tuple[dict[str, int], ...]:
        """What the pod has of what is requested for it as a whole."""
        actual = self._status.resources
        return amounts(self._status.allocated_resources), amounts(actual.requests) if actual is not None else {}

    def allocated(self, container: Container) -> dict[str, int]:
        status = self._by_name.get(container.name)
        granted = status.allocated_resources if status is not None else {}
        if not granted and self._is_refused:
            return {}
        return amounts(granted) if granted else _list_requests(container.resources)

    def actual(self, container: Container) -> dict[str, int]:
        status = self._by_name.get(container.name)
        has = status.resources.requests if status is not None and status.resources is not None else {}
        return amounts(has) if has else self.allocated(container)

    def larger(self, asked: dict[str, int], *has: dict[str, int]) -> dict[str, int]:
        """The largest amounts. What is asked for does not count if the node can never grant it."""
        total = {} if self._is_refused else dict(asked)
        for part in has:
            _raise(total, part)
        return total


def _list_requests(resources: ResourceRequirements) -> dict[str, int]:
    if resources.limits:
        return amounts({**resources.limits, **resources.requests})
    return amounts(resources.requests) if resources.requests else _NO_RESOURCES


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        total[name] = max(total.get(name, 0), value)


@dataclass(frozen=True, slots=True)
class Request:
    """What a pod requests, in our units, and how its GPUs are counted."""

    amounts: dict[str, int]
    gpus: tuple[tuple[str, int], ...] = ()  # (resource, devices)
    share: int = WHOLE  # thousandths of each device
    memory: int = 0  # bytes of each device, for a request by memory: its share then depends on the device


class RequestTable:
    """Interns pod requests: a hundred thousand pods have a handful of different ones."""

    def __init__(self) -> None:
        self._by_lists: dict[Any, int] = {}
        self._by_amounts: dict[Any, int] = {}
        self._last_written: object = None
        self._last_number = -1
        self.requests: list[Request] = []

    def number(self, pod: Pod) -> int:
        spec, annotations = pod.spec, pod.metadata.annotations
        gpu_share = _gpu_share(annotations) if annotations else None
        status = pod.status
        if (status.container_statuses or status.conditions or status.resources) and is_resized(pod):
            return self._intern(pod_requests(spec, status), gpu_share)
        if len(spec.containers) == 1 and not (spec.init_containers or spec.overhead):
            resources = spec.containers[0].resources
            written = (gpu_share, resources, spec.resources)
            if written == self._last_written:  # equal pods mostly follow each other
                return self._last_number
            # The lists as written. Different spellings of one amount become equal in _by_amounts.
            key: tuple[object, ...] = (tuple(resources.requests.items()), tuple(resources.limits.items()), gpu_share)
            pod_level = spec.resources
            if pod_level.requests or pod_level.limits:
                key = (*key, tuple(pod_level.requests.items()), tuple(pod_level.limits.items()))
            number = self._by_lists.get(key)
            if number is None:
                number = self._by_lists[key] = self._intern(pod_requests(spec), gpu_share)
            self._last_written, self._last_number = written, number
            return number
        return self._intern(pod_requests(spec), gpu_share)

    def held(self, number: int, milli: int) -> int:
        """The request of a placed pod that requested GPUs by memory and holds `milli` thousandths of them."""
        request = self.requests[number]
        amounts = {**request.amounts, request.gpus[0][0]: milli}
        return self._add((*sorted(amounts.items()), "held"), Request(amounts))

    def _intern(self, units: dict[str, int], gpu_share: tuple[int, int] | None) -> int:
        amounts = {name: value for name, value in sorted(units.items()) if value and name != "pods"}
        gpus = tuple((name, -(-amounts[name] // WHOLE)) for name in GPU_RESOURCES if name in amounts)
        share, memory = gpu_share or (WHOLE, 0)
        if gpu_share is not None:
            gpus = gpus or ((GPU_RESOURCES[0], 1),)
            amounts.update((name, count * share) for name, count in gpus)
        return self._add((*amounts.items(), gpus, share, memory), Request(amounts, gpus, share, memory))

    def _add(self, key: object, request: Request) -> int:
        number = self._by_amounts.get(key)
        if number is None:
            number = self._by_amounts[key] = len(self.requests)
            self.requests.append(request)
        return number


def _gpu_share(annotations: Mapping[str, str]) -> tuple[int, int] | None:
    """(thousandths, bytes) of each GPU that the annotations request. Unreadable annotations are ignored."""
    try:
        if fraction := annotations.get(GPU_FRACTION_ANNOTATION):
            return read_fraction(fraction), 0
        if memory := annotations.get(GPU_MEMORY_ANNOTATION):
            return WHOLE, read_memory(memory)
    except ValueError:
        pass
    return None
