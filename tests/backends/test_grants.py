# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.backends.grants import (
    busy_processes,
    cpu_quota,
    granted_cpus,
    memory_limit_bytes,
    visible_accelerators,
)
from truestep.backends.kernel_files import parse_cpu_list

GIB = 1 << 30


def tree(root: Path, files: Mapping[str, str]) -> dict[str, Path]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return {"sys_root": root / "sys", "proc_root": root / "proc"}


def test_cpuset_of_version_2_confines_the_affinity(tmp_path: Path) -> None:
    roots = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job/step",
            "sys/fs/cgroup/cpuset.cpus.effective": "0-15",
            "sys/fs/cgroup/job/step/cpuset.cpus.effective": "2-4,9",
        },
    )
    assert granted_cpus(affinity=range(8), **roots) == {2, 3, 4}


@pytest.mark.parametrize("name", ["cpuset.effective_cpus", "cpuset.cpus"])
def test_cpuset_of_version_1_confines_the_affinity(name: str, tmp_path: Path) -> None:
    roots = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n3:cpuset:/slurm/job_7",
            f"sys/fs/cgroup/cpuset/slurm/job_7/{name}": "1,3",
        },
    )
    assert granted_cpus(affinity=range(4), **roots) == {1, 3}


def test_without_cgroups_the_affinity_is_granted(tmp_path: Path) -> None:
    assert granted_cpus(affinity=[1, 5], **tree(tmp_path, {})) == {1, 5}


def test_quota_is_the_tightest_on_the_way_up(tmp_path: Path) -> None:
    roots = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/container",
            "sys/fs/cgroup/pod/cpu.max": "150000 100000",
            "sys/fs/cgroup/pod/container/cpu.max": "max 100000",
        },
    )
    assert cpu_quota(**roots) == 1.5


def test_quota_of_version_1_is_read(tmp_path: Path) -> None:
    roots = tree(
        tmp_path,
        {
            "proc/self/cgroup": "2:cpu,cpuacct:/box",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000",
        },
    )
    assert cpu_quota(**roots) == 2.5


def test_no_quota_is_none(tmp_path: Path) -> None:
    assert cpu_quota(**tree(tmp_path, {"proc/self/cgroup": "0::/"})) is None


def test_memory_is_what_the_tightest_group_leaves(tmp_path: Path) -> None:
    roots = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/container",
            "proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:  {64 * GIB // 1024} kB",
            "sys/fs/cgroup/pod/memory.max": str(8 * GIB),
            "sys/fs/cgroup/pod/memory.current": str(5 * GIB),
            "sys/fs/cgroup/pod/memory.stat": f"anon 1\ninactive_file {GIB}",
            "sys/fs/cgroup/pod/container/memory.max": "max",
            "sys/fs/cgroup/pod/container/memory.current": str(GIB),
        },
    )
    assert memory_limit_bytes(**roots) == 4 * GIB


def test_memory_of_version_1_is_read_and_its_no_limit_is_none(tmp_path: Path) -> None:
    roots = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/box",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "7",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": str(3 * GIB),
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": str(GIB),
        },
    )
    assert memory_limit_bytes(**roots) == 2 * GIB


def test_memory_of_the_machine_may_be_the_tightest(tmp_path: Path) -> None:
    roots = tree(tmp_path, {"proc/meminfo": "MemAvailable: 1024 kB"})
    assert memory_limit_bytes(**roots) == 1 << 20


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    files = {"memory.max": "5", "memory.current": "9"}
    roots = tree(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    tree(tmp_path, {"proc/self/cgroup": "0::/"})
    assert memory_limit_bytes(**roots) == 0


def test_memory_is_none_where_nothing_is_reported(tmp_path: Path) -> None:
    assert memory_limit_bytes(**tree(tmp_path, {})) is None


@pytest.mark.parametrize("path", ["/docker/0123456789ab", "/../../other", "/"])
def test_in_a_container_the_mount_point_is_our_own_group(path: str, tmp_path: Path) -> None:
    roots = tree(
        tmp_path,
        {
            "proc/self/cgroup": f"0::{path}",
            "sys/fs/cgroup/cpu.max": "300000 100000",
            "sys/fs/cpu.max": "100000 100000",
        },
    )
    assert cpu_quota(**roots) == 3.0


def test_hybrid_cgroups_are_read_in_both_versions(tmp_path: Path) -> None:
    roots = tree(
        tmp_path,
        {
            "proc/self/cgroup": "1:cpu:/a\n0::/b",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "400000",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/unified/b/cpu.max": "200000 100000",
        },
    )
    assert cpu_quota(**roots) == 2.0


@given(st.binary(max_size=40))
def test_a_damaged_list_of_processors_never_raises(raw: bytes) -> None:
    assert len(parse_cpu_list(raw.decode("latin-1"))) <= 1 << 16


def test_an_endless_list_of_processors_is_refused() -> None:
    assert parse_cpu_list("0-99999999999") == frozenset()


def test_an_unset_flag_is_no_restriction() -> None:
    visible = visible_accelerators({"HOME": "/"})
    assert visible.granted is None
    assert visible.flags == {}


@pytest.mark.parametrize("text", ["", "-1", "NoDevFiles", "none"])
def test_an_empty_flag_grants_none(text: str) -> None:
    visible = visible_accelerators({"CUDA_VISIBLE_DEVICES": text})
    assert visible.granted == ()
    assert visible.flags == {"CUDA_VISIBLE_DEVICES": text}


def test_the_list_ends_where_the_library_ends_it() -> None:
    visible = visible_accelerators({"CUDA_VISIBLE_DEVICES": "2, GPU-ab12 ,-1,0"})
    assert visible.granted == ("2", "GPU-ab12")


def test_the_flag_of_the_library_wins_over_the_scheduler() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "4,5", "SLURM_STEP_GPUS": "5"}
    assert visible_accelerators(env).granted == ("0",)
    del env["CUDA_VISIBLE_DEVICES"]
    assert visible_accelerators(env).granted == ("5",)


def test_hip_indexes_count_within_the_rocr_list() -> None:
    env = {"ROCR_VISIBLE_DEVICES": "4,6,7", "HIP_VISIBLE_DEVICES": "2,0"}
    assert visible_accelerators(env, kind="rocm").granted == ("7", "4")
    assert visible_accelerators(env, kind="cuda").granted is None


def nvml_with(*pids: int) -> SimpleNamespace:
    entries = [SimpleNamespace(pid=pid) for pid in pids]
    return SimpleNamespace(nvmlDeviceGetComputeRunningProcesses=lambda handle: entries)


def family(root: Path) -> Path:
    """1 -> 10 -> 20 (own) -> 30, and 1 -> 40 with a name that holds a parenthesis."""
    names = {1: "init", 10: "launcher", 20: "own", 30: "child", 40: "a) S 20 ("}
    parents = {1: 0, 10: 1, 20: 10, 30: 20, 40: 1}
    tree(root, {f"{pid}/stat": f"{pid} ({names[pid]}) S {parents[pid]} 0 0" for pid in parents})
    return root


def test_only_processes_of_others_make_a_device_busy(tmp_path: Path) -> None:
    vendor = nvml_with(10, 20, 30, 40, 99)
    busy = busy_processes(None, vendor=vendor, own_pid=20, proc_root=family(tmp_path))
    assert busy == (40, 99)


def test_a_free_device_has_no_processes(tmp_path: Path) -> None:
    assert busy_processes(None, vendor=nvml_with(), proc_root=tmp_path) == ()


def test_a_driver_that_does_not_say_is_not_reported(tmp_path: Path) -> None:
    assert busy_processes(None, vendor=SimpleNamespace(), proc_root=tmp_path) is None
