"""Small experiments, each of which is run once for all tests that look at it."""

import csv
import functools

import pytest
from small_experiments import Ran, kind_of, smaller

from evoem.reproduction.run import reproduce


@pytest.fixture(scope="session")
def ran(tmp_path_factory):
    """What came of an experiment, run when it is first asked for."""

    @functools.cache
    def run(name):
        folder = tmp_path_factory.mktemp(name)
        done = reproduce(smaller(name), kind_of(name), folder)
        with (folder / "table.csv").open(newline="") as file:
            return Ran(folder, done, list(csv.DictReader(file)))

    return run
