"""The panels in a real napari: run by `make test-napari`."""

import time
from importlib.resources import files

import numpy as np
import pytest

napari = pytest.importorskip("napari", reason="napari is not installed: make test-napari")

from qtpy.QtWidgets import QApplication  # noqa: E402

IMAGE = np.random.default_rng(0).normal(100, 10, (32, 28)).astype(np.float32)
IMAGE[8:20, 6:20] += 60


@pytest.fixture
def viewer():
    made = napari.Viewer(show=False)
    yield made
    made.close()


def open_panel(viewer, name):
    _, widget = viewer.window.add_plugin_dock_widget("evoem", name)
    return widget.evoem_panel if hasattr(widget, "evoem_panel") else widget


def until(true, seconds=300):
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends
        QApplication.processEvents()
        time.sleep(0.01)


def test_the_manifest_is_valid_and_found():
    from npe2 import PluginManager, PluginManifest

    path = files("evoem.napari_plugin").joinpath("napari.yaml")
    manifest = PluginManifest.from_file(str(path))
    manifest.validate_imports()
    found = PluginManager.instance()
    found.discover()
    assert [each.display_name for each in found.get_manifest("evoem").contributions.widgets] == [
        "Denoise", "Inpaint", "Noise report",
    ]  # fmt: skip


def test_denoised_layers_come_back_where_the_image_lies(viewer):
    source = viewer.add_image(IMAGE, name="cells", scale=(0.5, 0.25), translate=(3, 4))
    panel = open_panel(viewer, "Denoise")
    panel.preset.value = "fast"
    panel.run.native.click()
    assert not panel.run.enabled
    seen = []
    until(lambda: seen.append(len(viewer.layers)) or panel.run.enabled)
    assert 2 in seen  # a preview before the end
    restored, std = viewer.layers["cells restored"], viewer.layers["cells uncertainty"]
    assert panel.words.value == "done"
    assert 2 < np.abs(restored.data - IMAGE).mean() < 15
    assert std.data.shape == IMAGE.shape
    for layer in (restored, std):
        np.testing.assert_array_equal(layer.scale, source.scale)
        np.testing.assert_array_equal(layer.translate, source.translate)
    assert restored.colormap == source.colormap
    assert restored.metadata["evoem"][0].noise_level > 0


def test_labels_say_what_is_missing(viewer):
    viewer.add_image(IMAGE, name="cells")
    labels = viewer.add_labels(np.zeros(IMAGE.shape, int), name="holes")
    panel = open_panel(viewer, "Inpaint")
    panel.preset.value = "fast"
    panel.labels.value = labels
    panel.run.native.click()
    assert "labels must mark what is missing" in panel.words.value
    labels.data[10:13, 8:12] = 3
    panel.run.native.click()
    until(lambda: panel.run.enabled)
    restored = viewer.layers["cells restored"].data
    missing = labels.data > 0
    np.testing.assert_array_equal(restored[~missing], IMAGE[~missing])
    assert (restored[missing] != IMAGE[missing]).all()


def test_a_run_can_be_stopped_and_cancelled(viewer):
    viewer.add_image(np.tile(IMAGE, (3, 3)), name="cells")
    panel = open_panel(viewer, "Denoise")
    panel.preset.value = "best"
    panel.run.native.click()
    until(lambda: len(viewer.layers) > 1)
    panel.stop.native.click()
    until(lambda: panel.run.enabled)
    assert viewer.layers["cells restored"].metadata["evoem"][0].ended == "callback"
    n_layers = len(viewer.layers)
    panel.run.native.click()
    until(lambda: panel.progress.value > 0)
    panel.cancel.native.click()
    until(lambda: panel.run.enabled)
    assert panel.words.value == "cancelled"
    assert len([each for each in viewer.layers if "uncertainty" in each.name]) == 1
    assert len(viewer.layers) <= n_layers + 1  # a preview at most


def test_noise_is_told(viewer):
    viewer.add_image(IMAGE, name="cells")
    panel = open_panel(viewer, "Noise report")
    panel[1].native.click()
    assert "standard deviation" in panel[2].value
