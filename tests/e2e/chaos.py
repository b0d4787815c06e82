"""Gangs come and go on simulated nodes while the scheduler, the API server and etcd are killed and connections are cut.

The same seed gives the same gangs and the same failures in the same order; their exact times depend on the
machine. `python -m e2e.chaos --seconds 300 --seed 7` (with `make chaos`) is the long run, tests have a short one.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from e2e.cutting_proxy import Proxy
from e2e.independent_watcher import DOWN, GPU, GROUP, Pod, Watcher, cpus_of, gpus_of, group_of, node_of
from tools.cluster import ApiError, Cluster, ClusterError, Spec, build, wait_until
from tools.cluster.cluster import programs_for

NODES, GPUS, CPUS = 6, 8, 128
NAMESPACE = "chaos"
PAUSE_S = 0.4  # between two steps of the story
SETTLE_S = 300.0
# No gang waits long enough for a reservation, so that in the end every gang that fits must have started.
POLICY = """\
actions: "allocate, shrink, reclaim, preempt, backfill, grow"
tiers:
  - plugins:
      - {name: priority}
      - {name: gang}
      - {name: conformance}
  - plugins:
      - {name: drf}
      - {name: predicates}
      - {name: proportion}
      - {name: nodeorder}
"""


@dataclass
class Gang:
    name: str
    size: int
    gpus: int
    cpus: int
    born: float

    def objects(self) -> list[tuple[str, dict[str, Any]]]:
        group = {
            "apiVersion": "maniple.dev/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {"minMember": self.size},
        }
        groups = f"/apis/maniple.dev/v1alpha1/namespaces/{NAMESPACE}/podgroups"
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        return [(groups, group), *((pods, self.pod(index)) for index in range(self.size))]

    def pod(self, index: int) -> dict[str, Any]:
        amounts = {"cpu": str(self.cpus), GPU: str(self.gpus)}
        container = {"name": "work", "image": "work:1", "resources": {"requests": amounts, "limits": amounts}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{self.name}-{index}", "namespace": NAMESPACE, "labels": {GROUP: self.name}},
            "spec": {
                "schedulerName": "maniple",
                "containers": [container],
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
            },
        }


@dataclass
class Replica:
    """One `maniple serve`, which may be killed, or paused like a machine that swaps."""

    name: str
    kubeconfig: Path
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        policy = self.folder / "policy.yaml"
        policy.write_text(POLICY)
        command = [sys.executable, "-m", "maniple", "serve", "--kubeconfig", str(self.kubeconfig)]
        command += ["--policy", str(policy), "--gang-timeout", "15", "--identity", self.name, "--drift-check", "20"]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def send(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass
class Story:
    cluster: Cluster
    seed: int
    folder: Path
    gangs: dict[str, Gang] = field(default_factory=dict)
    blows: Counter[str] = field(default_factory=Counter)
    started: set[str] = field(default_factory=set)
    made: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.proxy = Proxy(int(self.cluster.server.rpartition(":")[2]))
        config = self.proxy.kubeconfig(self.cluster.kubeconfig(), self.folder / "kubeconfig")
        self.replicas = [Replica(name, config, self.folder) for name in ("a", "b")]
        names = [f"node-{number}" for number in range(NODES)]
        self.watcher = Watcher(
            self.cluster, NAMESPACE, gpus=dict.fromkeys(names, GPUS), cpus=dict.fromkeys(names, CPUS)
        )

    def run(self, seconds: float, least_blows: int = 0) -> list[str]:
        """Returns the violations that were seen. It takes longer where killing and restarting takes long."""
        self._prepare()
        try:
            for replica in self.replicas:
                replica.start()
            with self.watcher:
                self._live(seconds, least_blows)
                self._recover()
                wrong = self._settle()
                return [*self.watcher.wrong, *wrong, *self._drain()]
        finally:
            for replica in self.replicas:
                replica.send(signal.SIGCONT)
                replica.kill()
            self.proxy.close()

    def _prepare(self) -> None:
        crds = Path(__file__).resolve().parents[2] / "deploy" / "crds"
        self.cluster.kubectl("apply", "--server-side", "-f", str(crds))
        self.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
        self.cluster.kubectl("create", "namespace", NAMESPACE)
        with self.cluster.client() as client:
            path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
            wait_until("the default service account is there", lambda: client.exists(path))

    # -- gangs come and go

    def _live(self, seconds: float, least_blows: int) -> None:
        until = time.monotonic() + seconds
        next_blow = time.monotonic() + 5
        while time.monotonic() < until or self.blows.total() < least_blows:
            step_ends = time.monotonic() + PAUSE_S
            if self.random.random() < 0.5 and self._waiting_gpus() < 2 * NODES * GPUS:
                self._arrive()
            if self.random.random() < 0.35:
                self._leave()
            self._mend()
            if time.monotonic() >= next_blow:
                self._strike()
                next_blow = time.monotonic() + self.random.uniform(3, 9)
            self._note_started()
            time.sleep(max(0.0, step_ends - time.monotonic()))  # the pace of the story, not a wait for anything

    def _waiting_gpus(self) -> int:
        return sum(gang.size * gang.gpus for gang in self.gangs.values() if gang.name not in self.started)

    def _arrive(self) -> None:
        size, gpus = self.random.choice([(1, 1), (1, 8), (2, 4), (3, 2), (4, 1), (4, 4), (6, 8), (8, 2), (12, 1)])
        self.made += 1
        gang = Gang(f"g{self.made:04d}", size, gpus, self.random.choice([1, 4]), time.monotonic())
        self.gangs[gang.name] = gang

    def _leave(self) -> None:
        """Ends one of the gangs that have run."""
        candidates = sorted(self.started & set(self.gangs))
        if candidates:
            self._delete(self.random.choice(candidates))

    def _delete(self, name: str) -> None:
        gang = self.gangs[name]
        try:
            with self.cluster.client() as client:
                for path, body in gang.objects():
                    try:
                        client.delete(f"{path}/{body['metadata']['name']}")
                    except ApiError as error:
                        if error.code != 404:
                            raise
        except DOWN:
            return  # the server is down; another time
        del self.gangs[name]
        self.started.discard(name)

    def _mend(self) -> None:
        """Creates missing objects of living gangs, as a job's controller does."""
        try:
            with self.cluster.client() as client:
                pods = client.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
                groups = client.get(f"/apis/maniple.dev/v1alpha1/namespaces/{NAMESPACE}/podgroups")["items"]
                there = {one["metadata"]["name"] for one in [*pods, *groups]}
                for gang in list(self.gangs.values()):
                    for path, body in gang.objects():
                        if body["metadata"]["name"] not in there:
                            client.post(path, body)
        except DOWN:
            return

    def _note_started(self) -> None:
        bound = Counter(group_of(pod) for pod in self.watcher.pods if node_of(pod))
        self.started |= {name for name, gang in self.gangs.items() if bound[name] == gang.size}

    # -- failures

    def _strike(self) -> None:
        blow = self.random.choice(["scheduler", "scheduler", "apiserver", "etcd", "cut", "cut", "pause", "both"])
        self.blows[blow] += 1
        one = self.random.choice(self.replicas)
        gap_s = self.random.uniform(0, 2)
        if blow == "cut":
            self.proxy.cut()
        elif blow == "scheduler":
            one.kill()
            one.start()
        elif blow == "both":
            for replica in self.replicas:
                replica.kill()
            time.sleep(gap_s)
            for replica in self.replicas:
                replica.start()
        elif blow == "pause":
            # Longer than its lease: when it resumes another replica leads, and it must notice before it writes.
            one.send(signal.SIGSTOP)
            time.sleep(12)
            one.send(signal.SIGCONT)
        else:
            component = {"apiserver": "kube-apiserver", "etcd": "etcd"}[blow]
            self.cluster.kill(component)
            time.sleep(gap_s)
            self.cluster.start(component)

    def _recover(self) -> None:
        for replica in self.replicas:
            if replica.process is None or replica.process.poll() is not None:
                replica.start()
        self.cluster.wait_until_ready()

    # -- the end

    def _settle(self) -> list[str]:
        """Waits until every gang is whole or waits for a good reason. Returns what is still wrong at the end."""
        found: list[str] = ["no look at the pods succeeded"]

        def is_settled() -> bool:
            self._mend()
            try:
                pods = self.watcher.pods = self.watcher.look()
            except DOWN:
                return False
            self._note_started()
            found[:] = [*self._halves(pods), *self._idle(pods)]
            return not found

        try:
            wait_until("the cluster has settled", is_settled, SETTLE_S, every_s=1.0)
        except ClusterError:
            return list(found)
        return []

    def _halves(self, pods: list[Pod]) -> list[str]:
        bound = Counter(group_of(pod) for pod in pods if node_of(pod))
        return [
            f"{name} is bound by {bound[name]} of {gang.size}"
            for name, gang in self.gangs.items()
            if 0 < bound[name] < gang.size
        ]

    def _idle(self, pods: list[Pod]) -> list[str]:
        """Gangs that wait although all of their equal pods fit into free room."""
        gpus, cpus = Counter(dict.fromkeys(self.watcher.gpus, GPUS)), Counter(dict.fromkeys(self.watcher.gpus, CPUS))
        bound = set()
        for pod in pods:
            if node_of(pod):
                gpus[node_of(pod)] -= gpus_of(pod)
                cpus[node_of(pod)] -= cpus_of(pod)
                bound.add(group_of(pod))
        waiting = [gang for name, gang in self.gangs.items() if name not in bound]
        return [
            f"{gang.name} ({gang.size} x {gang.gpus} GPUs) waits, and would fit"
            for gang in waiting
            if sum(min(gpus[node] // gang.gpus, cpus[node] // gang.cpus) for node in gpus) >= gang.size
        ]

    def _drain(self) -> list[str]:
        """Ends running gangs until every gang has had a turn."""
        while set(self.gangs) - self.started:
            running = sorted(self.started & set(self.gangs))
            if not running:
                return [f"{name} never started" for name in sorted(self.gangs)]
            for name in running[:3]:
                self._delete(name)
            wrong = self._settle()
            if wrong:
                return wrong
        return []

    def summary(self) -> str:
        blows = ", ".join(f"{count} {name}" for name, count in sorted(self.blows.items()))
        return f"seed {self.seed}: {self.made} gangs, blows: {blows}; {self.watcher.looks} looks at all pods"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    spec = Spec(name=f"chaos-{os.getpid()}", nodes=NODES, gpus=GPUS, owner_pid=os.getpid())
    build.ensure(print, programs_for(spec), with_packages=False)
    cluster = Cluster.up(spec, print)
    with tempfile.TemporaryDirectory() as folder:
        try:
            story = Story(cluster, options.seed, Path(folder))
            wrong = story.run(options.seconds)
            print(story.summary())
            for line in wrong:
                print(f"WRONG: {line}")
            if wrong:
                for replica in story.replicas:
                    print((Path(folder) / f"{replica.name}.log").read_text()[-6000:])
        finally:
            cluster.down()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
