"""Pods by name, the gangs they name, and what they ask for: all that is known of pods before any table is built.

It tells which resources and labels matter, and so whether the tables still fit.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from maniple.api import kubernetes
from maniple.api.phases import FINISHED
from maniple.model.ownership import Ours, matters
from maniple.model.pod_affinity import term_keys
from maniple.model.pod_identity import JobKey, named_gangs
from maniple.model.resources import RequestTable
from maniple.model.storage import ClaimKey, claims_of


class PodIndex:
    """Pods by "namespace/name". `touched`: pods that have changed since it was last emptied."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.pods: dict[str, kubernetes.Pod] = {}
        self.gangs: dict[str, tuple[JobKey, ...]] = {}  # pod -> gangs it names; without pods that name none
        self.touched: set[str] = set()
        self.touched_gangs: set[str] = set()  # "namespace/name" of gangs that touched pods name
        # Gangs that own pods name: one that has no object of its own exists because of them.
        self.called: Counter[JobKey] = Counter()
        self._naming: dict[str, set[str]] = {}  # "namespace/name" of a gang -> pods that name it
        self.forget_requests()

    def put(self, name: str, pod: kubernetes.Pod | None) -> None:
        """None: the pod is gone."""
        if pod is not None and not matters(pod, self._ours):
            pod = None
        old = self.pods.get(name)
        if old == pod:
            return
        if old is not None:
            gangs = self.gangs.pop(name, ())
            if gangs:
                self._uncount_gangs(name, old, gangs)
            del self.pods[name]
        if pod is not None:
            self.pods[name] = pod
            gangs = named_gangs(pod)
            if gangs:
                self.gangs[name] = gangs
                self._count_gangs(name, pod, gangs)
        self.touched.add(name)

    def _count_gangs(self, name: str, pod: kubernetes.Pod, gangs: tuple[JobKey, ...]) -> None:
        for gang, _ in gangs:
            self.touched_gangs.add(gang)
            members = self._naming.get(gang)
            if members is None:
                self._naming[gang] = {name}
            else:
                members.add(name)
        if self._ours.claims(pod) and calls_gang(pod):
            key = gangs[-1]
            self.called[key] += 1
            if self.called[key] == 1:
                self.touch_members(key[0])

    def _uncount_gangs(self, name: str, pod: kubernetes.Pod, gangs: tuple[JobKey, ...]) -> None:
        for gang in {gang for gang, _ in gangs}:
            self.touched_gangs.add(gang)
            self._naming[gang].discard(name)
            if not self._naming[gang]:
                del self._naming[gang]
        if self._ours.claims(pod) and calls_gang(pod):
            key = gangs[-1]
            self.called[key] -= 1
            if not self.called[key]:
                del self.called[key]
                self.touch_members(key[0])

    def touch_members(self, gang: str) -> None:
        self.touched |= self._naming.get(gang, set())

    def members(self, gang: str) -> Iterator[kubernetes.Pod]:
        """Pods that name the gang, by name."""
        return (self.pods[name] for name in sorted(self._naming.get(gang, ())))

    # -- what they ask for

    def forget_requests(self) -> None:
        self.requests = RequestTable()
        self.numbers: dict[str, int] = {}  # pod -> its request in the table
        self.live: Counter[int] = Counter()  # request -> pods
        self.keys: Counter[str] = Counter()  # label that affinity terms select by -> pods with such terms
        self.minding: dict[str, frozenset[str]] = {}  # pods with affinity terms -> the labels those select by
        self.users: dict[ClaimKey, set[str]] = {}  # claim -> waiting pods that mount it
        self._claims: dict[str, frozenset[ClaimKey]] = {}
        self.has_new_requests = False  # or lost some

    def count_request(self, name: str, pod: kubernetes.Pod | None) -> None:
        """Counts what a pod asks for; None: it asks for nothing any more. A replica to come has a name of its own."""
        old = self.numbers.get(name)
        if old is not None:
            self._uncount_request(name, old)
        if pod is None:
            return
        number = self.numbers[name] = self.requests.number(pod)
        if number in self.live:
            self.live[number] += 1
        else:
            self.live[number] = 1
            self.has_new_requests = True
        spec = pod.spec
        if spec.affinity is not None or spec.topology_spread_constraints:
            keys = term_keys(pod)
            if keys is not None:
                self.minding[name] = keys
                self.keys.update(keys)
        claims = claims_of(pod) if spec.volumes and not spec.node_name else None
        if claims:
            self._claims[name] = claims
            for claim in claims:
                self.users.setdefault(claim, set()).add(name)

    def _uncount_request(self, name: str, number: int) -> None:
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


def calls_gang(pod: kubernetes.Pod) -> bool:
    """Whether a pod of ours brings the gang that it names into being: not if it is over, or leaves without a node."""
    phase = pod.status.phase
    if pod.spec.node_name:
        return phase != "Failed"
    return phase not in FINISHED and pod.metadata.deletion_timestamp is None
