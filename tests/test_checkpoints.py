"""The file of a checkpoint: what is in it, and how damaged and foreign ones are refused."""

import contextlib
import json

import numpy as np
import pytest
from checkpoint_runs import EVOLUTION, start

from evoem import checkpoints, em
from evoem.runtime import archives
from evoem.runtime.atomic_files import FileError


def test_rows_are_found_by_their_global_numbers(tmp_path, monkeypatch):
    """Any process can take its own rows from a checkpoint, in any order and from any blocks."""
    monkeypatch.setattr(checkpoints, "ROWS_PER_BLOCK", 7)
    model, data, state = start("binary", False)
    state, _ = em.run(model, data, state, EVOLUTION, max_iter=2, checkpoint=tmp_path / "run")
    saved = checkpoints.read(tmp_path / "run")
    mine = np.random.default_rng(0).permutation(len(data))[: len(data) // 2]
    part = data.numbered(data.numbers).take(mine)
    np.testing.assert_array_equal(saved.state(model, part, state.params).states, state.states[mine])
    strange = part.numbered(part.rows + np.uint64(10**6))
    with pytest.raises(FileError, match=f"holds 0 of {len(mine)} rows"):
        saved.state(model, strange, state.params)


def test_the_fingerprint_adds_over_rows_and_knows_their_content_mask_and_place():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    observed = rng.random(X.shape) < 0.7
    numbers = np.arange(20, dtype=np.uint64)

    def total(*parts):
        words = [int(part.split()[0], 16) for part in parts]
        return sum(words) % 2**64

    whole = checkpoints.fingerprint(X, observed, numbers)
    parts = [
        checkpoints.fingerprint(X[some], observed[some], numbers[some])
        for some in (slice(0, 6), slice(6, 20))
    ]
    assert total(whole) == total(*parts)
    changed = X.copy()
    changed[4, 1] += 1e-12
    fewer = observed.copy()
    fewer[np.argwhere(observed)[0][0], np.argwhere(observed)[0][1]] = False
    others = {
        checkpoints.fingerprint(changed, None),
        checkpoints.fingerprint(X, None),
        checkpoints.fingerprint(X[::-1].copy(), None),
        checkpoints.fingerprint(X.astype(np.float32), None),
        checkpoints.fingerprint(X, fewer, numbers),
        whole,
    }
    assert len(others) == 6


@pytest.fixture
def checkpoint(tmp_path):
    model, data, state = start("binary", False)
    em.run(model, data, state, EVOLUTION, max_iter=2, n_parts=2, checkpoint=tmp_path / "run")
    return tmp_path / "run"


def resume(path):
    model, data, state = start("binary", False)
    em.run(model, data, state, EVOLUTION, max_iter=3, n_parts=2, checkpoint=path, resume=True)


def test_a_truncated_file_is_refused_in_one_sentence(checkpoint):
    whole = checkpoint.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40).astype(int):
        checkpoint.write_bytes(whole[:length])
        with pytest.raises(FileError) as caught:
            resume(checkpoint)
        assert "\n" not in str(caught.value)
        assert checkpoint.read_bytes() == whole[:length]


def test_a_flipped_bit_is_refused_or_changes_nothing(checkpoint):
    whole = checkpoint.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(whole), 200):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        checkpoint.write_bytes(damaged)
        with contextlib.suppress(FileError):
            resume(checkpoint)
            continue
        refused += 1
    assert refused > 150  # what is left are dates and flags that nobody reads


def test_a_newer_and_a_foreign_file_are_refused(checkpoint):
    header, arrays = archives.read(checkpoint)
    archives.write(checkpoint, header | {"version": 2}, arrays)
    with pytest.raises(FileError, match="must be a checkpoint of version 1; got 2"):
        resume(checkpoint)
    archives.write(checkpoint, {"format": "another"}, arrays)
    with pytest.raises(FileError, match="got a file of another kind"):
        resume(checkpoint)


def test_a_checkpoint_holds_little_beside_the_states(checkpoint):
    header, arrays = archives.read(checkpoint)
    assert json.loads(json.dumps(header)) == header
    _, _, state = start("binary", False)
    rows = sum(array.nbytes for name, array in arrays.items() if name.startswith("states."))
    assert rows == state.states.nbytes


def test_where_writing_takes_long_it_is_rare(tmp_path):
    """Never more than a fiftieth of the time, unless every iteration is to be kept."""
    for every, due in ((1e-9, False), (0.0, True)):
        kept = checkpoints.Checkpoint(tmp_path / f"{every}", every, False, {"seed": 0}, "")
        assert kept.is_due()
        kept.save("learning", None, [])
        assert kept.is_due() == due
