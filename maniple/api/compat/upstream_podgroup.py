"""Kubernetes' own gangs, `scheduling.k8s.io/v1beta1`, which 1.37 has behind the feature gate GenericWorkload.

A pod names its PodGroup in `spec.schedulingGroup`. The PodGroup has all that a scheduler needs. Controllers copy it
from the Workload, which is checked but not used for decisions.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from maniple.api.meta import Int32, ObjectMeta, Struct
from maniple.api.types import PodGroup, PodGroupSpec, StatusCondition, TopologyRequest

API_VERSION = "scheduling.k8s.io/v1beta1"
Unknown = Mapping[str, object]


class Nothing(Struct, frozen=True):
    """An empty map whose presence has a meaning."""


class GangPolicy(Struct, frozen=True):
    min_count: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class SchedulingPolicy(Struct, frozen=True):
    basic: Nothing | None = None
    gang: GangPolicy | None = None

    def __post_init__(self) -> None:
        if (self.basic is None) == (self.gang is None):
            found = "neither" if self.basic is None else "both"
            raise ValueError(f"expected either basic: {{}} or gang: {{minCount: …}}, found {found}")


class TopologyKey(Struct, frozen=True):
    key: str


class SchedulingConstraints(Struct, frozen=True):
    topology: tuple[TopologyKey, ...] = ()


class GroupResourceClaim(Struct, frozen=True):
    name: str
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class DisruptionMode(Struct, frozen=True):
    single: Nothing | None = None
    all: Nothing | None = None


class WorkloadReference(Struct, frozen=True):
    workload_name: str
    template_name: str


class GroupTerms(Struct, frozen=True):
    """What a PodGroup and its template in the Workload have in common."""

    scheduling_policy: SchedulingPolicy
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    resource_claims: tuple[GroupResourceClaim, ...] = ()
    disruption_mode: DisruptionMode = DisruptionMode()
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: Literal["Never", "PreemptLowerPriority"] = "PreemptLowerPriority"


class UpstreamPodGroupSpec(GroupTerms, frozen=True):
    workload_ref: WorkloadReference | None = None
    parent_composite_pod_group_name: str = ""


class UpstreamPodGroupStatus(Struct, frozen=True):
    conditions: tuple[StatusCondition, ...] = ()
    resource_claim_statuses: tuple[Unknown, ...] = ()


class UpstreamPodGroup(Struct, frozen=True):
    metadata: ObjectMeta
    spec: UpstreamPodGroupSpec
    status: UpstreamPodGroupStatus = UpstreamPodGroupStatus()

    def ours(self) -> PodGroup:
        """A group without a gang policy gets a minimum of 0, which ours cannot have: each pod is on its own."""
        gang, topology = self.spec.scheduling_policy.gang, self.spec.scheduling_constraints.topology
        spec = PodGroupSpec(
            min_member=0 if gang is None else gang.min_count,
            priority_class_name=self.spec.priority_class_name,
            topology=TopologyRequest(required=topology[0].key if topology and gang is not None else ""),
        )
        return PodGroup(metadata=self.metadata, spec=spec)

    def has(self, condition: str) -> bool:
        """Whether the condition is True."""
        return any(each.type == condition and each.status == "True" for each in self.status.conditions)

    def unread(self) -> list[str]:
        """Names of fields that were set and have no counterpart here. Defaults of the API server do not count."""
        spec = self.spec
        is_no_gang = spec.scheduling_policy.gang is None
        given = {
            "spec.parentCompositePodGroupName": spec.parent_composite_pod_group_name,
            "spec.schedulingConstraints.topology": spec.scheduling_constraints.topology[0 if is_no_gang else 1 :],
            "spec.resourceClaims": spec.resource_claims,
            "spec.disruptionMode.all": spec.disruption_mode.all is not None,
            "spec.priority": spec.priority and not spec.priority_class_name,
            "spec.preemptionPolicy": spec.preemption_policy == "Never",
        }
        return [name for name, value in given.items() if value]


class PodGroupTemplate(GroupTerms, frozen=True, kw_only=True):
    name: str


class ControllerReference(Struct, frozen=True):
    kind: str
    name: str
    api_group: str = ""


class WorkloadSpec(Struct, frozen=True):
    controller_ref: ControllerReference | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] = ()
    composite_pod_group_templates: tuple[Unknown, ...] = ()


class Workload(Struct, frozen=True):
    metadata: ObjectMeta
    spec: WorkloadSpec
