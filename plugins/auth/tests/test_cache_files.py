"""Files of the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from operad_auth.http.cache_files import cache_folder, read_private, recall, remember, write_private


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_private(str(tmp_path / "file" / "below"), b"x")
    assert read_private(str(tmp_path / "file" / "below")) is None


def test_many_who_write_one_file_at_once_leave_one_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    code = "import sys; from operad_auth.http.cache_files import write_private as w; [w(sys.argv[1], sys.argv[2].encode() * 9999) for _ in range(200)]"
    writers = [subprocess.Popen([sys.executable, "-c", code, path, letter]) for letter in "ab"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        content = read_private(path)
        seen.add(None if content is None else (len(content), len(set(content))))
    assert [writer.wait() for writer in writers] == [0, 0]
    assert seen <= {None, (9999, 1)}
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_waits_under_the_name_of_the_new_one_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    os.link(tmp_path / "precious", tmp_path / f"file.{os.getpid()}")
    write_private(str(tmp_path / "file"), b"x")
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
def test_a_pipe_in_the_place_of_a_file_is_ignored_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    code = "import sys; from operad_auth.http.cache_files import read_private as r; assert r(sys.argv[1]) is None"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=True, timeout=60)


def test_a_user_without_a_home_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it answers without HOME and a known user
    write_private(f"{cache_folder()}/file", b"x")
    assert read_private(f"{cache_folder()}/file") is None
    assert os.listdir(tmp_path) == []


def test_what_is_remembered_is_bounded_and_the_latest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember("other", "slot", 1, "kept")
    for number in range(300):
        remember("kind", ["slot", number], number, {"n": number})
    assert len(list((tmp_path / "operad").glob("kind-*"))) == 256
    assert recall("kind", ["slot", 299], 299) == {"n": 299}
    assert recall("kind", ["slot", 299], 298) is None
    assert recall("kind", ["slot", 0], 0) is None
    assert recall("other", "slot", 1) == "kept"


def test_a_link_is_not_followed_by_who_reads_a_private_file(tmp_path: Path) -> None:
    write_private(str(tmp_path / "own"), b"x")
    os.symlink(tmp_path / "own", tmp_path / "link")
    assert read_private(str(tmp_path / "own")) == b"x"
    assert read_private(str(tmp_path / "link")) is None
