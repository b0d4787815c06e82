"""Where a gang fits: nodes, topology domains and GPU models."""
