"""Helm, built from the Go module proxy into the cache that tools/cluster has: it renders and checks the chart.

`python -m tools.helm` builds it; what is there already costs nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

from tools.cluster import build, go
from tools.cluster.go import CannotBuildError, Say
from tools.cluster.programs import Program, Source, missing_programs, source_folder

HELM = Program("helm", Source("helm", "helm.sh/helm/v3", "v3.22.0"), "helm.sh/helm/v3/cmd/helm", 180)


class HelmError(Exception):
    """Helm said no; the message is what it said."""


def helm_path() -> Path:
    """Where Helm is once it is built."""
    return source_folder(HELM.source) / HELM.name


def is_built() -> bool:
    return helm_path().exists()


def ensure(say: Say) -> None:
    """Builds Helm if it is missing; only a finished one gets its name."""
    if is_built():
        return
    with build._alone(say):
        if is_built():
            return
        say(f"building helm: once, about {HELM.build_s // 60} minutes on two cores, into {helm_path().parent}")
        module = go.download(HELM.source)
        helm_path().parent.mkdir(parents=True, exist_ok=True)
        unfinished = helm_path().with_name(".helm.unfinished")
        flags = ["-trimpath", "-mod=readonly", "-v", "-ldflags", go._linker_flags(HELM.source)]
        go._watched_build([go.go_command(), "build", *flags, "-o", str(unfinished), HELM.package], module, HELM, say)
        unfinished.rename(helm_path())
        say(f"helm: built, {helm_path().stat().st_size / 1e6:.0f} MB")
        if not missing_programs(build.ALL):
            go.remove_work()


def helm(*arguments: str, **variables: str) -> str:
    """Runs Helm and returns what it prints. It sees nothing of the user's own Helm settings."""
    nowhere = dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"), str(helm_path().parent / "home"))
    done = subprocess.run(
        [str(helm_path()), *arguments],
        env=os.environ | nowhere | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise HelmError((done.stderr + done.stdout).strip())
    return done.stdout


def main() -> None:
    """Builds Helm. Where that can't be done it says so; a failure only where a cluster is required."""

    def say(text: str) -> None:
        print(f"helm: {text}", file=sys.stderr, flush=True)

    try:
        ensure(say)
    except CannotBuildError as error:
        if os.environ.get(build.REQUIRE_VARIABLE) == "1":
            say(f"required, and not to be had here: {error}")
            sys.exit(1)
        say(f"not to be had here, tests that need it are skipped: {error}")


if __name__ == "__main__":
    main()
