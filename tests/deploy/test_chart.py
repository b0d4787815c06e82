"""The chart: Helm accepts it, the files written from it are up to date, values take effect, wrong ones are refused."""

import json
import re
import tomllib
from typing import Any

import pytest
import yaml

from deploy.rbac_rights import ROOT
from maniple.api.crds import crds
from maniple.cli.commands.serve import command as serve
from maniple.scheduler.framework.policy import load_policy
from tools.helm import HelmError, helm
from tools.write_manifests import CHART, manifests, rendered

pytestmark = pytest.mark.usefixtures("need_helm")
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def documents(*options: str) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all(rendered(*options)) if item]


def one(kind: str, *options: str) -> dict[str, Any]:
    (found,) = (item for item in documents(*options) if item["kind"] == kind)
    return found


def container(*options: str) -> dict[str, Any]:
    found: dict[str, Any] = one("Deployment", *options)["spec"]["template"]["spec"]["containers"][0]
    return found


def test_helm_finds_nothing_wrong() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_files_written_from_the_chart_are_up_to_date() -> None:
    for name, text in manifests().items():
        written = (ROOT / "deploy" / name).read_text(encoding="utf-8")
        assert written == text, f"deploy/{name} is not what the chart says: run `make manifests` and commit the outcome"


def test_its_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == project["version"]
    assert chart["description"] == project["description"]
    assert container()["image"] == f"maniple:{project['version']}"


def test_the_crds_are_those_of_the_types_and_not_a_copy() -> None:
    assert (CHART / "crds").resolve() == ROOT / "deploy" / "crds"
    shown = [item for item in documents("--include-crds") if item["kind"] == "CustomResourceDefinition"]
    assert {item["metadata"]["name"]: item for item in shown} == {crd["metadata"]["name"]: crd for crd in crds()}


def test_its_pods_are_allowed_in_a_restricted_namespace() -> None:
    spec = one("Deployment")["spec"]["template"]["spec"]
    security = spec["containers"][0]["securityContext"]
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["seccompProfile"]) == (
        True,
        {"type": "RuntimeDefault"},
    )
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}


def test_one_replica_may_be_evicted_at_a_time_and_replicas_prefer_different_nodes() -> None:
    deployment = one("Deployment")
    assert deployment["spec"]["replicas"] == 2
    selector = deployment["spec"]["selector"]
    assert one("PodDisruptionBudget")["spec"] == {"maxUnavailable": 1, "selector": selector}
    affinity = deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"] == {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}


def test_its_arguments_are_options_of_serve() -> None:
    options = {name for parameter in serve.params for name in (*parameter.opts, *parameter.secondary_opts)}
    command, *arguments = container("--set=policy=x")["args"]
    assert command == "serve"
    assert {argument.partition("=")[0] for argument in arguments} <= options
    serve.make_context("serve", arguments)


def test_its_lease_is_the_one_that_its_role_names() -> None:
    (rule,) = (rule for rule in one("Role")["rules"] if "resourceNames" in rule and rule["resources"] == ["leases"])
    assert f"--lease=kube-system/{rule['resourceNames'][0]}" in container()["args"]
    assert one("Role")["metadata"]["namespace"] == "kube-system"


def test_a_policy_goes_into_a_config_map_and_makes_new_pods() -> None:
    file = ROOT / "examples" / "policies" / "spread.yaml"
    option = f"--set-file=policy={file}"
    text = one("ConfigMap", option)["data"]["policy.yaml"]
    assert text.strip() == file.read_text(encoding="utf-8").strip()
    load_policy(text.encode(), "chart")
    assert "--policy=/etc/maniple/policy.yaml" in container(option)["args"]
    other = f"--set-file=policy={ROOT / 'examples' / 'policies' / 'no-drf.yaml'}"
    annotations = [one("Deployment", each)["spec"]["template"]["metadata"]["annotations"] for each in (option, other)]
    assert annotations[0] != annotations[1]
    assert not [item for item in documents() if item["kind"] == "ConfigMap"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("schedulerName=other", "--scheduler-name=other"),
        ("gangTimeoutSeconds=1000000", "--gang-timeout=1000000"),
        ("driftCheckSeconds=30", "--drift-check=30"),
        ("log.level=debug", "--log-level=debug"),
        ("log.format=text", "--log-format=text"),
        ("port=9000", "--listen=:9000"),
    ],
)
def test_values_become_arguments(value: str, expected: str) -> None:
    assert expected in container(f"--set={value}")["args"]


def test_values_for_the_pods_reach_them() -> None:
    options = [
        "--set=replicas=3,image.repository=r.example.com/m,image.tag=v7,image.pullSecrets={key}",
        "--set=priorityClassName=,tolerations[0].operator=Exists,podAnnotations.a=b",
        "--set=resources.limits=null,nodeSelector.zone=z",
    ]
    deployment = one("Deployment", *options)
    template = deployment["spec"]["template"]
    spec = template["spec"]
    assert deployment["spec"]["replicas"] == 3
    assert spec["containers"][0]["image"] == "r.example.com/m:v7"
    assert spec["imagePullSecrets"] == [{"name": "key"}]
    assert "priorityClassName" not in spec
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "zone": "z"}
    assert template["metadata"]["annotations"] == {"a": "b"}
    assert set(spec["containers"][0]["resources"]) == {"requests"}


def test_queues_and_priority_classes_can_be_replaced_or_left_out() -> None:
    ours = ('--set-json=queues=[{"name": "a", "spec": {"weight": 3}}, {"name": "b"}]', "--set=priorityClasses=null")
    queues = [item for item in documents(*ours) if item["kind"] == "Queue"]
    assert [(item["metadata"]["name"], item["spec"]) for item in queues] == [("a", {"weight": 3}), ("b", {})]
    kinds = {item["kind"] for item in documents("--set-json=queues=[]", "--set-json=priorityClasses=[]")}
    assert not kinds & {"Queue", "PriorityClass"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replica=3", "replica"),
        ("replicas=0", "replicas"),
        ("log.level=loud", "log/level"),
        ("image.repo=x", "repo"),
        ("gangTimeoutSeconds=0", "gangTimeoutSeconds"),
        ("priorityClasses[0].value=3000000000", "priorityClasses/0"),
        ("queues[0].weight=1", "queues/0"),
    ],
)
def test_wrong_values_are_refused(value: str, said: str) -> None:
    with pytest.raises(HelmError, match=said):
        rendered(f"--set={value}")


def leaves(values: dict[str, Any], before: str = "") -> set[str]:
    """Names of values as `--set` takes them; resources, and lists and maps that users write, are one value each."""
    found = set()
    for name, value in values.items():
        is_ours = isinstance(value, dict) and SCHEMA["properties"].get(before + name, {}).get("properties")
        found |= leaves(value, f"{name}.") if is_ours and name != "resources" else {before + name}
    return found


def test_every_value_is_in_the_schema_and_on_the_page() -> None:
    assert set(VALUES) == set(SCHEMA["properties"]) - {"global"}
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = page.partition("## Configuration")[2].partition("\n## ")[0]
    listed = {
        word
        for line in table.splitlines()
        if line.startswith("| `")
        for word in re.findall(r"`([^`]+)`", line.split(" | ")[0])
    }
    assert listed == leaves(VALUES)
