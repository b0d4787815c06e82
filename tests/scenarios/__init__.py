"""Scenario tables: a small cluster, and what the plan for it must be."""
