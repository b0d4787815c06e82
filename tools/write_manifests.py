"""Writes deploy/install.yaml and deploy/rbac.yaml from the Helm chart: `make manifests`.

The chart is the source; the written files are for installing without Helm.
"""

import sys
from pathlib import Path

from tools.cluster.program_versions import KUBERNETES
from tools.helm import ensure, helm

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "chart" / "maniple"
NAMESPACE = "maniple-system"
HEADER = "# Written by `make manifests` from deploy/chart/maniple; do not edit.\n"


def manifests() -> dict[str, str]:
    """File name in deploy/ to text: the whole chart, and its namespace and rights alone."""
    rights = [f"--show-only=templates/{name}.yaml" for name in ("namespace", "rbac")]
    return {
        "install.yaml": HEADER + _rendered("--include-crds"),
        "rbac.yaml": HEADER + _rendered(*rights),
    }


def _rendered(*options: str) -> str:
    return rendered("--set=createNamespace=true", *options)


def rendered(*options: str) -> str:
    """The chart as a release named maniple. Without a version, Helm built here assumes a very old Kubernetes."""
    version = f"--kube-version={KUBERNETES.version}"
    return helm("template", "maniple", str(CHART), f"--namespace={NAMESPACE}", version, *options)


def main() -> None:
    ensure(lambda text: print(text, file=sys.stderr, flush=True))
    for name, text in manifests().items():
        (ROOT / "deploy" / name).write_text(text, encoding="utf-8")
        print(f"deploy/{name}")


if __name__ == "__main__":
    main()
