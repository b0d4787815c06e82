"""GPUs as arrays: devices, links, who holds which, and how fragmented a node is."""
