"""The referee's verdicts on victims, sizes and waits: for each a plan that breaks it beside one that keeps it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from properties.cluster_facts import read_facts
from properties.elastic_clusters import NOW, claimed_worlds, elastic_worlds, growing_worlds
from properties.elastic_job_facts import Elasticity, moment, newest, read_elasticity, written_moment
from properties.gpu_facts import GPU
from properties.growth_verdicts import grown_in_vain
from properties.job_stream import BIG, START, Setting, Stream
from properties.needless_victims import could_have_stayed
from properties.raw_objects import Object
from properties.referee import violations
from properties.replay_rounds import Promise, after, read_round, read_state
from properties.test_referee import bind, broken, group, node, nominate, plan_of, pod, queue, round_of, wait
from properties.test_referee_topology import TOPOLOGY, place

EARLIER = "2026-01-01T00:59:30Z"  # 30 s before the newest moment below
LATER = "2026-01-01T01:10:00Z"
CLOCK = pod("clock", 0, on="n1", scheduler="default-scheduler")
CLOCK["status"] = {"phase": "Running", "startTime": "2026-01-01T01:00:00Z"}


def job(name: str, least: int, most: int, **more: object) -> Object:
    """`more`: step, target, resized, grow_after, elastic; the rest goes into the spec."""
    template = {"spec": pod("x")["spec"]}
    role = {"name": "worker", "min": least, "max": most, "step": more.pop("step", 1), "template": template}
    status: Object = {}
    if "target" in more:
        status["target"] = [{"role": "worker", "replicas": more.pop("target")}]
    if "resized" in more:
        status["lastResizeTime"] = more.pop("resized")
    if "grow_after" in more:
        status["growAfter"] = more.pop("grow_after")
    metadata = {"name": name, "namespace": "default"}
    return {"kind": "ElasticJob", "metadata": metadata, "spec": {"roles": [role]} | more, "status": status}


def replica(name: str, index: int, on: str = "n1", ids: str = "") -> Object:
    made = pod(f"{name}-worker-{index}", on=on, ids=ids or str(index)) if on else pod(f"{name}-worker-{index}")
    metadata = made["metadata"]
    assert isinstance(metadata, dict)
    metadata["labels"] = {"maniple.dev/job": name, "maniple.dev/role": "worker", "maniple.dev/index": str(index)}
    return made


def resize(name: str, old: int, new: int, *leaves: int) -> Object:
    """`leaves`: the indices of the replicas that leave with it, for the gang `new`."""
    made: Object = {"job": f"default/{name}", "role": "worker", "from": old, "to": new}
    if leaves:
        made["leaves"] = [{"pod": f"default/{name}-worker-{index}", "for": "default/new"} for index in leaves]
    return made


def take(name: str, beneficiary: str, reason: str = "Shrunk") -> Object:
    return {"pod": f"default/{name}", "reason": reason, "for": f"default/{beneficiary}"}


# Reading.


def test_timestamps_are_seconds() -> None:
    assert moment("1970-01-01T00:01:00Z") == 60
    assert moment("1970-01-01T01:01:00+01:00") == 60
    assert moment(None) is None
    assert written_moment(60) == "1970-01-01T00:01:00Z"
    assert newest([CLOCK, pod("a")]) == moment("2026-01-01T01:00:00Z")


def test_a_speed_up_is_linear_between_points_and_flat_behind_the_last() -> None:
    points: list[Object] = [{"replicas": 1, "speedup": 1.0}, {"replicas": 3, "speedup": 2}]
    elastic = read_elasticity(job("j", 1, 4, elastic={"speedup": points, "restartSeconds": 1800}))
    assert [elastic.speed(count) for count in (1, 2, 3, 9)] == [1, 1.5, 2, 2]
    assert Elasticity({}).speed(5) == 5
    assert elastic.pays_back(1, 2), "half a speed-up more for an hour, half an hour lost"
    assert not elastic.pays_back(2, 3), "half a speed-up more, of one and a half half an hour lost"
    assert not elastic.pays_back(3, 4)


def test_the_size_of_a_job_is_its_target_else_its_pods_else_its_minimum() -> None:
    def size(*objects: Object) -> int:
        facts = read_facts([node("n1"), *objects])
        return read_state(facts, objects).size(facts, "default/j", "worker")

    assert size(job("j", 2, 8)) == 2
    assert size(job("j", 2, 8), *[replica("j", index) for index in range(3)]) == 3
    assert size(job("j", 2, 8, target=5), *[replica("j", index) for index in range(3)]) == 5


def test_replicas_below_the_target_are_implied_and_those_beyond_it_go() -> None:
    objects = [node("n1"), job("j", 1, 4, target=3), replica("j", 0), replica("j", 1)]
    facts = read_facts(objects)
    state = read_state(facts, objects)
    assert state.pending == {"default/j-worker-2"}
    shrunk = round_of(resizes=[resize("j", 3, 1, 1)])
    later = after(facts, state, read_round(facts, state, shrunk))
    assert set(later.pods) == {"default/j-worker-0"}
    assert later.now == state.now + 1
    assert later.resized == {"default/j": state.now}
    grown = after(facts, later, read_round(facts, later, round_of(resizes=[resize("j", 1, 2)])))
    assert grown.pending == {"default/j-worker-1"}


# Sizes.

RUNS = [node("n1", gpus=4), CLOCK, job("j", 2, 4, target=2), replica("j", 0), replica("j", 1)]


def test_growth_is_replayed_and_its_replicas_are_placed_in_the_next_round() -> None:
    placed = round_of(binds=[bind("j-worker-2", "n1", "2"), bind("j-worker-3", "n1", "3")])
    assert not broken(RUNS, round_of(resizes=[resize("j", 2, 4)]), placed)
    assert broken(RUNS, round_of(), placed) == {Promise.BINDS}, "who has not grown has no such replicas"
    assert broken(RUNS, round_of(resizes=[resize("j", 2, 4)]), round_of()) == {Promise.WAITING}


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (3, 4, {}),
        (2, 5, {}),
        (2, 2, {}),
        (2, 3, {"step": 2}),
        (2, 4, {"resized": EARLIER}),
        (2, 4, {"elastic": {"speedup": [{"replicas": 2, "speedup": 2}]}}),
        (2, 3, {"elastic": {"restartSeconds": 3600}}),
        (2, 4, {"target": 3}),
    ],
    ids=["not its size", "beyond", "none", "no step", "cools down", "no gain", "no pay-back", "has waiting pods"],
)
def test_forbidden_growth_is_caught(old: int, new: int, changes: dict[str, object]) -> None:
    objects = [node("n1"), CLOCK, job("j", 2, 4, **({"target": 2} | changes)), replica("j", 0), replica("j", 1)]
    assert Promise.SIZES in broken(objects, round_of(resizes=[resize("j", old, new)], waiting=[wait("j")]))


def test_a_job_is_resized_once_a_round_and_then_cools_down() -> None:
    assert broken(RUNS, round_of(resizes=[resize("j", 2, 3), resize("j", 2, 4)])) == {Promise.SIZES}
    first = round_of(resizes=[resize("j", 2, 3)])
    bound = round_of(binds=[bind("j-worker-2", "n1", "2")], resizes=[resize("j", 3, 4)])
    assert broken(RUNS, first, bound) == {Promise.SIZES}, "60 s are the default"
    hasty = [*RUNS[:2], job("j", 2, 4, target=2, elastic={"cooldownSeconds": 1}), *RUNS[3:]]
    assert not broken(hasty, first, bound)


def test_growth_before_grow_after_is_caught() -> None:
    grows = round_of(resizes=[resize("j", 2, 3)])
    for when, wrong in ((LATER, {Promise.SIZES}), (EARLIER, set())):
        waits = [*RUNS[:2], job("j", 2, 4, target=2, grow_after=when), *RUNS[3:]]
        assert broken(waits, grows) == wrong


def test_growth_of_a_job_that_does_not_run_is_caught() -> None:
    objects = [node("n1"), CLOCK, job("j", 2, 4)]
    assert broken(objects, round_of(resizes=[resize("j", 2, 3)], waiting=[wait("j")])) == {Promise.SIZES}
    starts = [bind("j-worker-0", "n1", "0"), bind("j-worker-1", "n1", "1")]
    assert not broken(objects, round_of(binds=starts, resizes=[resize("j", 2, 3)]))


def test_growth_over_a_limit_is_caught() -> None:
    objects = [queue("default", limit={GPU: 3}), *RUNS]
    assert not broken(objects, round_of(resizes=[resize("j", 2, 3)]))
    assert broken(objects, round_of(resizes=[resize("j", 2, 4)])) == {Promise.SIZES}


def test_growth_without_room_is_caught() -> None:
    grows = round_of(resizes=[resize("j", 2, 4)])
    half = round_of(binds=[bind("j-worker-2", "n1", "2")], waiting=[wait("j")])
    whole = round_of(binds=[bind("j-worker-2", "n1", "2"), bind("j-worker-3", "n1", "3")])
    assert grown_in_vain(RUNS, plan_of(grows, half))
    assert not grown_in_vain(RUNS, plan_of(grows, whole))
    assert not grown_in_vain(RUNS, plan_of(round_of(), round_of()))


# Surplus.

FULL = [node("n1", gpus=4), CLOCK, job("j", 2, 4), *[replica("j", index) for index in range(4)], pod("new", 1)]


def shrink(*victims: int, to: int, old: int = 4) -> Object:
    return round_of(resizes=[resize("j", old, to, *victims)], nominations=[nominate("new", "n1")])


def test_surplus_leaves_from_the_highest_index_and_does_not_come_back() -> None:
    done = round_of(binds=[bind("new", "n1", "3")])
    assert not broken(FULL, shrink(3, to=3), done)
    assert broken(FULL, shrink(3, to=4), done), "without a resize it would come back"
    evicted = round_of(evictions=[take("j-worker-3", "new")], nominations=[nominate("new", "n1")])
    assert Promise.VICTIMS in broken(FULL, evicted, done), "without a resize it would come back"


def test_only_replicas_of_the_role_leave_with_its_resize() -> None:
    evicted = round_of(
        resizes=[resize("j", 4, 3)], evictions=[take("j-worker-3", "new")], nominations=[nominate("new", "n1")]
    )
    assert broken(FULL, evicted) == {Promise.VICTIMS}, "the resize says who leaves"
    other = [*FULL[:-1], pod("other", on="n1"), pod("new", 1)]
    wrong = resize("j", 4, 3, 3)
    wrong["leaves"] = [*wrong["leaves"], {"pod": "default/other", "for": "default/new"}]  # type: ignore[misc]
    assert Promise.VICTIMS in broken(other, round_of(resizes=[wrong], nominations=[nominate("new", "n1")]))


@pytest.mark.parametrize(
    ("victims", "to"), [((2,), 3), ((3,), 2), ((1, 2, 3), 1), ((0, 1, 2, 3), 0)], ids=["inner", "stays", "below", "all"]
)
def test_wrong_shrinking_is_caught(victims: tuple[int, ...], to: int) -> None:
    assert broken(FULL, shrink(*victims, to=to)) & {Promise.SIZES, Promise.VICTIMS}


def test_the_first_replica_stays() -> None:
    objects = [node("n1", gpus=1), CLOCK, job("j", 0, 1), replica("j", 0), pod("new", 1)]
    assert Promise.SIZES in broken(objects, shrink(0, to=0, old=1))


def test_a_replica_below_others_that_stay_is_not_evicted() -> None:
    objects = [node("n1", gpus=2), CLOCK, job("j", 1, 2, target=2), replica("j", 0), replica("j", 1)]
    objects.append(pod("new", 1, priority=1))

    def taken(*victims: int) -> Object:
        evictions = [take(f"j-worker-{index}", "new", "Preempted") for index in victims]
        return round_of(evictions=evictions, nominations=[nominate("new", "n1")])

    assert broken(objects, taken(0)) == {Promise.VICTIMS}
    assert not broken([*objects[:-1], pod("new", 2, priority=1)], taken(0, 1)), "all of the job leave"


def test_steps_are_whole_and_jobs_cool_down_when_they_shrink() -> None:
    by_two = [*FULL[:2], job("j", 2, 4, step=2), *FULL[3:]]
    assert broken(by_two, shrink(3, to=3)) == {Promise.SIZES}
    assert not broken(by_two, shrink(2, 3, to=2))
    hot = [*FULL[:2], job("j", 2, 4, resized=EARLIER), *FULL[3:]]
    assert broken(hot, shrink(3, to=3)) == {Promise.SIZES}


def test_a_resize_that_frees_nothing_is_caught() -> None:
    objects = [node("n1", gpus=4), CLOCK, job("j", 2, 4), *[replica("j", index) for index in range(3)]]
    objects += [replica("j", 3, on=""), pod("new", 2)]
    in_vain = round_of(resizes=[resize("j", 4, 3)], waiting=[wait("j"), wait("new")])
    assert broken(objects, in_vain) == {Promise.SIZES}
    assert not broken(objects, shrink(2, to=2)), "what waits goes with it"


def test_preemptable_protects_the_minimum_and_not_surplus() -> None:
    firm = [*FULL[:2], job("j", 2, 4, preemptable=False), *FULL[3:]]
    assert not broken(firm, shrink(3, to=3))
    all_ = [take(f"j-worker-{index}", "new", "Preempted") for index in range(4)]
    urgent = [*firm[:-1], pod("new", 1, priority=1)]
    whole = round_of(evictions=all_, nominations=[nominate("new", "n1")])
    assert broken(urgent, whole) == {Promise.VICTIMS}
    assert not broken([*FULL[:-1], pod("new", 1, priority=1)], whole), "a gang may go as a whole"


def test_the_last_pods_of_a_group_on_a_node_leave_first() -> None:
    objects = [node("n1", gpus=2), group("g", 1), pod("new")]
    objects += [pod(f"g-{index}", on="n1", group="g", ids=str(index)) for index in range(2)]
    promise = [nominate("new", "n1")]
    assert not broken(objects, round_of(evictions=[take("g-1", "new")], nominations=promise))
    assert broken(objects, round_of(evictions=[take("g-0", "new")], nominations=promise)) == {Promise.VICTIMS}


def test_which_of_two_shares_leaves_depends_on_the_gpu() -> None:
    """Half of the other GPU is held by somebody else."""
    objects = [node("n1", gpus=2), group("g", 1), pod("new")]
    for name, gang, gpu in (("g-0", "g", "1"), ("g-1", "g", "0"), ("other", "", "0")):
        share = pod(name, on="n1", group=gang, ids=gpu)
        share["metadata"]["annotations"] |= {"maniple.dev/gpu-fraction": "0.5"}  # type: ignore[index]
        objects.append(share)
    assert not broken(objects, round_of(evictions=[take("g-0", "new")], nominations=[nominate("new", "n1")]))
    assert broken(objects, round_of(evictions=[take("g-1", "new")], nominations=[nominate("new", "n1")]))


# Protection.


def held(reason: str, minutes: int = 0, **spec: object) -> list[Object]:
    """`old` has run for 60 minutes and is evicted for `new`, with this reason."""
    new = pod("new", priority=1) if reason == "Preempted" else pod("new")
    old = [group("old", 1, minRuntimeSeconds=60 * minutes, **spec), pod("old-0", on="n1", group="old", ids="0")]
    return [node("n1", gpus=1), CLOCK, *old, new]


LEAVES = round_of(evictions=[take("old-0", "new", "Preempted")], nominations=[nominate("new", "n1")])


def test_eviction_before_the_minimum_runtime_is_caught() -> None:
    assert not broken(held("Preempted", 60), LEAVES)
    assert broken(held("Preempted", 61), LEAVES) == {Promise.VICTIMS}


@pytest.mark.parametrize(
    ("own", "queues", "is_fine"),
    [
        (None, {"a": {}}, True),
        (None, {"a": {"minRuntimeSeconds": 3601}}, False),
        (None, {"a": {"minRuntimeSeconds": 3600}}, True),
        (0, {"a": {"minRuntimeSeconds": 3601}}, True),
        (3601, {"a": {"minRuntimeSeconds": 0}}, False),
        (None, {"a": {"parent": "top"}, "top": {"minRuntimeSeconds": 3601}}, False),
        (None, {"a": {"parent": "top", "minRuntimeSeconds": 0}, "top": {"minRuntimeSeconds": 3601}}, True),
    ],
)
def test_eviction_before_the_minimum_runtime_of_the_queue_is_caught(
    own: int | None, queues: dict[str, Object], is_fine: bool
) -> None:
    """Of the nearest queue that names one, if the gang does not."""
    said = {} if own is None else {"minRuntimeSeconds": own}
    old = [group("old", 1, queue="a", **said), pod("old-0", on="n1", group="old", ids="0")]
    new = [group("new", 1, queue="a"), pod("new", group="new", priority=1)]
    written = [queue(name, **spec) for name, spec in queues.items()]
    found = broken([node("n1", gpus=1), CLOCK, *written, *old, *new], LEAVES)
    assert found == (set() if is_fine else {Promise.VICTIMS})


@pytest.mark.parametrize(("spec", "status", "is_fine"), [(0, {}, True), (1, {}, False), (1, 1, True), (0, 0, False)])
def test_evictions_beyond_a_disruption_budget_are_caught(spec: int, status: object, is_fine: bool) -> None:
    selector = {"matchLabels": {"maniple.dev/pod-group": "old"}}
    budget: Object = {"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"}}
    budget |= {"spec": {"minAvailable": spec, "selector": selector}}
    budget |= {"status": {"disruptionsAllowed": status} if status != {} else {}}
    assert bool(broken([*held("Preempted"), budget], LEAVES)) is not is_fine


def test_the_reason_must_be_true() -> None:
    promise = [nominate("new", "n1")]

    def told(reason: str, *objects: Object) -> set[Promise]:
        return broken(list(objects), round_of(evictions=[take("old-0", "new", reason)], nominations=promise))

    equal, urgent = held("Shrunk"), held("Preempted")
    assert not told("Preempted", *urgent)
    assert told("Preempted", *equal) == {Promise.VICTIMS}, "of equal priority"
    assert told("Reclaimed", *urgent) == {Promise.VICTIMS}, "of the same queue"
    assert told("Shrunk", *urgent) == {Promise.VICTIMS}, "not surplus"
    assert told("Displaced", *urgent) == {Promise.VICTIMS}, "not on a node that was kept"
    assert told("Because", *urgent) == {Promise.VICTIMS}
    other = [queue("other"), *held("Reclaimed", queue="other")]
    assert not told("Reclaimed", *other)
    assert told("Preempted", *other[:-1], pod("new", priority=1)) == {Promise.VICTIMS}, "of another queue"
    kept = pod("new")
    kept["status"] = {"phase": "Pending", "nominatedNodeName": "n1"}
    assert not told("Displaced", *equal[:-1], kept)


def test_room_taken_for_a_gang_must_go_to_it() -> None:
    objects = held("Preempted")
    assert not broken(objects, LEAVES, round_of(binds=[bind("new", "n1", "0")], waiting=[wait("old")]))
    other = round_of(binds=[bind("old-0", "n1", "0")], waiting=[wait("new")])
    assert broken(objects, LEAVES, other) == {Promise.VICTIMS}


# Needless victims.


def test_a_victim_that_could_have_stayed_is_caught() -> None:
    done = shrink(2, 3, to=2)
    assert could_have_stayed(FULL, plan_of(done)), "one would have been enough"
    assert not could_have_stayed([*FULL[:-1], pod("new", 2)], plan_of(done))
    by_two = [*FULL[:2], job("j", 2, 4, step=2), *FULL[3:]]
    assert not could_have_stayed(by_two, plan_of(done)), "half a step cannot stay"


def test_evicting_a_whole_gang_is_caught_where_part_of_it_was_enough() -> None:
    objects = [node("n1", gpus=3), group("g", 1), *[pod(f"g-{i}", on="n1", group="g", ids=str(i)) for i in range(3)]]
    all_ = round_of(
        evictions=[take(f"g-{i}", "new", "Preempted") for i in range(3)], nominations=[nominate("new", "n1")]
    )
    assert could_have_stayed([*objects, pod("new", 2, priority=1)], plan_of(all_))
    assert not could_have_stayed([*objects, pod("new", 3, priority=1)], plan_of(all_))


def test_room_in_two_domains_is_no_room_for_a_gang_that_must_be_in_one() -> None:
    nodes = [TOPOLOGY, place("n1", 1, "b/r1"), place("n2", 1, "b/r2"), place("n3", 1, "b/r2")]
    new = [group("new", 2, topology={"required": "rack"}), *[pod(f"new-{i}", group="new") for i in range(2)]]
    old = [group("old", 1), pod("old-0", on="n1", group="old"), pod("old-1", on="n2", group="old")]
    promise = [nominate("new-0", "n2"), nominate("new-1", "n3")]
    done = round_of(evictions=[take("old-1", "new")], nominations=promise)
    assert not could_have_stayed([*nodes, *new, *old], plan_of(done))
    anywhere = [group("new", 2), *new[1:]]
    assert not could_have_stayed([*nodes, *anywhere, *old], plan_of(done))
    assert could_have_stayed([*nodes, place("n4", 1, "b/r2"), *anywhere, *old], plan_of(done))


# The stream.

SMALL = Setting(nodes=2, gpus=2, members=4, gpus_each=1, tick_s=60, backlog=4, longest_s=240)


def free_gpus(objects: list[Object]) -> dict[str, list[int]]:
    state = read_state(read_facts(objects), objects)
    held_ = {
        name: [int(gpu) for key, at_ in state.where.items() if at_ == name for gpu in state.gpu_ids.get(key, ())]
        for name in ("n0", "n1")
    }
    return {name: [gpu for gpu in range(2) if gpu not in used] for name, used in held_.items()}


def greedy(objects: list[Object], is_patient: bool = False) -> Object:
    """A planner that gives free room to small work; a patient one keeps it for the gang once that has arrived."""
    state = read_state(read_facts(objects), objects)
    free = free_gpus(objects)
    big = sorted(key for key in state.pending if key.startswith(f"default/{BIG}-"))
    is_kept = is_patient and bool(big)
    binds: list[Object] = []
    wanted = [] if is_kept else sorted(state.pending - set(big))
    if big and sum(map(len, free.values())) >= len(big):
        wanted = big
    for key in wanted:
        count = state.pods[key].gpu_count
        spot = next((name for name, left in free.items() if len(left) >= count), None)
        if spot is not None:
            binds.append({"pod": key, "node": spot, "gpus": [str(free[spot].pop(0)) for _ in range(count)]})
    kept = {"group": f"default/{BIG}", "nodes": {"n0": 2, "n1": 2}, "expected": written_moment(START)}
    return {"rounds": [round_of(binds=binds) | {"reservations": [kept] if is_kept and wanted is not big else []}]}


def test_a_gang_that_is_always_overtaken_is_noticed() -> None:
    assert Stream(SMALL, greedy).run(60) == ["nothing is reserved for the gang after 360 s"]


def test_a_gang_that_starts_after_earlier_pods_have_ended_is_fine() -> None:
    assert Stream(SMALL, lambda objects: greedy(objects, is_patient=True)).run(60) == []


def test_a_reservation_that_is_not_kept_is_noticed() -> None:
    def forgetful(objects: list[Object]) -> Object:
        planned = greedy(objects)
        return {"rounds": [{**_only(planned), "reservations": _only(greedy(objects, is_patient=True))["reservations"]}]}

    (sentence,) = Stream(SMALL, forgetful).run(60)
    assert sentence == "all who ran on the reserved nodes have ended, and the gang has not started"


def test_needlessly_idle_gpus_are_noticed() -> None:
    (sentence, *_) = Stream(SMALL, lambda _: {"rounds": [round_of()]}).run(3)
    assert sentence == "2 GPUs of n0 idle, and work of 1 waits"


def _only(planned: Object) -> Object:
    rounds = planned["rounds"]
    assert isinstance(rounds, list)
    (one,) = rounds
    assert isinstance(one, dict)
    return one


# The random clusters.


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(elastic_worlds() | claimed_worlds() | growing_worlds())
def test_elastic_clusters_break_no_promise_by_themselves(objects: list[Object]) -> None:
    """No node is over-committed, no gang runs below its minimum, and the time is that of the clock."""
    facts = read_facts(objects)
    state = read_state(facts, objects)
    assert state.now == moment(NOW)
    for gang in facts.gangs:
        placed = [state.pods[key].role for key in state.where if state.pods[key].gang == gang]
        assert not placed or not facts.gang(gang).missing(placed)
    waiting = sorted({state.pods[key].gang for key in state.pending})
    told = [wait(key.removeprefix("default/"), facts.gang(key).queue) for key in waiting]
    assert violations(objects, plan_of(round_of(waiting=told))) == []
