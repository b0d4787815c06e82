"""Pods by name, the gangs they name, and what they ask for: all that is known of pods before any table is built.

It tells which resources and labels matter, and so whether the tables still fit.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from maniple.api import kubernetes
from maniple.api.keys import Key
from maniple.model.counting import count_down, discard
from maniple.model.pod_affinity import term_keys
from maniple.model.pod_identity import JobKey, may_wait, named_gangs
from maniple.model.pod_requests import RequestTable
from maniple.model.pods_we_schedule import Ours, matters
from maniple.model.volume_claims import claims_of


class GangMembers:
    """Which pods name which gang, by the gang's "namespace/name"."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.by_gang: dict[str, set[str]] = {}
        # Gangs that own pods name: one that has no object of its own exists because of them.
        self.called: dict[JobKey, int] = {}

    def add(self, name: str, pod: kubernetes.Pod, gangs: tuple[JobKey, ...]) -> bool:
        """Whether a gang that was not called before is now."""
        for gang, _ in gangs:
            members = self.by_gang.get(gang)
            if members is None:
                self.by_gang[gang] = {name}
            else:
                members.add(name)
        if not self._calls(pod):
            return False
        calling = self.called.get(gangs[-1], 0)
        self.called[gangs[-1]] = calling + 1
        return not calling

    def remove(self, name: str, pod: kubernetes.Pod, gangs: tuple[JobKey, ...]) -> bool:
        """Whether a gang is not called any more."""
        for gang in {gang for gang, _ in gangs}:
            discard(self.by_gang, gang, name)
        return self._calls(pod) and count_down(self.called, gangs[-1])

    def _calls(self, pod: kubernetes.Pod) -> bool:
        """A finished pod brings no gang into being, nor does one that leaves without a node."""
        if not self._ours.claims(pod):
            return False
        if pod.spec.node_name:
            return pod.status.phase != "Failed"
        return may_wait(pod)


class PodIndex:
    """Pods by "namespace/name". `touched`: pods that have changed since it was last emptied."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.pods: dict[str, kubernetes.Pod] = {}
        self.gangs: dict[str, tuple[JobKey, ...]] = {}  # pod -> gangs it names; without pods that name none
        self.touched: set[str] = set()
        self.touched_gangs: set[str] = set()  # "namespace/name" of gangs that touched pods name
        # Until the first tables are built everything is new, and touching is of no use.
        self.is_tracking = False
        self._members: GangMembers | None = None  # built when first needed
        self.forget_requests()

    def put(self, name: str, pod: kubernetes.Pod | None) -> None:
        """None: the pod is gone."""
        if pod is not None and not matters(pod, self._ours):
            pod = None
        old = self.pods.get(name)
        if old == pod:
            return
        if old is not None:
            if gangs := self.gangs.get(name):
                if self.is_tracking:
                    self._touch_gangs(gangs, is_new_or_gone=self._gang_members.remove(name, old, gangs))
                del self.gangs[name]
            del self.pods[name]
        if pod is not None:
            if gangs := named_gangs(pod):
                if self.is_tracking:
                    self._touch_gangs(gangs, is_new_or_gone=self._gang_members.add(name, pod, gangs))
                self.gangs[name] = gangs
            self.pods[name] = pod
        if self.is_tracking:
            self.touched.add(name)
        else:
            self._members = None

    def _touch_gangs(self, gangs: tuple[JobKey, ...], *, is_new_or_gone: bool) -> None:
        self.touched_gangs.update(gang for gang, _ in gangs)
        if is_new_or_gone:
            self.touch_members(gangs[-1][0])

    @property
    def _gang_members(self) -> GangMembers:
        if self._members is None:
            self._members = GangMembers(self._ours)
            for name, gangs in self.gangs.items():
                self._members.add(name, self.pods[name], gangs)
        return self._members

    def touch_members(self, gang: str) -> None:
        if self.is_tracking:
            self.touched |= self._gang_members.by_gang.get(gang, set())

    def members(self, gang: str) -> Iterator[kubernetes.Pod]:
        """Pods that name the gang, by name."""
        return (self.pods[name] for name in sorted(self._gang_members.by_gang.get(gang, ())))

    def __contains__(self, gang: object) -> bool:
        """Whether pods of ours call the gang into being."""
        return gang in self._gang_members.called

    # -- what they ask for

    def forget_requests(self) -> None:
        self.requests = RequestTable()
        self.numbers: dict[str, int] = {}  # pod -> its request in the table
        self.live: Counter[int] = Counter()  # request -> pods
        self.keys: Counter[str] = Counter()  # label that affinity terms select by -> pods with such terms
        self.minding: dict[str, frozenset[str]] = {}  # pods with affinity terms -> the labels those select by
        self.users: dict[Key, set[str]] = {}  # claim -> pods that mount it
        self._claims: dict[str, frozenset[Key]] = {}
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
        claims = claims_of(pod) if spec.volumes else None
        if claims:
            self._claims[name] = claims
            for claim in claims:
                self.users.setdefault(claim, set()).add(name)

    def _uncount_request(self, name: str, number: int) -> None:
        del self.numbers[name]
        self.has_new_requests |= count_down(self.live, number)
        for key in self.minding.pop(name, ()):
            count_down(self.keys, key)
        for claim in self._claims.pop(name, ()):
            discard(self.users, claim, name)

    def resource_names(self) -> set[str]:
        requests = self.requests.requests
        return {name for number in self.live for name in requests[number].amounts}

    def labelled(self, keys: Iterable[str]) -> set[str]:
        """Pods with any of these labels."""
        wanted = set(keys)
        return {name for name, pod in self.pods.items() if not wanted.isdisjoint(pod.metadata.labels)}
