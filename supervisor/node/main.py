"""Entry on the node: takes the mode from the arguments. Called by the boot code with the program in memory."""

from __future__ import annotations

import json
import os
import sys
import zlib
from typing import Any, Dict


def run(program: Dict[str, Any]) -> None:
    """Run one mode until its stdin ends. `program`: modules, args, boot (the boot code), code (its `-c` word)."""
    args = program["args"]
    if args["mode"] == "keeper":
        from . import keeper

        keeper.main(args)
        return
    if args["mode"] == "gpu":
        from . import gpu_child

        gpu_child.main(args)
        return
    # Libraries may print to stdout: our words go over a descriptor of their own.
    out = os.dup(1)
    os.dup2(2, 1)
    os.write(out, ("ISUP1 %s\n" % args["nonce"]).encode())
    try:
        _serve(program, args, out)
    except BrokenPipeError:
        pass  # the operator is gone
    sys.stderr.flush()
    os._exit(0)  # threads that still read a login shell must not hold the connection


def _serve(program: Dict[str, Any], args: Dict[str, Any], out: int) -> None:
    if args["mode"] == "serve":
        from . import serve

        def boot(orders: Dict[str, Any]) -> bytes:
            body = zlib.compress(json.dumps(dict(program, args=orders)).encode(), 1)
            head = str(program["boot"]).encode()
            return head + b"%d\n" % len(body) + body

        serve.Server(args, out, boot, program["code"]).run()
    elif args["mode"] == "tail":
        from . import tail

        tail.Tail(args, out).run()
    elif args["mode"] == "relay":
        from . import relay

        relay.run(args, out)
    else:
        sys.stderr.write("unknown mode %r\n" % (args["mode"],))
