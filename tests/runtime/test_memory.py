"""Limits of containers, in folders like those that the system shows."""

import pytest

from evoem.runtime import memory

MACHINE = 24 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: MACHINE)


def available(tmp_path, membership, limits):
    """What is available with these limits, by file."""
    for path, limit in limits.items():
        file = tmp_path / "groups" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    (tmp_path / "membership").write_text(membership)
    return memory.available_memory(tmp_path / "groups", tmp_path / "membership")


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/\n", {"memory.max": 4 << 30}, 4 << 30),
        ("0::/\n", {"memory.max": "max"}, MACHINE),
        ("0::/\n", {"memory.max": 1 << 50}, MACHINE),
        ("0::/\n", {"memory.max": "nonsense"}, MACHINE),
        ("0::/job/step\n", {"job/step/memory.max": "max", "job/memory.max": 2 << 30}, 2 << 30),
        ("0::/job/step\n", {"job/step/memory.max": 1 << 30, "job/memory.max": 2 << 30}, 1 << 30),
        ("0::/outside/of/it\n", {"memory.max": 3 << 30}, 3 << 30),
        ("4:memory:/\n0::/\n", {"memory/memory.limit_in_bytes": 5 << 30}, 5 << 30),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": 9223372036854771712}, MACHINE),
        ("7:cpu,memory:/a\n", {"memory/a/memory.limit_in_bytes": 6 << 30}, 6 << 30),
        ("3:cpu:/a\n", {"memory/a/memory.limit_in_bytes": 6 << 30}, MACHINE),
        ("", {}, MACHINE),
        ("nonsense", {}, MACHINE),
    ],
)
def test_the_least_limit_counts(tmp_path, membership, limits, expected):
    assert available(tmp_path, membership, limits) == expected


def test_without_control_groups_the_machine_counts(tmp_path):
    assert memory.available_memory(tmp_path / "none", tmp_path / "none") == MACHINE
    (tmp_path / "membership").write_bytes(b"\xff\xfe")
    assert memory.available_memory(tmp_path, tmp_path / "membership") == MACHINE
