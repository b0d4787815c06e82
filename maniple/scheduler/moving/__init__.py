"""Moving running pods to other nodes: which may be moved, what that costs, and where they go."""
