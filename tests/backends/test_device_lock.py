# SPDX-License-Identifier: Apache-2.0
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from truestep.backends.device_lock import DeviceLock, _is_still_there, lock_directories
from truestep.errors import ConfigError

HOLDER = """
import sys, time, pathlib
from truestep.backends.device_lock import DeviceLock
lock = DeviceLock(sys.argv[1], directories=[pathlib.Path(sys.argv[2])])
print(lock.acquire(), flush=True)
time.sleep(60)
"""


def start_holder(identity: str, folder: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, identity, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == "True"
    return holder


def the_file(folder: Path) -> Path:
    (only,) = folder.glob("*.lock")
    return only


def test_kill_9_of_the_holder_frees_the_device_for_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    with start_holder("GPU-1", folder) as holder:
        try:
            with DeviceLock("GPU-1", directories=[folder]) as is_held:
                assert not is_held
            with DeviceLock("GPU-2", directories=[folder]) as is_held:
                assert is_held
        finally:
            os.kill(holder.pid, signal.SIGKILL)
            holder.wait(timeout=10)
    with DeviceLock("GPU-1", directories=[folder]) as is_held:
        assert is_held


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    first = DeviceLock("GPU-1", directories=[tmp_path])
    second = DeviceLock("GPU-1", directories=[tmp_path])
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    assert second.is_held
    second.release()
    assert not second.is_held


def test_acquire_does_not_wait(tmp_path: Path) -> None:
    with DeviceLock("GPU-1", directories=[tmp_path]):
        assert not DeviceLock("GPU-1", directories=[tmp_path]).acquire()


def test_one_shared_folder_is_enough_to_exclude(tmp_path: Path) -> None:
    both = [tmp_path / "for-root", tmp_path / "for-all"]
    with DeviceLock("GPU-1", directories=[both[1]]) as is_held:
        assert is_held
        everywhere = DeviceLock("GPU-1", directories=both)
        assert not everywhere.acquire()
        with DeviceLock("GPU-1", directories=[both[0]]) as is_free_again:
            assert is_free_again


def test_other_users_can_use_folder_and_file_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    before = os.umask(0o077)
    try:
        with DeviceLock("GPU-1", directories=[folder]):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
            assert stat.S_IMODE(the_file(folder).stat().st_mode) == 0o666
    finally:
        os.umask(before)


def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    lock = DeviceLock("GPU-1", directories=[tmp_path])
    lock.acquire()
    assert not any(os.get_inheritable(descriptor) for descriptor in lock._held)
    lock.release()


def plant(folder: Path) -> Path:
    """The path of the lock file of GPU-1, with nothing there."""
    DeviceLock("GPU-1", directories=[folder]).__enter__()
    path = the_file(folder)
    path.unlink()
    return path


def test_a_symlink_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    folder = tmp_path / "locks"
    plant(folder).symlink_to(victim)
    with pytest.raises(ConfigError, match="plain files"):
        DeviceLock("GPU-1", directories=[folder]).acquire()
    assert victim.read_text() == "precious"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


def test_a_dangling_symlink_makes_no_file_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    plant(folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        DeviceLock("GPU-1", directories=[folder]).acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_a_hard_link_to_a_foreign_file_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    folder = tmp_path / "locks"
    plant(folder).hardlink_to(victim)
    with pytest.raises(ConfigError):
        DeviceLock("GPU-1", directories=[folder]).acquire()
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


def test_a_pipe_in_place_of_the_file_does_not_hang(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    os.mkfifo(plant(folder))
    with pytest.raises(ConfigError):
        DeviceLock("GPU-1", directories=[folder]).acquire()


def test_a_symlink_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "locks").symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError):
        DeviceLock("GPU-1", directories=[tmp_path / "locks"]).acquire()
    assert not list((tmp_path / "target").iterdir())


def test_a_folder_in_which_anyone_can_swap_files_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError):
        DeviceLock("GPU-1", directories=[folder]).acquire()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_a_closed_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12345, 12345)
    with pytest.raises(ConfigError):
        DeviceLock("GPU-1", directories=[folder]).acquire()


def test_a_refused_folder_does_not_stop_the_next(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("a file")
    with DeviceLock("GPU-1", directories=[tmp_path / "bad", tmp_path / "good"]) as is_held:
        assert is_held


def test_a_file_removed_by_another_is_made_again(tmp_path: Path) -> None:
    with DeviceLock("GPU-1", directories=[tmp_path]) as is_held:
        assert is_held
        the_file(tmp_path).unlink()
    with DeviceLock("GPU-1", directories=[tmp_path]) as is_held:
        assert is_held


def test_a_file_replaced_between_opening_and_locking_is_not_the_lock(tmp_path: Path) -> None:
    path = plant(tmp_path)
    path.touch()
    folder = os.open(tmp_path, os.O_RDONLY)
    descriptor = os.open(path, os.O_RDWR)
    try:
        assert _is_still_there(folder, path.name, descriptor)
        path.rename(tmp_path / "aside")
        assert not _is_still_there(folder, path.name, descriptor)
        path.touch()
        assert not _is_still_there(folder, path.name, descriptor)
    finally:
        os.close(descriptor)
        os.close(folder)


@pytest.mark.parametrize("identity", ["../../etc/passwd", "a/b", "", "x" * 500, "\udcff é"])
def test_any_identity_gives_a_file_within_the_folder(identity: str, tmp_path: Path) -> None:
    with DeviceLock(identity, directories=[tmp_path]) as is_held:
        assert is_held
        assert the_file(tmp_path).is_file()


def test_identities_that_look_alike_do_not_share_a_lock(tmp_path: Path) -> None:
    with (
        DeviceLock("board/socket0", directories=[tmp_path]) as first,
        DeviceLock("board-socket0", directories=[tmp_path]) as second,
    ):
        assert first
        assert second


def test_the_default_folders_can_be_used() -> None:
    assert len(lock_directories()) == 2
    with DeviceLock(f"test-{os.getpid()}") as is_held:
        assert is_held
    for folder in lock_directories():
        for path in folder.glob(f"test-{os.getpid()}-*.lock"):
            path.unlink()
