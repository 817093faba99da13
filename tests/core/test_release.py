"""The proof of a release on timelines written by hand: what the driver shows after a stop, and what may be said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from supervisor.core.claim import Claim, claim, grown, never_looked
from supervisor.core.gpu import (
    GIB,
    SLACK_BYTES,
    Coverage,
    Driver,
    DriverState,
    Gpu,
    GpuState,
    HolderProcess,
    Memory,
    Past,
    Snapshot,
    Use,
)
from supervisor.core.release import LOST_LOOKS, Proof, State, Verdict

OK = Driver(state=DriverState.OK)
RUN = "20261130-080000-ab12"
OURS = (4711, 900)
TREE = [OURS]


def process(
    pid: int, ticks: int = 900, *, run: str | None = None, title: str = "python", **more: object
) -> HolderProcess:
    """A process that holds GPU 0, unless `devices` says otherwise."""
    fields: dict[str, object] = {"devices": ("/dev/nvidia0", "/dev/nvidiactl"), "state": "S", **more}
    return HolderProcess(pid=pid, start_ticks=ticks, run_id=run, title=title, **fields)  # type: ignore[arg-type]


def mine(pid: int = 4711, ticks: int = 900, **more: object) -> HolderProcess:
    return process(pid, ticks, run=RUN, title="VLLM::Worker_TP0", **more)


def gpu(used: float | None, uses: dict[int, float | None] | None, index: int = 0, **more: object) -> Gpu:
    """A GPU of 80 GiB. Figures in GiB."""
    memory = more.pop("memory", None) or Memory(
        total_bytes=80 * GIB, used_bytes=None if used is None else int(used * GIB)
    )
    listed = (
        None
        if uses is None
        else tuple(Use(pid=pid, used_bytes=None if held is None else int(held * GIB)) for pid, held in uses.items())
    )
    fields: dict[str, object] = {"uuid": f"GPU-{index}", "index": index, "minor": index, **more}
    return Gpu(memory=memory, uses=listed, **fields)  # type: ignore[arg-type]


def look(at: float, gpus: Iterable[Gpu], processes: Iterable[HolderProcess] = (), **more: object) -> Snapshot:
    fields: dict[str, object] = {"driver": OK, "coverage": Coverage.ALL, **more}
    return Snapshot(at=at, gpus=tuple(gpus), processes=tuple(processes), **fields)  # type: ignore[arg-type]


def before(*gpus: Gpu, processes: Sequence[HolderProcess] | None = None, **more: object) -> Snapshot:
    return look(100, gpus or (gpu(71.6, {4711: 71.2}),), [mine()] if processes is None else processes, **more)


def of(snapshot: Snapshot, **more: object) -> Claim:
    fields: dict[str, object] = {"run_ids": [RUN], "tree": TREE, **more}
    return claim(snapshot, **fields)  # type: ignore[arg-type]


def told(claimed: Claim, *looks: Snapshot) -> Verdict:
    """What a proof comes to after these looks."""
    proof = Proof(claimed)
    verdict = proof.give_up()
    for snapshot in looks:
        verdict = proof.feed(snapshot)
    return verdict


def last_word(claimed: Claim, *looks: Snapshot) -> Verdict:
    proof = Proof(claimed)
    for snapshot in looks:
        proof.feed(snapshot)
    return proof.give_up()


def again(snapshot: Snapshot, times: int) -> list[Snapshot]:
    """The same state of things in several looks, a second apart."""
    return [msgspec.structs.replace(snapshot, at=snapshot.at + number) for number in range(times)]


# ------------------------------------------------------------------------------------------- the usual


def test_two_looks_in_a_row_prove_it() -> None:
    proof = Proof(of(before()))
    assert proof.feed(look(104, [gpu(0.4, {})])).state is State.PENDING
    verdict = proof.feed(look(105, [gpu(0.4, {})]))
    assert verdict.state is State.PROVED
    assert verdict.text == "released: GPU 0, 71.2 GiB freed in 4.0 s (GPU 0 71.6 GiB → 410 MiB)"
    assert verdict.release == "proved (71.2 GiB freed on GPU 0 in 4.0 s)"


def test_the_same_look_twice_is_one_sample() -> None:
    assert told(of(before()), look(104, [gpu(0.4, {})]), look(104, [gpu(0.4, {})])).state is State.PENDING


def test_what_the_driver_told_before_is_no_second_sample() -> None:
    """A look whose driver did not answer in time has the figures of the look before, at a time of its own."""
    first, second = (msgspec.structs.replace(look(at, [gpu(0.4, {})]), sampled_at=104.0) for at in (104.0, 105.0))
    assert told(of(before()), first, second).state is State.PENDING
    assert told(of(before()), first, msgspec.structs.replace(second, sampled_at=105.0)).state is State.PROVED


def test_a_slow_release_waits_for_the_memory() -> None:
    proof = Proof(of(before()))
    for second in range(8):
        verdict = proof.feed(look(101 + second, [gpu(71.6 - 8 * second, {})]))
        assert verdict.state is State.PENDING and "no process accounts for" in verdict.text
    assert proof.feed(look(109, [gpu(0.5, {})])).state is State.PENDING
    assert proof.feed(look(110, [gpu(0.5, {})])).state is State.PROVED


def test_used_that_swings_back_is_not_released() -> None:
    proof = Proof(of(before()))
    for number in range(20):
        verdict = proof.feed(look(101 + number, [gpu(0.4 if number % 2 else 40.0, {})]))
        assert verdict.state is State.PENDING
    assert proof.give_up().state is State.UNPROVED


def test_eight_gpus_in_one_line() -> None:
    gpus = [gpu(71.6, {4711: 71.2}, index) for index in range(8)]
    devices = tuple(f"/dev/nvidia{index}" for index in range(8))
    claimed = of(before(*gpus, processes=[mine(devices=devices)]))
    verdict = told(claimed, *again(look(104.2, [gpu(0.4, {}, index) for index in range(8)]), 2))
    assert verdict.text.startswith("released: 8 GPUs, 569.6 GiB freed in 4.2 s (GPU 0 71.6 GiB → 410 MiB, ")
    assert "\n" not in verdict.text and verdict.text.endswith("…)")


def test_one_of_eight_that_is_late_holds_all_up() -> None:
    gpus = [gpu(71.6, {4711: 71.2}, index) for index in range(8)]
    devices = tuple(f"/dev/nvidia{index}" for index in range(8))
    claimed = of(before(*gpus, processes=[mine(devices=devices)]))
    after = [gpu(30 if index == 5 else 0.4, {}, index) for index in range(8)]
    verdict = last_word(claimed, *again(look(104, after), 5))
    assert verdict.state is State.UNPROVED and "GPU 5 still uses 30.0 GiB" in verdict.text


# ------------------------------------------------------------------------------------------- ours


def test_a_pid_in_a_list_holds_it_up_and_is_named() -> None:
    verdict = last_word(of(before()), *again(look(104, [gpu(71.6, {4711: 71.2})], [mine()]), 3))
    assert verdict.state is State.UNPROVED
    assert "pid 4711 VLLM::Worker_TP0" in verdict.text


def test_a_dead_pid_that_is_still_named() -> None:
    verdict = told(of(before()), *again(look(104, [gpu(0.3, {4711: 0.1})]), 3))
    assert verdict.state is State.PENDING and "dead pid 4711" in verdict.text


def test_its_heir_is_named() -> None:
    heir = process(5005, 950, title="pt_data_worker")
    verdict = last_word(of(before()), *again(look(104, [gpu(71.6, {4711: 71.2})], [heir]), 3))
    assert verdict.state is State.UNPROVED and "heir: pid 5005 pt_data_worker" in verdict.text


def test_an_heir_of_memory_that_nobody_is_named_for() -> None:
    heir = process(5005, 950, title="pt_data_worker")
    verdict = last_word(of(before()), *again(look(104, [gpu(71.6, {})], [heir]), 3))
    assert verdict.state is State.UNPROVED and "pid 5005 pt_data_worker" in verdict.text


def test_an_open_device_file_holds_it_up() -> None:
    child = mine(4712, 901)
    verdict = last_word(of(before()), *again(look(104, [gpu(0.4, {})], [child]), 3))
    assert verdict.state is State.UNPROVED and "pid 4712" in verdict.text and "device file" in verdict.text


def test_a_process_without_the_runs_mark_is_ours_where_the_stop_listed_it() -> None:
    nameless = process(4800, 980, title="worker")
    after = look(104, [gpu(0.4, {})], [nameless])
    assert told(of(before()), *again(after, 2)).state is State.PROVED, "a bystander with an open file blocks nothing"
    proof = Proof(of(before()))
    proof.saw([(4800, 980)])
    assert [proof.feed(snapshot).state for snapshot in again(after, 3)][-1] is State.PENDING


def test_a_process_whose_descriptors_we_may_not_read() -> None:
    verdict = told(of(before()), *again(look(104, [gpu(0.4, {})], [mine(devices=None)]), 3))
    assert verdict.state is State.PENDING
    zombie = mine(devices=None, state="Z", threads=0)
    assert told(of(before()), *again(look(104, [gpu(0.4, {})], [zombie]), 3)).state is State.PROVED


def test_a_zombie_whose_threads_live() -> None:
    zombie = mine(state="Z", threads=3)
    verdict = last_word(of(before()), *again(look(104, [gpu(71.6, {4711: 71.2})], [zombie]), 3))
    assert "a zombie whose threads live" in verdict.text


def test_a_process_in_the_kernel_is_told_as_the_drivers() -> None:
    stuck = mine(state="D", kill_pending=True, uninterruptible_looks=9)
    verdict = last_word(of(before()), *again(look(104, [gpu(71.6, {4711: 71.2})], [stuck]), 3))
    assert "state D" in verdict.text and "reset or reboot" in verdict.text


def test_a_gpu_that_it_came_to_only_during_the_stop() -> None:
    claimed = of(before(gpu(71.6, {4711: 71.2}), gpu(0.4, {}, 1)))
    late = mine(4712, 901, devices=("/dev/nvidia1",))
    looks = [
        look(101, [gpu(0.4, {}), gpu(30.4, {4712: 30}, 1)], [late]),
        *again(look(102, [gpu(0.4, {}), gpu(30.4, {}, 1)]), 3),
    ]
    verdict = last_word(claimed, *looks)
    assert verdict.state is State.UNPROVED and "GPU 1 still uses 30.4 GiB" in verdict.text
    assert told(claimed, *looks, *again(look(106, [gpu(0.4, {}), gpu(0.4, {}, 1)]), 2)).state is State.PROVED


def test_what_it_takes_after_the_claim_is_claimed_too() -> None:
    """Stopped while it loads: it takes more of its GPU, and another one that no look after its end names it for."""
    claimed = of(before(gpu(10.4, {4711: 10}), gpu(0.4, {}, 1)))
    loaded = look(102, [gpu(60.4, {4711: 60}), gpu(40.4, {4711: 40}, 1)], [mine(devices=("/dev/nvidia0",))])
    more = grown(claimed, loaded, TREE)
    ghost = again(look(110, [gpu(0.4, {}), gpu(40.4, {}, 1)]), 3)
    assert told(claimed, *ghost).state is State.PROVED, "nothing but the second look can know"
    verdict = last_word(more, *ghost)
    assert verdict.state is State.UNPROVED and "GPU 1 still uses 40.4 GiB" in verdict.text
    assert "100.0 GiB freed" in told(more, *again(look(110, [gpu(0.4, {}), gpu(0.4, {}, 1)]), 2)).text
    gone = grown(more, look(104, [gpu(0.4, {}), gpu(20.4, {4711: 20}, 1)], [mine()]), TREE)
    assert [held.ours_bytes for held in gone.spaces] == [60 * GIB, 40 * GIB], "what fell stands as it was claimed"
    assert grown(more, look(104, [], driver=Driver(state=DriverState.STUCK)), TREE).spaces == more.spaces


# ------------------------------------------------------------------------------------------- others


def test_a_pid_that_belongs_to_a_bystander_now() -> None:
    """Its number is ours, its start is not: what it allocates is its own."""
    bystander = process(4711, 5000, title="python train.py")
    verdict = told(of(before()), *again(look(104, [gpu(40.4, {4711: 40})], [bystander]), 2))
    assert verdict.state is State.PROVED
    assert verdict.text.endswith("; not ours, new since then: pid 4711 python train.py 40.0 GiB on GPU 0")


@pytest.mark.parametrize("grows_to", [12.0, 40.0, 79.0])
def test_a_tenant_that_allocates_during_the_stop_is_subtracted(grows_to: float) -> None:
    tenant = process(812, 300, title="python train.py")
    shared = before(gpu(73.6, {4711: 71.2, 812: 2}), processes=[mine(), tenant])
    after = look(104, [gpu(grows_to + 0.4, {812: grows_to})], [tenant])
    assert told(of(shared), *again(after, 2)).state is State.PROVED


def test_a_new_tenant_is_named() -> None:
    tenant = process(812, 300, title="python train.py")
    verdict = told(of(before()), *again(look(104, [gpu(78.4, {812: 78})], [tenant]), 2))
    assert verdict.state is State.PROVED and "pid 812 python train.py 78.0 GiB" in verdict.text


def test_a_tenant_does_not_hide_what_is_not_released() -> None:
    tenant = process(812, 300)
    verdict = last_word(of(before()), *again(look(104, [gpu(75.6, {812: 4})], [tenant]), 3))
    assert verdict.state is State.UNPROVED and "71.6 GiB" in verdict.text


def test_a_tenant_without_a_figure() -> None:
    """Then used must have fallen by nine tenths of what we held."""
    tenant = process(812, 300)
    shared = before(gpu(75.6, {4711: 71.2, 812: None}), processes=[mine(), tenant])
    fallen, not_fallen = gpu(4.4, {812: None}), gpu(12.0, {812: None})
    assert told(of(shared), *again(look(104, [fallen], [tenant]), 2)).state is State.PROVED
    verdict = last_word(of(shared), *again(look(104, [not_fallen], [tenant]), 3))
    assert verdict.state is State.UNPROVED and "without a figure: pid 812" in verdict.text


def test_figures_of_tenants_that_come_and_go_are_not_taken_for_ours() -> None:
    """One tenant has no figure, another one's grows: the growth is no fall of ours."""
    tenants = [process(812, 300), process(813, 301)]
    shared = before(gpu(60.6, {4711: 10, 812: None, 813: 40}), processes=[mine(), *tenants])
    held = look(104, [gpu(60.6, {812: None, 813: 40})], tenants)
    assert last_word(of(shared), *again(held, 3)).state is State.UNPROVED
    grown = look(104, [gpu(70.6, {812: None, 813: 60})], tenants)
    assert told(of(shared), *again(grown, 2)).state is State.PROVED


def test_our_own_figures_are_missing() -> None:
    """WSL and some MIG: by the fall of what is used alone."""
    nameless = before(gpu(30.5, {4711: None}))
    assert told(of(nameless), *again(look(104, [gpu(2.9, {})]), 2)).state is State.PROVED
    assert last_word(of(nameless), *again(look(104, [gpu(4.0, {})]), 3)).state is State.UNPROVED
    # With the baseline of the launch, what others hold besides does not count as ours.
    known = of(nameless, baseline={"GPU-0": 20 * GIB})
    assert told(known, *again(look(104, [gpu(20.1, {})]), 2)).state is State.PROVED
    assert last_word(known, *again(look(104, [gpu(23.0, {})]), 3)).state is State.UNPROVED


# ------------------------------------------------------------------------------------------- the baseline


def test_the_baseline_of_the_launch_is_the_measure() -> None:
    recorded = of(before(gpu(76.6, {4711: 71.2})), baseline={"GPU-0": 5 * GIB})
    assert told(recorded, *again(look(104, [gpu(5.4, {})]), 2)).state is State.PROVED
    verdict = last_word(of(before(), baseline={"GPU-0": 0}), *again(look(104, [gpu(1.4, {})]), 3))
    # 1.5 % of 80 GiB are 1.2 GiB
    assert verdict.state is State.UNPROVED and "before the launch" in verdict.text


def test_a_baseline_that_was_recorded_into_a_teardown_is_not_believed() -> None:
    """The launch came (by force) while 70 GiB of the run before were on their way: they are no idle GPU's."""
    claimed = of(before(), baseline={"GPU-0": 70 * GIB})
    assert last_word(claimed, *again(look(104, [gpu(71.6, {})]), 3)).state is State.UNPROVED
    assert told(claimed, *again(look(104, [gpu(1.5, {})]), 2)).state is State.PROVED


def test_a_learnt_baseline_is_what_no_process_accounted_for() -> None:
    learnt = of(before(gpu(72.1, {4711: 71.2})))
    assert told(learnt, *again(look(104, [gpu(2.0, {})]), 2)).state is State.PROVED
    assert last_word(learnt, *again(look(104, [gpu(2.2, {})]), 3)).state is State.UNPROVED


def test_memory_of_ours_that_nvml_does_not_count_is_no_baseline() -> None:
    """Managed memory: 60 GiB are used and 5 named (report P4). That nobody is named any more proves nothing."""
    managed = before(gpu(60.4, {4711: 5}))
    assert last_word(of(managed), *again(look(104, [gpu(60.4, {})]), 3)).state is State.UNPROVED
    assert told(of(managed), *again(look(104, [gpu(0.4, {})]), 2)).state is State.PROVED


def test_a_small_gpu_has_half_a_gigabyte_of_slack() -> None:
    small = Memory(total_bytes=8 * GIB, used_bytes=6 * GIB)
    claimed = of(before(gpu(6, {4711: 6}, memory=small)))
    for above, state in ((SLACK_BYTES, State.PROVED), (SLACK_BYTES + 1, State.PENDING)):
        after = gpu(0, {}, memory=Memory(total_bytes=8 * GIB, used_bytes=above))
        assert told(claimed, *again(look(104, [after]), 2)).state is state


def test_ghost_memory_is_never_proved_and_names_no_process() -> None:
    verdict = last_word(of(before()), *again(look(104, [gpu(71.6, {})]), 100))
    assert verdict.state is State.UNPROVED and "only a reset" in verdict.text and "pid" not in verdict.text


# ------------------------------------------------------------------------------------------- special GPUs


def test_mig_instances_have_their_own_lists() -> None:
    """As nobody but root sees them: the GPU itself gives no memory, its instances do."""

    def instances(first: Gpu, second: Gpu) -> list[Gpu]:
        above = gpu(None, None, state=GpuState.UNREADABLE, why="no permission", mig=True)
        return [above, first, second]

    def instance(number: int, used: float, uses: dict[int, float | None]) -> Gpu:
        return gpu(used, uses, uuid=f"MIG-{number}", parent="GPU-0", minor=None)

    tenant = process(812, 300)
    claimed = of(
        before(*instances(instance(0, 18.1, {4711: 18}), instance(1, 9.1, {812: 9})), processes=[mine(), tenant])
    )
    half = instances(instance(0, 18.1, {}), instance(1, 9.1, {812: 9}))
    verdict = last_word(claimed, *again(look(104, half, [tenant]), 3))
    assert verdict.state is State.UNPROVED and "GPU 0 MIG 0 still uses 18.1 GiB" in verdict.text
    whole = instances(instance(0, 0.1, {}), instance(1, 30.1, {812: 30}))
    verdict = told(claimed, *again(look(104, whole, [tenant]), 2))
    assert verdict.state is State.PROVED and "GPU 0 MIG 0 18.1 GiB → 102 MiB" in verdict.text


def test_unified_memory_is_released_when_its_processes_are_gone() -> None:
    """There total and free are the machine's: no rule can be made of what everybody else does with it."""
    unified = Memory(kind="unified", total_bytes=128 * GIB, free_bytes=20 * GIB)
    claimed = of(before(gpu(None, {4711: 89.3}, memory=unified)))
    still = look(104, [gpu(None, {}, memory=unified)], [mine()])
    assert told(claimed, *again(still, 3)).state is State.PENDING
    verdict = told(claimed, *again(look(104, [gpu(None, {}, memory=unified)]), 2))
    assert verdict.state is State.PROVED and "89.3 GiB" in verdict.text and "unified memory" in verdict.text


def test_a_gpu_that_is_lost_during_the_stop() -> None:
    lost = gpu(None, None, state=GpuState.LOST)
    proof = Proof(of(before()))
    states = [proof.feed(snapshot).state for snapshot in again(look(104, [lost]), LOST_LOOKS)]
    assert states[-1] is State.UNPROVED and set(states[:-1]) == {State.PENDING}
    assert "reset or a reboot" in proof.give_up().text
    assert last_word(of(before()), *again(look(104, []), LOST_LOOKS)).state is State.UNPROVED, "it is not even counted"


def test_a_stuck_driver_proves_nothing_until_it_answers() -> None:
    stuck = Driver(state=DriverState.STUCK, why="driver not responding since 14 s (nvmlDeviceGetMemoryInfo_v2)")
    claimed = of(before())
    stale = look(104, [gpu(0.4, {})], driver=stuck)
    verdict = last_word(claimed, *again(stale, 50))
    assert verdict.state is State.UNPROVED and "not responding since 14 s" in verdict.text
    looks = [look(104, [gpu(0.4, {})]), look(105, [gpu(0.4, {})], driver=stuck), look(106, [gpu(0.4, {})])]
    assert told(claimed, *looks).state is State.PENDING, "two in a row"
    assert told(claimed, *looks, look(107, [gpu(0.4, {})])).state is State.PROVED


@pytest.mark.parametrize("which", ["list", "memory"])
def test_what_cannot_be_read(which: str) -> None:
    after = gpu(0.4, None, errors={"uses": "no_permission"}) if which == "list" else gpu(None, {}, why="no permission")
    verdict = last_word(of(before()), *again(look(104, [after]), 50))
    assert verdict.state is State.UNPROVED and "permission" in verdict.text


def test_pids_of_the_host_that_may_be_ours() -> None:
    """An old driver in a container: the lists have the host's pids, so ours are there under numbers we do not know."""
    claimed = of(before(gpu(71.6, {90001: 71.2}), container=True))
    assert claimed.spaces[0].suspects == (90001,)
    after = look(104, [gpu(71.6, {90001: 71.2})], container=True)
    verdict = last_word(claimed, *again(after, 3))
    assert verdict.state is State.UNPROVED and "another pid namespace" in verdict.text
    assert told(claimed, *again(look(104, [gpu(0.4, {})], container=True), 2)).state is State.PROVED
    other = look(104, [gpu(20.4, {90002: 20})], container=True)
    verdict = told(claimed, *again(other, 2))
    assert verdict.state is State.PROVED and "pid 90002 not visible from here" in verdict.text


# ------------------------------------------------------------------------------------------- no GPU, never seen


def test_no_driver_no_gpu() -> None:
    absent = Driver(state=DriverState.ABSENT)
    verdict = told(of(look(100, [], driver=absent)), look(104, [], driver=absent))
    assert verdict.release == "no gpu"


def test_a_run_that_has_nothing_to_do_with_the_gpus() -> None:
    """A server on the CPU, on a node with GPUs that others use."""
    tenant = process(812, 300)
    claimed = of(look(100, [gpu(9.4, {812: 9})], [tenant]))
    assert claimed.untouched
    assert told(claimed, *again(look(104, [gpu(50.4, {812: 20})], [tenant]), 2)).release == "no gpu"
    broken = Driver(state=DriverState.UNAVAILABLE, why="driver/library version mismatch: reboot")
    claimed = of(look(100, [], driver=broken))
    assert told(claimed, look(104, [], driver=broken)).release == "no gpu"
    assert last_word(of(look(100, [], [mine()], driver=broken)), *again(look(104, [], driver=broken), 3)).release == (
        "unproved (driver/library version mismatch: reboot)"
    )


def test_a_run_that_nobody_looked_at() -> None:
    """Then nothing but the recorded baseline may be left without an owner, on any GPU."""
    never = never_looked("no look before the stop", run_id=RUN, ours=TREE, baseline={})
    verdict = told(never, *again(look(104, [gpu(0.4, {}), gpu(30.4, {812: 30}, 1)]), 2))
    assert verdict.state is State.PROVED and "what was held was not seen: no look before the stop" in verdict.release
    assert last_word(never, *again(look(104, [gpu(3.0, {})]), 3)).state is State.UNPROVED
    recorded = never_looked("no look", run_id=RUN, baseline={"GPU-0": 3 * GIB})
    assert told(recorded, *again(look(104, [gpu(3.0, {})]), 2)).state is State.PROVED


def test_what_the_ring_remembers_of_a_dead_run() -> None:
    past = Past(pid=4711, start_ticks=900, run_id=RUN, held={"GPU-0": int(71.2 * GIB)}, last_at=90.0)
    claimed = of(look(100, [gpu(71.6, {}), gpu(0.4, {}, 1)], past=[past]), tree=[])
    assert not claimed.unknown and [held.uuid for held in claimed.spaces] == ["GPU-0"]
    assert told(claimed, *again(look(101, [gpu(71.6, {}), gpu(0.4, {}, 1)]), 3)).state is State.PENDING
    verdict = told(claimed, *again(look(104, [gpu(0.4, {}), gpu(0.4, {}, 1)]), 2))
    assert verdict.state is State.PROVED and "71.2 GiB freed" in verdict.text


def test_an_earlier_look_stands_where_the_last_one_sees_nothing_any_more() -> None:
    earlier = of(before())
    gone = of(look(110, [gpu(71.6, {})]), tree=[], before=earlier)
    assert gone.spaces[0].ours_bytes == int(71.2 * GIB)
    assert told(gone, *again(look(112, [gpu(71.6, {})]), 3)).state is State.PENDING
    assert told(gone, *again(look(116, [gpu(0.4, {})]), 2)).state is State.PROVED
    assert of(look(110, [gpu(0.4, {})]), tree=[]).unknown


# ------------------------------------------------------------------------------------------- whatever happens

_PIDS = st.sampled_from([4711, 4712, 4713, 812, 813])
_FIGURES = st.none() | st.sampled_from([0.0, 0.1, 5.0, 71.2])
_LISTS = st.sampled_from([{}, {}, {4711: 0.0}, {812: 5.0}, None]) | st.dictionaries(_PIDS, _FIGURES, max_size=3)
_GPUS = st.builds(gpu, st.sampled_from([0.4, 0.4, 0.0, 5.4, 71.6, None]), _LISTS)
_PROCESSES = st.builds(
    process,
    _PIDS,
    st.sampled_from([900, 901, 5000]),
    run=st.sampled_from([RUN, "another", None]),
    devices=st.sampled_from([None, (), ("/dev/nvidia0",), ("/dev/nvidiactl",)]),
    state=st.sampled_from("SRDZ"),
    threads=st.integers(0, 3),
)
_TABLES: st.SearchStrategy[list[HolderProcess]] = st.just([]) | st.lists(
    _PROCESSES, unique_by=lambda item: item.pid, max_size=3
)
_DRIVERS = st.sampled_from([OK, OK, OK, Driver(state=DriverState.STUCK), Driver(state=DriverState.UNAVAILABLE)])
_LOOKS = st.builds(look, st.just(0.0), st.lists(_GPUS, min_size=0, max_size=1), _TABLES, driver=_DRIVERS,
                   container=st.booleans(), coverage=st.sampled_from(list(Coverage)))  # fmt: skip


def _is_ours(item: HolderProcess) -> bool:
    return item.run_id == RUN or (item.pid, item.start_ticks) == OURS


@given(first=st.just(before()) | _LOOKS, rest=st.lists(_LOOKS, min_size=1, max_size=8), repeat=st.booleans())
def test_never_proved_while_one_of_ours_is_listed_or_has_a_device_open(
    first: Snapshot, rest: list[Snapshot], repeat: bool
) -> None:
    proof = Proof(of(msgspec.structs.replace(first, at=1.0)))
    looks = [item for item in rest for _ in range(2 if repeat else 1)]
    for number, snapshot in enumerate(looks):
        verdict = proof.feed(msgspec.structs.replace(snapshot, at=2.0 + number))
        if not verdict.settled:
            continue
        assume(verdict.state in (State.PROVED, State.NO_GPU))
        table = {item.pid: item for item in snapshot.processes}
        for item in snapshot.gpus:
            for use in item.uses or ():
                assert use.pid not in table or not _is_ours(table[use.pid]), "a living pid of ours is in a list"
                assert not (use.pid == OURS[0] and use.pid not in table), "a dead pid of ours is in a list"
        assert not any(item.devices for item in snapshot.processes if _is_ours(item)), "a device file is open"
        return
