"""The list of kernels that restorations need."""

import pytest
from kernel_lists import kernels_of, noisy_picture

from evoem.images import canonical_arrays, kernels_ahead
from evoem.images.image_models import IMAGE_MODELS
from evoem.images.kernels_ahead import COMPLETE, INCOMPLETE, KINDS, MOSTLY_MISSING, needed
from evoem.runtime.compile import is_kept
from evoem.runtime.signatures import signature_of


@pytest.mark.parametrize("kind", KINDS)
def test_the_list_has_all_that_a_restoration_needs(kind):
    listed = needed("subspaces", kind)
    assert set(kernels_of("subspaces", kind, listed)) <= set(listed), "run `make kernels`"


def test_every_line_is_a_kernel_that_is_kept():
    for line in kernels_ahead.needed_for_all():
        assert is_kept(*signature_of(line)) is not None, f"{line}: run `make kernels`"


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_of_the_kind_that_its_holes_make_it(kind):
    image = canonical_arrays.read(noisy_picture(kind), None, None, False)
    assert kernels_ahead.kind_of(image) == kind


def test_every_model_has_kernels_for_every_kind():
    for model in IMAGE_MODELS:
        assert all(needed(model, kind) for kind in KINDS)


def test_before_a_picture_is_read_only_what_it_needs_in_any_case_is_wanted():
    both = needed("subspaces", INCOMPLETE, MOSTLY_MISSING)
    assert set(both) == set(needed("subspaces", INCOMPLETE)) & set(
        needed("subspaces", MOSTLY_MISSING)
    )
    assert set(both) < set(kernels_ahead.needed_for_all(["subspaces"]))
    assert set(needed("subspaces", COMPLETE)) < set(kernels_ahead.needed_for_all(["subspaces"]))
    assert len(set(kernels_ahead.needed_for_all())) == len(kernels_ahead.entries())
