"""An elastic training script that uses generations: DistributedDataParallel, and eight lines for the checkpoint.

    maniple agent --nproc 2 -- python train.py --steps 100 --checkpoint /tmp/model.pt

Only `maniple.worker` is Maniple's, and it is optional: SIGTERM means the same as a notice.
"""

import argparse
import json
import os
import signal
import sys
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import maniple.worker

BATCH = 64  # of all ranks together, so that training does not depend on the size


def main() -> None:
    options = read_options()
    # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the agent, new ones in every generation.
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    step = load(options.checkpoint, model, optimizer)
    parallel = DistributedDataParallel(model)
    while step < options.steps:
        began = time.monotonic()
        loss = train(parallel, optimizer, step, rank, size)
        step += 1
        time.sleep(options.pause / size)  # makes a small model as slow as a large one
        if rank == 0:
            maniple.worker.report(step=step, total=options.steps, throughput=BATCH / (time.monotonic() - began))
            write(options.log, step, loss, size)
        # Ranks get the notice in different steps, but must all stop after the same one.
        if any_rank(bool(asked or maniple.worker.notice())):
            if rank == 0:
                save(options.checkpoint, model, optimizer, step)
            sys.exit(143)
    if rank == 0:
        save(options.checkpoint, model, optimizer, step)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int, size: int) -> float:
    """Trains one step on this rank's part of the batch. Returns the loss over all parts."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, 16, generator=generator)[rank::size]
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True).sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    distributed.all_reduce(mean)
    return float(mean) / size


def any_rank(asked: bool) -> bool:
    flag = torch.tensor([int(asked)])
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag)


def save(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
    os.replace(path + ".new", path)  # atomic


def load(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Loads the checkpoint, on every rank. Returns the next step."""
    if not os.path.exists(path):
        return 0
    saved = torch.load(path, map_location="cpu")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["step"])


def write(path: str, step: int, loss: float, size: int) -> None:
    line = json.dumps({"step": step, "loss": round(loss, 5), "size": size, "time": time.time()})
    print(line, flush=True)
    if path:
        with open(path, "a", encoding="utf-8") as log:
            log.write(line + "\n")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", default="model.pt", help="on storage that all replicas share")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds that a step takes longer on one rank")
    parser.add_argument("--log", default="", help="append a line for each step to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
