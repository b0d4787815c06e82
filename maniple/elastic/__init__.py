"""The life of an elastic job: events in, instructions out. No I/O, no clock: `step` and `restore` in machine.py.

Read table.py first: it says when a job goes from one state to the next. Whoever drives the machine does its
instructions in order, and begins anew with `restore` when one of them could not be done, or after a crash: all that
must be remembered is in the ElasticJob's status, and that is written before anything else is done.
"""
