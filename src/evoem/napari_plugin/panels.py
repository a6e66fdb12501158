"""Panels beside napari's viewer, which calls them: napari and magicgui are then installed."""

from typing import TYPE_CHECKING, Any

from evoem.images.options import PRESETS
from evoem.napari_plugin import planes
from evoem.napari_plugin.planes import Told, Wish

if TYPE_CHECKING:
    from magicgui.widgets import Container

# What a layer of results has of the layer it comes from.
WHERE = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
LOOK = ("colormap", "contrast_limits", "gamma", "rgb")


def denoise() -> "Container[Any]":
    """A panel that removes the noise of an image layer."""
    return RestorePanel(with_labels=False).container


def inpaint() -> "Container[Any]":
    """A panel that fills in what a labels layer marks, and NaN."""
    return RestorePanel(with_labels=True).container


def noise() -> "Container[Any]":
    """A panel that says what noise an image layer has."""
    from magicgui import widgets
    from napari.layers import Image

    image = widgets.create_widget(annotation=Image, label="image")
    tell = widgets.PushButton(text="Describe the noise")
    words = widgets.TextEdit(value="", label=" ")
    words.read_only = True

    def told() -> None:
        try:
            if image.value is None:
                raise ValueError("Open an image first.")
            words.value = "\n".join(planes.noise_report(_planes_of(image.value, None)))
        except ValueError as error:
            words.value = str(error)

    tell.changed.connect(told)
    return widgets.Container(widgets=[image, tell, words])


class RestorePanel:
    """Choices, buttons, and the run they start; results are layers."""

    def __init__(self, *, with_labels: bool) -> None:
        from magicgui import widgets
        from napari.layers import Image, Labels

        self.image = widgets.create_widget(annotation=Image, label="image")
        self.labels: Any = None
        self.keep: Any = None
        if with_labels:
            self.labels = widgets.create_widget(
                annotation=Labels | None, label="missing", options={"nullable": True}
            )
            self.keep = widgets.CheckBox(value=True, text="keep other pixels unchanged")
        self.preset = widgets.ComboBox(value="balanced", choices=PRESETS, label="preset")
        self.run = widgets.PushButton(text="Inpaint" if with_labels else "Denoise")
        self.stop = widgets.PushButton(text="Stop and keep", enabled=False)
        self.cancel = widgets.PushButton(text="Cancel", enabled=False)
        self.progress = widgets.ProgressBar(value=0, max=100, label=" ")
        self.words = widgets.Label(value="", label=" ")
        chosen = [self.image, self.labels, self.keep, self.preset]
        self.container: Container[Any] = widgets.Container(
            widgets=[
                *(widget for widget in chosen if widget is not None),
                *(self.run, self.stop, self.cancel, self.progress, self.words),
            ]
        )
        self.container.evoem_panel = self  # lives as long as the widget does
        self.worker: Any = None
        self._wish = Wish()
        self.run.changed.connect(self._started)
        self.stop.changed.connect(self._stopped)
        self.cancel.changed.connect(self._cancelled)

    # --------------------------------------------------------------------------------- buttons

    def _started(self) -> None:
        from napari import current_viewer
        from napari.qt.threading import create_worker

        source = self.image.value
        try:
            if source is None:
                raise ValueError("Open an image first.")
            labels = None if self.labels is None else self.labels.value
            given = _planes_of(source, None if labels is None else labels.data)
        except ValueError as error:
            self.words.value = str(error)
            return
        self._wish = wish = Wish()
        options = {"preset": self.preset.value}
        if self.keep is not None:
            options["keep_observed"] = self.keep.value
        results = Results(current_viewer(), source, given)

        def told(news: Told) -> None:
            if wish.cancel and news.results is None:
                return
            self.words.value, self.progress.value = news.words, round(100 * news.share)
            results.show(news)

        self.worker = create_worker(planes.run, given, options, wish, _start_thread=False)
        self.worker.yielded.connect(told)
        self.worker.errored.connect(self._failed)
        self.worker.finished.connect(self._ended)
        self._set_running(True)
        self.worker.start()

    def _stopped(self) -> None:
        self._wish.keep()
        after = "plane" if self._wish.enough else "iteration"
        self.words.value = f"stopping after this {after}"

    def _cancelled(self) -> None:
        self._wish.cancel = True
        self.words.value = "cancelled"
        self.worker.quit()

    def _failed(self, error: Exception) -> None:
        self.words.value = str(error) or type(error).__name__

    def _ended(self) -> None:
        self._set_running(False)

    def _set_running(self, running: bool) -> None:
        self.run.enabled = not running
        self.stop.enabled = self.cancel.enabled = running


class Results:
    """The layers in which a result comes back: previews and then the image, and its uncertainty."""

    def __init__(self, viewer: Any, source: Any, given: planes.Planes) -> None:
        self._viewer, self._source, self._given = viewer, source, given
        self._image: Any = None
        _, self._meta, _ = source.as_layer_data_tuple()

    def show(self, news: Told) -> None:
        """Show a preview, or all of it."""
        if news.values is None:
            return
        if self._image is None or self._image not in self._viewer.layers:
            self._image = self._viewer.add_image(
                news.values, name=f"{self._source.name} restored", **self._like(WHERE + LOOK)
            )
        else:
            self._image.data = news.values
        if news.results is not None:
            where = self._like(WHERE)
            if self._given.colour:  # channels are no axis of a map
                where.pop("axis_labels", None)
            self._viewer.add_image(
                planes.uncertainty(self._given, news.results),
                name=f"{self._source.name} uncertainty",
                colormap="inferno",
                visible=False,
                **where,
            )
            self._image.metadata["evoem"] = news.results
            self._viewer.layers.selection.active = self._image

    def _like(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: self._meta[name] for name in names if name in self._meta}


def _planes_of(layer: Any, labels: Any) -> planes.Planes:
    """Planes of a layer, of a multiscale one of its finest scale."""
    data = layer.data[0] if layer.multiscale else layer.data
    return planes.planes_of(data, layer.rgb, labels)
