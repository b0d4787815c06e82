"""A real Kubernetes on one machine, for tests and for trying things out: `python -m tools.cluster up`.

Not part of the installed package, and nothing in it may import this. docs/cluster.md says how to use it.
"""

from tools.cluster.client import ApiError, Client, free_port, wait_until
from tools.cluster.cluster import Cluster, clean_up
from tools.cluster.cluster_layout import ClusterError, Spec

__all__ = ["ApiError", "Client", "Cluster", "ClusterError", "Spec", "clean_up", "free_port", "wait_until"]
