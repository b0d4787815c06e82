"""Room that is kept for gangs that cannot start yet."""
