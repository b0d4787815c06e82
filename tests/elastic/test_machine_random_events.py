"""Random events in any order, with the controller killed anywhere: the promises hold (simulated_cluster.py checks them
at every write), and once nothing more happens the job is where it should be."""

import random
from collections.abc import Iterator

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elastic.simulated_cluster import RUNS, Pod, World, elastic_job
from maniple.api.phases import FINISHED
from maniple.elastic.events import CreateRefused
from maniple.elastic.transitions import TRANSITIONS

EXITS = (0, 1, 127, 137, 143)
REASONS = ("", "", "", "Evicted", "OutOfcpu", "UnexpectedAdmissionError")
SHAPES = (
    (("worker", 2, 5),),
    (("worker", 1, 3),),
    (("worker", 3, 3),),
    (("chief", 1, 1), ("worker", 1, 4)),
    (("chief", 0, 2), ("worker", 2, 3)),
)


class Happenings:
    """All that can happen to a job, with details chosen by a number: for hypothesis and for random walks."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _pick(self, number: int, *stages: str) -> Pod | None:
        pods = [pod for pod in self.world.pods.values() if pod.stage in stages]
        return sorted(pods, key=lambda pod: (pod.role, pod.index))[number % len(pods)] if pods else None

    def bind(self, number: int) -> None:
        pod = self._pick(number, "pending")
        if pod is not None and not pod.is_leaving:
            self.world.bind(pod)

    def bind_all(self, _number: int) -> None:
        for pod in self.world.pods.values():
            if pod.stage == "pending":
                self.world.bind(pod)

    def get_ready(self, number: int) -> None:
        pod = self._pick(number, "starting")
        if pod is not None:
            self.world.get_ready(pod)

    def get_all_ready(self, _number: int) -> None:
        for pod in self.world.pods.values():
            if pod.stage == "starting":
                self.world.get_ready(pod)

    def get_unready(self, number: int) -> None:
        pod = self._pick(number, "ready")
        if pod is not None and number % 4 == 0:
            self.world.get_unready(pod)

    def end(self, number: int) -> None:
        pod = self._pick(number, "starting", "ready")
        if pod is not None:
            self.world.end(pod, EXITS[number // 7 % len(EXITS)], REASONS[number // 3 % len(REASONS)])

    def evict(self, number: int) -> None:
        pod = self._pick(number, "starting", "ready")
        if pod is not None:
            self.world.evict(pod)

    def vanish(self, number: int) -> None:
        pod = self._pick(number, "pending", "starting", "ready", "succeeded", "failed")
        if pod is not None:
            self.world.vanish(pod)

    def leave(self, number: int) -> None:
        leaving = [pod for pod in self.world.pods.values() if pod.is_leaving]
        if leaving:
            self.world.vanish(leaving[number % len(leaving)])

    def decide(self, number: int) -> None:
        roles = self.world.item.spec.roles
        role = roles[number % len(roles)]
        if self.world.phase not in FINISHED:
            self.world.decide(**{role.name: number // 3 % (role.max + 2)})

    def resize_role(self, number: int) -> None:
        index = number % len(self.world.item.spec.roles)
        role = self.world.item.spec.roles[index]
        least = role.min if role.min == 0 else 1 + number // 5 % 3
        most = max(least, number // 7 % 6)
        pin = (None, None, least, most)[number // 11 % 4]
        self.world.edit_role(index, min=least, max=most, pin=pin)

    def overwrite(self, number: int) -> None:
        if self.world.phase in ("Pending", "Starting", *RUNS):
            self.world.overwrite(("Pending", "Starting", *RUNS)[number % 5])

    def suspend(self, number: int) -> None:
        self.world.edit(suspend=number % 3 == 0)

    def acknowledge(self, number: int) -> None:
        pod = self._pick(number, "ready")
        if pod is not None:
            state = ("stopped", "stopped", "running", "failed", "failed", "done")[number // 3 % 6]
            current = self.world.status.generation.number
            generation = max(0, current - (number // 17 % 4 == 0))
            self.world.acknowledge(pod, state, generation, EXITS[1 + number // 19 % 4])

    def report(self, number: int) -> None:
        self.world.report(None if number % 5 == 0 else 1.0 + number % 50, step=number)

    def refuse(self, number: int) -> None:
        """The answer to a create arrives late."""
        if number % 16 == 0:
            self.world.tell(CreateRefused("worker", 0, "spec.containers: required"))

    def shorten(self, number: int) -> None:
        if number % 16 == 0:
            self.world.edit(active_deadline_seconds=1)

    def hear(self, number: int) -> None:
        news = sorted(self.world.news, key=lambda key: key or ("", 0))
        if news:
            self.world.hear(news[number % len(news)])

    def hear_of_one_that_is_gone(self, _number: int) -> None:
        if self.world.gone:
            self.world.tell(self.world.gone.pop(0))

    def hear_all(self, _number: int) -> None:
        self.world.hear_all()

    def hear_all_at_once(self, _number: int) -> None:
        self.world.hear_all_at_once()

    def hear_again(self, number: int) -> None:
        keys = [None, *sorted(self.world.pods)]
        self.world.hear(keys[number % len(keys)])

    def wait(self, number: int) -> None:
        self.world.pass_time((0.5, 2.1, 6.0, 31.0, 61.0)[number % 5])

    def set_clock(self, number: int) -> None:
        if number % 8 == 0:
            self.world.set_clock((-3600.0, -20.0, 20.0, 3600.0)[number // 8 % 4])

    def be_killed(self, _number: int) -> None:
        self.world.restart()

    def be_killed_soon(self, number: int) -> None:
        self.world.kill_after = number % 6


ALL = [name for name in vars(Happenings) if not name.startswith("_")]


def new_world(number: int) -> World:
    shape = SHAPES[number % len(SHAPES)]
    spec = {
        "framework": ("torch", "torch", "none", "torchrun")[number // 5 % 4],
        "restartPolicy": ("OnFailure", "OnFailure", "ExitCode", "Never", "Always")[number // 3 % 5],
        "backoffLimit": (0, 1, 3, 50)[number // 11 % 4],
        "cleanPodPolicy": ("Running", "All")[number // 13 % 2],
        "startSeconds": 60,
        **({"activeDeadlineSeconds": 90} if number // 17 % 6 == 0 else {}),
        **({"ttlSecondsAfterFinished": 10} if number // 19 % 3 == 0 else {}),
    }
    return World(elastic_job(shape, **spec))


def check_rest(world: World) -> None:
    """When nothing more happens, the job is at the size that was decided, or holds nothing."""
    world.settle()
    if world.is_deleted:
        return  # and its pods with it
    unfinished = [pod for pod in world.pods.values() if not pod.has_ended]
    phase = world.phase
    if phase in FINISHED:
        assert not unfinished, f"{phase}, and pods still run"
        assert world.status.completion_time is not None
    elif world.item.spec.suspend:
        assert phase == "Suspended"
        assert not world.pods
        assert world.reason("Suspended") == "Suspended"
    else:
        assert phase == "Running", phase
        target = {one.role: one.replicas for one in world.status.target}
        keeps = world.item.spec.restart_policy != "Always"
        for role in world.item.spec.roles:
            pods = sorted((pod for pod in world.pods.values() if pod.role == role.name), key=lambda pod: pod.index)
            # Replicas above the size that have succeeded may stay.
            size = target.get(role.name, role.most)
            mine = [pod.index for pod in pods if pod.index < size or pod.stage != "succeeded" or not keeps]
            assert mine == list(range(len(mine))), mine
            assert role.least <= len(mine) <= role.most or (role.most == 0 and mine == [0])
            if role.name in target:
                assert len(mine) == target[role.name]
        members = {(one.role, one.index) for one in world.status.generation.members}
        done = {key for key, pod in world.pods.items() if pod.stage == "succeeded"}
        assert members - done == world.pods.keys() - done
        assert world.published[-1] == world.status.generation
    counts = world.status.replicas
    assert (counts.pending, counts.starting, counts.running) == (0, 0, len(unfinished))


class Anything(RuleBasedStateMachine):
    world: World

    @initialize(number=st.integers(0, 10_000))
    def begin(self, number: int) -> None:
        self.world = new_world(number)

    @rule(happening=st.sampled_from(ALL), number=st.integers(0, 400))
    def something_happens(self, happening: str, number: int) -> None:
        if not self.world.is_deleted:
            getattr(Happenings(self.world), happening)(number)

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        if not self.world.is_deleted:
            self.world.settle()

    @invariant()
    def one_pod_an_index(self) -> None:
        if hasattr(self, "world"):
            assert len({pod.uid for pod in self.world.pods.values()}) == len(self.world.pods)

    def teardown(self) -> None:
        if hasattr(self, "world") and not self.world.is_deleted:
            check_rest(self.world)


TestAnything = Anything.TestCase
TestAnything.settings = settings(
    max_examples=400,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def walk(seed: int) -> World:
    chance = random.Random(seed)
    world = new_world(chance.randrange(10_000))
    happenings = Happenings(world)
    for _ in range(chance.randrange(5, 80)):
        if world.is_deleted:
            return world
        if chance.random() < 0.1:
            world.settle()
        if not world.is_deleted:
            getattr(happenings, chance.choice(ALL))(chance.randrange(400))
            if chance.random() < 0.6:
                world.hear_all()
    if not world.is_deleted:
        check_rest(world)
    return world


def rarities() -> Iterator[World]:
    """Cases that random walks rarely reach."""
    for happening in ("stuck", "done", "crash", "give-up"):
        world = World(elastic_job((("worker", 2, 4),), startSeconds=60))
        world.settle()
        if happening == "stuck":
            world.decide(worker=4)
            world.hear_all()
            Happenings(world).bind_all(0)
            world.hear_all()
            world.pass_time(61)
        elif happening == "done":
            world.acknowledge(world.pod(0), "failed", code=1)
            world.pass_time(3)
            world.acknowledge(world.pod(0), "done")
        elif happening == "give-up":
            world.acknowledge(world.pod(0), "failed", code=1)
            world.pass_time(3)
            world.vanish(world.pod(1))
            world.hear_all()
        else:
            world.vanish(world.pod(1))
            world.hear_all()
            world.settle(has_room=False)
            Happenings(world).bind_all(0)
            world.hear_all()
            world.edit(active_deadline_seconds=1)
            world.pass_time(2)
            world.hear_all()
        yield world
    for pin in (None, 2):  # a sweep loses its last, and again
        world = World(elastic_job((("worker", 1, 2),), framework="none"))
        world.decide(worker=2)
        world.edit_role(pin=pin)
        world.settle()
        world.end(world.pod(0), 0)
        world.hear_all()
        world.vanish(world.pod(1))
        world.hear_all()
        world.end(world.pod(1), 1)
        world.hear_all()
        world.pass_time(3)
        yield world
    for state in ("failed", "done", "late", "lost"):
        world = World(elastic_job((("worker", 2, 4),)))
        world.decide(worker=4)
        world.settle()
        world.decide(worker=3 if state == "lost" else 2)
        world.hear_all()
        if state == "lost":
            world.end(world.pod(1), 1)
            world.hear_all()
        elif state == "late":
            world.edit(active_deadline_seconds=1)
            world.hear_all()
        else:
            world.acknowledge(world.pod(0), state, code=1)
        world.pass_time(3)
        yield world


def test_every_transition_is_taken_from_every_phase() -> None:
    paths = {(source, transition.name) for transition in TRANSITIONS for source in transition.sources}
    taken = {path for world in rarities() for path in world.paths}
    for seed in range(2000):
        taken |= walk(seed).paths
        if seed >= 300 and taken == paths:
            break
    assert paths - taken == set()


def test_a_phase_that_a_user_wrote_and_the_controller_has_not_heard_of_changes_nothing() -> None:
    """It starts over because of the first wrong phase. The second is not yet known to it, and must not be judged by."""
    world = World(elastic_job((("worker", 2, 5),)))
    world.decide(worker=3)
    world.settle()
    world.vanish(world.pod(1))
    world.decide(worker=5)
    world.hear_all()
    world.get_unready(world.pod(2))
    world.hear_all()
    world.overwrite("Pending")
    world.restart()
    assert world.indices() == [0, 1, 2, 3, 4]
    world.overwrite("Running")
    world.hear(("worker", 0))
    check_rest(world)


def test_a_job_at_rest_stays_at_rest() -> None:
    world = World(elastic_job())
    world.settle()
    assert world.phase in RUNS
    written = world.item
    for _ in range(5):
        world.restart()
        world.pass_time(1000)
        world.hear(None)
        world.hear(("worker", 0))
    assert world.item is written
