"""A user's parameters, of any form, as named arrays and back."""

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evoem.black_box import parameters

Pair = namedtuple("Pair", "left right")
leaf_values = st.one_of(
    st.floats(-5, 5),
    st.integers(-5, 5),
    st.lists(st.floats(-5, 5), min_size=1, max_size=3).map(np.array),
)
names = st.text("abc", min_size=1, max_size=2)
trees = st.recursive(
    leaf_values,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3),
        st.lists(parts, min_size=1, max_size=2).map(tuple),
        st.dictionaries(names, parts, min_size=1, max_size=3),
        st.builds(Pair, parts, parts),
    ),
    max_leaves=6,
)


def same(a, b):
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype


@settings(max_examples=60)
@given(trees)
def test_parameters_of_any_form_come_back_as_they_were(tree):
    values = parameters.flatten(tree)
    assert same(tree, parameters.unflatten(tree, values))
    doubled = parameters.unflatten(tree, {name: 2 * value for name, value in values.items()})
    again = parameters.flatten(doubled)
    assert list(again) == list(values)
    for name, value in values.items():
        np.testing.assert_array_equal(again[name], 2 * value)
        value[...] = 7  # a copy
    assert same(doubled, parameters.unflatten(tree, again))


def test_numba_is_given_named_tuples_and_tuples():
    tree = {"a": [1.0, {"b": np.ones(2)}], "c": Pair(2, 3)}
    built = parameters.rebuild(tree, lambda name: name, for_numba=True)
    assert built.a[0] == "a.0"
    assert built.a[1].b == "a.1.b"
    assert type(built.a) is tuple
    assert built.c == Pair("c.left", "c.right")


def test_a_pytree_that_jax_knows_is_opened():
    @jax.tree_util.register_pytree_with_keys_class
    class Node:
        def __init__(self, weight, inner):
            self.weight, self.inner = weight, inner

        def tree_flatten_with_keys(self):
            key = jax.tree_util.GetAttrKey
            return ((key("weight"), self.weight), (key("inner"), self.inner)), None

        @classmethod
        def tree_unflatten(cls, _, parts):
            return cls(*parts)

    node = Node(jnp.ones(2), {"b": jnp.zeros(())})
    values = parameters.flatten(node)
    assert list(values) == ["weight", "inner.b"]
    again = parameters.unflatten(node, {"weight": np.full(2, 5.0), "inner.b": np.array(6.0)})
    assert isinstance(again, Node)
    np.testing.assert_array_equal(again.weight, [5, 5])
    assert float(again.inner["b"]) == 6
