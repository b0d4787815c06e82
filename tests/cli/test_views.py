"""Jobs as people see them: the table, the live view and its lines, all without a cluster."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from maniple.api import types
from maniple.api.errors import InputError
from maniple.cli.commands.describe import described, sizes_told
from maniple.cli.commands.resize import check, operations
from maniple.cli.support.wait_for_jobs import progress
from maniple.cli.support.watch_screen import History, changes, frame, sparkline
from maniple.kube.transport.client import ApiError, Cause
from maniple.kube.user.client import Event, refused
from maniple.views.jobs import JobView, ProgressView, RoleView, age, counted, number, view

NOW = datetime(2026, 1, 1, 10, 0, 0, tzinfo=UTC)


def job(**status: object) -> types.ElasticJob:
    template = {"spec": {"containers": [{"name": "main"}]}}
    roles = [{"name": "worker", "min": 4, "max": 8, "template": template}]
    whole = {"metadata": {"name": "bert", "namespace": "ml"}, "spec": {"roles": roles}, "status": status}
    return msgspec.convert(whole, types.ElasticJob)


def seen(
    name: str = "bert",
    running: int = 4,
    target: int = 4,
    phase: str = "Running",
    reason: str = "",
    progress: ProgressView | None = None,
) -> JobView:
    role = RoleView("worker", running, target, 4, 8)
    return JobView("ml", name, "research", phase, "torch", (role,), float(running), 0, 0, "", reason, "", progress)


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("sizes", "most", "line"),
    [
        ([0, 1, 2, 4, 8], 8, " ▁▂▄█"),
        ([4, 4, 8, 8], 8, "▄▄██"),
        ([1], 1000, "▁"),
        ([9], 8, "█"),
        ([1], 0, ""),
    ],
)
def test_sizes_over_time_are_bars(sizes: list[int], most: int, line: str) -> None:
    assert sparkline(sizes, most) == line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (10799, "179m"),
        (10800, "3h"),
        (12000, "3h20m"),
        (90000, "1d"),
        (-5, "0s"),
    ],
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


def test_numbers_have_no_more_places_than_they_need() -> None:
    assert [number(value) for value in (4.0, 0.25, 0.5, 100.0)] == ["4", "0.25", "0.5", "100"]


def test_a_frame_has_gpus_queues_and_jobs_and_fits_the_screen() -> None:
    history = History()
    history.remember([seen(running=4)])
    history.remember([seen(running=8)])
    queue = msgspec.convert(
        {"metadata": {"name": "research"}, "status": {"allocated": {"nvidia.com/gpu": "8"}, "runningJobs": 1}},
        types.Queue,
    )
    job = seen(running=8, target=8, progress=ProgressView(1200, 5000, None, NOW))
    shown = frame([job], [queue], (8.0, 16.0), history, "ml", NOW, 120)
    assert "GPUs: 8 of 16 used, 8 idle  ██████████░░░░░░░░░░" in shown[0]
    assert shown[3].split() == ["research", "8", "0", "1", "0"]
    assert shown[-1].split() == ["bert", "research", "Running", "8", "4:8", "▄█", "8", "24%", "-"]
    many = [seen(name=f"job-{index}") for index in range(100)]
    small = frame(many, [], None, history, "ml", NOW, 40, 10)
    assert len(small) == 10
    assert max(map(len, small)) <= 40
    assert small[-1] == "… and 94 more"


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
def test_how_far_a_job_is_is_a_share_where_the_whole_is_known(progress: dict[str, object], text: str) -> None:
    assert str(view(job(progress=progress), []).progress) == text


NAMES = ("bert", "a-very-long-name-of-a-job-that-somebody-has-made-up-for-us-1")
ALL = ["JOB", "QUEUE", "PHASE", "SIZE", "RANGE", "OVER TIME", "GPUS", "PROGRESS", "AGE", "REASON"]


def without(*names: str) -> list[str]:
    return [name for name in ALL if name not in names]


@pytest.mark.parametrize(
    ("width", "header", "name"),
    [
        (160, ALL, "a-very-long-name-of-a-job-that-somebody-has-made-up-for-…"),
        (120, ALL, "a-very-long-name-of-a-job-that-someb…"),
        (80, without("OVER TIME", "QUEUE"), "a-very-long-name-o…"),
        (60, without("OVER TIME", "QUEUE", "AGE", "RANGE", "GPUS"), "a-very-long-name…"),
    ],
)
def test_a_narrow_screen_clips_names_and_spares_columns_but_not_why_a_job_waits(
    width: int, header: list[str], name: str
) -> None:
    far = ProgressView(1200, 5000, None, NOW)
    jobs = [seen(name=one, running=0, phase="Pending", reason="InsufficientGPUs", progress=far) for one in NAMES]
    *_, head, long, short = frame(jobs, [], None, History(), "ml", NOW, width)
    assert re.split(r" {2,}", head) == header
    assert (long.split()[0], short.split()[0]) == (name, "bert")
    for line in (long, short):
        assert len(line) <= width
        assert line[head.index("PROGRESS") :].split()[0] == "24%"
        assert line[head.index("REASON") :] == "InsufficientGPUs"


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_a_reason_that_does_not_fit_is_seen_to_be_cut(width: int) -> None:
    reason = "AReasonThatIsLongerThanTheScreen" * 5
    (line,) = frame([seen(phase="Pending", reason=reason)], [], None, History(), "ml", NOW, width)[-1:]
    assert len(line) == width
    assert "AReasonThatIs" in line
    assert line.endswith("…")


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_the_namespace_is_shown_where_there_are_several(width: int) -> None:
    for with_namespace, name in ((False, "bert"), (True, "ml/bert")):
        shown = frame([seen()], [], None, History(), "ml", NOW, width, with_namespace=with_namespace)
        assert shown[-1].split()[0] == name


def test_what_is_over_comes_last() -> None:
    over = seen(name="a", phase="Succeeded")
    shown = frame([over, seen(name="b")], [], None, History(), "ml", NOW, 120)
    assert [line.split()[0] for line in shown[-2:]] == ["b", "a"]


def test_a_pipe_gets_a_line_for_each_change_and_no_other() -> None:
    first = {("ml", "bert"): seen()}
    assert changes({}, first, NOW) == ["2026-01-01T10:00:00Z ml/bert Running, size 4 of 4:8, 4 GPUs, queue research"]
    assert changes(first, dict(first), NOW) == []
    grows = {("ml", "bert"): seen(target=8, phase="Growing")}
    assert [line.split(" ", 2)[2] for line in changes(first, grows, NOW)] == [
        "Growing, size 4→8 of 4:8, 4 GPUs, queue research"
    ]
    waits = {("ml", "bert"): seen(running=0, phase="Pending", reason="QuotaExceeded")}
    assert "Pending: QuotaExceeded, size 0→4" in changes(first, waits, NOW)[0]
    assert changes(first, {}, NOW) == ["2026-01-01T10:00:00Z ml/bert deleted"]


def test_progress_says_the_size_and_why_it_waits() -> None:
    assert progress(job()) == "Submitted: no `maniple serve` has said anything of it yet"
    waits = condition("Scheduled", "False", "InsufficientResources", "needs 4 pods")
    assert progress(job(phase="Pending", conditions=[waits])) == "Pending: InsufficientResources: needs 4 pods"
    running = job(phase="Growing", target=[{"role": "worker", "replicas": 8}], replicas={"running": 4})
    assert progress(running) == "Growing with 4 of 8 replicas"
    failed = condition("Failed", "True", "BackoffLimitExceeded", "worker-2 exited with 1")
    assert progress(job(phase="Failed", conditions=[failed])) == "Failed: BackoffLimitExceeded: worker-2 exited with 1"
    assert progress(job(phase="Succeeded", replicas={"running": 1})) == "Succeeded"


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
def test_the_size_that_a_pinned_job_is_to_have_is_its_pin(
    pin: int | None, target: list[object], running: int, text: str
) -> None:
    found = job(phase="Running", target=target, replicas={"running": running})
    role = msgspec.structs.replace(found.spec.roles[0], pin=pin)
    pinned = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, roles=(role,)))
    assert progress(pinned) == f"Running with {text} replicas"


def test_a_job_that_starts_over_says_what_has_failed_and_not_that_its_pods_are_away() -> None:
    scheduled = condition("Scheduled", "False", "Waiting", "its pods are not all there yet")
    restarting = condition("Restarting", "True", "ReplicaFailed", "bert-worker-0 ended with exit code 1")
    again = job(phase="Restarting", conditions=[scheduled, restarting])
    assert progress(again) == "Restarting: ReplicaFailed: bert-worker-0 ended with exit code 1"
    waits = job(phase="Pending", conditions=[scheduled, restarting])
    assert progress(waits) == "Pending: Waiting: its pods are not all there yet"


def generation(members: int) -> dict[str, object]:
    made = [
        {"pod": f"bert-worker-{at}", "uid": "u", "role": "worker", "index": at, "address": f"10.0.0.{at}"}
        for at in range(members)
    ]
    return {"number": 3, "members": made, "coordinator": "10.0.0.0", "port": 23117}


@pytest.mark.parametrize(
    ("members", "text"), [(1, "1 member, at 10.0.0.0:23117"), (2, "2 members, who meet at 10.0.0.0:23117")]
)
def test_one_member_is_no_plural(members: int, text: str) -> None:
    parts = described(job(phase="Running", generation=generation(members)), [], [], NOW)
    assert any(part.startswith(f"Generation 3: {text}\n") for part in parts)


def test_one_replica_is_no_plural() -> None:
    assert [counted(amount, "replica") for amount in (0, 1, 2)] == ["0 replicas", "1 replica", "2 replicas"]


@pytest.mark.parametrize(
    ("phase", "size"), [("Running", "0 running of 4, from 4 to 8"), ("Succeeded", "0 running, from 4 to 8")]
)
def test_what_is_over_is_described_with_what_runs_and_no_aim(phase: str, size: str) -> None:
    assert f"  Size:      {size}\n" in described(job(phase=phase), [], [], NOW)[0]


@pytest.mark.parametrize("word", ["replica", "replicas"])
def test_sizes_are_read_from_what_the_controller_tells(word: str) -> None:
    about = Event.Regarding("ElasticJob", "bert", "u")
    told = Event(note=f"1 {word} in generation 7", event_time="2026-01-01T10:00:00Z", regarding=about)
    assert sizes_told([told]) == [("2026-01-01T10:00:00Z", 1, 7)]


def test_what_is_over_or_suspended_is_to_have_nothing() -> None:
    assert view(job(), []).target == 4
    assert view(job(phase="Succeeded"), []).target == 0


def test_a_job_that_stops_says_so_until_it_holds_nothing() -> None:
    stopping = condition("Suspended", "False", "Stopping", "its replicas checkpoint and stop")
    assert view(job(phase="Suspended", conditions=[stopping]), []).reason == "Stopping"
    suspended = msgspec.structs.replace(job().spec, suspend=True)
    stopped = job(phase="Suspended", conditions=[condition("Suspended", "True", "Suspended", "")])
    assert view(msgspec.structs.replace(stopped, spec=suspended), []).reason == "Suspended"


def test_what_is_in_a_jobs_way_is_said_whatever_it_does_meanwhile() -> None:
    waits = condition("Scheduled", "False", "Waiting", "its pods are not all there yet")
    lost = condition("Restarting", "True", "BelowMinimum", "lost bert-worker-0")
    hindered = condition("Hindered", "True", "ReplicaLingers", "waits for bert-worker-0 on n1 to be gone")
    for phase in ("Pending", "Running", "Restarting"):
        seen = view(job(phase=phase, conditions=[waits, lost, hindered]), [])
        assert (seen.reason, seen.message) == ("ReplicaLingers", "waits for bert-worker-0 on n1 to be gone")


def test_a_resize_holds_only_for_the_role_that_was_read() -> None:
    (role,) = job().spec.roles
    assert operations(0, role, {"min": 2, "pin": 6}) == [
        {"op": "test", "path": "/spec/roles/0/name", "value": "worker"},
        {"op": "add", "path": "/spec/roles/0/min", "value": 2},
        {"op": "add", "path": "/spec/roles/0/pin", "value": 6},
    ]
    assert operations(0, role, {"pin": None}) == [{"op": "test", "path": "/spec/roles/0/name", "value": "worker"}]
    pinned = msgspec.structs.replace(role, pin=6)
    assert operations(1, pinned, {"pin": None})[1:] == [{"op": "remove", "path": "/spec/roles/1/pin"}]


def roles(*mins: int) -> types.ElasticJob:
    """A job with roles of these least sizes, the first of which is resized."""
    found = job()
    made = tuple(
        msgspec.structs.replace(found.spec.roles[0], name=f"role-{at}", min=least) for at, least in enumerate(mins)
    )
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, roles=made))


@pytest.mark.parametrize("option", ["pin", "max", "min"])
@pytest.mark.parametrize("mins", [(4,), (4, 0)])
def test_a_job_that_is_to_have_nothing_is_to_be_suspended(option: str, mins: tuple[int, ...]) -> None:
    found = roles(*mins)
    with pytest.raises(InputError) as refusal:
        check(found, found.spec.roles[0], {option: 0})
    assert f"bert: --{option}: expected at least 1, because" in str(refusal.value)
    assert "`maniple suspend bert` stops the job" in str(refusal.value)
    assert "--min 0" not in str(refusal.value)


def test_a_role_beside_another_may_have_nothing() -> None:
    found = roles(4, 1)
    check(found, found.spec.roles[0], {"min": 0, "pin": 0})
    with pytest.raises(InputError, match="--pin: 0 is below its least, 4; add --min 0 to allow it"):
        check(found, found.spec.roles[0], {"pin": 0})


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"pin": 9}, "--pin: 9 is above its most, 8; add --max 9 to allow it"),
        ({"pin": 3}, "--pin: 3 is below its least, 4; add --min 3 to allow it"),
    ],
)
def test_a_pin_out_of_bounds_says_which_bound_to_move(wanted: dict[str, int | None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(job(), job().spec.roles[0], wanted)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ApiError(
                422, "Invalid", "…", causes=(Cause("spec.roles[0].max", "Invalid value: 3: max must be at least min"),)
            ),
            "spec.roles[0].max: max must be at least min, found 3",
        ),
        (
            ApiError(
                422,
                "Invalid",
                "…",
                causes=(Cause("<nil>", "Invalid value: null: some validation rules were not checked"),),
            ),
            "some validation rules were not checked, found null",
        ),
        (
            ApiError(422, "Invalid", "…", causes=(Cause("spec.containers[0].image", "Required value"),)),
            "spec.containers[0].image: Required value",
        ),
        (ApiError(403, "Forbidden", 'User "a" cannot'), 'you may not do this: User "a" cannot'),
        (ApiError(401, "Unauthorized", ""), "log in again"),
        (ApiError(503, "ServiceUnavailable", "no leader"), "try again: no leader"),
    ],
)
def test_a_refusal_of_the_server_names_object_and_field(error: ApiError, message: str) -> None:
    (said,) = refused(error, "ElasticJob ml/bert").messages
    assert said.startswith("ElasticJob ml/bert: ")
    assert message in said


def test_a_view_that_is_not_up_to_date_says_so_and_is_as_large_as_before() -> None:
    usual = frame([seen()], [], None, History(), "ml", NOW, 60)
    shown = frame([seen()], [], None, History(), "ml", NOW, 60, trouble="GET https://server: refused\x1b[2J")
    assert (usual[1], shown[1]) == ("", "The API server does not answer, all this is as it was: GET h")
    assert shown[2:] == usual[2:]
    wide = frame([seen()], [], None, History(), "ml", NOW, 200, trouble="GET https://server: refused\x1b[2J")
    assert "\x1b" not in wide[1]
