"""Helpers become a part of the kernels that they are for, and mean in them what Python means."""

import numpy as np
import pytest

from evoem.runtime.compile import inlined, inlined_in_order, kernel, part_of_kernel, unrolled

TABLE = np.array([2.0, 3.0, 5.0, 7.0])


@inlined
def quotient(x, y):
    return x / y


@inlined_in_order
def prefix_sums(values, out):
    total = 0.0
    for i in range(len(values)):
        total += quotient(values[i], TABLE[i % 4])
        out[i] = total
    return total, len(values)


@unrolled
def product(k, values):
    total = 1.0
    for i in range(k):
        total *= values[i]
    return total


@kernel
def everything(values, out):
    total, n = prefix_sums(values, out)
    return total + product(n, True, values)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])  # a helper is compiled for each
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 9])
def test_a_kernel_of_helpers_computes_what_python_does(n, dtype):
    values = np.random.default_rng(n).uniform(0.5, 2, n).astype(dtype)
    out = np.zeros(n)
    shares = [float(value) / TABLE[i % 4] for i, value in enumerate(values)]
    expected = sum(shares) + np.prod(values, dtype=np.float64)
    assert everything(values, out) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(out, np.cumsum(shares), rtol=1e-12)


def test_options_of_kernels_hold_in_helpers_too():
    @kernel
    def divide(x, y):
        return quotient(x, y)

    assert divide(1.0, 0.0) == np.inf  # no exception, as in NumPy
    assert np.isnan(divide(0.0, 0.0))


def test_no_function_of_a_helper_is_left_in_the_machine_code():
    everything(np.ones(3), np.zeros(3))
    code = "\n".join(everything.inspect_asm().values())
    lines = [line for line in code.splitlines() if "NumbaEnv" not in line]  # data, of each function
    assert any("everything" in line for line in lines)
    for name in ("quotient", "prefix_sums", "product", "by_size"):
        assert not any(name in line for line in lines)


@part_of_kernel
def reversed_copy(values):
    copy = np.empty(len(values), values.dtype)
    for i in range(len(values)):
        copy[i] = quotient(values[len(values) - 1 - i], TABLE[0])
    return copy


@kernel
def reversed_often(values, n, out):
    for _ in range(n):
        out[:] = reversed_copy(values)


def test_a_part_of_a_kernel_may_make_arrays_and_they_are_freed():
    resource = pytest.importorskip("resource")
    values = np.arange(1_000_000.0)
    out = np.empty_like(values)
    reversed_often(values, 1, out)
    np.testing.assert_array_equal(out, values[::-1] / 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reversed_often(values, 100, out)  # 800 megabytes, if they were not
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
