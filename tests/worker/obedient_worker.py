"""A worker for tests: writes its ranks to a file, works until it is asked to end, and exits with 143. See $WORK."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import maniple.worker

SCRATCH, WORK = os.environ["SCRATCH"], os.environ.get("WORK", "")
signals: list[int] = []


def ask(number: int, _frame: object) -> None:
    signals.append(number)


signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in WORK else ask)
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
identity: dict[str, object] = {name: os.environ[name] for name in (*names, "MANIPLE_GENERATION")}
child = None
if "children" in WORK:  # one in our process group, and one in its own
    child = subprocess.Popen(["sleep", "1000"])
    runaway = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    identity |= {"child": child.pid, "runaway": runaway.pid}
pod = os.environ.get("MANIPLE_POD", "")
with open(f"{SCRATCH}/ran-{pod}-{os.getpid()}.jsonl", "w") as log:
    log.write(json.dumps(identity | {"pod": pod, "pid": os.getpid()}) + "\n")
if "crash" in WORK and identity["MANIPLE_GENERATION"] == "1" and identity["RANK"] == "1":
    sys.exit(7)
if "finish" in WORK:
    for number in range(100):
        maniple.worker.report(step=number + 1, total=100)
    sys.exit(0)
if "tidy" in WORK:
    shutil.rmtree(os.path.dirname(os.environ["MANIPLE_NOTICE"]), ignore_errors=True)
step = 0
if "late" in WORK:
    while not os.path.exists(f"{SCRATCH}/end"):
        maniple.worker.report(step=1)
        time.sleep(0.01)
    for step in range(1000):
        maniple.worker.report(step=step + 1)
    with open(f"{SCRATCH}/over-{pod}.jsonl", "w") as log:
        log.write("{}\n")
    sys.exit(0)
while not signals:
    maniple.worker.report(step=step, throughput=float(os.environ["WORLD_SIZE"]))
    step += 1
    time.sleep(0.01)
seen = maniple.worker.notice()
with open(f"{SCRATCH}/left-{pod}-{os.getpid()}.jsonl", "w") as log:
    log.write(
        json.dumps({"pod": pod, "generation": identity["MANIPLE_GENERATION"], "seen": seen and seen.generation}) + "\n"
    )
sys.exit(143)
