"""Docstrings explain every parameter and learnt attribute, and have examples."""

import ast
import inspect
import re

import numpy as np
import pandas as pd
import pytest

import evoem
from evoem import TVAE, BinarySparseCoding, BlackBox, NoisyOr, SpikeSlabCoding, SubspaceCoding

ESTIMATORS = (NoisyOr, BinarySparseCoding, SpikeSlabCoding, SubspaceCoding, BlackBox, TVAE)
ABOUT_IMAGES = {"Restoration", "denoise", "inpaint", "restore"}
SECTIONS = ("Parameters", "Attributes", "Returns", "Examples")


def sections(documented):
    """The lines of each section of a docstring, by its title."""
    text = inspect.getdoc(documented) or ""
    parts = re.split(r"^(\w+)\n-+$", text, flags=re.MULTILINE)
    return {
        title: body.strip("\n").splitlines()
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def entries(documented, title):
    """What a section says of each name: its type, and lines that describe it."""
    found = {}
    for line in sections(documented).get(title, []):
        if line and not line.startswith(" "):
            name, colon, kind = line.partition(" : ")
            assert colon, f"{line!r} in {title} of {documented.__qualname__} is no entry"
            found[name] = [kind]
        elif line:
            found[name].append(line)
    return found


def public_methods(estimator):
    """Methods, by name, that evoem itself gives an estimator."""
    return {
        name: member
        for name, member in inspect.getmembers(estimator, inspect.isfunction)
        if not name.startswith("_") and member.__module__.startswith("evoem.")
    }


METHODS = {
    method.__qualname__: method
    for estimator in ESTIMATORS
    for method in public_methods(estimator).values()
}
PUBLIC = {name: getattr(evoem, name) for name in evoem.__all__ if name not in ABOUT_IMAGES}
PUBLIC = {name: value for name, value in PUBLIC.items() if callable(value)}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_of_the_signature_is_explained_and_no_other(estimator):
    parameters = inspect.signature(estimator).parameters
    explained = entries(estimator, "Parameters")
    assert list(explained) == list(parameters)
    for name, (kind, *lines) in explained.items():
        assert lines, f"{name} is not described"
        _, given, default = kind.partition("default=")
        if parameters[name].default is inspect.Parameter.empty:
            assert not given
        else:
            assert ast.literal_eval(default) == parameters[name].default


def gauss(params, X, states):
    return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)


FITTED = {
    NoisyOr: {"binarize": 0.5},
    BinarySparseCoding: {},
    SpikeSlabCoding: {},
    SubspaceCoding: {},
    BlackBox: {"log_joint": gauss, "params": {"W": np.eye(2, 3)}, "update": False},
    TVAE: {},
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_learnt_attribute_is_explained_and_no_other(estimator):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=["a", "b", "c"])
    options = {"n_latents": 2, "max_iter": 2, "tol": 0, "random_state": 0}
    model = estimator(**options, **FITTED[estimator]).fit(X)
    learnt = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    explained = entries(estimator, "Attributes")
    assert set(explained) == learnt
    assert all(len(lines) > 1 for lines in explained.values())


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_says_what_it_takes_and_returns(method):
    signature = inspect.signature(method)
    taken = entries(method, "Parameters")
    assert list(taken) == list(signature.parameters)[1:]
    returned = entries(method, "Returns")
    assert bool(returned) == (signature.return_annotation is not None)
    assert all(len(lines) > 1 for lines in [*taken.values(), *returned.values()])
    assert ">>> " in "\n".join(sections(method).get("Examples", []))


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_an_example(name):
    value = PUBLIC[name]
    methods = public_methods(value).values() if inspect.isclass(value) else []
    assert any("Examples" in sections(documented) for documented in (value, *methods))


@pytest.mark.parametrize(
    "documented", [*ESTIMATORS, *METHODS.values()], ids=lambda value: value.__qualname__
)
def test_sections_have_titles_that_tools_know(documented):
    assert set(sections(documented)) <= set(SECTIONS)
