"""The controller of elastic jobs: drives maniple.elastic's machine with what the API server tells, and does its
instructions there. It remembers nothing that is not in the API server."""
