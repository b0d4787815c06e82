"""One real node: kubelet, containerd and runc, inside the cluster's own mount, network and process namespaces.

kubelet and containerd write to fixed places; inside, those are file systems in memory that vanish with the namespaces.
Everything here but the constants runs inside.
"""

import json
import os
import subprocess
from pathlib import Path

import yaml

from tools.cluster import debian_packages, images
from tools.cluster.certificates import NODE_ADDRESS, SERVICE_ADDRESS
from tools.cluster.cluster_layout import ClusterError, Layout, Spec
from tools.cluster.component_commands import Component
from tools.cluster.program_versions import CNI, program_path, source_folder

# What the inside has of its own; neither the cache nor the clusters' folder may be below these.
HIDDEN = ("/run", "/var/lib", "/var/log")
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
LOGS_AND_EXEC = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "api-server-to-kubelets"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
    "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kube-apiserver-kubelet-client"},
    ],
}
UNUSED_PLUGINS = [
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
]


def prepare_namespaces() -> None:
    """Hides folders of the machine, and gives the network its addresses."""
    _busybox("mount", "--make-rshared", "/")
    for folder in HIDDEN:
        _busybox("mount", "-t", "tmpfs", "tmpfs", folder)
    _busybox("ip", "link", "set", "lo", "up")
    # kubelet refuses a loopback address; pods look for the API server at its Service's.
    for address in (NODE_ADDRESS, SERVICE_ADDRESS):
        _busybox("ip", "address", "add", f"{address}/32", "dev", "lo")


def _busybox(*arguments: str) -> None:
    done = subprocess.run([debian_packages.path("busybox"), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(arguments)}: {done.stderr.strip()}")


def containerd(layout: Layout) -> Component:
    networks = layout.folder / "cni"
    networks.mkdir()
    (networks / "10-pods.conflist").write_text(json.dumps(_NETWORK))
    config = layout.folder / "containerd.toml"
    config.write_text(_containerd_config(networks))
    command = [str(debian_packages.path("containerd")), "--config", str(config), "--log-level", "warn"]
    search = f"{debian_packages.path('containerd').parent}:{debian_packages.path('runc').parent}:{os.environ['PATH']}"
    return Component("containerd", command, {"PATH": search})


_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "ptp",
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni",
                "ranges": [[{"subnet": "10.244.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


def _containerd_config(networks: Path) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = {json.dumps(UNUSED_PLUGINS)}
[grpc]
address = "{CONTAINERD_SOCKET}"
[{cri}]
sandbox_image = "{images.PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
disable_tcp_service = true
[{cri}.containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
BinaryName = "{debian_packages.path("runc")}"
SystemdCgroup = false
[{cri}.cni]
bin_dir = "{source_folder(CNI)}"
conf_dir = "{networks}"
"""


def _ctr(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(debian_packages.path("ctr")), "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def containerd_answers() -> bool:
    return Path(CONTAINERD_SOCKET).exists() and _ctr("version").returncode == 0


def import_images(layout: Layout) -> None:
    """Pause, which holds a pod's namespaces, and busybox, which tests run."""
    for name in (images.PAUSE, images.BUSYBOX):
        tar = layout.folder / "image.tar"
        images.write_busybox(tar, name, debian_packages.path("busybox"), ["/bin/sleep", "infinity"])
        import_image(tar, name)
        tar.unlink()


def import_image(tar: Path, name: str) -> None:
    """Imports an image into the node, unless it has one of that name."""
    if name in _ctr("images", "list", "--quiet").stdout.split():
        return
    done = _ctr("images", "import", str(tar))
    if done.returncode:
        raise ClusterError(f"image {name}: {done.stderr.strip()}")


def kubelet(layout: Layout, spec: Spec) -> Component:
    config = layout.folder / "kubelet.yaml"
    config.write_text(yaml.safe_dump(_kubelet_config(layout, spec)))
    command = [
        str(program_path("kubelet")),
        f"--config={config}",
        f"--kubeconfig={layout.kubeconfig('kubelet')}",
        f"--hostname-override={spec.real_node_name}",
        f"--node-ip={NODE_ADDRESS}",
        "--root-dir=/var/lib/kubelet",
        "--cert-dir=/var/lib/kubelet/pki",
    ]
    return Component("kubelet", command)


def _kubelet_config(layout: Layout, spec: Spec) -> dict[str, object]:
    certificates = layout.certificates
    gates = dict(pair.split("=") for pair in spec.feature_gates.split(",") if pair)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(certificates.certificate("cluster"))},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(certificates.certificate("kubelet-server")),
        "tlsPrivateKeyFile": str(certificates.key("kubelet-server")),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{spec.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "evictionHard": {},
        "localStorageCapacityIsolation": True,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "featureGates": {name: value.lower() == "true" for name, value in gates.items()},
    }
