"""The life of an elastic job as a state machine: events in, instructions out. No I/O, no clock.

Read transitions.py first: it says when a job goes from one phase to the next. `advance` in machine.py and `restore` in
state.py are the interface. The caller carries out the instructions in order. If one of them fails, or after a crash,
the caller starts again with `restore`: all that must be remembered is in the ElasticJob's status, which is written
first.
"""
