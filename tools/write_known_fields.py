"""Writes maniple/api/decode/known_fields.py: the fields that Kubernetes defines and we do not read, by struct.

Run by hand when Kubernetes has a new release, in an environment that has maniple's dependencies and the
newest `kubernetes` package, which is not a dependency (and not part of `make test`):
`pip install kubernetes && python tools/write_known_fields.py`.
"""

import importlib
import importlib.metadata
import inspect
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "maniple" / "api" / "decode" / "known_fields.py"

# Structs that are not called as Kubernetes calls them, or stand for several of its types.
MODELS = {
    "AWSElasticBlockStore": ["AWSElasticBlockStoreVolumeSource"],
    "AzureDisk": ["AzureDiskVolumeSource"],
    "CSIDriverOnNode": ["CSINodeDriver"],
    "CSIVolume": ["CSIPersistentVolumeSource"],
    "ClaimReference": ["ObjectReference"],
    "ClaimTemplate": ["PersistentVolumeClaimTemplate"],
    "ClaimSource": ["PersistentVolumeClaimVolumeSource"],
    "Condition": ["NodeCondition"],
    "Container": ["Container", "EphemeralContainer"],
    "DiskByID": ["CinderVolumeSource", "CinderPersistentVolumeSource", "PortworxVolumeSource"],
    "EphemeralVolume": ["EphemeralVolumeSource"],
    "GCEPersistentDisk": ["GCEPersistentDiskVolumeSource"],
    "ISCSI": ["ISCSIVolumeSource"],
    "LabelRequirement": ["LabelSelectorRequirement", "NodeSelectorRequirement"],
    "PodAffinity": ["PodAffinity", "PodAntiAffinity"],
    "PodTemplate": ["PodTemplateSpec"],
    "RBD": ["RBDVolumeSource"],
    "SchedulingGate": ["PodSchedulingGate"],
    "TemplateMeta": ["ObjectMeta"],
    "TopologyRequirement": ["TopologySelectorLabelRequirement"],
    "VolumeCount": ["VolumeNodeResources"],
    "VolumeStatus": ["PersistentVolumeStatus", "PersistentVolumeClaimStatus"],
}
# Fields that old API servers wrote and dumps still contain, though the newest API has dropped them.
LEGACY = {
    "ObjectMeta": {"clusterName", "initializers"},
    "TemplateMeta": {"clusterName", "initializers"},
    "PodSpec": {"deprecatedServiceAccount", "workloadRef"},
}
# Our own structs that hold a type of Kubernetes; the rest of types.py is ours alone.
SHARED = {"PodTemplate", "TemplateMeta"}
OURS = ("ElasticJob", "PodGroup", "Queue", "Topology")

HEADER = '''"""The fields that Kubernetes defines and we do not read, by struct.

With them a strict decoder can tell a typing error (`nodeSelctor`) from a field that scheduling does not need.

Generated from the models of kubernetes=={version} by tools/write_known_fields.py; do not edit.
"""


def _fields(names: str) -> frozenset[str]:
    return frozenset(names.split())


OTHER_FIELDS: dict[str, frozenset[str]] = {{
'''


def main() -> None:
    sys.path.insert(0, str(ROOT))
    client = importlib.import_module("kubernetes.client")
    text = HEADER.format(version=importlib.metadata.version("kubernetes"))
    for name, ours in sorted(structs().items()):
        theirs = {"apiVersion", "kind"} if name in OURS else set()
        for model in [] if name in OURS else MODELS.get(name, [name]):
            theirs |= set(getattr(client, "V1" + model).attribute_map.values())
        if unknown := ours - theirs - {"metadata", "spec", "status"}:
            raise SystemExit(f"{name}: Kubernetes has no such fields: {', '.join(sorted(unknown))}")
        text += entry(name, sorted((theirs | LEGACY.get(name, set())) - ours))
    TARGET.write_text(text + "}\n")


def structs() -> dict[str, set[str]]:
    """The names on the wire that each struct declares itself."""
    fields: dict[str, set[str]] = {}
    for module in ("meta", "kubernetes", "types"):
        space = importlib.import_module(f"maniple.api.{module}")
        for name, cls in inspect.getmembers(space, lambda item: hasattr(item, "__struct_encode_fields__")):
            wanted = name in SHARED or name in OURS if module == "types" else name != "Struct"
            if wanted and cls.__module__ == space.__name__:
                fields[name] = set(cls.__struct_encode_fields__)
    return fields


def entry(name: str, fields: list[str]) -> str:
    line = f'    "{name}": _fields("{" ".join(fields)}"),\n'
    if len(line) <= 111:
        return line
    rows = textwrap.wrap(" ".join(fields), 98, break_on_hyphens=False)
    quoted = "".join(f'        "{row}{" " if row is not rows[-1] else ""}"\n' for row in rows)
    return f'    "{name}": _fields(\n{quoted}    ),\n'


if __name__ == "__main__":
    main()
