"""Labels and annotations of `maniple.dev`: the keys only. Modules that read or write a value say what it may be."""

# Labels of pods.
POD_GROUP_LABEL = "maniple.dev/pod-group"
JOB_LABEL = "maniple.dev/job"
ROLE_LABEL = "maniple.dev/role"
INDEX_LABEL = "maniple.dev/index"

# The queue of a pod without a gang, a gang, or a namespace's gangs and pods that name none: queue_names.py.
QUEUE_LABEL = QUEUE_ANNOTATION = "maniple.dev/queue"

# Annotations of nodes.
GPU_TOPOLOGY_ANNOTATION = "maniple.dev/gpu-topology"  # its GPUs and their links: gpu/topology_annotation.py

# Annotations of pods that ask for GPUs: gpu/requests.py.
GPU_FRACTION_ANNOTATION = "maniple.dev/gpu-fraction"
GPU_MEMORY_ANNOTATION = "maniple.dev/gpu-memory"
GPU_MODELS_ANNOTATION = "maniple.dev/gpu-models"

# Annotations of bound pods.
GPUS_ANNOTATION = "maniple.dev/gpus"  # the GPUs that the pod has: gpu/assignment.py
BACKFILL_ANNOTATION = "maniple.dev/backfill"  # namespace/name of the gang that the pod makes way for
# namespace/name of the gang that a leaving pod was evicted for. The Cache knows it; it is not written to the cluster.
EVICTED_FOR_ANNOTATION = "maniple.dev/evicted-for"
# "true" on a nominated pod if pods were evicted for its gang. It is not written to the cluster, either.
HAS_EVICTED_ANNOTATION = "maniple.dev/has-evicted"

# Annotations of gangs: of a PodGroup, an ElasticJob, or a pod without either.
BIND_FAILURES_ANNOTATION = "maniple.dev/bind-failures"  # how often binding has failed: bind_failures.py
LAST_BIND_FAILURE_ANNOTATION = "maniple.dev/last-bind-failure"
MOVED_ANNOTATION = "maniple.dev/moved"  # when it was last moved, and the places that are kept for it: moves.py
INCOMPLETE_SINCE_ANNOTATION = "maniple.dev/incomplete-since"  # of a PodGroup below its minimum: incomplete_since.py
RESERVED_ANNOTATION = "maniple.dev/reserved"  # "true" while the nodes that its pods are nominated for are kept for it

# Annotations of an ElasticJob's replicas.
GENERATION_ANNOTATION = "maniple.dev/generation"  # the notice of the job's generation for this replica
NPROC_ANNOTATION = "maniple.dev/nproc"  # in a role's template: workers that each replica starts

# The constants above by their names, so that none is forgotten.
_CONSTANTS = dict(globals())
OWN_LABELS: tuple[str, ...] = tuple(key for name, key in _CONSTANTS.items() if name.endswith("_LABEL"))
OWN_ANNOTATIONS: tuple[str, ...] = tuple(key for name, key in _CONSTANTS.items() if name.endswith("_ANNOTATION"))
