"""Which victims make room for a gang, and whether they may be taken."""
