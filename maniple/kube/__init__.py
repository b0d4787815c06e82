"""The Cache's shell around a Kubernetes API server: lists and watches in, bindings, evictions and status out.

Only this package speaks to an API server. It decides nothing: what to do is in the Plan, and all state is in the API
server, so that it may be killed at any moment.
"""
