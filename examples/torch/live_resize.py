"""An elastic training script that keeps its processes: survivors of a resize neither exit nor read a checkpoint.

    maniple agent --nproc 2 -- python live_resize.py --steps 100 --checkpoint /tmp/model.pt

It is train.py with `maniple.worker.elastic()` instead of `init_process_group` and the notice.
"""

import sys
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from train import BATCH, load, read_options, save, train, write

import maniple.worker


def main() -> None:
    options = read_options()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    # New ranks of a running job get model, optimizer and step from the others, not from disk.
    job = maniple.worker.elastic(model, optimizer, step=load(options.checkpoint, model, optimizer))
    for step in job.steps(options.steps):
        began = time.monotonic()
        if job.is_new:  # the first step of this process, and of each new size
            parallel = DistributedDataParallel(model)
        loss = train(parallel, optimizer, step, job.rank, job.size)
        time.sleep(options.pause / job.size)
        if job.rank == 0:
            maniple.worker.report(step=step + 1, total=options.steps, throughput=BATCH / (time.monotonic() - began))
            write(options.log, step + 1, loss, job.size)
    if job.rank == 0:
        save(options.checkpoint, model, optimizer, job.step)
    if job.is_leaving:
        sys.exit(143)


if __name__ == "__main__":
    main()
