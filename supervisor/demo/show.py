"""The demonstration: the main job from launch to serving, on a loopback SSH node, with a simulated engine.

The road is the real one (SSH, node program, keeper, health, verification); only the engine is simulated, and says so.
What was launched is stopped at the end, and nothing of it stays.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from argparse import Namespace
from pathlib import Path

from supervisor import resources
from supervisor.adapters.clock import SystemClock
from supervisor.adapters.ssh import SshLink
from supervisor.core import durations
from supervisor.core import events as ev
from supervisor.core.wait import Limits
from supervisor.demo.loopback import LoopbackNode
from supervisor.engines import loader
from supervisor.errors import UsageError
from supervisor.headless.run import Options, wait
from supervisor.headless.stop import run_stop
from supervisor.supervise.plan import Plan, VerifyPlan
from supervisor.supervise.session import Session

REAL_ENGINE = "llama.cpp"
REAL_PROGRAM = "llama-server"
_SIMULATED_MODEL = "simulated/547b-int4"


async def run_demo(options: Namespace, folder: Path) -> int:
    """Run it; the exit code is the wait's."""
    plan = _plan(options, folder)
    try:
        timeout_s = durations.parse(options.timeout)
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from error
    clock = SystemClock()
    node = LoopbackNode(folder)
    await node.start()

    def make_link() -> SshLink:
        return SshLink(node.target, config_files=[node.config_file], known_hosts=node.known_hosts)

    session = Session(plan, make_link, clock=clock, by="demo", stays=options.console)
    simulated = "a real llama-server" if options.engine == REAL_ENGINE else "a SIMULATED engine"
    print(f"demo: {simulated} on a loopback SSH node ({node.target})", file=sys.stderr)
    try:
        if options.console:
            from supervisor.tui.app import ConsoleApp

            await ConsoleApp(session, title=f"demo ({simulated})", node=node.target, mask=str).run_async()
            return 0
        view = Options(
            until=ev.Phase.SERVING, limits=Limits(timeout_s=timeout_s, timeout_from="--timeout"), json=options.json
        )
        return await wait(session.desk, session.run, view, began_at=clock.now())
    finally:
        print("demo: stopping what was launched", file=sys.stderr)
        await run_stop(plan, make_link, clock=clock, by="demo", as_json=False, mask=str, out=sys.stderr)
        await node.stop()


def _plan(options: Namespace, folder: Path) -> Plan:
    port = _free_port()
    if options.engine == REAL_ENGINE:
        name, argv = "llamacpp", _real_command(options, port)
    else:
        name, argv = options.engine, _simulated_command(options, port)
    engine = loader.load(name)
    return Plan(
        key=f"demo-{os.getpid()}",
        name="demo",
        engine=engine,
        words=tuple([["lit", word]] for word in argv),
        env={},
        cwd=[["home"]],
        verify=VerifyPlan(timeout_s=30.0),
        grace_s=10.0,
        python=sys.executable,
        state_dir=str(folder / "state"),
    )


def _simulated_command(options: Namespace, port: int) -> list[str]:
    kinds = [name for name in loader.names() if name in resources.simulated_kinds()]
    if options.engine not in kinds:
        raise UsageError(f"--engine: {options.engine!r} cannot be simulated (known: {', '.join(kinds)}, {REAL_ENGINE})")
    argv = [sys.executable, str(resources.simulated_engine()), options.engine, "--model-path", _SIMULATED_MODEL]
    argv += ["--port", str(port), "--sim-load", "6"]
    return [*argv, "--sim-fault", options.fault] if options.fault else argv


def _real_command(options: Namespace, port: int) -> list[str]:
    program = shutil.which(REAL_PROGRAM)
    if program is None:
        raise UsageError(f"--engine {REAL_ENGINE}: there is no {REAL_PROGRAM} in PATH")
    if not options.model:
        raise UsageError(f"--engine {REAL_ENGINE} needs --model FILE (a .gguf)")
    return [program, "-m", str(Path(options.model).resolve()), "--host", "127.0.0.1", "--port", str(port), "-c", "512"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
