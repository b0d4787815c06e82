"""The cluster that `plan` and `explain` read, from files or from an API server."""

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from maniple.api.decode.decode import decode
from maniple.api.errors import InputError
from maniple.api.timestamps import LAST_YEAR, to_seconds
from maniple.cli.support.cluster_options import KUBECONFIG_OPTIONS, options_as, run_async
from maniple.cli.support.read_files import read_file, read_sources
from maniple.cli.support.terminal import say_note
from maniple.cluster.in_memory_cluster import MemoryCluster
from maniple.model.building.input_objects import Objects, sort_objects
from maniple.model.marks_of_others import notes_on_marks
from maniple.model.pods_we_schedule import DEFAULT_SCHEDULER, Ours, how_to_plan
from maniple.model.priority import CRITICAL_CLASSES
from maniple.scheduler import Policy, default_policy, load_policy
from maniple.scheduler.framework.action import Ability

_MOST_SCHEDULERS = 5  # that are named in notes
_MOST_POLICY_NOTES = 3
POLICY_OPTION = click.option(
    "--policy", metavar="FILE", type=click.Path(), help="Policy file; without it the built-in policy."
)
SCHEDULER_NAME_OPTION = click.option(
    "--scheduler-name", default=DEFAULT_SCHEDULER, show_default=True, help="Plan pods with this schedulerName."
)


@dataclass(frozen=True)
class ClusterInput:
    """Which cluster to plan, and how."""

    files: tuple[str, ...]
    policy: str | None
    scheduler_name: str
    every_pod: bool
    now: str | None
    live: bool
    kubeconfig: str | None
    context: str | None
    strict: bool

    def read(self, step_s: float | None = None) -> tuple[MemoryCluster, Policy | None, str]:
        """The cluster, the policy (None: the built-in one), and the namespace of names that have none.

        Notes about the input go to standard error.
        """
        if self.live and self.files:
            raise click.UsageError("--live reads a cluster: name no files with it.")
        if not self.live and not self.files:
            raise click.UsageError(
                "Missing option '-f' / '--file': name at least one file, '-' for standard input, "
                "or --live for the cluster that kubectl talks to."
            )
        policy, now_s = read_policy(self.policy), _read_time(self.now)
        ours = Ours(self.scheduler_name, self.every_pod)
        if self.live:
            from maniple.kube.serve.single_cycle import read_objects

            objects, notes, namespace = run_async(lambda: read_objects(self.kubeconfig, self.context, ours, policy))
            now_s = time.time() if now_s is None else now_s
        else:
            objects, notes = self._read_files()
            namespace = "default"
        reads = None if policy is None else policy.reads
        cluster = MemoryCluster(objects, ours, now_s, step_s, reads)
        others = _notes_on_others(cluster.pending_elsewhere())
        marks = [*notes_on_marks(objects.pods, ours), *_note_on_classes(objects)]
        is_released = (policy or default_policy()).has_action(Ability.RELEASE)
        for note in (*notes, *cluster.notes(is_released=is_released), *marks, *others):
            say_note(note)
        return cluster, policy, namespace

    def _read_files(self) -> tuple[Objects, list[str]]:
        decoded = decode(read_sources(self.files), strict=self.strict)
        if not decoded.objects and not decoded.workloads:
            raise InputError(
                ["the input has no objects that scheduling reads; expected nodes, pods and the like", *decoded.notes]
            )
        return sort_objects(decoded, scheduler_name=self.scheduler_name, strict=self.strict), decoded.notes


input_options = options_as(
    "source",
    ClusterInput,
    click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        metavar="FILE",
        type=click.Path(allow_dash=True),
        help="File of Kubernetes objects, Lists or streams, YAML or JSON; a directory of them; '-' for standard input.",
    ),
    click.option("--live", is_flag=True, help="Read the cluster that kubectl talks to, instead of files."),
    *KUBECONFIG_OPTIONS,
    POLICY_OPTION,
    SCHEDULER_NAME_OPTION,
    click.option(
        "--strict", is_flag=True, help="Refuse a dump with an object that cannot be read, instead of setting it aside."
    ),
    click.option("--all", "every_pod", is_flag=True, help="Plan every pending pod, whatever its schedulerName."),
    click.option(
        "--now",
        metavar="TIME",
        help="The time of the decision, such as 2026-01-31T12:00:00Z; without it the newest time in the input.",
    ),
)


def _note_on_classes(objects: Objects) -> list[str]:
    """Objects of a cluster name classes that nobody gave: the API server has written their value into pods."""
    named = {group.spec.priority_class_name for group in objects.pod_groups if group.metadata.uid}
    named |= {pod.spec.priority_class_name for pod in objects.pods if pod.metadata.uid and pod.spec.priority is None}
    if objects.priority_classes or not named - {"", *CRITICAL_CLASSES}:
        return []
    return ["the input has no PriorityClasses: the priority of pods counts; `kubectl get priorityclasses` adds them"]


def _notes_on_others(pending: dict[str, int]) -> list[str]:
    """Pending pods of other schedulers are not planned. Whoever came for them learns how."""
    named = list(pending.items())[:_MOST_SCHEDULERS]
    notes = [f"{_belong(count)} to scheduler {name}: {how_to_plan(name)}" for name, count in named]
    rest = sum(pending.values()) - sum(count for _, count in named)
    return [*notes, f"{_belong(rest)} to {len(pending) - len(named)} more schedulers: `--all`"] if rest else notes


def _belong(count: int) -> str:
    return "1 pending pod belongs" if count == 1 else f"{count} pending pods belong"


def read_policy(file: str | None) -> Policy | None:
    """None: no file is named, and the built-in policy counts. What another system's file means here is noted."""
    if file is None:
        return None
    try:
        data = read_file(Path(file))
    except OSError as error:
        raise InputError([f"{file}: cannot be read: {error.strerror}"]) from None
    except ValueError as error:
        raise InputError([f"{file}: {error}"]) from None
    policy = load_policy(data, file)
    if len(policy.notes) > _MOST_POLICY_NOTES:
        count = len(policy.notes)
        say_note(f"{file}: {count} settings are left out or differ here: `maniple policy check {file}`")
        return policy
    for note in policy.notes:
        say_note(f"{file}: {note}")
    return policy


def _read_time(text: str | None) -> float | None:
    """Any ISO 8601 time, also a date; without a time zone it is UTC."""
    if text is None:
        return None
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        raise InputError([f"--now: {text!r} is not a time; expected one such as 2026-01-31T12:00:00Z"]) from None
    if not 1970 < timestamp.year < LAST_YEAR:
        raise InputError([f"--now: expected a time between the years 1971 and {LAST_YEAR - 1}, found {text!r}"])
    return to_seconds(timestamp)
