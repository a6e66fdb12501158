"""Runs that are kept: resumed ones have the bits of those that were never stopped."""

import itertools
import os
import signal

import numpy as np
import pytest
from checkpoint_runs import EVOLUTION, start
from problems import BY_FEATURE, MODELS, make_model

from evoem import checkpoints, em
from evoem.evolution import OPERATORS
from evoem.runtime.atomic_files import FileError


def leaves(tree):
    if isinstance(tree, np.ndarray):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    if isinstance(tree, list | tuple) or (hasattr(tree, "__iter__") and not isinstance(tree, str)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [np.asarray(tree)] if tree is not None else []


def assert_same_state(one, other):
    assert type(one.params) is type(other.params)
    assert one.iteration == other.iteration
    assert one.current == other.current
    fields = ("params", "states", "statistics") + (("log_joints",) if one.current else ())
    for field in fields:
        mine, its = leaves(getattr(one, field)), leaves(getattr(other, field))
        assert len(mine) == len(its) > 0 or field == "statistics"
        for first, second in zip(mine, its, strict=True):
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize(
    ("name", "missing"),
    [*itertools.product(MODELS, (False, True)), *((name, True) for name in BY_FEATURE)],
)
def test_a_resumed_run_has_the_bits_of_one_never_stopped(name, missing, n_parts, tmp_path):
    def run(max_iter, **more):
        model, data, state = start(name, missing)
        return em.run(model, data, state, EVOLUTION, max_iter=max_iter, n_parts=n_parts, **more)

    whole, infos = run(6)
    path = tmp_path / "run"
    run(2, checkpoint=path)
    for stop in (3, 6):
        resumed, again = run(stop, checkpoint=path, resume=True)
    assert_same_state(whole, resumed)
    assert [info.free_energy for info in infos] == [info.free_energy for info in again]
    assert [info.states_replaced for info in infos] == [info.states_replaced for info in again]


def test_a_finished_run_is_not_run_again(tmp_path):
    model, data, state = start("binary", False)
    options = {"max_iter": 300, "convergence": em.Convergence(1e-3), "checkpoint": tmp_path / "run"}
    _, infos = em.run(model, data, state, EVOLUTION, **options)
    assert len(infos) < 300
    afresh = start("binary", False)[2]
    called = []
    _, again = em.run(
        model, data, afresh, EVOLUTION, **options, resume=True, callback=called.append
    )
    assert again == infos
    assert called == []


def test_it_is_written_as_often_as_is_asked_for(tmp_path):
    path, written = tmp_path / "run", []

    def look(info):
        written.append(len(checkpoints.read(path).infos) if path.exists() else 0)

    model, data, state = start("binary", False)
    em.run(model, data, state, EVOLUTION, max_iter=3, callback=look, checkpoint=path, every=0.0)
    assert written == [1, 2, 3]
    path.unlink()
    written.clear()
    em.run(model, data, start("binary", False)[2], EVOLUTION, max_iter=3, callback=look,
           checkpoint=path, every=1e6)  # fmt: skip
    assert written == [0, 0, 0]
    assert len(checkpoints.read(path).infos) == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"evolution": em.Evolution(4, 2)}, "n_parents must be 3 to resume"),
        ({"n_parts": 2}, "n_parts must be 1 to resume"),
        ({"n_states": 4}, "n_states must be 5 to resume"),
        ({"seed": 4}, "seed must be 3 to resume"),
        ({"name": "noisy_or"}, "model must be 'BinarySparseCodingModel' to resume"),
        ({"missing": True}, "data must be those that .* was written for"),
        ({"max_iter": 1}, "max_iter must be"),
    ],
)
def test_another_run_is_refused_by_the_difference(change, sentence, tmp_path):
    model, data, state = start("binary", False)
    em.run(model, data, state, EVOLUTION, max_iter=2, checkpoint=tmp_path / "run")
    before = (tmp_path / "run").read_bytes()
    given = {"evolution": EVOLUTION, "n_parts": 1, "max_iter": 3} | change
    problem = {"name": "binary", "missing": False, "n_states": 5, "seed": 3}
    problem = {name: given.pop(name, value) for name, value in problem.items()}
    model, data, state = start(**problem)
    with pytest.raises(ValueError, match=sentence):
        em.run(model, data, state, given.pop("evolution"), **given, checkpoint=tmp_path / "run",
               resume=True)  # fmt: skip
    assert (tmp_path / "run").read_bytes() == before


def test_an_existing_file_is_not_replaced_unless_resumed(tmp_path):
    path = tmp_path / "thesis.tex"
    path.write_text("all of it")
    model, data, state = start("binary", False)
    with pytest.raises(FileError, match="must not exist yet unless resume is given"):
        em.run(model, data, state, EVOLUTION, checkpoint=path)
    with pytest.raises(FileError, match="must be a whole file that evoem wrote"):
        em.run(model, data, state, EVOLUTION, checkpoint=path, resume=True)
    assert path.read_text() == "all of it"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("a" * 300, "must be a place that can be written to; got "),
     ("nowhere/run", "must be in an existing folder; found no "),
     ("folder", "must be a file; got a folder"),
     ("pipe", "must be a file; got a pipe, a device or the like"),
     ("a\0b", "must be the path of a file; got an embedded null ")],
)  # fmt: skip
def test_a_checkpoint_that_cannot_be_written_is_refused_at_once(name, sentence, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    model, data, state = start("binary", False)
    with pytest.raises(FileError, match=sentence):
        em.run(model, data, state, EVOLUTION, checkpoint=tmp_path / name, resume=True)


def test_there_is_nothing_to_resume_without_a_checkpoint():
    model, data, state = start("binary", False)
    with pytest.raises(ValueError, match=r"^checkpoint must be given with resume; got none\.$"):
        em.run(model, data, state, EVOLUTION, resume=True)


def test_a_full_disk_ends_no_run_and_the_last_good_checkpoint_stays(tmp_path, monkeypatch, caplog):
    path = tmp_path / "run"
    model, data, state = start("binary", False)
    written = {}

    def fill_the_disk(info):
        if info.iteration == 2:
            written["last"] = path.read_bytes()
            monkeypatch.setattr("os.fsync", refuse)

    def refuse(_):
        raise OSError(28, "No space left on device")

    _, infos = em.run(model, data, state, EVOLUTION, max_iter=4, checkpoint=path, every=0.0,
                      callback=fill_the_disk)  # fmt: skip
    assert len(infos) == 4
    assert path.read_bytes() == written["last"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    assert len([one for one in caplog.records if "No space left" in one.message]) == 1


def test_model_options_take_part_in_the_comparison(tmp_path):
    model, data, state = start("noisy_or", False)
    em.run(model, data, state, EVOLUTION, max_iter=1, checkpoint=tmp_path / "run")
    other = make_model("noisy_or", min_activation_prob=0.01)
    with pytest.raises(FileError, match="min_activation_prob must be 1e-08 to resume"):
        em.run(other, data, state, EVOLUTION, checkpoint=tmp_path / "run", resume=True)


def test_an_interrupt_waits_for_the_end_of_the_iteration_and_is_kept(tmp_path, monkeypatch):
    flip, calls = OPERATORS["mutation"]["uniform"], []

    def interrupted(*arguments):
        calls.append(0)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return flip(*arguments)

    def run(mutation="interrupted", **more):
        model, data, state = start("binary", False)
        evolution = EVOLUTION._replace(mutation=mutation)
        return em.run(model, data, state, evolution, max_iter=5, **more)

    whole, _ = run("uniform")
    monkeypatch.setitem(OPERATORS["mutation"], "interrupted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=tmp_path / "run", every=1e6)
    assert 0 < len(checkpoints.read(tmp_path / "run").infos) < 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert_same_state(whole, run(checkpoint=tmp_path / "run", resume=True)[0])
