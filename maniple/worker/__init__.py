"""For training scripts: notices of a new size, acknowledgements and reports. No dependencies, Python 3.9 or newer.

    import maniple.worker

    for step in range(start, STEPS):
        train(step)
        maniple.worker.report(step=step, total=STEPS, throughput=samples_per_second)
        if maniple.worker.notice():      # on every rank: agree by an all-reduce before you act on it
            save_checkpoint(step)
            sys.exit(143)

Everything works outside of Maniple, too: there is never a notice, and reports go nowhere. This package imports nothing
of the rest of Maniple, so that it fits into a small archive that is mounted into pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maniple.worker.notices import Member, Notice

if TYPE_CHECKING:
    from maniple.worker.live_resize import Elastic

__all__ = ["Member", "Notice", "ack", "elastic", "notice", "report"]


def notice() -> Notice | None:
    """The notice of a newer generation than the current one, or None. Cheap: call it in every step.

    After a notice a script saves its state and ends with exit code 143. It is started again with its new rank, unless
    it is not a member any more. Ranks hear of a notice in different steps: let all agree first.
    """
    from maniple.worker.script_api import script_api

    return script_api().notice()


def ack() -> None:
    """Acknowledges the newest notice without ending: the script is now in that generation.

    For scripts that go on (frameworks `none` and `horovod`). A script that ends need not call it.
    """
    from maniple.worker.script_api import script_api

    script_api().ack()


def report(step: int, *, total: int | None = None, throughput: float | None = None) -> None:
    """Reports the step that the job has reached, of `total`, and its throughput.

    Throughput is in samples a second of all ranks together, or any other unit.

    Only the report of rank 0 is sent; call it as often as you like. `maniple jobs` and `maniple watch` show the
    progress. Throughput by size becomes the job's measured speed-up curve, which decides whether it gets more GPUs.
    """
    from maniple.worker.script_api import script_api

    script_api().report(step, throughput, total)


def elastic(*parts: Any, step: int = 0, backend: str | None = None) -> Elastic:
    """Joins the job's process group and stays in it through changes of size. Needs torch: see docs/training.md."""
    from maniple.worker.live_resize import Elastic

    return Elastic(parts, step, backend)
