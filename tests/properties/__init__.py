"""The scheduler's promises, judged over random clusters by a referee that shares no code with it."""
