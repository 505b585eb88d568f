from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from run_folders import cut_gzip

from workbench import files
from workbench.errors import LogError, Problem
from workbench.files import CHUNK_BYTES, read_chunks, replacing

# Text that gzip cannot make tiny, so that half of a file is some of the text.
TEXT = b"".join(b"line %d, %d\n" % (n, n * 7919 % 10007) for n in range(50_000))


def read(path: Path, problems: list[Problem] | None = None) -> bytes:
    return b"".join(read_chunks(path, problems))


def as_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))  # type: ignore[type-var]


def file(folder: Path, data: bytes) -> Path:
    path = folder / "server.log"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("data", [b"", b"\x1f", TEXT, bytes(range(256))])
def test_plain_and_packed_files_read_alike(tmp_path: Path, data: bytes) -> None:
    assert read(file(tmp_path, data)) == data
    assert read(file(tmp_path, gzip.compress(data))) == data
    # Two gzip files one after the other, as rotated logs are joined.
    assert read(file(tmp_path, gzip.compress(data) + gzip.compress(b"end", mtime=0))) == data + b"end"


def test_a_small_file_that_unpacks_to_a_large_one_comes_in_bounded_pieces(tmp_path: Path) -> None:
    packed = file(tmp_path, gzip.compress(bytes(64 << 20)))
    assert packed.stat().st_size < 100_000
    sizes = [len(chunk) for chunk in read_chunks(packed)]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= CHUNK_BYTES


def test_of_a_cut_gzip_the_beginning_is_read_and_the_cut_is_said(tmp_path: Path) -> None:
    path, problems = file(tmp_path, cut_gzip(TEXT)), []
    begin = read(path, problems)
    assert 1000 < len(begin) < len(TEXT)
    assert TEXT.startswith(begin)
    assert problems == [
        Problem(str(path), f"the gzip file is cut off: only the first {len(begin):,} bytes of its text are used")
    ]


def test_of_a_damaged_gzip_likewise(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-8] ^= 0xFF  # the checksum
    path, problems = file(tmp_path, bytes(packed)), []
    assert read(path, problems) == TEXT
    assert problems[0].what.startswith("the gzip file is damaged (CRC check failed")


@pytest.mark.parametrize("data", [gzip.compress(TEXT, mtime=0)[:12], b"\x1f\x8b\x08nothing like it", b"\x1f\x8b"])
def test_a_gzip_without_anything_to_read_is_an_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(LogError, match="gzip file is") as caught:
        read(file(tmp_path, data), [])
    assert (caught.value.where, caught.value.next_step) == (str(tmp_path / "server.log"), "copy the file again")


def test_without_a_place_for_problems_a_cut_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cut off"):
        read(file(tmp_path, cut_gzip(TEXT)))


def test_absent_files_and_folders_are_named(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.log", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(LogError, match=reason) as caught:
            read(path, [])
        assert caught.value.where == str(path)
        assert caught.value.next_step


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(LogError, match="Permission denied"):
        read(tmp_path / "a.log", [])


def test_a_disk_that_fails_half_way_keeps_the_first_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.BytesIO):
        def peek(self, size: int) -> bytes:
            return b"te"

        def read1(self, size: int | None = -1) -> bytes:
            if self.tell() == 4:
                raise OSError(5, "Input/output error")
            return super().read1(2)

    monkeypatch.setattr(Path, "open", lambda self, mode: Failing(b"text and more"))
    problems: list[Problem] = []
    assert read(tmp_path / "a.log", problems) == b"text"
    assert "Input/output error" in problems[0].what


def test_standard_input_is_read_packed_or_not_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (TEXT, gzip.compress(TEXT)):
        as_stdin(monkeypatch, data)
        assert b"".join(read_chunks("-")) == TEXT
        assert not sys.stdin.closed
        assert b"".join(read_chunks("-")) == b""


def test_faults_of_standard_input_have_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    as_stdin(monkeypatch, gzip.compress(TEXT)[:12])
    with pytest.raises(LogError, match="standard input: the gzip file is cut off"):
        list(read_chunks("-", []))
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(LogError, match="standard input is closed"):
        list(read_chunks("-", []))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a.txt"
    with replacing(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "first"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_of_a_link_the_target_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "disk" / "real.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    for text in ("made", "made anew"):
        with replacing(link) as temporary:
            assert temporary.parent == target.parent
            temporary.write_text(text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert [p.name for p in target.parent.iterdir()] == ["real.txt"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path, linked: bool) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with replacing(link if linked else pipe) as temporary:
        temporary.write_text("through")
    assert pipe.is_fifo()
    reader.join(10)
    assert got == [b"through"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe"]


def test_into_a_pipe_nothing_goes_when_the_block_fails(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    # Nobody reads the pipe: to open it for writing would wait for ever.
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "pipe"):
        raise ZeroDivisionError
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), replacing(tmp_path) as temporary:
        temporary.write_text("x")
    assert list(tmp_path.iterdir()) == []


# --- what killed writers leave -----------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from workbench.files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print(flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def write(path: Path) -> None:
    files._swept.clear()  # as in a new process
    with replacing(path) as temporary:
        temporary.write_text("whole")


def grow_old(path: Path) -> None:
    os.utime(path, (time.time() - 7200, time.time() - 7200))


def test_temporary_files_of_killed_processes_go_when_they_are_old(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, "-c", KILLED, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        assert writer.stdout.readline() == "\n"
        (left,) = tmp_path.glob(".writing-*")
        grow_old(left)
        write(out)
        assert left.exists(), "its writer lives, however long it takes"
        writer.stdin.close()
        assert writer.wait(timeout=20) == -9
    assert left.read_text() == "half"
    os.utime(left)
    write(out)
    assert left.exists(), "it may be so new that it is not locked yet"
    grow_old(left)
    write(out)
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_nothing_else_is_swept(tmp_path: Path) -> None:
    other = tmp_path / "other" / "file"
    other.parent.mkdir()
    other.write_text("kept")
    (tmp_path / "a" / ".writing-folder").mkdir(parents=True)
    (tmp_path / "a" / ".writing-link.tmp").symlink_to(other)
    (tmp_path / "a" / "writing-mine.tmp").write_text("kept")
    for path in (other, *(tmp_path / "a").iterdir()):
        grow_old(path)
    write(tmp_path / "a" / "out.json")
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {".writing-folder", ".writing-link.tmp", "writing-mine.tmp", "out.json"}
    assert other.read_text() == "kept"


def test_where_there_are_no_locks_writing_goes_on_and_nothing_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    (tmp_path / ".writing-x.tmp").write_text("half")
    grow_old(tmp_path / ".writing-x.tmp")
    write(tmp_path / "out.json")
    assert (tmp_path / "out.json").read_text() == "whole" and (tmp_path / ".writing-x.tmp").exists()
