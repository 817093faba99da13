"""What the node measures before a launch on GPUs: real files and their headers, mounts, a folder without an answer."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.node import preflight, weights
from tests.node.conftest import Node
from tests.real import make_gguf


def tensors(path: Path, **shapes: tuple[str, int]) -> int:
    """A safetensors file of these tensors (kind, bytes), as the format says; returns its size."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, size) in shapes.items():
        header[name] = {"dtype": kind, "shape": [size], "data_offsets": [offset, offset + size]}  # type: ignore[dict-item]
        offset += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    return path.stat().st_size


def blob(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def index(folder: Path, name: str, files: list[str]) -> None:
    (folder / name).write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": {f"w{n}": f for n, f in enumerate(files)}})
    )


def measured(path: Path | str, **env: str) -> dict[str, Any]:
    return weights.measure(str(path), "/", {"HOME": "/nowhere", **env})


def test_parts_of_safetensors_are_summed(tmp_path: Path) -> None:
    sizes = [tensors(tmp_path / f"model-0000{n}-of-00002.safetensors", w=("BF16", 1000 * n)) for n in (1, 2)]
    (tmp_path / "config.json").write_text("{}")
    blob(tmp_path / "tokenizer.safetensors", 5_000_000)
    told = measured(tmp_path)
    assert (told["bytes"], told["files"], told["least_bytes"]) == (sum(sizes), 2, 3000)
    assert told["how"] == "2 files on the disk"


def test_wide_numbers_may_become_narrow(tmp_path: Path) -> None:
    tensors(tmp_path / "model.safetensors", a=("F32", 4000), b=("BF16", 2000), c=("F64", 800), d=("F8_E4M3", 100))
    assert measured(tmp_path)["least_bytes"] == 2000 + 2000 + 200 + 100


def test_an_index_tells_which_files_are_the_model(tmp_path: Path) -> None:
    size = tensors(tmp_path / "part-a.safetensors", w=("BF16", 1000))
    size += tensors(tmp_path / "part-b.safetensors", w=("BF16", 3000))
    tensors(tmp_path / "unrelated.safetensors", w=("BF16", 90_000))
    index(tmp_path, "model.safetensors.index.json", ["part-a.safetensors", "part-b.safetensors"])
    assert measured(tmp_path)["bytes"] == size


def test_the_same_weights_in_another_form_count_once(tmp_path: Path) -> None:
    """consolidated.safetensors beside the parts, and the older form beside the newer."""
    size = tensors(tmp_path / "model-00001-of-00001.safetensors", w=("BF16", 1000))
    tensors(tmp_path / "consolidated.safetensors", w=("BF16", 1000))
    blob(tmp_path / "pytorch_model.bin", 1000)
    blob(tmp_path / "adapter_model.safetensors", 7)
    assert measured(tmp_path)["bytes"] == size
    tensors(tmp_path / "model.safetensors", w=("BF16", 20))
    assert measured(tmp_path)["bytes"] == size  # the bigger of two sets


def test_pickles_count_half_as_certain(tmp_path: Path) -> None:
    blob(tmp_path / "pytorch_model-00001-of-00002.bin", 1000)
    blob(tmp_path / "pytorch_model-00002-of-00002.bin", 500)
    blob(tmp_path / "training_args.bin", 10**6)
    told = measured(tmp_path)
    assert (told["bytes"], told["least_bytes"]) == (1500, 750)


def test_a_real_gguf_file_and_its_sisters(tmp_path: Path) -> None:
    real = tmp_path / "tiny.gguf"
    make_gguf.write(real, make_gguf.SIZES["tiny"])
    assert measured(real)["bytes"] == real.stat().st_size == measured(real)["least_bytes"]
    for n in (1, 2, 3):
        blob(tmp_path / f"big-0000{n}-of-00003.gguf", 100 * n)
    assert measured(tmp_path / "big-00001-of-00003.gguf")["bytes"] == 600


def test_several_quantizations_side_by_side_are_not_chosen_from(tmp_path: Path) -> None:
    blob(tmp_path / "m-Q4.gguf", 10)
    assert measured(tmp_path)["bytes"] == 10
    blob(tmp_path / "m-Q8.gguf", 20)
    told = measured(tmp_path)
    assert told["bytes"] is None and "no weights were found" in told["why"]


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    size = tensors(tmp_path / "blobs" / "ab12", w=("BF16", 1000))
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to("../blobs/ab12")
    assert measured(folder)["bytes"] == size


def test_a_name_of_the_hub_is_found_in_its_cache(tmp_path: Path) -> None:
    base = tmp_path / "hub" / "models--org--name"
    (base / "snapshots" / "c0ffee").mkdir(parents=True)
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text("c0ffee")
    size = tensors(base / "snapshots" / "c0ffee" / "model.safetensors", w=("BF16", 10))
    for env in ({"HF_HOME": str(tmp_path)}, {"HF_HUB_CACHE": str(tmp_path / "hub")}):
        told = measured("org/name", **env)
        assert (told["bytes"], told["how"]) == (size, "1 file in the cache of the hub")
    assert measured("org/other", HF_HOME=str(tmp_path))["why"] == "org/other is not on this node"


def test_what_cannot_be_measured_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "names no model" in weights.measure(None, "/", {})["why"]
    assert "is not on this node" in measured("/no/such/folder")["why"]
    assert "no weights were found" in measured(tmp_path)["why"]
    broken = tmp_path / "model.safetensors"
    broken.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    assert measured(tmp_path)["bytes"] is None and "no safetensors file" in measured(tmp_path)["why"]
    broken.write_bytes(struct.pack("<Q", 5) + b"[1,2]")
    assert measured(tmp_path)["bytes"] is None
    monkeypatch.setattr(weights, "MOST_ENTRIES", 3)
    for n in range(5):
        blob(tmp_path / str(n), 0)
    assert "more than 3 entries" in measured(tmp_path)["why"]


def test_a_folder_that_never_answers_is_left(tmp_path: Path) -> None:
    """A FIFO blocks its reader for ever, as a dead mount does."""
    os.mkfifo(tmp_path / "model.safetensors")
    begin = time.monotonic()
    told = weights.measure(str(tmp_path), "/", {}, limit_s=0.2)
    assert told["bytes"] is None and "did not answer in time" in told["why"]
    assert time.monotonic() - begin < 5
    with (tmp_path / "model.safetensors").open("wb"):
        pass  # lets the thread go
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon:
            thread.join(5)


# ------------------------------------------------------------------------------------------------- folders, /dev/shm


def options_of(path: str) -> set[str]:
    """Options of the mount that a path is on, by the kernel's own table: an independent reading."""
    best: tuple[int, set[str]] = (0, set())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, _, options, *_ = line.split()
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best[0]:
            best = (len(point), set(options.split(",")))
    return best[1]


def test_folders_tell_noexec_as_the_kernel_does(tmp_path: Path) -> None:
    places = [place for place in ("/tmp", "/dev/shm", "/proc", "/sys", str(tmp_path)) if os.path.isdir(place)]
    for place in places:
        told = weights.folders({"HOME": "/nowhere", "TMPDIR": place, "TRITON_CACHE_DIR": "/"})
        item = next(entry for entry in told if entry["path"] == place)
        assert item["noexec"] == ("noexec" in options_of(place))


def test_a_folder_that_is_mounted_noexec(tmp_path: Path) -> None:
    """A mount of our own, in a mount namespace of our own."""
    look = "json.dumps(weights.folders({'TMPDIR': sys.argv[1]}))"
    probe = f"import json, sys; from supervisor.node import weights; print({look})"
    script = 'mount -t tmpfs -o noexec none "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, probe],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    if done.returncode != 0:
        pytest.skip(f"no mount namespaces here: {done.stderr.strip()}")
    told = {item["path"]: item["noexec"] for item in json.loads(done.stdout)}
    assert told == {"/tmp": "noexec" in options_of("/tmp"), str(tmp_path): True, str(Path.home() / ".triton"): False}


def test_folders_that_will_be_made_are_judged_by_where(tmp_path: Path) -> None:
    told = weights.folders({"HOME": str(tmp_path), "TRITON_CACHE_DIR": "/proc/not/there"})
    assert [(item["path"], item["source"]) for item in told] == [("/tmp", ""), ("/proc/not/there", "TRITON_CACHE_DIR")]
    assert told[1]["noexec"] == ("noexec" in options_of("/proc"))
    told = weights.folders({"HOME": str(tmp_path)})
    assert told[-1]["path"] == str(tmp_path / ".triton") and told[-1]["free_bytes"] > 0


def test_shared_memory_is_told(tmp_path: Path) -> None:
    info = os.statvfs("/dev/shm")
    told = weights.shm()
    assert told is not None and told["total_bytes"] == info.f_blocks * info.f_frsize
    assert 0 <= told["free_bytes"] <= told["total_bytes"]
    assert weights.shm(str(tmp_path / "no")) is None


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    free = preflight.free_bytes(str(tmp_path / "a" / "b"))
    assert free is not None and free > 0


@pytest.mark.asyncio
async def test_preflight_tells_what_bears_on_gpus_only_when_asked(node: Node, tmp_path: Path) -> None:
    size = tensors(tmp_path / "model.safetensors", w=("BF16", 1000))
    args: dict[str, Any] = {"argv": ["/bin/true"], "cwd": str(tmp_path), "key": node.key, "log": None, "port": None}
    told = await node.client.request("preflight", **args)
    assert told["state_free_bytes"] > 0 and "weights" not in told
    env = {"CUDA_VISIBLE_DEVICES": "0,1", "SECRET_SWITCH": "hunter2"}
    told = await node.client.request(
        "preflight", **args, env=env, gpu={"model": ".", "env": ["SECRET_SWITCH", "NOT_SET"]}
    )
    assert told["weights"]["bytes"] == size
    assert told["gpu_env"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert told["gpu_env"]["SECRET_SWITCH"] == "" and "NOT_SET" not in told["gpu_env"]
    assert told["shm"]["total_bytes"] > 0 and told["folders"][0]["path"] == "/tmp"
