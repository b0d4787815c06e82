"""Rules about nodes, resources and other pods, for the random cases of rule_cases.py."""

from __future__ import annotations

from typing import Any

from e2e.rule_cases import DEVICE, NAMESPACE, OTHER_NAMESPACE, RUNTIME_CLASS, Maker, Object

IMAGE = "training:1"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def tolerations(maker: Maker, pod: Object, _running: list[Object]) -> None:
    rng = maker.rng
    made = []
    for _ in range(rng.randint(1, 2)):
        operator = rng.choice(["Equal", "Exists", *(["Gt", "Lt"] if maker.compares_taints else [])])
        toleration = {"key": maker.name(rng.choice(["team", "owner"])), "operator": operator}
        if operator != "Exists":
            toleration["value"] = rng.choice(["5", "7", "10"])
        elif maker.one_in(4):
            del toleration["key"]
        elif maker.one_in(4):
            toleration["key"] = "node.kubernetes.io/unschedulable"
        if maker.one_in(2):
            toleration["effect"] = rng.choice(["NoSchedule", "NoExecute"])
        made.append(toleration)
    pod["spec"]["tolerations"] = made


def node_affinity(maker: Maker, pod: Object, _running: list[Object]) -> None:
    rng = maker.rng
    terms: list[Object] = []
    for _ in range(rng.choice([1, 1, 2])):
        term: Object = {"matchExpressions": [_node_expression(maker) for _ in range(rng.choice([1, 1, 2]))]}
        if maker.one_in(3):
            operator = rng.choice(["In", "In", "NotIn"])
            named = {"key": "metadata.name", "operator": operator, "values": [rng.choice(maker.case.nodes)]}
            term = {"matchFields": [named], **(term if maker.one_in(2) else {})}
        terms.append(term)
    affinity = pod["spec"].setdefault("affinity", {})
    affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
    if maker.one_in(4):
        pod["spec"]["nodeSelector"][maker.zone] = rng.choice("ab")


def _node_expression(maker: Maker) -> Object:
    rng = maker.rng
    if maker.one_in(3):
        return {"key": maker.cores, "operator": rng.choice(["Gt", "Lt"]), "values": [rng.choice(["4", "5", "9"])]}
    expression: Object = {"key": maker.zone, "operator": rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])}
    if "In" in expression["operator"]:
        expression["values"] = rng.choice([["a"], ["b"], ["a", "b"]])
    return expression


def host_ports(maker: Maker, pod: Object, running: list[Object]) -> None:
    rng = maker.rng
    for each in (pod, *running):
        if each is not pod and maker.one_in(4):
            continue
        port: Object = {"containerPort": rng.choice([80, 80, 81]), "hostPort": rng.choice([8080, 8080, 8081])}
        if maker.one_in(2):
            addresses = ["10.0.0.1", "10.0.0.2", "0.0.0.0", "::", "::1", "127.0.0.1"]
            port |= rng.choice([{"protocol": "UDP"}, *({"hostIP": address} for address in addresses)])
        if maker.one_in(4):
            each["spec"]["hostNetwork"] = True
            port["containerPort"] = port["hostPort"]
            if maker.one_in(2):
                del port["hostPort"]  # the server adds it
        match rng.choice(["container", "container", "sidecar", "init"]):
            case "container":
                each["spec"]["containers"][0]["ports"] = [port]
            case kind:
                extra: Object = {"name": "with-port", "image": IMAGE, "ports": [port]}
                extra |= {"restartPolicy": "Always"} if kind == "sidecar" else {}
                each["spec"].setdefault("initContainers", []).append(extra)


def amounts(maker: Maker, pod: Object, running: list[Object]) -> None:
    """Init containers, sidecars, more containers, overhead and resources of the whole pod."""
    rng = maker.rng
    for each in (pod, *running):
        spec = each["spec"]
        for index in range(rng.randint(0, 3)):
            container: Object = {"name": f"extra{index}", "image": IMAGE, "resources": _some(maker)}
            kind = rng.choice(["container", "init", "sidecar"])
            if kind == "sidecar":
                container["restartPolicy"] = "Always"
            spec.setdefault("containers" if kind == "container" else "initContainers", []).append(container)
        if maker.one_in(5):
            spec["runtimeClassName"] = RUNTIME_CLASS
        if maker.one_in(5):
            level = rng.choice(
                [{"requests": {"cpu": "7"}}, {"limits": {"cpu": "8", "memory": "7Gi"}}, {"requests": {"memory": "8Gi"}}]
            )
            spec["resources"] = level
        if maker.one_in(5):
            spec["containers"][0]["resources"] = {}


def _some(maker: Maker) -> Object:
    rng = maker.rng
    cpu, memory = {"cpu": rng.choice(["0", "500m", "1", "2"])}, {"memory": rng.choice(["1Gi", "2Gi", "3Gi"])}
    device, pages = {DEVICE: rng.choice(["0", "1", "2"])}, {"hugepages-2Mi": rng.choice(["2Mi", "4Mi"])}
    disk = {"ephemeral-storage": rng.choice(["1Gi", "2Gi"])}
    some: list[Object] = [
        {"requests": cpu},
        {"limits": cpu},
        {"requests": memory},
        {"requests": cpu | memory},
        {"limits": device},
        {"requests": {"cpu": "100m"}, "limits": pages},
        {"requests": disk},
        {},
    ]
    return rng.choice(some)


def _term(maker: Maker) -> Object:
    rng = maker.rng
    selector: Object = {"matchLabels": {maker.app: rng.choice("xy")}}
    match rng.randrange(6):
        case 0:
            selector = {"matchExpressions": [{"key": maker.app, "operator": rng.choice(["Exists", "DoesNotExist"])}]}
        case 1:
            selector = {"matchExpressions": [{"key": maker.app, "operator": "NotIn", "values": ["x"]}]}
        case 2:
            selector = {"matchLabels": {maker.version: rng.choice("12")}}
        case 3:
            selector = {}
    return {"labelSelector": selector, "topologyKey": rng.choice([maker.zone, maker.host])}


def pod_affinity(maker: Maker, pod: Object, running: list[Object]) -> None:
    rng = maker.rng
    kind = rng.choice(["podAffinity", "podAntiAffinity"])
    owners = [pod] if kind == "podAffinity" else rng.sample([pod, *running], min(2, 1 + len(running)))
    for owner in owners:
        terms = [_scoped(maker, _term(maker)) for _ in range(rng.choice([1, 1, 2]))]
        owner["spec"].setdefault("affinity", {})[kind] = {REQUIRED: terms}


def _scoped(maker: Maker, term: Object) -> Object:
    rng = maker.rng
    if maker.one_in(3):
        scopes: list[dict[str, Any]] = [
            {"namespaces": [OTHER_NAMESPACE]},
            {"namespaces": [NAMESPACE, OTHER_NAMESPACE]},
            {"namespaceSelector": {}},
            {"namespaceSelector": {"matchLabels": {"team": "other"}}},
            {"namespaceSelector": {"matchLabels": {"team": "nobody"}}, "namespaces": [NAMESPACE]},
        ]
        term |= rng.choice(scopes)
    if maker.one_in(4) and maker.version not in str(term["labelSelector"]):
        term |= rng.choice([{"matchLabelKeys": [maker.version]}, {"mismatchLabelKeys": [maker.version]}])
    if term["labelSelector"] == {}:  # of every pod of all cases, unless it is about labels of this one
        term["labelSelector"] = {"matchExpressions": [{"key": maker.app, "operator": "Exists"}]}
    return term


def spread(maker: Maker, pod: Object, _running: list[Object]) -> None:
    rng = maker.rng
    made: list[Object] = []
    for index in range(rng.choice([1, 1, 2])):
        constraint = {**_term(maker), "maxSkew": rng.randint(1, 2), "whenUnsatisfiable": "DoNotSchedule"}
        if index:
            constraint["topologyKey"] = next(key for key in (maker.zone, maker.host) if key != made[0]["topologyKey"])
        if maker.one_in(5):
            constraint["whenUnsatisfiable"] = "ScheduleAnyway"
        elif maker.one_in(2):
            policies = [{"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}]
            constraint |= rng.choice([{"minDomains": 2}, {"minDomains": 3}, *policies])
        if maker.one_in(4) and maker.version not in str(constraint["labelSelector"]):
            constraint["matchLabelKeys"] = [maker.version]
        made.append(constraint)
    pod["spec"]["topologySpreadConstraints"] = made


def resize(maker: Maker, _pod: Object, running: list[Object]) -> None:
    rng = maker.rng
    for each in running:
        statuses = []
        for container in each["spec"]["containers"]:
            if maker.one_in(5):
                continue
            state = {"state": {"running": {}}, "ready": True, "restartCount": 0, "image": IMAGE, "imageID": ""}
            status = {"name": container["name"], **state}
            if not maker.one_in(4):
                status["allocatedResources"] = {"cpu": rng.choice(["500m", "1", "2", "4"])}
            if not maker.one_in(4):
                status["resources"] = {"requests": {"cpu": rng.choice(["500m", "1", "2", "4"])}}
            statuses.append(status)
        each["status"] = {"phase": "Running", "containerStatuses": statuses}
        if maker.one_in(2):
            reason = rng.choice(["Infeasible", "Infeasible", "Deferred"])
            each["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        if maker.one_in(4):
            each["status"]["allocatedResources"] = {"cpu": rng.choice(["1", "3"])}
            each["status"]["resources"] = {"requests": {"cpu": rng.choice(["1", "3"])}}


def hopeless_gate(maker: Maker, pod: Object, _running: list[Object]) -> None:
    pod["spec"]["schedulingGates"] = [{"name": f"c{maker.case.number}.example.com/gate"}]


RULES = (
    tolerations,
    node_affinity,
    host_ports,
    amounts,
    pod_affinity,
    spread,
    resize,
    hopeless_gate,
)
