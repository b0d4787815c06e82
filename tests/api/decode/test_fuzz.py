"""Ten thousand mutated documents: whatever the input, the answer is a plan or an InputError of one-line messages.

Each goes the whole way: decode, build, schedule, JSON. Hypothesis chooses the seeds (always the same ones); a seed
stands for a batch of documents. A failure shows the document; write it to a file and `maniple plan -f` shows the same.
"""

from __future__ import annotations

import copy
import inspect
import json
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest
import yaml
from cluster.planning import plan_objects
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from api.fuzz_corpus import EXAMPLES, GPU, OWN_WORLDS, Object, node, pod, running, worlds
from maniple.api import kubernetes, meta, types
from maniple.api.compat import other_schedulers, upstream_podgroup
from maniple.api.decode.decode import decode
from maniple.api.errors import InputError
from maniple.cluster.in_memory_cluster import MemoryCluster, run_rounds
from maniple.model.building.input_objects import sort_objects
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import Policy, load_policy

Mutate = Callable[[Random], bytes]
BATCH = 50


@cache
def policies() -> tuple[Policy | None, ...]:
    return None, load_policy((EXAMPLES / "policies/kube-batch.yaml").read_bytes(), "kube-batch.yaml")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Turns an endless loop into an error; a document takes milliseconds."""

    def expire(*_: object) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def survive(data: bytes, policy: Policy | None) -> bool:
    """Whether `data` could be planned. Fails the test if it gives anything but a plan or an InputError."""
    messages: list[str] = []
    written = b""
    try:
        with time_limit(10):
            decoded = decode([("f.yaml", data)])
            cluster = MemoryCluster(sort_objects(decoded, scheduler_name="maniple"), Ours(every_pod=True))
            written = msgspec.json.encode(run_rounds(cluster, policy, rounds=2).to_json())
    except InputError as error:
        messages = error.messages
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{data!r}") from error
    assert all(message.strip() and message.isprintable() for message in messages), (messages, data)
    assert bool(written) != bool(messages), data
    return bool(written)


def run_batches(documents: int, mutate: Mutate) -> tuple[int, int]:
    """Plans so many mutated documents: how many there were, and how many of them could be planned.

    A profile with fewer examples than the usual hundred has as many fewer documents.
    """
    done = planned = 0

    @settings(
        max_examples=documents // BATCH * settings().max_examples // 100,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**32))
    def run(seed: int) -> None:
        nonlocal done, planned
        random = Random(seed)
        for _ in range(BATCH):
            planned += survive(mutate(random), random.choice(policies()))
            done += 1

    run()
    return done, planned


# -- mutations of structure


def nest(depth: int) -> Any:
    nested: Any = "x"
    for level in range(depth):
        nested = [nested] if level % 2 else {"a": nested}
    return nested


STRANGE: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 65536, 100_000, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 10**30),
    *(0.5, -0.0, 1.5, 1e-9, 1e18, 1e308, -1e308, 5e-324),
    *("", " ", "null", "true", "0", "-1", "1", "1Ki", "9E", "8Ei", "1e9999", "1e-9999", "100%", "50%", ".5", "5."),
    *("a\nb", "\x00", "\x1b[31m", "é", "\u2028", "\U0001f600", "A", "a" * 300, "a/b", "a.b", "${x}", "%s", "*"),
    *("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5+14:00", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"),
    *("In", "Exists", "Gt", "NoSchedule", "Running", "Succeeded", "Always", "n1", "gang", "research", "default", "ml"),
    *([], {}, [[]], [{}], [None], [0], {"": ""}, {"a": "b"}, {"cpu": "1"}, {"a": None}, nest(30), nest(150)),
]
NAMES = ["", "x", "spec", "metadata", "name", "uid", "cpu", "memory", "pods", "nvidia.com/gpu", "items", "kind", "a\nb"]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in `value`."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield value, key
        yield from places(inner)


def alike(value: Any, random: Random) -> Any:
    """Another value of the same type: it passes the decoder more often, and so gets further."""
    match value:
        case bool():
            return not value
        case int() | float():
            return random.choice([0, 1, value + 1, -value, value * 1000, 2**31 - 1, 2**40, 2**62])
        case str():
            return random.choice(WORDS)
        case list():
            return random.sample(value, k=random.randrange(len(value) + 1))
    return value


def mutate_once(world: list[Object], random: Random) -> None:
    entries = list(places(world))
    if not entries:
        return
    container, key = random.choice(entries)
    match random.randrange(18):
        case 0:
            del container[key]
        case 1 | 2 | 3:
            container[key] = copy.deepcopy(random.choice(STRANGE))
        case 4:  # the value of another field
            other, there = random.choice(entries)
            container[key] = copy.deepcopy(other[there])
        case 5:
            other, there = random.choice(entries)
            if isinstance(container, dict):
                container[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(container[key])
        case 6:
            if isinstance(container, list):
                container.extend(copy.deepcopy([container[key]] * random.choice([1, 2, 40])))
            else:
                container[random.choice(NAMES)] = copy.deepcopy(container[key])
        case 7:
            if isinstance(container, dict):
                container[random.choice(NAMES)] = container.pop(key)
        case 8:
            container[key] = random.choice([[container[key]], {"a": container[key]}, str(container[key])])
        case 9 | 10 | 11:  # the value that such a field has elsewhere
            container[key] = copy.deepcopy(random.choice(SAME_FIELD[key])) if isinstance(key, str) else None
        case _:
            container[key] = alike(container[key], random)


def mutated_objects(random: Random) -> bytes:
    world = copy.deepcopy(random.choice(ORIGINALS))
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        mutate_once(world, random)
    if random.random() < 0.02:
        return b"\n".join(json.dumps(item).encode() for item in world)  # a stream, with NaN and all
    # json, not msgspec: it also writes what other programs write, such as escapes for everything beyond ASCII.
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": world}).encode()


# -- mutations of text


TOKENS = [
    *(b"\x00", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\t", b"\n", b"\r\n", b" ", b"---\n", b"...\n", b"\n..."),
    *(b"#", b"'", b"\\", b"\\n", b"%", b"@", b"`"),
    *(b'"', b"{", b"}", b"[", b"]", b": ", b"- ", b"? ", b",", b"|", b">", b"&a ", b"*a ", b"<<: ", b"<<: *a", b"!!"),
    *(b"!!int ", b"!!float ", b"!!bool ", b"!!timestamp ", b"!!binary ", b"!!set ", b"!!str ", b"!!null ", b"!x "),
    *(b"%YAML 1.1", b"=", b"~", b"null", b"NaN", b".nan", b".inf", b"-", b"0x", b"1_0", b"0o7", b"1e999", b"1:30"),
    *(b"\\ud800", b"\\u0000", b"\\x", b"9" * 30, b"[" * 60, b"{a: " * 60, b"yes", b"apiVersion", b"kind", b"items"),
]


def mutate_text(text: bytes, random: Random) -> bytes:
    for _ in range(random.choice([1, 1, 2, 4])):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice([0, 1, 1, 2, 8, 60]))
        match random.randrange(5):
            case 0:
                text = text[:start] + text[end:]
            case 1 | 2:
                text = text[:start] + random.choice(TOKENS) + text[end:]
            case 3:
                text = text[:start] + random.randbytes(end - start) + text[end:]
            case 4:
                elsewhere = random.randrange(len(text) + 1)
                text = text[:elsewhere] + text[start:end] + text[elsewhere:]
    return text


def mutated_text(random: Random) -> bytes:
    return mutate_text(random.choice(TEXTS), random)


ORIGINALS = worlds()
SAME_FIELD: defaultdict[str, list[Any]] = defaultdict(lambda: [None])
for _container, _key in places(ORIGINALS):
    SAME_FIELD[str(_key)].append(_container[_key])
WORDS = sorted({value for values in SAME_FIELD.values() for value in values if isinstance(value, str)})


def written_ways(objects: list[Object]) -> Iterator[bytes]:
    yield yaml.safe_dump_all(objects).encode()
    yield yaml.safe_dump_all(objects, default_flow_style=True, sort_keys=False).encode()
    yield json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}, indent="\t").encode()


TEXTS = [
    text for world in ORIGINALS for start in range(0, len(world), 4) for text in written_ways(world[start : start + 4])
]


# -- the promise


@pytest.mark.properties
def test_seven_thousand_mutated_structures_never_give_a_traceback() -> None:
    done, planned = run_batches(7000, mutated_objects)
    assert done >= 70 * settings().max_examples
    assert 0.1 < planned / done < 0.9, "mutations should neither all be refused nor all go unnoticed"


@pytest.mark.properties
def test_three_thousand_mutated_texts_never_give_a_traceback() -> None:
    done, planned = run_batches(3000, mutated_text)
    assert done >= 30 * settings().max_examples
    assert 0.03 < planned / done < 0.97


def test_a_running_pod_that_claims_a_million_gpus_does_not_stop_planning() -> None:
    claims = running(pod("greedy", {"containers": [{"name": "main", "resources": {"limits": {GPU: 10**6}}}]}), "n1")
    with time_limit(1):
        plan_objects([node("n1", "a"), claims])


# -- the corpus is worth mutating


@pytest.mark.parametrize("number", range(len(OWN_WORLDS)))
@pytest.mark.parametrize("policy", policies(), ids=["default", "kube-batch"])
def test_the_corpus_can_be_planned_unmutated(number: int, policy: Policy | None) -> None:
    data = json.dumps({"apiVersion": "v1", "kind": "List", "items": OWN_WORLDS[number]}).encode()
    assert survive(data, policy)


def test_the_corpus_uses_every_field_that_is_read() -> None:
    written = {str(key) for container, key in places(list(OWN_WORLDS)) if isinstance(container, dict)}
    read = {
        name
        for module in (kubernetes, other_schedulers, meta, types, upstream_podgroup)
        for _, struct in inspect.getmembers(module, inspect.isclass)
        if issubclass(struct, meta.Struct)
        for name in struct.__struct_encode_fields__
    }
    assert read - written == set()
