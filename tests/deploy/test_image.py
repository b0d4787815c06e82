"""The image of the Containerfile, as far as it can be tested without a registry: see run_like_container.py."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy import run_like_container
from deploy.rbac_rights import ROOT
from deploy.run_like_container import NOBODY


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(encoding="utf-8"), flags=re.M).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def deployed_pod() -> dict[str, object]:
    documents = yaml.safe_load_all((ROOT / "deploy" / "install.yaml").read_text(encoding="utf-8"))
    deployment = next(item for item in documents if item["kind"] == "Deployment")
    spec: dict[str, object] = deployment["spec"]["template"]["spec"]
    return spec


def test_the_image_runs_as_the_user_that_the_deployment_names() -> None:
    last_stage = instructions()[max(at for at, (name, _) in enumerate(instructions()) if name == "FROM") :]
    security = deployed_pod()["securityContext"]
    assert isinstance(security, dict)
    assert dict(last_stage)["USER"] == f"{security['runAsUser']}:{security['runAsGroup']}" == f"{NOBODY}:{NOBODY}"
    assert json.loads(dict(last_stage)["ENTRYPOINT"]) == ["maniple"]
    assert not [rest for name, rest in last_stage if name in ("RUN", "ADD")], "what runs belongs into the first stage"


def test_everything_that_is_copied_is_in_the_build_context() -> None:
    sources = [
        word for name, rest in instructions() if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()  # podman reads it too
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_like_container.install(tmp_path_factory.mktemp("image"))


def run(installed: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    reason = run_like_container.why_not()
    if reason:
        pytest.skip(reason)
    return subprocess.run(
        run_like_container.contained([str(installed / "bin" / "maniple"), *arguments]),
        env=run_like_container.environment(),
        cwd="/",
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_container_is_read_only_and_its_user_has_no_capabilities() -> None:
    reason = run_like_container.why_not()
    if reason:
        pytest.skip(reason)
    tries = "for folder in / /tmp /run /dev/shm; do touch $folder/x 2>/dev/null && echo $folder; done"
    script = f"{tries}; id -u; grep CapEff /proc/self/status"
    done = subprocess.run(
        run_like_container.contained(["sh", "-c", script]), capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(NOBODY), "CapEff:", "0" * 16]


def test_the_wheel_plans_without_user_name_home_or_writable_folder(installed: Path) -> None:
    example = (ROOT / "examples" / "01-small-behind-large.yaml").read_text(encoding="utf-8")
    done = run(installed, "plan", "-f", "-", text=example)
    assert (done.returncode, done.stderr) == (0, "")
    assert "default/b" in done.stdout


def test_serve_starts_in_the_container_and_asks_for_a_cluster(installed: Path) -> None:
    done = run(installed, "serve", "--listen=:0")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no cluster to talk to"), done.stderr


def test_the_wheel_holds_the_package_and_nothing_else(installed: Path) -> None:
    (record,) = (installed / "lib").glob("python*/site-packages/maniple-*.dist-info/RECORD")
    tops = {line.split(",")[0].split("/")[0] for line in record.read_text().splitlines()}
    assert {top for top in tops if top != ".."} == {"maniple", record.parent.name}
