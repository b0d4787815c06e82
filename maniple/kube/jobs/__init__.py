"""The controller of elastic jobs: feeds maniple.elastic's state machine with events of the API server, and executes its
instructions there. It keeps no state that is not in the API server."""
