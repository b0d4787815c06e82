"""A private cluster for a benchmark, and the table of its results."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing_and_results import Result
from tools.cluster import Cluster, Spec, build
from tools.cluster.cluster import programs_for


def say(line: str) -> None:
    print(f"{line} …", file=sys.stderr, flush=True)


def measure_on_a_cluster(measure: Callable[[Cluster, Path], list[Result]], *, kube_scheduler: bool = False) -> None:
    """`measure` gets the cluster and a folder for logs; both are gone afterwards."""
    spec = Spec(name=f"bench-{os.getpid()}", kube_scheduler=kube_scheduler, owner_pid=os.getpid())
    build.ensure(say, programs_for(spec), with_packages=False)
    cluster = Cluster.up(spec, say)
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(cluster, Path(folder))
    finally:
        cluster.down()
    print("| what | measured | aim | |\n|---|---|---|---|")
    for one in found:
        print(f"| {one.name} | {one.figure} | {one.aim} | {'met' if one.met else 'MISSED'} |")
