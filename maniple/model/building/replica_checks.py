"""Whether pods can be what they say: `replica_problems(an ElasticJob, its pods)`, `misplaced_note(pod, its gang)`.

A replica is identified only by its role and index. If these are missing, wrong or given twice, the size of the job is
unknown, and a guess could make the job larger than its max.
"""

from collections.abc import Iterable, Iterator

from maniple.api import kubernetes, types
from maniple.api.errors import Problem, nearest
from maniple.api.keys import split_name
from maniple.api.labels import BIND_FAILURES_ANNOTATION, INDEX_LABEL, ROLE_LABEL
from maniple.api.phases import FINISHED
from maniple.api.replica_pods import is_index
from maniple.model.pod_identity import JobKey, may_wait, pod_role

_ROLE = f"metadata.labels[{ROLE_LABEL}]"
_INDEX = f"metadata.labels[{INDEX_LABEL}]"


def replica_problems(job: types.ElasticJob, pods: Iterable[kubernetes.Pod]) -> Iterator[tuple[kubernetes.Pod, Problem]]:
    """Why pods cannot be replicas of the job. Finished pods are skipped.

    If several pods have the same index, a pod that the job created comes first, then a pod on a node, then the oldest:
    a new pod or a copy never invalidates an existing replica.
    """
    roles = {role.name: role for role in job.spec.roles}
    checked = [(pod, _problem(job, roles, pod)) for pod in pods if pod.status.phase not in FINISHED]
    # The replacement of a pod that terminates may exist already.
    places = [_place(pod) for pod, wrong in checked if wrong is None and pod.metadata.deletion_timestamp is None]
    if len(set(places)) == len(checked):
        return  # as in nearly every job: no order matters
    first: dict[tuple[str, int], str] = {}
    for pod, wrong in sorted(checked, key=lambda pair: _seniority(pair[0], job.metadata.name)):
        if wrong is not None:
            yield pod, wrong
            continue
        if pod.metadata.deletion_timestamp is not None:
            continue
        place = _place(pod)
        before = first.setdefault(place, pod.metadata.name)
        if before != pod.metadata.name:
            message = f"expected an index of its own among the role's replicas, found {str(place[1])!r}, which pod "
            yield pod, Problem(_INDEX, f"{message}{before} has too")


def _place(pod: kubernetes.Pod) -> tuple[str, int]:
    return pod_role(pod.metadata), int(pod.metadata.labels[INDEX_LABEL])


def _seniority(pod: kubernetes.Pod, job: str) -> tuple[bool, bool, float, str]:
    meta = pod.metadata
    controllers = [(owner.kind, owner.name) for owner in meta.owner_references if owner.controller]
    is_owned = ("ElasticJob", job) in controllers
    created = 0.0 if meta.creation_timestamp is None else meta.creation_timestamp.timestamp()
    return not is_owned, not pod.spec.node_name, created, meta.name


def misplaced_note(pod: kubernetes.Pod, gang: JobKey | None) -> Problem | None:
    """A note of bind failures on a waiting pod of a gang: it has no effect, because binds fail gang by gang."""
    if BIND_FAILURES_ANNOTATION not in pod.metadata.annotations or pod.spec.node_name or not may_wait(pod):
        return None
    if gang is None or gang[1] == "Pod":
        return None
    field = f"metadata.annotations[{BIND_FAILURES_ANNOTATION}]"
    return Problem(field, f"expected it on {gang[1]} {split_name(gang[0])[1]}, whose pod this is, found it here")


def _problem(job: types.ElasticJob, roles: dict[str, types.ElasticRole], pod: kubernetes.Pod) -> Problem | None:
    name, role, index = pod.metadata.name, pod_role(pod.metadata), pod.metadata.labels.get(INDEX_LABEL)
    whose = f"ElasticJob {job.metadata.name}"
    if not role:
        return Problem(_ROLE, f"expected a role of {whose}, such as {next(iter(roles))!r}, found none")
    if role not in roles:
        return Problem(_ROLE, f"expected a role of {whose}, found {role!r:.80}{nearest(role[:80], roles)}")
    if index is None:
        return Problem(_INDEX, "expected the pod's number among the replicas of its role, such as '0', found none")
    if not is_index(index):
        return Problem(_INDEX, f"expected a whole number of 0 or more, such as '0', found {index!r:.80}")
    if name == f"{job.metadata.name}-{role}-{index}":
        return None
    for other in roles:
        number = name.removeprefix(f"{job.metadata.name}-{other}-")
        if number == name or not (number.isascii() and number.isdecimal()):
            continue
        if other != role:
            return Problem(_ROLE, f"expected {other!r}, as the pod's name says, or another name, found {role!r}")
        if int(number) != int(index):
            return Problem(_INDEX, f"expected {number!r}, as the pod's name says, or another name, found {index!r}")
    return None
