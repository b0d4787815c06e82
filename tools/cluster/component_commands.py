"""The command line of every component of a cluster, from its spec.

Settings are those known to work on a small machine; a line that looks odd says why. Nothing here starts anything.
"""

from dataclasses import dataclass, field
from pathlib import Path

from tools.cluster.certificates import NODE_ADDRESS
from tools.cluster.cluster_layout import Layout, Spec
from tools.cluster.program_versions import program_path

# A port on this machine for each of these; with a real node, ports inside its network namespace.
PORTS = ("apiserver", "etcd", "etcd-peer", "controller-manager", "scheduler", "kwok", "agents")
# With a real node the API server listens where pods look for it: the address and port of the `kubernetes` Service.
PORT_FOR_PODS = 443


@dataclass(frozen=True)
class Component:
    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def server_port(spec: Spec) -> int:
    """Where the components themselves reach the API server."""
    return PORT_FOR_PODS if spec.real_node else spec.ports["apiserver"]


def control_plane(layout: Layout, spec: Spec) -> list[Component]:
    """In the order of starting; they stop in the opposite order."""
    components = [_etcd(layout, spec), _apiserver(layout, spec), _controller_manager(layout, spec)]
    if spec.kube_scheduler:
        components.append(_scheduler(layout, spec))
    return components


def _program(program: str, /, **flags: object) -> list[str]:
    """`_program("etcd", data_dir=x)` is `etcd --data-dir=x`."""
    return [str(program_path(program)), *(f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items())]


def _etcd(layout: Layout, spec: Spec) -> Component:
    certificates = layout.certificates
    clients = f"https://127.0.0.1:{spec.ports['etcd']}"
    peers = f"http://127.0.0.1:{spec.ports['etcd-peer']}"
    command = _program(
        "etcd",
        name="only",
        data_dir=layout.data("etcd"),
        listen_client_urls=clients,
        advertise_client_urls=clients,
        listen_peer_urls=peers,
        initial_advertise_peer_urls=peers,
        initial_cluster=f"only={peers}",
        cert_file=certificates.certificate("etcd-server"),
        key_file=certificates.key("etcd-server"),
        trusted_ca_file=certificates.certificate("etcd"),
        client_cert_auth="true",
        # Killing etcd loses nothing: what it wrote is in the system's memory. Only a power cut would.
        unsafe_no_fsync="true",
        quota_backend_bytes=4 << 30,
        auto_compaction_mode="periodic",
        auto_compaction_retention="5m",
        log_level="warn",
    )
    return Component("etcd", command)


def _apiserver(layout: Layout, spec: Spec) -> Component:
    certificates = layout.certificates
    command = _program(
        "kube-apiserver",
        etcd_servers=f"https://127.0.0.1:{spec.ports['etcd']}",
        etcd_cafile=certificates.certificate("etcd"),
        etcd_certfile=certificates.certificate("etcd-client"),
        etcd_keyfile=certificates.key("etcd-client"),
        bind_address="0.0.0.0" if spec.real_node else "127.0.0.1",
        secure_port=server_port(spec),
        # Nothing uses it (there is no endpoint reconciler), but without it the server looks for a default route.
        advertise_address=NODE_ADDRESS,
        endpoint_reconciler_type="none",
        authorization_mode="Node,RBAC",
        enable_admission_plugins="NodeRestriction",
        anonymous_auth="false",
        client_ca_file=certificates.certificate("cluster"),
        tls_cert_file=certificates.certificate("apiserver"),
        tls_private_key_file=certificates.key("apiserver"),
        kubelet_client_certificate=certificates.certificate("kubelet-client"),
        kubelet_client_key=certificates.key("kubelet-client"),
        kubelet_certificate_authority=certificates.certificate("cluster"),
        kubelet_preferred_address_types="InternalIP",
        proxy_client_cert_file=certificates.certificate("front-proxy-client"),
        proxy_client_key_file=certificates.key("front-proxy-client"),
        requestheader_client_ca_file=certificates.certificate("front-proxy"),
        requestheader_allowed_names="front-proxy-client",
        requestheader_username_headers="X-Remote-User",
        requestheader_group_headers="X-Remote-Group",
        requestheader_extra_headers_prefix="X-Remote-Extra-",
        service_account_issuer="https://kubernetes.default.svc.cluster.local",
        service_account_key_file=certificates.folder / "service-account.pub",
        service_account_signing_key_file=certificates.key("service-account"),
        service_cluster_ip_range="10.96.0.0/16",
        allow_privileged="true",
        event_ttl="10m",
        shutdown_delay_duration="0s",
        **_gates(spec),
        **({"runtime_config": spec.runtime_config} if spec.runtime_config else {}),
    )
    return Component("kube-apiserver", command)


def _controller_manager(layout: Layout, spec: Spec) -> Component:
    certificates = layout.certificates
    kubeconfig = layout.kubeconfig("controller-manager")
    # Hundreds of simulated nodes renew their leases slowly; with the defaults they would flap.
    patient = {} if spec.real_node else {"node_monitor_grace_period": "300s", "node_monitor_period": "30s"}
    command = _program(
        "kube-controller-manager",
        kubeconfig=kubeconfig,
        authentication_kubeconfig=kubeconfig,
        authorization_kubeconfig=kubeconfig,
        bind_address="127.0.0.1",
        secure_port=spec.ports["controller-manager"],
        tls_cert_file=certificates.certificate("controller-manager"),
        tls_private_key_file=certificates.key("controller-manager"),
        client_ca_file=certificates.certificate("cluster"),
        requestheader_client_ca_file=certificates.certificate("front-proxy"),
        root_ca_file=certificates.certificate("cluster"),
        service_account_private_key_file=certificates.key("service-account"),
        cluster_signing_cert_file=certificates.certificate("cluster"),
        cluster_signing_key_file=certificates.key("cluster"),
        use_service_account_credentials="true",
        controllers="*,-nodeipam",
        allocate_node_cidrs="false",
        leader_elect="false",
        # Else it makes a folder under /usr/libexec.
        flex_volume_plugin_dir=layout.data("flex-volumes"),
        kube_api_qps=200,
        kube_api_burst=400,
        **patient,
        **_gates(spec),
    )
    return Component("kube-controller-manager", command)


def _scheduler(layout: Layout, spec: Spec) -> Component:
    kubeconfig = layout.kubeconfig("scheduler")
    certificates = layout.certificates
    command = _program(
        "kube-scheduler",
        kubeconfig=kubeconfig,
        authentication_kubeconfig=kubeconfig,
        authorization_kubeconfig=kubeconfig,
        bind_address="127.0.0.1",
        secure_port=spec.ports["scheduler"],
        tls_cert_file=certificates.certificate("scheduler"),
        tls_private_key_file=certificates.key("scheduler"),
        client_ca_file=certificates.certificate("cluster"),
        leader_elect="false",
        kube_api_qps=5000,
        kube_api_burst=5000,
        **_gates(spec),
    )
    return Component("kube-scheduler", command)


def kwok(layout: Layout, spec: Spec, config: Path) -> Component:
    command = _program(
        "kwok",
        kubeconfig=layout.kubeconfig("kwok"),
        config=config,
        manage_all_nodes="false",
        manage_nodes_with_annotation_selector="kwok.x-k8s.io/node=fake",
        node_lease_duration_seconds=200,
        server_address=f"127.0.0.1:{spec.ports['kwok']}",
        v="WARN",
    )
    # Without a home of its own it would look for a configuration in the user's.
    return Component("kwok", command, {"HOME": str(layout.folder)})


def _gates(spec: Spec) -> dict[str, object]:
    return {"feature_gates": spec.feature_gates} if spec.feature_gates else {}
