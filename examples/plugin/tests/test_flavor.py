"""Pods of a flavor go to nodes of that flavor."""

from pathlib import Path

import yaml

from maniple.cluster.memory import plan_objects

HERE = Path(__file__).parents[1]
POLICY = (HERE / "policy.yaml").read_text()


def test_a_pod_goes_to_a_node_of_its_flavor() -> None:
    objects = list(yaml.safe_load_all((HERE / "cluster.yaml").read_text()))
    (plan,) = plan_objects(objects, policy=POLICY)["rounds"]
    assert [(bind["pod"], bind["node"]) for bind in plan["binds"]] == [("default/train", "n2")]
