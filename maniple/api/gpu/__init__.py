"""GPUs in annotations: the links of a node, what a pod asks for, and nvidia-smi as input."""
