"""Which pods there are, who names which gang, and what pods ask for: what is known of pods before any table is made.

From here it is known which resources and which labels matter, and so whether the tables still do.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from maniple.api import kubernetes
from maniple.api.labels import JOB_LABEL
from maniple.model.building.cluster_tables import Ours, matters
from maniple.model.building.job_builder import JobKey, called_by
from maniple.model.pod_affinity import term_keys
from maniple.model.pod_identity import group_name
from maniple.model.resources import RequestTable
from maniple.model.storage import ClaimKey, claims_of


class Census:
    """Pods by `ns/name`. `touched` are those that something has happened to since it was last emptied."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.pods: dict[str, kubernetes.Pod] = {}
        self.touched: set[str] = set()
        self.touched_gangs: set[str] = set()  # ns/name that pods name, of pods that were touched
        self.called: Counter[JobKey] = Counter()  # groups that pods of ours name
        self._naming: dict[str, set[str]] = {}  # ns/name of a gang -> pods that name it
        self.forget_numbers()

    # -- who is there

    def put(self, name: str, pod: kubernetes.Pod | None) -> None:
        """None: the pod is gone."""
        if pod is not None and not matters(pod, self._ours):
            pod = None
        old = self.pods.get(name)
        if old == pod:
            return
        if old is not None:
            self._count_names(name, old, -1)
            del self.pods[name]
        if pod is not None:
            self.pods[name] = pod
            self._count_names(name, pod, 1)
        self.touched.add(name)

    def _count_names(self, name: str, pod: kubernetes.Pod, sign: int) -> None:
        gangs = gangs_named(pod)
        for gang in gangs:
            self.touched_gangs.add(gang)
            if sign > 0:
                self._naming.setdefault(gang, set()).add(name)
            else:
                self._naming[gang].discard(name)
                if not self._naming[gang]:
                    del self._naming[gang]
        key = called_by(pod) if gangs and self._ours.claims(pod) else None
        if key is not None:
            self.called[key] += sign
            if not self.called[key]:
                del self.called[key]
            if self.called[key] == max(sign, 0):
                self.touch_members(key[0])  # the group is there now, or is not any more

    def touch_members(self, gang: str) -> None:
        self.touched |= self._naming.get(gang, set())

    def members(self, gang: str) -> Iterator[kubernetes.Pod]:
        """Pods that name the gang, one way or another, in order."""
        return (self.pods[name] for name in sorted(self._naming.get(gang, ())))

    # -- what they ask for

    def forget_numbers(self) -> None:
        self.requests = RequestTable()
        self.numbers: dict[str, int] = {}
        self.live: Counter[int] = Counter()  # request -> pods
        self.keys: Counter[str] = Counter()  # label that terms look at -> pods with such terms
        self.minding: dict[str, frozenset[str]] = {}  # pods with terms -> the labels those look at
        self.users: dict[ClaimKey, set[str]] = {}  # claim -> pods that wait with it
        self._claims: dict[str, frozenset[ClaimKey]] = {}
        self.has_new_requests = False  # or lost some

    def number(self, name: str, pod: kubernetes.Pod | None) -> None:
        """Counts what a pod asks for; a pod that might be, under a name that no other has, counts too."""
        old = self.numbers.get(name)
        if old is not None:
            self._uncount(name, old)
        if pod is None:
            return
        number = self.numbers[name] = self.requests.number(pod)
        count = self.live.get(number, 0)
        self.live[number] = count + 1
        self.has_new_requests |= not count
        spec = pod.spec
        if spec.affinity is not None or spec.topology_spread_constraints:
            keys = term_keys(pod)
            if keys is not None:
                self.minding[name] = keys
                self.keys.update(keys)
        if spec.volumes:
            claims = self._claims[name] = claims_of(pod)
            for claim in claims:
                self.users.setdefault(claim, set()).add(name)

    def _uncount(self, name: str, number: int) -> None:
        del self.numbers[name]
        self.live[number] -= 1
        if not self.live[number]:
            del self.live[number]
            self.has_new_requests = True
        for key in self.minding.pop(name, ()):
            self.keys[key] -= 1
            if not self.keys[key]:
                del self.keys[key]
        for claim in self._claims.pop(name, ()):
            self.users[claim].discard(name)
            if not self.users[claim]:
                del self.users[claim]

    def resource_names(self) -> set[str]:
        requests = self.requests.requests
        return {name for number in self.live for name in requests[number].amounts}

    def labelled(self, keys: Iterable[str]) -> set[str]:
        """Pods with any of these labels."""
        wanted = set(keys)
        return {name for name, pod in self.pods.items() if not wanted.isdisjoint(pod.metadata.labels)}


def gangs_named(pod: kubernetes.Pod) -> tuple[str, ...]:
    """ns/name of the gangs that the pod says it belongs to, one way or another."""
    meta = pod.metadata
    group, job = group_name(pod), meta.labels.get(JOB_LABEL)
    if not job or job == group:
        return (f"{meta.namespace}/{group}",) if group else ()
    return (f"{meta.namespace}/{job}", f"{meta.namespace}/{group}") if group else (f"{meta.namespace}/{job}",)
