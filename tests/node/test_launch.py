"""Launches of real processes: what is recorded, what is refused, how an end is told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path

import pytest

from supervisor.adapters.clock import SystemClock
from supervisor.adapters.node import NodeClient
from supervisor.errors import NodeRequestError
from supervisor.node import proc
from tests.node.conftest import PYTHON, Node, until

pytestmark = pytest.mark.asyncio

SLEEP = ["/bin/sleep", "600"]


async def test_record_log_and_environment_of_a_run(node: Node, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("an earlier run\n")
    code = "import os, sys; print(os.environ['INFERENCE_SUPERVISOR_RUN'], os.environ['A'], os.getcwd(), flush=True)"
    code += (
        "; print(os.read(0, 1), os.getsid(0) == os.getpid(), file=sys.stderr, flush=True); import time; time.sleep(600)"
    )
    run = await node.launch([PYTHON, "-c", code, "--api-key", "geheim"], env={"A": "b c"}, cwd="/usr", log=str(log))
    await until(lambda: log.read_text().count("\n") == 3)
    assert log.read_text() == f"an earlier run\n{run['run_id']} b c /usr\nb'' True\n"
    assert run["log"] == {
        "path": str(log),
        "dev": log.stat().st_dev,
        "ino": log.stat().st_ino,
        "offset": len("an earlier run\n"),
    }
    folder = node.folder(run["run_id"])
    assert json.loads((folder / "run.json").read_text()) == run
    assert run["argv"][-2:] == ["--api-key", "***"] and "geheim" not in (folder / "run.json").read_text()
    assert run["engine"] == "generic" and run["uid"] == os.getuid() and run["boot_id"] == proc.boot_id()
    assert run["protocol"] == 1 and run["key"] == node.key and run["by"] == "test@here" and run["cwd"] == "/usr"
    assert os.readlink(folder / "log") == str(log)
    for path in (folder, folder.parent, folder.parent.parent, Path(node.client.hello.state_dir)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert stat.S_IMODE((folder / "run.json").stat().st_mode) == 0o600
    described = (await node.state())["live"]
    assert described["root_alive"] and described["keeper_alive"] and described["exit"] is None
    assert [process["pid"] for process in described["tree"]] == [run["root"]["pid"]]
    assert "geheim" not in described["tree"][0]["title"] and "--api-key ***" in described["tree"][0]["title"]


async def test_the_log_in_the_runs_own_folder_is_private(node: Node) -> None:
    run = await node.launch(["/bin/sh", "-c", "echo hello; exec sleep 600"])
    path = Path(run["log"]["path"])
    await until(lambda: path.read_text() == "hello\n")
    assert path.parent == node.folder(run["run_id"]) and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run["log"]["offset"] == 0


@pytest.mark.parametrize(
    ("script", "code", "name"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -SEGV $$", None, "SIGSEGV"), ("kill -KILL $$", None, "SIGKILL")],
)
async def test_the_end_is_written_down(node: Node, script: str, code: int | None, name: str | None) -> None:
    run = await node.launch(["/bin/sh", "-c", f"echo last words; {script}"])
    ended = await node.ended(run["run_id"])
    assert (ended["code"], ended["signal"], ended["left"], ended["stopped_by"]) == (code, name, [], None)
    assert ended["log_size"] == len("last words\n")
    state = await node.state()
    assert state["live"] is None and state["last"]["exit"] == ended and not state["last"]["root_alive"]
    await node.lock_is_free()


async def test_a_stop_is_remembered_and_the_first_one_counts(node: Node) -> None:
    run = await node.launch(SLEEP)
    assert (await node.client.request("write_stop", key=node.key, run_id=run["run_id"], by="ada@here"))[
        "by"
    ] == "ada@here"
    assert (await node.client.request("write_stop", key=node.key, run_id=run["run_id"], by="bob"))["by"] == "ada@here"
    told = await node.client.request("signal", targets=[run["root"]], signal="TERM")
    assert told == {"sent": [run["root"]["pid"]], "gone": [], "denied": [], "how": "pidfd"}
    ended = await node.ended(run["run_id"])
    assert ended["signal"] == "SIGTERM" and ended["stopped_by"] == "ada@here"


async def test_an_existing_log_is_appended_to_never_cut(node: Node, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number in range(3):
        run = await node.launch(["/bin/echo", str(number)], log=str(log))
        await node.ended(run["run_id"])
        await node.lock_is_free()
    assert log.read_text() == "0\n1\n2\n"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"argv": ["/no/such/program"]}, "exec", "No such file"),
        ({"argv": ["no-such-word-anywhere"]}, "exec", "No such file"),
        ({"argv": ["/etc/passwd"]}, "exec", "Permission denied"),
        ({"cwd": "/no/such/folder"}, "exec", "/no/such/folder"),
        ({"log": "/no/such/folder/log"}, "log_folder", "/no/such/folder"),
        ({"log": "/tmp"}, "log_open", "/tmp"),
    ],
)
async def test_what_cannot_start_leaves_nothing(node: Node, change: dict[str, object], code: str, words: str) -> None:
    orders = node.orders(["/bin/true"])
    orders.update(change)
    with pytest.raises(NodeRequestError) as caught:
        await node.client.request("launch", **orders)
    assert caught.value.code == code and words in str(caught.value)
    state = await node.state()
    assert state["live"] is None and state["last"] is None
    await node.lock_is_free()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a link to another user")
async def test_a_log_that_is_another_users_link_is_not_followed(node: Node, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious\n")
    link = tmp_path / "log"
    link.symlink_to(target)
    os.lchown(link, 12345, 12345)
    with pytest.raises(NodeRequestError) as caught:
        await node.launch(["/bin/echo", "overwritten"], log=str(link))
    assert caught.value.code == "log_foreign_link"
    assert target.read_text() == "precious\n"


async def test_the_keeper_outlives_signals_that_are_not_for_it(node: Node) -> None:
    run = await node.launch(SLEEP)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(run["keeper"]["pid"], number)
    os.kill(run["root"]["pid"], signal.SIGTERM)
    ended = await node.ended(run["run_id"])
    assert ended["signal"] == "SIGTERM"  # and so none of ours was ignored in the server


async def test_left_overs_are_told_and_found_though_they_left_session_and_parent(node: Node, tmp_path: Path) -> None:
    flag = tmp_path / "ready"
    double_fork = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        open({str(flag)!r}, 'w').close()\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        f"while not os.path.exists({str(flag)!r}): time.sleep(0.01)\n"
    )
    run = await node.launch([PYTHON, "-c", double_fork])
    ended = await node.ended(run["run_id"])
    assert ended["code"] == 0 and len(ended["left"]) == 1
    left = ended["left"][0]
    assert left["ppid"] == run["keeper"]["pid"]  # the keeper is its subreaper
    tree = (await node.client.request("tree", key=node.key, run_id=run["run_id"]))["tree"]
    assert [process["pid"] for process in tree] == [left["pid"]]
    assert not (await node.state())["locked"]  # a left-over does not keep the next launch away
    fresh = await node.launch(SLEEP)
    told = await node.client.request("preflight", argv=SLEEP, cwd="/", key=node.key, log=None, port=None)
    assert [(process["pid"], process["run_id"]) for process in told["leftovers"]] == [(left["pid"], run["run_id"])]
    os.kill(left["pid"], signal.SIGKILL)
    await until(lambda: not proc.alive(run["keeper"]["pid"], run["keeper"]["start_ticks"]))
    assert proc.alive(fresh["keeper"]["pid"], fresh["keeper"]["start_ticks"])


async def test_a_command_that_detaches_lives_until_its_tree_is_empty(node: Node) -> None:
    run = await node.launch(["/bin/sh", "-c", "setsid sleep 600 & exit 3"], detaches=True)
    await until(lambda: not proc.alive(run["root"]["pid"], run["root"]["start_ticks"]))
    live = (await node.state())["live"]
    assert live["run"]["run_id"] == run["run_id"] and live["exit"] is None and len(live["tree"]) == 1
    os.kill(live["tree"][0]["pid"], signal.SIGKILL)
    ended = await node.ended(run["run_id"])
    assert (ended["code"], ended["signal"], ended["root_code"]) == (None, None, 3)


async def test_without_its_keeper_a_detached_tree_is_still_a_live_run(node: Node) -> None:
    run = await node.launch(["/bin/sh", "-c", "setsid sleep 600 & exit 0"], detaches=True)
    await until(lambda: not proc.alive(run["root"]["pid"], run["root"]["start_ticks"]))
    os.kill(run["keeper"]["pid"], signal.SIGKILL)
    await until(lambda: not proc.alive(run["keeper"]["pid"], run["keeper"]["start_ticks"]))
    live = (await node.state())["live"]
    assert live is not None and live["run"]["run_id"] == run["run_id"] and len(live["tree"]) == 1


async def test_a_killed_keeper_leaves_the_server_alone_and_the_end_unknown(node: Node) -> None:
    run = await node.launch(SLEEP)
    os.kill(run["keeper"]["pid"], signal.SIGKILL)
    await until(lambda: not proc.alive(run["keeper"]["pid"], run["keeper"]["start_ticks"]))
    state = await node.state()
    assert state["live"]["root_alive"] and not state["live"]["keeper_alive"] and not state["locked"]
    os.kill(run["root"]["pid"], signal.SIGKILL)
    await until(lambda: not proc.alive(run["root"]["pid"], run["root"]["start_ticks"]))
    state = await node.state()
    assert state["live"] is None and state["last"]["run"]["run_id"] == run["run_id"] and state["last"]["exit"] is None


async def test_a_server_whose_keeper_died_before_it_was_recorded_is_found_by_its_mark(node: Node) -> None:
    run = await node.launch(SLEEP)
    os.kill(run["keeper"]["pid"], signal.SIGKILL)
    await until(lambda: not proc.alive(run["keeper"]["pid"], run["keeper"]["start_ticks"]))
    path = node.folder(run["run_id"]) / "run.json"
    path.write_text(json.dumps({**run, "root": None}))  # as it stands between the start and the second write
    live = (await node.state())["live"]
    assert live["run"]["root"] == run["root"] and live["root_alive"]


@pytest.mark.parametrize("round_no", range(20))
async def test_of_two_launches_at_once_exactly_one_wins(node: Node, round_no: int, tmp_path: Path) -> None:
    other = await NodeClient.start(node.link, clock=SystemClock(), python=PYTHON, state_dir=str(node.state_dir))
    try:
        told = await asyncio.gather(
            node.client.request("launch", **node.orders(SLEEP)), other.request("launch", **node.orders(SLEEP))
        )
    finally:
        await other.close()
    winners = [answer for answer in told if answer["won"]]
    assert len(winners) == 1
    loser = next(answer for answer in told if not answer["won"])
    assert loser["run"]["run_id"] == winners[0]["run"]["run_id"]
    assert loser["run"]["root"]["pid"] == winners[0]["run"]["root"]["pid"]
    lives = [pid for run_id in node.run_ids for pid in proc.marked(run_id)]
    assert lives == [winners[0]["run"]["root"]["pid"]]


async def test_the_second_of_two_launches_gets_the_live_run(node: Node) -> None:
    run = await node.launch(SLEEP)
    told = await node.client.request("launch", **node.orders(["/bin/echo", "never"]))
    assert not told["won"] and told["run"] == run


async def test_a_launch_right_after_the_end_is_not_answered_with_the_dead_run(node: Node) -> None:
    for _ in range(10):
        run = await node.launch(["/bin/true"])
        await node.ended(run["run_id"])  # the keeper may still hold the lock in this moment
        again = await node.launch(["/bin/true"])
        assert again["run_id"] != run["run_id"]
        await node.lock_is_free()


async def test_the_keepers_word_on_the_lock(node: Node) -> None:
    run = await node.launch(SLEEP)
    reader, writer = await asyncio.open_unix_connection("\0" + f"inference-supervisor/{os.getuid()}/{node.key}")
    assert json.loads(await reader.readline()) == run
    os.kill(run["root"]["pid"], signal.SIGKILL)
    assert json.loads(await reader.readline())["exit"]["signal"] == "SIGKILL"
    assert await reader.read() == b""  # the death notice
    writer.close()
    await writer.wait_closed()


async def test_a_keeper_inside_of_another_run_is_no_part_of_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = node.orders(SLEEP)["run_id"]
    monkeypatch.setenv(proc.MARKER, outer)
    inside = await NodeClient.start(node.link, clock=SystemClock(), python=PYTHON, state_dir=str(node.state_dir))
    told = await inside.request("launch", **node.orders(SLEEP))
    await inside.close()
    assert proc.run_of(told["run"]["keeper"]["pid"]) is None
    assert proc.run_of(told["run"]["root"]["pid"]) == told["run"]["run_id"]


@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"SPT_NOENV": ""}, "")])
async def test_workers_that_rename_themselves_keep_the_mark(
    node: Node, tmp_path: Path, given: dict[str, str], expected: str
) -> None:
    """setproctitle writes over /proc/PID/environ otherwise: vLLM's and SGLang's workers would carry no run id."""
    out = tmp_path / "env"
    code = f"import os; open({str(out)!r}, 'w').write(os.environ['SPT_NOENV'])"
    run = await node.launch([PYTHON, "-I", "-S", "-c", code], env=given)
    await node.ended(run["run_id"])
    assert out.read_text() == expected


async def test_nothing_of_ours_leaks_into_the_server(node: Node, tmp_path: Path) -> None:
    out = tmp_path / "fds"
    code = f"import os; names = os.listdir('/proc/self/fd'); open({str(out)!r}, 'w').write(' '.join(sorted(names)))"
    run = await node.launch([PYTHON, "-I", "-S", "-c", code])
    await node.ended(run["run_id"])
    assert out.read_text().split() == ["0", "1", "2", "3"]  # 3 is the listing itself
    keeper_fds = await node.launch(SLEEP)
    keeper = keeper_fds["keeper"]["pid"]
    # It says "started" first, and lets go of our pipes then.
    await until(lambda: [os.readlink(f"/proc/{keeper}/fd/{number}") for number in (0, 1, 2)] == ["/dev/null"] * 3)
