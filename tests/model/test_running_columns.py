"""Columns of running pods are kept up to date: they equal those made anew, and what changes costs what has changed."""

import random
from dataclasses import fields

import numpy as np
from scheduler.counted_work import work_of

from maniple.model.gpu.devices import GpuGrant
from maniple.model.job import Job, PlacedPod
from maniple.model.pod_identity import JobKey
from maniple.model.running_columns import RunningColumns, RunningJobs, running_columns


def job(draw: random.Random, key: JobKey) -> Job:
    pods = [
        PlacedPod(
            pod=f"{key[0]}-{nth}",
            node=draw.randrange(-1, 5),
            role="",
            priority=0,
            requests=np.array([float(draw.randrange(8)), 1.0]),
            pod_affinity=None,
            started=draw.random(),
            is_critical=False,
            labels={},
            gpus=tuple(GpuGrant(1, draw.randrange(8), 1000) for _ in range(draw.randrange(3))),
            ends=draw.random(),
        )
        for nth in range(draw.randrange(1, 4))
    ]
    least = draw.randrange(1, 4)
    return Job(
        key=key,
        queue=draw.randrange(3),
        priority=draw.randrange(3),
        created=0,
        min_member=least,
        role_min={},
        placed=pods,
    )


def as_lists(columns: RunningColumns) -> list[object]:
    values = [getattr(columns, field.name) for field in fields(columns)]
    return [value.tolist() if isinstance(value, np.ndarray) else list(map(id, value)) for value in values]


def test_columns_that_were_kept_equal_those_made_anew() -> None:
    draw = random.Random(1)
    by_key: dict[JobKey, Job] = {}
    jobs = RunningJobs(())
    for step in range(300):
        changed = sorted({(f"ns/{draw.randrange(40)}", "") for _ in range(draw.randrange(1, 6))})
        for key in changed:
            if draw.random() < 0.4:
                by_key.pop(key, None)
            else:
                by_key[key] = job(draw, key)
        jobs = RunningJobs((by_key[key] for key in sorted(by_key)), jobs, changed)
        if step % 3:  # not every cycle looks at them
            assert as_lists(running_columns(jobs)) == as_lists(RunningColumns.of(list(jobs)))
            for number, of_columns in enumerate(jobs.columns.jobs):
                assert jobs.columns.number_of(of_columns.key) == number


def test_a_change_costs_no_more_if_more_jobs_run() -> None:
    def change(count: int) -> int:
        draw = random.Random(1)
        running = [job(draw, (f"ns/{number:05d}", "")) for number in range(count)]
        before = RunningJobs(running)
        assert before.columns.jobs
        changed = running[7].key
        draw = random.Random(2)
        after = [*running[:7], job(draw, changed), *running[8:]]
        return work_of(lambda: RunningJobs(after, before, [changed]).columns)

    # A search among twice as many jobs takes a step more, each time.
    assert change(2048) <= change(1024) + 100
