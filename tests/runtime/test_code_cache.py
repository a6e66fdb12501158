"""Where compiled code is kept, whose it may be, and what happens if anything is wrong with it."""

import ast
import errno
import os
import shutil
import struct
from pathlib import Path

import pytest

from evoem.runtime import code_cache
from evoem.runtime.code_cache import PACKAGE, CodeCache

try:
    import grp
    import pwd
except ImportError:  # not on this platform
    grp = pwd = None

POSIX = pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners and modes are of POSIX")


def imported_by_syntax_tree(path):
    """Our own files that a file imports from, by Python's own parser."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names if one.name.split(".")[0] == "evoem"]
            found |= {code_cache.source_of(PACKAGE, name) for name in names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            for one in node.names:
                names = (f"{node.module}.{one.name}", node.module)
                files = (code_cache.source_of(PACKAGE, name) for name in names)
                if names[1].split(".")[0] == "evoem":
                    found.add(next(filter(None, files)))
    return found - {None}


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_are_found_as_in_the_syntax_tree(path):
    assert code_cache.imported_sources(PACKAGE, path) == imported_by_syntax_tree(path)


@pytest.fixture
def package_copy(tmp_path):
    return shutil.copytree(
        PACKAGE, tmp_path / "copy" / "evoem", ignore=shutil.ignore_patterns("__pycache__")
    )


def digests(package):
    code_cache.imported_sources.cache_clear()
    return {
        name: code_cache.sources_digest(package / name, package)
        for name in ("streams.py", "posterior.py", "images/nonlocal_bayes.py")
    }


def test_a_copy_of_the_sources_has_the_same_digests(package_copy):
    assert digests(package_copy) == digests(PACKAGE)


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("cli/app.py", set()),
        ("em.py", set()),
        ("estimators/base.py", set()),
        ("images/restore.py", set()),
        ("images/merging.py", {"images/nonlocal_bayes.py"}),
        ("evolution.py", {"posterior.py"}),
        # Through states, and through what states import in turn.
        ("streams.py", {"streams.py", "posterior.py"}),
        ("runtime/compile.py", {"streams.py", "posterior.py", "images/nonlocal_bayes.py"}),
    ],
)
def test_an_edit_changes_the_digests_of_those_that_import_it(edited, changed, package_copy):
    before = digests(package_copy)
    with (package_copy / edited).open("a") as file:
        file.write("EDITED = True\n")
    after = digests(package_copy)
    assert {name for name in after if after[name] != before[name]} == changed


def test_a_folder_that_cannot_be_made_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = code_cache.open_cache(str(tmp_path / "file" / "cache"))
    assert found.folder.parent == tmp_path
    assert found.folder.is_dir()


def refuse_a_temporary_folder():
    raise FileNotFoundError("No usable temporary directory found")


def test_there_is_no_cache_when_no_folder_can_be_made(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.gettempdir", refuse_a_temporary_folder)
    found = code_cache.open_cache(str(tmp_path / "file" / "cache"))
    assert found.folder is None
    assert [one.message for one in caplog.records] == [
        "Problem with the cache of compiled code: no folder can be written to."
    ]
    found.save("name", b"content")
    assert found.load("name") is None


def refuse_a_home_folder():
    raise RuntimeError("Could not determine home directory.")


def test_a_user_without_a_home_folder_has_a_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(Path, "home", refuse_a_home_folder)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert code_cache.open_cache().folder.parent == tmp_path


def test_what_is_kept_is_found_again(tmp_path):
    CodeCache(tmp_path).save("folder/name", b"content")
    assert CodeCache(tmp_path).load("folder/name") == b"content"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["name"]
    assert CodeCache(tmp_path).load("folder/other") is None


def test_a_full_disk_is_told_once_and_leaves_nothing_behind(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    cache = CodeCache(tmp_path)
    cache.save("one", b"content")
    cache.save("two", b"content")
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_folders_are_made_for_this_user_alone(tmp_path):
    code_cache.make_private(tmp_path / "one" / "two")
    for folder in (tmp_path / "one", tmp_path / "one" / "two"):
        assert folder.stat().st_mode & 0o777 == 0o700


@POSIX
@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
@pytest.mark.parametrize("above", [False, True])
def test_a_folder_others_may_write_to_is_refused(variable, above, tmp_path, monkeypatch, caplog):
    base = tmp_path / "base"
    folder = {"NUMBA_CACHE_DIR": base, "XDG_CACHE_HOME": base / "evoem"}.get(
        variable, base / ".cache" / "evoem"
    )
    folder.mkdir(parents=True)
    open_to_all = tmp_path if above else folder
    open_to_all.chmod(0o777)
    (tmp_path / "temporary").mkdir(mode=0o700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if variable != "NUMBA_CACHE_DIR":
        monkeypatch.setenv(variable, str(base))
    found = code_cache.open_cache(str(base) if variable == "NUMBA_CACHE_DIR" else "")
    assert found.folder != folder
    assert len(caplog.records) == 1
    assert f"{folder} is refused, since others may write to {open_to_all}" in caplog.text


@POSIX
@pytest.mark.parametrize(
    ("mode", "allowed"), [(0o755, True), (0o757, False), (0o777, False), (0o1777, True)]
)
def test_a_folder_above_counts_too(mode, allowed, tmp_path):
    (tmp_path / "above" / "own").mkdir(parents=True)
    (tmp_path / "above").chmod(mode)
    assert (code_cache.weak_spot(tmp_path / "above" / "own") is None) is allowed


def user(name, uid, gid):
    return pwd.struct_passwd((name, "x", uid, gid, "", "", ""))


@pytest.fixture
def users(monkeypatch):
    """This user is called me, in a group as given; others are known."""

    def have(group, members=(), others=()):
        everybody = [user("me", os.getuid(), 5), user("root", 0, 0), *others]
        known = {one.pw_name: one for one in everybody}
        monkeypatch.setattr(
            "grp.getgrgid", lambda gid: grp.struct_group((group, "x", gid, members))
        )
        monkeypatch.setattr("pwd.getpwuid", {one.pw_uid: one for one in reversed(everybody)}.get)
        monkeypatch.setattr("pwd.getpwnam", known.__getitem__)
        monkeypatch.setattr("pwd.getpwall", lambda: everybody)

    return have


@POSIX
@pytest.mark.parametrize(
    ("group", "members", "primary", "allowed"),
    [
        ("me", [], False, True),
        ("me", ["me"], False, True),
        ("me", ["me", "you"], False, False),
        ("me", ["gone"], False, False),
        ("me", [], True, False),
        ("staff", [], False, False),
    ],
)
def test_the_group_of_this_user_alone_may_write(
    group, members, primary, allowed, users, tmp_path, monkeypatch
):
    (tmp_path / "above" / "own").mkdir(parents=True)
    CodeCache(tmp_path / "above" / "own").save("name", b"content")
    for path in ("above", "above/own", "above/own/name"):
        (tmp_path / path).chmod(0o775)
    gid = (tmp_path / "above").stat().st_gid
    users(group, members, [user("you", 4321, gid if primary else 100)])
    found = code_cache.weak_spot(tmp_path / "above" / "own")
    assert found == (None if allowed else f"others may write to {tmp_path / 'above'}")
    loaded = CodeCache(tmp_path / "above" / "own").load("name")
    assert loaded == (b"content" if allowed else None)


@POSIX
@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="access lists are of Linux")
def test_an_access_list_may_let_others_write(users, tmp_path):
    users("me")
    (tmp_path / "own").mkdir()
    (tmp_path / "own").chmod(0o775)
    assert code_cache.weak_spot(tmp_path / "own") is None
    everybody = 0xFFFFFFFF
    entries = [
        (1, 7, everybody),
        (2, 7, 4321),
        (4, 5, everybody),
        (16, 7, everybody),
        (32, 5, everybody),
    ]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(tmp_path / "own", "system.posix_acl_access", packed)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    assert code_cache.weak_spot(tmp_path / "own") == f"others may write to {tmp_path / 'own'}"


@POSIX
def test_a_sticky_folder_is_none_to_keep_code_in(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own").chmod(0o1777)
    assert code_cache.weak_spot(tmp_path / "own") == f"others may write to {tmp_path / 'own'}"


@POSIX
@pytest.mark.parametrize("absolute", [False, True])
def test_what_a_link_leads_through_counts_too(absolute, tmp_path):
    (tmp_path / "weak" / "own").mkdir(parents=True)
    start = tmp_path if absolute else Path("..") / tmp_path.name
    (tmp_path / "link").symlink_to(start / "weak" / "own")
    assert code_cache.weak_spot(tmp_path / "link") is None
    (tmp_path / "weak").chmod(0o777)
    assert code_cache.weak_spot(tmp_path / "link") == f"others may write to {tmp_path / 'weak'}"


@POSIX
def test_a_link_to_itself_is_no_folder(tmp_path):
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(OSError, match=r"link"):
        code_cache.weak_spot(tmp_path / "link")


@POSIX
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives away")
def test_what_belongs_to_another_user_is_refused(tmp_path, caplog):
    (tmp_path / "folder").mkdir()
    CodeCache(tmp_path / "folder").save("name", b"content")
    os.chown(tmp_path / "folder" / "name", 12345, -1)
    assert CodeCache(tmp_path / "folder").load("name") is None
    assert "may be written by others" in caplog.text
    os.chown(tmp_path / "folder", 12345, -1)
    reason = f"{tmp_path / 'folder'} belongs to another user"
    assert code_cache.weak_spot(tmp_path / "folder") == reason
