"""`maniple suspend`: releases everything that a job holds, until it is resumed."""

from maniple.cli.support.suspend_resume import make_command

command = make_command(
    suspend=True, summary="Suspend jobs: each checkpoints and releases its GPUs; `maniple resume` continues it."
)
