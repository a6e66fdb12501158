"""Arrays of layers as planes that one model learns from."""

import numpy as np
import pytest
from sample_images import COLOURS, GREY, MASK, STACK, TINY

from evoem import denoise, restore
from evoem.napari_plugin.planes import Wish, noise_report, planes_of, run, uncertainty


def told(planes, **options):
    return list(run(planes, TINY | options, Wish()))


def test_a_plane_is_restored_with_previews_on_the_way():
    planes = planes_of(GREY, False)
    news = told(planes)
    expected = restore(GREY, **TINY)
    np.testing.assert_array_equal(news[-1].values, expected.image)
    np.testing.assert_array_equal(
        uncertainty(planes, news[-1].results), expected.std.astype(np.float32)
    )
    previews = [each for each in news[:-1] if each.values is not None]
    assert previews
    assert all(each.values.shape == GREY.shape for each in previews)
    shares = [each.share for each in news]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_labels_are_filled_in_and_the_rest_may_stay():
    news = told(planes_of(GREY, False, MASK.astype(int) * 7), keep_observed=True)
    np.testing.assert_array_equal(news[-1].values[~MASK], GREY[~MASK])
    assert (news[-1].values != GREY)[MASK].all()


def test_stacks_of_colours_keep_their_shape():
    planes = planes_of(COLOURS[None], True, MASK)
    assert planes.pixels.shape == COLOURS.shape
    news = told(planes)
    assert news[-1].values.shape == (1, *COLOURS.shape)
    assert uncertainty(planes, news[-1].results).shape == (1, *COLOURS.shape[:-1])
    shares = [each.share for each in news]
    assert shares == sorted(shares)
    (between,) = (each for each in news if each.words == "putting plane 2 of 2 together")
    np.testing.assert_array_equal(between.values[0, 0], news[-1].values[0, 0])


def test_one_model_learns_from_all_planes():
    news = told(planes_of(STACK, False))
    np.testing.assert_array_equal(news[-1].values, denoise(STACK, **TINY))


def test_what_is_stopped_while_it_learns_is_finished():
    wish, news = Wish(), []
    for each in run(planes_of(STACK, False), TINY | {"max_iter": 1000}, wish):
        news.append(each)
        if each.words.startswith("learning"):
            wish.keep()
    assert {each.ended for each in news[-1].results} == {"callback"}
    assert len(news[-1].results) == len(STACK)


def test_what_is_stopped_later_keeps_the_planes_that_are_done():
    wish, news = Wish(), []
    wish.enough = True
    news = list(run(planes_of(STACK, False), TINY, wish))
    assert len(news[-1].results) == 1
    np.testing.assert_array_equal(news[-1].values[1:], STACK[1:])
    assert np.isnan(uncertainty(planes_of(STACK, False), news[-1].results)[1:]).all()


def test_to_keep_what_there_is_depends_on_whether_all_is_learnt():
    wish = Wish()
    wish.keep()
    assert (wish.stop, wish.enough) == (True, False)
    wish = Wish()
    wish.learnt = True
    wish.keep()
    assert (wish.stop, wish.enough) == (False, True)


def test_what_is_cancelled_ends_without_a_result():
    wish, news = Wish(), []
    for each in run(planes_of(GREY, False), TINY | {"max_iter": 1000}, wish):
        news.append(each)
        wish.cancel = True
    assert all(each.results is None for each in news)


def test_errors_come_out_where_they_can_be_shown():
    with pytest.raises(ValueError, match="image must be finite or NaN"):
        told(planes_of(np.full((20, 20), np.inf), False))


@pytest.mark.parametrize(
    ("image", "labels", "words"),
    [
        (GREY[0], None, "image must have rows and columns"),
        (GREY, MASK[1:], "labels must have the shape of the image"),
        (GREY, np.zeros_like(MASK), "labels must mark missing pixels"),
    ],
)
def test_what_cannot_be_done_is_refused(image, labels, words):
    with pytest.raises(ValueError, match=words):
        planes_of(image, False, labels)


def test_noise_is_told_of_the_first_plane():
    clean = np.full((64, 64), 100.0)
    noisy = clean + np.random.default_rng(0).normal(0, 5, clean.shape)
    assert "standard deviation" in noise_report(planes_of(noisy, False))[0]
    assert noise_report(planes_of(np.stack([noisy, noisy]), False))[0].startswith("First plane: ")
