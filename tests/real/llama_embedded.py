"""llama.cpp's own HTTP server, run from the xllamacpp wheel under the arguments of llama-server that tests use.

    python llama_embedded.py -m MODEL --host H --port P [-c N] [-np N] [-t N] [--metrics] [-a NAME] [--api-key KEY]

For machines on which the prebuilt llama-server cannot run: that wheel needs AVX-512. Loading, answers, log and errors
are llama.cpp's; what this file adds is argv, and the exit codes that the program has: 1 for what fails, 0 for TERM and
INT once it serves. It imports nothing of ours, and is started by path.
"""

from __future__ import annotations

import argparse
import signal
import sys
from typing import NoReturn

import xllamacpp

STOPS = (signal.SIGTERM, signal.SIGINT)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"error: invalid argument: {message.removeprefix('unrecognized arguments: ')}", file=sys.stderr)
        raise SystemExit(1)


def parameters(argv: list[str]) -> xllamacpp.CommonParams:
    """llama-server's words as the library's parameters."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-c", "--ctx-size", type=int, default=0)
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("-a", "--alias")
    parser.add_argument("--api-key")
    words = parser.parse_args(argv)
    out = xllamacpp.CommonParams()
    out.model.path = words.model
    out.hostnames = [words.host]
    out.port = words.port
    out.n_ctx = words.ctx_size
    out.n_parallel = words.parallel
    out.cpuparams.n_threads = words.threads
    out.endpoint_metrics = words.metrics
    if words.alias:
        out.model_alias = {words.alias}
    if words.api_key:
        out.api_keys = [words.api_key]
    return out


def main(argv: list[str]) -> int:
    wanted = parameters(argv)
    for stop in STOPS:  # while it loads, and holds the interpreter's lock, a signal ends it at once
        signal.signal(stop, signal.SIG_DFL)
    try:
        server = xllamacpp.Server(wanted)  # returns when it serves; its cause of failure stands in the log
    except RuntimeError:
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    signal.sigwait(STOPS)
    del server  # "cleaning up before exit..."
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
