"""Views of jobs, without a cluster."""

from __future__ import annotations

import msgspec
import pytest

from maniple.views.jobs import SizeHistory, changed_jobs, job_view, status_line
from views.objects import condition, elastic_job, view_of


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ({}, "None"),
        ({"step": 0, "time": "2026-01-01T09:59:00Z"}, "step 0"),
        ({"step": 1200, "total": 5000, "time": "2026-01-01T09:59:00Z"}, "24%"),
        ({"step": 4999, "total": 5000, "time": "2026-01-01T09:59:00Z"}, "99%"),
        ({"step": 5001, "total": 5000, "time": "2026-01-01T09:59:00Z"}, "100%"),
        ({"step": 3, "total": 0, "time": "2026-01-01T09:59:00Z"}, "step 3"),
    ],
)
def test_progress_is_a_percentage_if_the_total_is_known(progress: dict[str, object], text: str) -> None:
    assert str(job_view(elastic_job(progress=progress), []).progress) == text


def test_a_status_line_says_the_size_and_why_the_job_waits() -> None:
    assert status_line(elastic_job()) == "Submitted: no `maniple serve` has seen it yet"
    waits = condition("Scheduled", "False", "InsufficientResources", "needs 4 pods")
    assert (
        status_line(elastic_job(phase="Pending", conditions=[waits])) == "Pending: InsufficientResources: needs 4 pods"
    )
    running = elastic_job(phase="Growing", target=[{"role": "worker", "replicas": 8}], replicas={"running": 4})
    assert status_line(running) == "Growing with 4 of 8 replicas"
    failed = condition("Failed", "True", "BackoffLimitExceeded", "worker-2 exited with 1")
    assert (
        status_line(elastic_job(phase="Failed", conditions=[failed]))
        == "Failed: BackoffLimitExceeded: worker-2 exited with 1"
    )
    assert status_line(elastic_job(phase="Succeeded", replicas={"running": 1})) == "Succeeded"


@pytest.mark.parametrize(
    ("pin", "target", "running", "text"),
    [
        (6, [], 6, "6 of 6"),
        (6, [], 5, "5 of 6"),
        (6, [{"role": "worker", "replicas": 4}], 4, "4 of 6"),
        (None, [], 3, "3 of 4"),
        (None, [], 7, "7 of 7"),
        (None, [{"role": "worker", "replicas": 5}], 7, "7 of 5"),
    ],
)
def test_the_target_of_a_pinned_job_is_its_pin(pin: int | None, target: list[object], running: int, text: str) -> None:
    job = elastic_job(phase="Running", target=target, replicas={"running": running})
    role = msgspec.structs.replace(job.spec.roles[0], pin=pin)
    pinned = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, roles=(role,)))
    assert status_line(pinned) == f"Running with {text} replicas"


def test_a_restarting_job_says_what_failed_and_not_that_pods_are_missing() -> None:
    scheduled = condition("Scheduled", "False", "Waiting", "its pods are not all there yet")
    restarting = condition("Restarting", "True", "ReplicaFailed", "bert-worker-0 ended with exit code 1")
    again = elastic_job(phase="Restarting", conditions=[scheduled, restarting])
    assert status_line(again) == "Restarting: ReplicaFailed: bert-worker-0 ended with exit code 1"
    waits = elastic_job(phase="Pending", conditions=[scheduled, restarting])
    assert status_line(waits) == "Pending: Waiting: its pods are not all there yet"


def test_the_queue_is_the_one_named_then_the_one_found_then_default() -> None:
    job = elastic_job(phase="Pending")
    assert job_view(job, []).queue == "default"
    found = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, queue="of-its-namespace"))
    assert job_view(found, []).queue == "of-its-namespace"
    named = msgspec.structs.replace(found, spec=msgspec.structs.replace(job.spec, queue="just-named"))
    assert job_view(named, []).queue == "just-named"


def test_a_finished_job_has_a_target_of_zero() -> None:
    assert job_view(elastic_job(), []).target == 4
    assert job_view(elastic_job(phase="Succeeded"), []).target == 0


def test_a_stopping_job_says_so_until_it_is_suspended() -> None:
    stopping = condition("Suspended", "False", "Stopping", "its replicas checkpoint and stop")
    assert job_view(elastic_job(phase="Suspended", conditions=[stopping]), []).reason == "Stopping"
    suspended = msgspec.structs.replace(elastic_job().spec, suspend=True)
    stopped = elastic_job(phase="Suspended", conditions=[condition("Suspended", "True", "Suspended", "")])
    assert job_view(msgspec.structs.replace(stopped, spec=suspended), []).reason == "Suspended"


def test_the_hindered_condition_is_shown_in_every_phase() -> None:
    waits = condition("Scheduled", "False", "Waiting", "its pods are not all there yet")
    lost = condition("Restarting", "True", "BelowMinimum", "lost bert-worker-0")
    hindered = condition("Hindered", "True", "ReplicaLingers", "waits for bert-worker-0 on n1 to be gone")
    for phase in ("Pending", "Running", "Restarting"):
        view = job_view(elastic_job(phase=phase, conditions=[waits, lost, hindered]), [])
        assert (view.reason, view.message) == ("ReplicaLingers", "waits for bert-worker-0 on n1 to be gone")


def test_only_jobs_that_changed_are_changes() -> None:
    before = {("ml", "bert"): view_of(), ("ml", "gone"): view_of(name="gone")}
    after = {("ml", "bert"): view_of(), ("ml", "new"): view_of(name="new")}
    assert changed_jobs(before, after) == [(("ml", "gone"), None), (("ml", "new"), after["ml", "new"])]
    for changed in (view_of(phase="Growing"), view_of(target=8), view_of(reason="QuotaExceeded"), view_of(running=5)):
        assert changed_jobs({("ml", "bert"): view_of()}, {("ml", "bert"): changed}) == [(("ml", "bert"), changed)]


def test_a_history_keeps_the_last_sizes_of_existing_jobs() -> None:
    history = SizeHistory(2)
    for size in (4, 5, 6):
        history.sample([view_of(running=size)])
    assert history.of(view_of()) == (5, 6)
    history.sample([])
    assert history.of(view_of()) == ()
