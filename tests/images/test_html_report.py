"""A restoration on one HTML page."""

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from sample_images import TINY, noisy, picture

from evoem.images.heldout_selection import Score
from evoem.images.html_report import (
    DETAIL,
    LARGEST_SIDE,
    MOST_SLICES,
    About,
    page_of,
    psnr_of_deviations,
    psnr_of_held_out,
)
from evoem.images.noise_model import Noise
from evoem.images.restore import restore

# Elements that are not closed.
VOID = {"meta", "img", "input", "path", "rect", "circle", "polyline"}


class Reader(HTMLParser):
    """Elements that are open, and what they refer to."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.words = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]

    def handle_startendtag(self, tag, attributes): ...

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def page(image, folder, **options):
    result = restore(image, **TINY | options)
    result.report(folder / "page.html", force=True)
    return result, (folder / "page.html").read_text("utf-8")


def read(text):
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


def pictures(text):
    found = re.findall(r'alt="([^"]*)" width="\d+" src="data:image/png;base64,([^"]*)"', text)
    return {
        name: np.asarray(Image.open(io.BytesIO(base64.b64decode(coded))).convert("RGB"))
        for name, coded in found
    }


def headings(text):
    return re.findall(r"<h2[^>]*>([^<]*)</h2>", text)


@pytest.mark.parametrize("layout", ["grey", "colour", "channels first", "with alpha"])
def test_a_page_shows_pictures_and_needs_nothing_else(layout, tmp_path):
    given = noisy(picture())
    given[3:5, 6:9] = np.nan
    axis = None
    if layout != "grey":
        axis = 0 if layout == "channels first" else -1
        channels = [given, given, given] + [np.full_like(given, 7.0)] * (layout == "with alpha")
        given = np.stack(channels, axis=axis)
    result, text = page(given, tmp_path, channel_axis=axis)
    reader = read(text)
    assert all(link.startswith("data:") for link in reader.links)
    assert "://" not in text
    assert "default-src 'none'" in text
    shown = pictures(text)
    assert set(shown) == {"before", "after", "standard deviation", "residual", "dictionary"}
    size = picture().shape
    assert shown["before"].shape == shown["after"].shape == (*size, 3)
    red = [230, 51, 51]
    assert (shown["before"][3:5, 6:9] == red).all()
    assert (shown["after"][3:5, 6:9] != red).any(axis=-1).all()
    # Brighter pixels of the result are brighter on the page.
    restored = result.image if axis is None else np.moveaxis(result.image, axis, -1)[..., 0]
    assert (np.diff(shown["after"][..., 0].ravel()[np.argsort(restored.ravel())]) >= 0).all()
    assert f"{result.noise_level:.4g}" in " ".join(reader.words)


def test_a_page_is_of_what_was_restored_and_replaces_a_file_only_by_force(tmp_path):
    result, text = page(noisy(picture()), tmp_path)
    with pytest.raises(ValueError, match=r"page\.html must not exist yet unless force is given"):
        result.report(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == text
    by_hand = replace(result, _given=None)
    with pytest.raises(ValueError, match="a page must be of what restore returned"):
        by_hand.to_html()


def test_notes_are_escaped(tmp_path):
    result, _ = page(noisy(picture()), tmp_path)
    text = replace(result, notes=("<script>alert(1)</script>",)).to_html()
    assert "<script>" not in text
    read(text)


def test_names_notes_and_scores_of_files_are_on_the_page(tmp_path):
    result, _ = page(noisy(picture()), tmp_path)
    about = About("<cells>.tif", ["Its alpha & more was kept."], {"PSNR": (20.123, 31.456)})
    text = page_of([result], about)
    assert "<title>&lt;cells&gt;.tif, restored by evoem</title>" in text
    assert "<li>Its alpha &amp; more was kept.</li>" in text
    assert "<th>PSNR</th><td>20.12</td><td>31.46</td>" in text
    assert headings(text)[:3] == ["Beside the reference", "The file", "Before and after"]
    read(text)


def test_the_psnr_is_estimated_from_the_standard_deviations(tmp_path):
    given = noisy(picture()).clip(0, 255).astype(np.uint8)
    result, text = page(given, tmp_path)
    expected = 10 * np.log10(255**2 / np.mean(result.std**2))
    assert psnr_of_deviations(result.shown()) == pytest.approx(expected)
    assert f"<dt>PSNR, estimated</dt><dd>{expected:.1f} dB</dd>" in text
    # Of what is kept as it was nothing is known.
    mask = np.zeros(given.shape, bool)
    mask[3:5, 3:9] = True
    kept = restore(given, mask=mask, keep_observed=True, **TINY)
    assert psnr_of_deviations(kept.shown()) is None
    assert "PSNR, estimated" not in kept.to_html()


def test_of_a_large_picture_a_detail_is_shown_pixel_by_pixel(tmp_path):
    size = 2 * LARGEST_SIDE
    result, _ = page(noisy(picture()), tmp_path)
    wide = np.zeros((40, size))
    wide[:, 1500:1600:2] = 200.0
    large = replace(
        result, image=wide, std=np.ones_like(wide), _given=result._given._replace(image=wide)
    )
    text = large.to_html()
    read(text)
    assert "One in 2 rows and columns is shown." in text
    row, column = map(int, re.findall(r"corner is row (\d+), column (\d+)", text)[0])
    assert row == 0
    assert 1600 - DETAIL <= column <= 1500
    assert pictures(text)["after"].shape == (40, DETAIL, 3)  # the last of two


def test_a_constant_image_has_a_page(tmp_path):
    result, text = page(np.full((20, 20), 3, np.uint8), tmp_path)
    assert result.noise_level == 0
    assert set(pictures(text)) == {"before", "after", "standard deviation"}


def test_a_page_tells_all_there_is_to_tell(tmp_path):
    result, text = page(noisy(picture()), tmp_path)
    assert headings(text) == [
        "Before and after", "Noise", "Uncertainty", "Removed part", "Learning",
        "What was learnt", "Times", "Settings", "Cite",
    ]  # fmt: skip
    words = read(text).words
    assert {"telling the noise", "learning", "merging patches, nonlocal passes"} <= set(words)
    assert sum(result.times.values()) == pytest.approx(result.seconds, abs=0.5)
    for name in result.settings:
        assert name in words
    assert "Journal of Machine Learning Research 23(21), 2022" in text
    assert "autocorrelation of the residual" in text


def test_the_variance_at_signals_is_drawn_where_it_was_measured(tmp_path):
    result, _ = page(noisy(picture()), tmp_path)
    noise = Noise(gain=2.0, curve_signal=[[1.0, 2.0, 3.0]], curve_variance=[[2.0, 4.0, 7.0]])
    text = replace(result, noise=noise).to_html()
    assert text.count("<circle") == 3 + TINY["max_iter"]
    assert "variance of the noise over signal" in text


def test_the_psnr_over_iterations_is_told_of_held_out_values_alone(tmp_path):
    result, text = page(noisy(picture()), tmp_path)
    assert "which holds some values out" in text
    assert "PSNR estimate over iteration" not in text
    scores = tuple(Score(3, 6, 0, iteration, 30.0 - iteration) for iteration in (1, 2, 4))
    own = replace(
        result, selection=scores, noise_level=20.0, image=result.image.clip(0, 255).astype("u1")
    )
    ((iterations, values),) = psnr_of_held_out(own)
    assert iterations == [1, 2, 4]
    expected = [10 * np.log10(255**2 / (error**2 - 400)) for error in (29.0, 28.0, 26.0)]
    np.testing.assert_allclose(values, expected)
    assert "PSNR estimate over iteration" in own.to_html()
    # No worse than the noise alone: nothing is left to tell it from.
    assert psnr_of_held_out(replace(own, noise_level=40.0)) == []


def test_a_stack_has_a_page_of_some_of_its_slices(tmp_path):
    result, _ = page(noisy(picture()), tmp_path)
    text = page_of([result] * 3)
    assert [each for each in headings(text) if "Slice" in each] == ["Slice 1", "Slice 2", "Slice 3"]
    read(text)
    text = page_of([result] * 30)
    assert "A stack of 30 slices; 8, evenly spaced, are here." in text
    slices = [each for each in headings(text) if "Slice" in each]
    assert len(slices) == MOST_SLICES
    assert (slices[0], slices[-1]) == ("Slice 1", "Slice 30")
