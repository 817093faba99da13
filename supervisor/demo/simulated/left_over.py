"""A process that an engine of another day left behind: it has a title, holds memory of one GPU, and does nothing.

python simulated_engine.py left-over TITLE --sim-gpus FOLDER --gpu 7 --gib 33.9 [--sim-while FILE]
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import List

from . import ending
from .gpus import GIB, Gpus, open_devices
from .workers import set_title


def main(argv: List[str]) -> None:
    """Holds it until a signal ends the process, or the demonstration is over."""
    parser = argparse.ArgumentParser(prog="simulated_engine.py left-over")
    parser.add_argument("title")
    parser.add_argument("--sim-gpus", dest="gpus", required=True)
    parser.add_argument("--gpu", type=int, required=True)
    parser.add_argument("--gib", type=float, required=True)
    parser.add_argument("--sim-while", dest="while_file", default="")
    options = parser.parse_args(argv)
    set_title(options.title)
    open_devices(options.gpus, options.gpu)
    Gpus(options.gpus).write([(os.getpid(), options.gpu, int(options.gib * GIB), 0)])
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # whoever started it and reads sees by that that the memory is held
    if options.while_file:
        ending.wait_until_over(options.while_file)
        return
    while True:
        signal.pause()
