"""`maniple resume`: resumes suspended jobs."""

from maniple.cli.support.suspend_resume import make_command

command = make_command(
    suspend=False, summary="Resume suspended jobs: each waits for resources again, and continues from its checkpoint."
)
