"""Rules between pods, as users write them: affinity, anti-affinity, spread, host ports, disks and claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from properties.object_writer import AREA, GANG_LABELS, HOSTNAME, ZONE, ObjectWriter
from properties.raw_objects import Object


@dataclass
class PodRules(ObjectWriter):
    claims: list[str] = field(default_factory=list)

    def add_rules(self, spec: Object, labels: Mapping[str, str], namespace: str) -> None:
        """One rule between this pod and others, mostly of its own gang; sometimes two."""
        for _ in range(2 if self.one_in(4) else 1):
            self.add_rule(spec, labels, namespace)

    def add_rule(self, spec: Object, labels: Mapping[str, str], namespace: str) -> None:
        match self.pick("port", "anti", "anti", "spread", "spread", "together", "together", "volume", "disk"):
            case "port":
                self.add_port(spec)
            case "anti":
                self.add_term(spec, "podAntiAffinity", self.term(labels))
            case "together":
                for _ in range(2 if self.one_in(4) else 1):
                    self.add_term(spec, "podAffinity", self.term(labels))
            case "spread":
                constraints = spec.setdefault("topologySpreadConstraints", [])
                assert isinstance(constraints, list)
                taken = {constraint["topologyKey"] for constraint in constraints}
                constraints += [rule for rule in self.spread(labels) if rule["topologyKey"] not in taken]
            case "volume":
                claim = self.claim(namespace)
                spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
            case "disk":
                disk: Object = {"pdName": self.pick("d0", "d1"), "readOnly": self.one_in(3)}
                spec["volumes"] = [{"name": "disk", "gcePersistentDisk": disk}]

    def add_port(self, spec: Object) -> None:
        containers = spec["containers"]
        assert isinstance(containers, list)
        wanted = self.pick(8080, 9090)
        port: Object = {"containerPort": wanted, "hostPort": wanted}
        if self.one_in(4):
            port |= self.pick({"protocol": "UDP"}, {"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"})
        containers[0]["ports"] = [port]
        if self.one_in(4):
            spec["hostNetwork"] = True

    def add_term(self, spec: Object, kind: str, term: Object) -> None:
        affinity = spec.get("affinity") or {}
        assert isinstance(affinity, dict)
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = affinity.get(kind, {}).get(key, [])
        spec["affinity"] = affinity | {kind: {key: [*terms, term]}}

    def selector(self, labels: Mapping[str, str]) -> Object:
        """Pods like this one, of its own gang, or others."""
        app = self.pick(labels.get("app", "a"), labels.get("app", "a"), "a", "b")
        match self.pick("app", "app", "app", "gang", "in", "not", "there", "absent", "all"):
            case "gang":
                gang = {key: name for key, name in labels.items() if key in GANG_LABELS} or {"app": app}
                return {"matchLabels": gang}
            case "in":
                return {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "c"]}]}
            case "not":
                return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]}
            case "there":
                return {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}
            case "absent":
                return {"matchLabels": {"app": app}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
            case "all":
                return {}
        return {"matchLabels": {"app": app}}

    def term(self, labels: Mapping[str, str]) -> Object:
        term: Object = {"labelSelector": self.selector(labels), "topologyKey": self.pick(HOSTNAME, ZONE)}
        if self.one_in(5):
            term |= self.pick(
                {"namespaces": ["team"]},
                {"namespaceSelector": {}},
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team"}}},
                {"namespaces": ["default"], "namespaceSelector": {"matchExpressions": [AREA]}},
            )
        if self.one_in(6):
            key = self.pick("matchLabelKeys", "mismatchLabelKeys")
            term |= {"labelSelector": {}, key: [self.pick("app", *GANG_LABELS)]}
        return term

    def spread(self, labels: Mapping[str, str]) -> list[Object]:
        rules: list[Object] = []
        for key in [HOSTNAME, ZONE] if self.one_in(4) else [self.pick(HOSTNAME, ZONE)]:
            rule: Object = {"maxSkew": self.between(1, 2), "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
            rule["labelSelector"] = self.selector(labels)
            if self.one_in(3):
                rule |= self.pick(
                    {"minDomains": self.between(2, 3)}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}
                )
            if self.one_in(8):
                rule |= {"labelSelector": {}, "matchLabelKeys": ["app"]}
            rules.append(rule)
        return rules

    def claim(self, namespace: str) -> str:
        """A claim of its own, or one that another pod has."""
        known = [key.partition("/")[2] for key in self.claims if key.startswith(f"{namespace}/")]
        return self.pick(*known) if known and self.one_in(2) else self.add_volume(namespace)

    def add_volume(self, namespace: str) -> str:
        name = f"disk-{len(self.objects)}"
        size = {"storage": "10Gi"}
        zone = {"key": ZONE, "operator": "In", "values": [self.pick("a", "b")]}
        reach = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
        modes = [self.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod")]
        volume = {"capacity": size, "accessModes": modes, "nodeAffinity": reach}
        self.add("v1", "PersistentVolume", name, spec=volume, status={"phase": "Bound"})
        claim = {"volumeName": name, "accessModes": modes, "resources": {"requests": size}}
        self.add("v1", "PersistentVolumeClaim", name, namespace, spec=claim, status={"phase": "Bound"})
        self.claims.append(f"{namespace}/{name}")
        return name
