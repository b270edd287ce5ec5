"""A mate: the process that does one share of the MLP's steps for a learner, ``python -m headrace.learner.mate FD``.

A message with a file descriptor brings memory: the first the parameters of the networks, each later one the tensors of a batch
size. A message of one byte is the number of a step. Each is answered with one byte. The learner's end being closed ends it.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys

import torch

from headrace.learner.crew import tensors_in
from headrace.learner.mlp_steps import Networks, Steps

MESSAGE_BYTES = 1 << 16


def main() -> int:
    """Serve the learner at the socket whose number is the only argument."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the learner decides
    torch.set_num_threads(1)
    with socket.socket(fileno=int(sys.argv[1])) as learner:
        serve(learner)
    return 0


def serve(learner: socket.socket) -> None:
    """Do what the learner at the other end asks for, until it is gone."""
    networks: Networks | None = None
    steps: Steps | None = None
    index = 0
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(learner, MESSAGE_BYTES, 1)
        except ConnectionResetError:
            return
        if not data:
            return
        if not fds:
            if steps is not None:
                steps.do(data[0], index)
        else:
            about = json.loads(data)
            memory = mmap.mmap(fds[0], about["nbytes"])
            os.close(fds[0])
            if "networks" in about:
                networks = Networks.of_sizes(**about["networks"])
                networks.move(tensors_in(memory, networks.shapes()))
            elif networks is not None:
                batch, shares, index = about["batch"], about["shares"], about["index"]
                tensors = tensors_in(memory, networks.step_shapes(batch, shares))
                steps = Steps(networks, batch, shares, tensors, about["precision"])
        try:
            learner.send(b"\0")
        except (BrokenPipeError, ConnectionResetError):
            return


if __name__ == "__main__":
    sys.exit(main())
