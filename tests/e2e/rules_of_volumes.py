"""Rules about claims, volumes and disks, for the random cases of rule_cases.py."""

from __future__ import annotations

from e2e.rule_cases import CLAIMS, NAMESPACE, Maker, Object

STORAGE = "/apis/storage.k8s.io/v1"
VOLUMES = "/api/v1/persistentvolumes"
MODES = ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")
SELECTED_NODE = "volume.kubernetes.io/selected-node"
EBS = "ebs.csi.aws.com"


def bound_claim(maker: Maker, pod: Object, running: list[Object]) -> None:
    mode = maker.rng.choice(MODES)
    for index in range(maker.rng.choice([1, 1, 2])):
        name = _bound(maker, f"data{index}", mode)
        _use(pod, name)
        for each in running:
            if mode != "ReadWriteOnce" and maker.one_in(2):
                _use(each, name)


def hopeless_deleted_claim(maker: Maker, pod: Object, _running: list[Object]) -> None:
    name = _bound(maker, "gone", "ReadWriteOnce")
    maker.add("DELETE", f"{CLAIMS}/{name}")
    _use(pod, name)


def hopeless_lost_claim(maker: Maker, pod: Object, _running: list[Object]) -> None:
    name = maker.name("lost")
    _claim(maker, name, "ReadWriteOnce", volume=maker.name("no-volume"))
    if maker.one_in(2):
        maker.add("PATCH", f"{CLAIMS}/{name}/status", {"status": {"phase": "Lost"}})
    _use(pod, name)


def hopeless_missing_claim(maker: Maker, pod: Object, _running: list[Object]) -> None:
    _use(pod, maker.name("nowhere"))


def unbound_claims(maker: Maker, pod: Object, _running: list[Object]) -> None:
    """One to three claims, mostly of one class, and volumes that some of them may take."""
    rng = maker.rng
    storage_class = _class(maker)
    for index in range(rng.choice([1, 1, 2, 3])):
        name = maker.name(f"unbound{index}")
        spec = _claim_spec(rng.choice(MODES)) | {"storageClassName": storage_class}
        spec["resources"] = {"requests": {"storage": rng.choice(["5Gi", "5Gi", "6Gi"])}}
        if maker.one_in(6):
            spec["volumeMode"] = "Block"
        if maker.one_in(5):
            spec["selector"] = {"matchLabels": {maker.app: rng.choice("xy")}}
        annotations = {SELECTED_NODE: rng.choice(maker.case.nodes)} if maker.one_in(6) else {}
        maker.add("POST", CLAIMS, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})
        if maker.one_in(5):
            _free_volume(maker, f"own{index}-{storage_class}", storage_class, claim=name)
        _use(pod, name)


def ephemeral_claim(maker: Maker, pod: Object, _running: list[Object]) -> None:
    storage_class = _class(maker)
    spec = {**_claim_spec("ReadWriteOnce"), "storageClassName": storage_class}
    template = {"volumeClaimTemplate": {"spec": spec}}
    pod["spec"].setdefault("volumes", []).append({"name": "scratch", "ephemeral": template})
    if maker.one_in(2):  # a claim of this name that is not the pod's
        _claim(maker, f"{pod['metadata']['name']}-scratch", "ReadWriteOnce", storage_class)


def volume_limits(maker: Maker, pod: Object, running: list[Object]) -> None:
    rng = maker.rng
    for node in maker.case.nodes:
        if not maker.one_in(4):
            count = {"count": rng.randint(0, 2)}
            drivers = [
                {"name": driver, "nodeID": node, "allocatable": count, "topologyKeys": None}
                for driver in (maker.driver, EBS)
                if not maker.one_in(4)
            ]
            maker.add("POST", f"{STORAGE}/csinodes", {"metadata": {"name": node}, "spec": {"drivers": drivers}})
    shared = _bound(maker, "disk", "ReadWriteMany", reach=False)
    late = _class(maker)
    for index, each in enumerate((pod, *running)):
        own = _bound(maker, f"disk{index}", "ReadWriteMany", reach=False)
        for claim in rng.choice([[shared], [own], [shared, own]]):
            _use(each, claim)
        if maker.one_in(3):
            _use(each, _bound(maker, f"ebs{index}", "ReadWriteMany", reach=False, in_tree=True))
        if maker.one_in(4):
            name = maker.name(f"late{index}")
            _claim(maker, name, "ReadWriteMany", late)
            _use(each, name)
        if each is not pod and maker.one_in(4):
            maker.add("DELETE", f"{CLAIMS}/{own}")


def disks(maker: Maker, pod: Object, running: list[Object]) -> None:
    rng = maker.rng
    kind = rng.choice(["gce", "aws", "iscsi", "rbd"])
    for each in (pod, *running):
        if each is not pod and maker.one_in(4):
            continue
        disk, read_only = maker.name(rng.choice(["d1", "d1", "d2"])), maker.one_in(2)
        match kind:
            case "gce":
                source: Object = {"gcePersistentDisk": {"pdName": disk, "readOnly": read_only}}
            case "aws":
                source = {"awsElasticBlockStore": {"volumeID": f"vol-{disk}", "readOnly": read_only}}
            case "iscsi":
                iscsi = {"targetPortal": "10.0.0.1", "lun": rng.randint(0, 1), "readOnly": read_only}
                source = {"iscsi": {"iqn": f"iqn.2026-01.com.example:{disk}", **iscsi}}
            case _:
                monitors = rng.choice([["m1"], ["m2"], ["m1", "m2"], ["m3", "m2"]])
                source = {"rbd": {"monitors": monitors, "image": disk, "readOnly": read_only}}
                if maker.one_in(3):
                    source["rbd"]["pool"] = "fast"
        each["spec"].setdefault("volumes", []).append({"name": "disk", **source})


# -- objects


def _use(pod: Object, claim: str) -> None:
    volumes = pod["spec"].setdefault("volumes", [])
    if all(volume.get("persistentVolumeClaim", {}).get("claimName") != claim for volume in volumes):
        volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": claim}})


def _claim_spec(mode: str) -> Object:
    return {"accessModes": [mode], "resources": {"requests": {"storage": "5Gi"}}}


def _claim(maker: Maker, name: str, mode: str, storage_class: str | None = None, volume: str = "") -> None:
    spec = _claim_spec(mode) | {"storageClassName": storage_class or ""}
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    if volume:
        spec["volumeName"] = volume
    maker.add("POST", CLAIMS, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})
    maker.add("PATCH", f"{CLAIMS}/{name}/status", {"status": {"phase": "Bound" if volume else "Pending"}})


def _bound(maker: Maker, text: str, mode: str, *, reach: bool = True, in_tree: bool = False) -> str:
    rng, name = maker.rng, maker.name(text)
    labels = {}
    if reach and maker.one_in(3):
        generation = rng.choice(["topology.kubernetes.io", "failure-domain.beta.kubernetes.io"])
        labels = {f"{generation}/zone": rng.choice(["a", "b", "a__b", "b__c"])}
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": [mode],
        "storageClassName": "",
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": name},
        **_source(maker, name, in_tree=in_tree),
    }
    if reach and maker.one_in(2):
        spec["nodeAffinity"] = _near_some_node(maker)
    _volume(maker, name, labels, spec, "Bound")
    _claim(maker, name, mode, volume=name)
    return name


def _source(maker: Maker, name: str, *, in_tree: bool = False) -> Object:
    if in_tree:
        return {"awsElasticBlockStore": {"volumeID": f"vol-{name}"}}
    return {"csi": {"driver": maker.driver, "volumeHandle": name}}


def _near_some_node(maker: Maker) -> Object:
    node = [maker.rng.choice(maker.case.nodes)]
    term: Object = {"matchExpressions": [{"key": maker.host, "operator": "In", "values": node}]}
    if maker.one_in(6):
        named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": node}]}
        term = named if maker.one_in(2) else term | named
    return {"required": {"nodeSelectorTerms": [term]}}


def _volume(maker: Maker, name: str, labels: Object, spec: Object, phase: str) -> None:
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"persistentVolumeReclaimPolicy": "Retain", **spec}}
    maker.add("POST", VOLUMES, body)
    maker.add("PATCH", f"{VOLUMES}/{name}/status", {"status": {"phase": phase}})


def _free_volume(maker: Maker, name: str, storage_class: str, claim: str = "") -> None:
    rng = maker.rng
    spec: Object = {
        "capacity": {"storage": rng.choice(["4Gi", "5Gi", "5Gi", "6Gi", "10Gi"])},
        "accessModes": rng.choice([[MODES[0]], [MODES[1]], [MODES[0], MODES[2]]]),
        "storageClassName": storage_class,
        **_source(maker, name),
    }
    if maker.one_in(6):
        spec["volumeMode"] = "Block"
    if maker.one_in(2):
        spec["nodeAffinity"] = _near_some_node(maker)
    if claim:
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": claim}
    _volume(maker, name, {maker.app: rng.choice("xy")}, spec, rng.choice(["Available"] * 5 + ["Released"]))


def _class(maker: Maker) -> str:
    rng, name = maker.rng, maker.name(f"class{len(maker.case.steps)}")
    if maker.one_in(8):
        return name  # does not exist
    item: Object = {
        "metadata": {"name": name},
        "provisioner": rng.choice([maker.driver, "kubernetes.io/no-provisioner"]),
        "volumeBindingMode": rng.choice(["WaitForFirstConsumer"] * 4 + ["Immediate"]),
    }
    if maker.one_in(2):
        expressions = [{"key": maker.zone, "values": rng.choice([["a"], ["b"], ["a", "b"]])}]
        if maker.one_in(3):
            expressions.append({"key": maker.host, "values": [rng.choice(maker.case.nodes)]})
        item["allowedTopologies"] = [{"matchLabelExpressions": expressions}]
    maker.add("POST", f"{STORAGE}/storageclasses", item)
    for index in range(rng.randint(0, 3)):
        _free_volume(maker, f"free{index}-{name}", name)
    return name


RULES = (
    bound_claim,
    hopeless_deleted_claim,
    hopeless_lost_claim,
    hopeless_missing_claim,
    unbound_claims,
    ephemeral_claim,
    volume_limits,
    disks,
)
