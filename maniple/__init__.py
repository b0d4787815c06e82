"""Maniple: a GPU scheduler for Kubernetes that places gangs whole, close and elastic."""

__version__ = "0.1.0"
