"""Scheduler and controller agree on how large a job is: what one places the other must not delete."""

from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from maniple.api import kubernetes, types
from maniple.api.labels import INDEX_LABEL, JOB_LABEL, ROLE_LABEL
from maniple.api.meta import ObjectMeta
from maniple.elastic.events import Replica, Stage
from maniple.elastic.job_spec import read_job_spec
from maniple.elastic.target_sizes import as_target, wanted_sizes
from maniple.model.elastic import current_sizes

NAMES = ("chief", "worker", "removed")  # a target may name a role that the spec no longer has
PHASES: dict[Stage, str] = {
    "pending": "Pending",
    "starting": "Pending",
    "ready": "Running",
    "succeeded": "Succeeded",
    "failed": "Failed",
}
TEMPLATE = {"spec": {"containers": [{"name": "main"}]}}


@st.composite
def roles(draw: st.DrawFn, name: str) -> dict[str, object]:
    least = draw(st.integers(0, 3))
    most = draw(st.integers(least, 6))
    pin = draw(st.none() | st.integers(least, most))
    return {"name": name, "min": least, "max": most, "pin": pin, "template": TEMPLATE}


@st.composite
def jobs(draw: st.DrawFn) -> types.ElasticJob:
    names = draw(st.sampled_from([NAMES[:1], NAMES[:2]]))
    target = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9)))
    return msgspec.convert(
        {
            "metadata": {"name": "j", "namespace": "ns", "uid": "job-1"},
            "spec": {"roles": [draw(roles(name)) for name in names]},
            "status": {"target": [{"role": role, "replicas": size} for role, size in target.items()]},
        },
        types.ElasticJob,
    )


replicas = st.lists(
    st.builds(
        Replica,
        role=st.sampled_from(NAMES),
        index=st.integers(0, 8),
        stage=st.sampled_from(list(PHASES)),
        is_leaving=st.booleans(),
    ),
    unique_by=lambda replica: replica.key,
)


def pod_of(replica: Replica) -> kubernetes.Pod:
    labels = {JOB_LABEL: "j", ROLE_LABEL: replica.role, INDEX_LABEL: str(replica.index)}
    meta = ObjectMeta(
        name=f"j-{replica.role}-{replica.index}",
        namespace="ns",
        labels=labels,
        deletion_timestamp=datetime(2026, 1, 31, tzinfo=UTC) if replica.is_leaving else None,
    )
    return kubernetes.Pod(metadata=meta, status=kubernetes.PodStatus(phase=PHASES[replica.stage]))


@given(jobs(), replicas)
def test_scheduler_and_controller_agree_on_the_sizes_of_a_job(job: types.ElasticJob, there: list[Replica]) -> None:
    """Except above a lowered maximum: the controller shrinks the role, and the scheduler learns of it then."""
    wanted = wanted_sizes(read_job_spec(job), job.status.target, there)
    counted = current_sizes(job, [pod_of(replica) for replica in there])
    assert wanted == {role.name: min(role.most, counted[role.name]) for role in job.spec.roles}
    assert list(wanted) == [role.name for role in job.spec.roles]
    assert all(role.least <= wanted[role.name] <= role.most for role in job.spec.roles)


@given(jobs(), replicas)
def test_once_the_controller_has_written_the_sizes_both_are_equal(job: types.ElasticJob, there: list[Replica]) -> None:
    wanted = wanted_sizes(read_job_spec(job), job.status.target, there)
    written = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, target=as_target(wanted)))
    assert current_sizes(written, [pod_of(replica) for replica in there]) == wanted


@given(jobs(), replicas)
def test_a_decided_size_counts_more_than_the_replicas_there_are(job: types.ElasticJob, there: list[Replica]) -> None:
    sizes = wanted_sizes(read_job_spec(job), job.status.target, there)
    decided = {target.role: target.replicas for target in job.status.target}
    for role in job.spec.roles:
        indices = [replica.index for replica in there if replica.role == role.name and replica.is_alive]
        size = decided.get(role.name, max(indices, default=-1) + 1)
        assert sizes[role.name] == max(role.least, min(role.most, size))
