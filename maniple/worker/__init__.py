"""For training scripts: hear of a new size, answer, and say how far the job is. No dependencies, Python 3.9 or newer.

    import maniple.worker

    for step in range(start, STEPS):
        train(step)
        maniple.worker.report(step=step, total=STEPS, throughput=samples_per_second)
        if maniple.worker.notice():      # on every rank: agree by an all-reduce before you act on it
            save_checkpoint(step)
            sys.exit(143)

Everything works without Maniple around: there is never a notice, and nobody hears what is said. This package imports
nothing of the rest of Maniple, so that it fits into a small archive that is mounted into pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maniple.worker.notices import Member, Notice

if TYPE_CHECKING:
    from maniple.worker.live_resize import Elastic

__all__ = ["Member", "Notice", "ack", "elastic", "notice", "report"]


def notice() -> Notice | None:
    """The notice of a newer generation than the one we are in, or None. Cheap: ask it in every step.

    With a notice a script saves its state and ends with exit code 143; it is started again with its new rank, unless it
    is not among the members any more. Ranks hear of it in different steps: let all agree first.
    """
    from maniple.worker.script_api import inside

    return inside().notice()


def ack() -> None:
    """Says that the notice has been acted upon without ending: from now on we are in that generation.

    For scripts that go on (frameworks `none` and `horovod`). Ending says the same.
    """
    from maniple.worker.script_api import inside

    inside().ack()


def report(step: int, *, total: int | None = None, throughput: float | None = None) -> None:
    """Says how far the job is, of how many steps in all, and how fast: in samples a second of all ranks together, or
    any other unit.

    Rank 0 speaks, the others are silent; call it as often as you like. `maniple jobs` and `maniple watch` show how far
    it is. Throughput by size becomes the job's measured speed-up curve, after which it is given more GPUs, or not.
    """
    from maniple.worker.script_api import inside

    inside().report(step, throughput, total)


def elastic(*parts: Any, step: int = 0, backend: str | None = None) -> Elastic:
    """Joins the job's process group and stays in it through changes of size. Needs torch: see docs/training.md."""
    from maniple.worker.live_resize import Elastic

    return Elastic(parts, step, backend)
