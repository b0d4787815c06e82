"""Benchmarks behind docs/performance.md. `make bench` runs them all; `python -m benchmarks NAME…` some of them."""
