"""Pods of a flavor go to nodes of that flavor."""

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).parents[1]


def test_a_pod_goes_to_a_node_of_its_flavor() -> None:
    command = ["maniple", "plan", "-f", "cluster.yaml", "--policy", "policy.yaml", "-o", "json"]
    output = subprocess.run(command, cwd=HERE, check=True, capture_output=True).stdout
    (plan,) = json.loads(output)["rounds"]
    assert [(bind["pod"], bind["node"]) for bind in plan["binds"]] == [("default/train", "n2")]
