"""`python -m benchmarks [NAME…] [-o json]`: runs benchmarks, prints a table (or JSON), says what each aim was.
`--against PATH` compares this tree with another one instead.
"""

import argparse
import gc
import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import cache, compare_trees, generated_clusters, moving_jobs, reclaim_and_preempt, settled
from benchmarks.timing_and_results import Result, best, snapshot_of
from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, schedule
from maniple.scheduler.framework.policy import default_policy
from maniple.scheduler.placement.domains_and_models import by_domain, scopes


def throughput() -> list[Result]:
    snapshot = snapshot_of(generated_clusters.big(10_000, 5_000))
    pods = sum(job.waiting_pods for job in snapshot.waiting)
    plan: list[Plan] = []
    seconds = best(lambda: plan.append(schedule(snapshot)))
    rate = pods / seconds
    bound = len(plan[-1].binds)
    return [
        Result(
            "10,000 nodes x 8 GPUs, 100 queues, 5,000 gangs of 1-64 pods",
            f"{rate:,.0f} pods/s ({pods:,} pods, {bound:,} bound, {seconds:.2f} s)",
            ">= 20,000 pods/s",
            rate >= 20_000,
            seconds,
        )
    ]


def closeness() -> list[Result]:
    """The case of `throughput` where all gangs use links and racks, compared with the case without, in one run."""
    plain, close = (snapshot_of(generated_clusters.big(10_000, 5_000, is_close=is_close)) for is_close in (False, True))
    times = {id(snapshot): math.inf for snapshot in (plain, close)}
    for _ in range(3):
        for snapshot in (plain, close):
            seconds = best(lambda snapshot=snapshot: schedule(snapshot), times=1)  # type: ignore[misc]
            times[id(snapshot)] = min(times[id(snapshot)], seconds)
    off, on = times[id(plain)], times[id(close)]
    figure = f"{on / off:.2f} times ({off:.2f} -> {on:.2f} s)"
    return [Result("the same with topology: 25 blocks, 625 racks, NVLink", figure, "<= 2 times", on <= 2 * off, on)]


def domain() -> list[Result]:
    """Choosing among 625 racks for one gang, compared with one pass over the nodes that adds up their room by rack."""
    objects = [*generated_clusters.nodes(10_000), generated_clusters.topology()]
    objects += generated_clusters.gang("g", 64, (1, "8", "32Gi"), "default", 0, {"required": "rack"})
    session = default_policy().session(snapshot_of(objects))
    job = session.snapshot.waiting[0]
    need, groups = session.job_need(job), session.groups(job)

    def choose() -> None:
        for _ in range(100):
            next(scopes(session, job, need, groups, later=False))

    level, fits = session.snapshot.domains.levels["rack"], session.capacity.fits(groups[0])

    def one_pass() -> None:
        for _ in range(100):
            by_domain(level, fits)

    choose()
    chosen, passed = best(choose) / 100, best(one_pass) / 100
    figure = f"{chosen * 1e6:.0f} µs; a pass takes {passed * 1e6:.0f} µs"
    return [Result("choosing the rack of a gang among 625, 10,000 nodes", figure, "<= 1 ms", chosen <= 1e-3, chosen)]


def unfitting() -> list[Result]:
    objects = [
        *generated_clusters.nodes(10_000),
        *generated_clusters.gang("huge", 10_001, (8, "64", "256Gi"), "default", 0),
    ]
    snapshot = snapshot_of(objects)
    seconds = best(lambda: schedule(snapshot))
    name = "a gang that cannot fit, 10,000 nodes"
    return [Result(name, f"{seconds * 1e3:.1f} ms", "<= 50 ms", seconds <= 0.05, seconds)]


def idle() -> list[Result]:
    snapshot = snapshot_of(generated_clusters.running(10_000, 10))
    schedule(snapshot)
    seconds = best(lambda: schedule(snapshot), times=5)
    name = "a cycle with nothing to do, 10,000 nodes, 100,000 running pods"
    return [Result(name, f"{seconds * 1e3:.1f} ms", "<= 30 ms", seconds <= 0.03, seconds)]


def scaling() -> list[Result]:
    """The same 200 gangs of 16 pods on 1,000 and on 10,000 nodes, in one run."""
    cost = {}
    for count in (1_000, 10_000):
        objects = list(generated_clusters.nodes(count))
        for number in range(200):
            objects += generated_clusters.gang(f"g{number:03d}", 16, (1, "8", "32Gi"), "default", number)
        snapshot = snapshot_of(objects)
        cost[count] = best(lambda snapshot=snapshot: schedule(snapshot)) / 200  # type: ignore[misc]
    ratio = cost[10_000] / cost[1_000]
    figure = f"{ratio:.1f} times ({cost[1_000] * 1e3:.2f} -> {cost[10_000] * 1e3:.2f} ms a gang)"
    name = "a gang on 10,000 nodes against one on 1,000"
    return [Result(name, figure, "<= 6 times", ratio <= 6, cost[10_000])]


def loading() -> list[Result]:
    """Three times, each in its own process, to measure its memory; the fastest time and the largest memory count."""
    command = [sys.executable, "-c", "from benchmarks.__main__ import load_once; load_once()"]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)]
    times = sorted(run["seconds"] for run in runs)
    peak = max(run["peak_mb"] for run in runs)
    name = f"loading 10,000 nodes and 100,000 pods from {runs[0]['megabytes']:.0f} MB of JSON"
    shown = f"{times[0]:.2f} s (slowest of three {times[-1]:.2f} s)"
    return [
        Result(f"{name}: time", shown, "<= 5 s", times[0] <= 5, times[0]),
        Result(f"{name}: memory", f"{peak:.0f} MB at most", "<= 1,000 MB", peak <= 1000),
    ]


def load_once() -> None:
    """Prints how long the bytes of a dump take to become a snapshot, and the most memory that took."""
    # Written by another process: what making the dump takes is not part of the figure.
    code = (
        "import sys; from benchmarks.generated_clusters import dump, running;"
        "sys.stdout.buffer.write(dump(running(10_000, 10)))"
    )
    with tempfile.TemporaryFile() as file:
        subprocess.run([sys.executable, "-c", code], check=True, stdout=file)
        file.seek(0)
        data = file.read()
    gc.disable()
    start = time.process_time()
    snapshot = build_snapshot(sort_objects(decode([("dump", data)]), scheduler_name="maniple"))
    seconds = time.process_time() - start
    assert len(snapshot.jobs) == 100_000
    print(json.dumps({"seconds": seconds, "peak_mb": _peak_mb(), "megabytes": len(data) / 1e6}))


def _peak_mb() -> float:
    """The most memory this program has held. Not ru_maxrss: that one remembers the process that started us."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status says nothing of VmHWM")


def singles() -> list[Result]:
    """The worst case for batching: every pod is its own gang."""
    count = 20_000
    moment = "2026-01-01T00:00:00Z"
    pods = [generated_clusters.pod(f"p{number:05d}", (1, "8", "32Gi"), {}, created=moment) for number in range(count)]
    snapshot = snapshot_of([*generated_clusters.nodes(10_000), *pods])
    seconds = best(lambda: schedule(snapshot), times=2)
    name = f"{count:,} single pods, 10,000 nodes"
    return [Result(name, f"{count / seconds:,.0f} pods/s ({seconds:.2f} s)", "none set", True, seconds)]


def elastic() -> list[Result]:
    """2,000 jobs that all grow, a little or from next to nothing, or that fill the cluster when 50 gangs arrive."""
    cases = (
        ("grow", 36, 0, "all grow by 4 steps"),
        ("grow", 8, 0, "all grow by 32 steps"),
        ("shrink", 40, 50, "50 gangs of 64 pods wait"),
    )
    results = []
    for name, size, gangs, what in cases:
        snapshot = snapshot_of(generated_clusters.elastic(10_000, 2_000, size, gangs))
        plans: list[Plan] = []
        cycle = best(lambda snapshot=snapshot, plans=plans: plans.append(schedule(snapshot)))  # type: ignore[misc]
        seconds = min(_seconds_of(snapshot, name) for _ in range(3))
        figure = f"{seconds:.2f} s ({len(plans[0].resizes):,} resizes; the whole cycle {cycle:.2f} s)"
        label = f"{name}: 2,000 elastic jobs, 10,000 nodes, {what}"
        results.append(Result(label, figure, "<= 1 s", seconds <= 1, cycle))
    return results


def _seconds_of(snapshot: Snapshot, action: str) -> float:
    """How long one action of the built-in policy takes, after those before it."""
    policy = default_policy()
    session = policy.session(snapshot)
    for name, each in policy.actions:
        gc.collect()
        start = time.process_time()
        each.execute(session)
        if name == action:
            return time.process_time() - start
    raise ValueError(f"the built-in policy has no action {action!r}")


BENCHMARKS: dict[str, Callable[[], list[Result]]] = {
    "throughput": throughput,
    "closeness": closeness,
    "domain": domain,
    "singles": singles,
    "elastic": elastic,
    "reclaim": reclaim_and_preempt.reclaim,
    "preempt": reclaim_and_preempt.preempt,
    "consolidate": moving_jobs.consolidate,
    "unfitting": unfitting,
    "idle": idle,
    "settled": settled.settled,
    "scaling": scaling,
    "loading": loading,
    "cache": cache.cache,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all if none is given"
    )
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--against", type=Path, metavar="PATH", help="compare with the tree in this folder instead")
    parser.add_argument("--rounds", type=int, default=2, help="how often --against runs each tree (default: 2)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    if options.against is not None:
        if not (options.against / "benchmarks").is_dir():
            parser.error(f"--against {options.against}: it has no folder 'benchmarks'; give the root of a worktree")
        if options.rounds < 1:
            parser.error(f"--rounds {options.rounds}: give at least 1")
        compare_trees.compare(options.against, options.names or list(BENCHMARKS), options.rounds)
        return
    results: list[Result] = []
    for name in options.names or BENCHMARKS:
        print(f"{name} …", file=sys.stderr, flush=True)
        results += BENCHMARKS[name]()
    if options.output == "json":
        print(json.dumps([vars(result) for result in results], indent=1))
        return
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    print("| what | measured | aim | |\n|---|---|---|---|")
    for result in results:
        print(f"| {result.name} | {result.figure} | {result.aim} | {'met' if result.met else 'MISSED'} |")


if __name__ == "__main__":
    main()
