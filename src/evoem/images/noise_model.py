"""The noise of an instrument: a record that can be queried, scaled and stored.

The variance of a value with the expectation m is `gain · max(m − offset, 0) + read_variance`.
`gain` is the number of grey levels a photon makes, `offset` the pedestal: the grey level of no
light, which may be negative. A gain of zero is noise that does not depend on the signal.
One picture only shows the line, not how its constant term is shared by pedestal and read variance:
what `estimate` finds has a read variance of no more than rounding, and the pedestal that goes with
it. Where there is read noise, that lies below the black level of the instrument.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evoem.runtime import input_files
from evoem.runtime.atomic_files import write_whole
from evoem.validation import real

Array = NDArray[np.float64]
LARGEST_FILE = 1 << 26  # bytes


def _per_channel(name: str, value: Any, least: float) -> float | tuple[float, ...]:
    """One number for all channels, or one for each."""
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        if len(value) == 0:
            raise ValueError(f"{name} must have a number for each channel; got {value!r}.")
        return tuple(real(f"{name}'s entries", entry, least) for entry in value)
    return real(name, value, least)


def _array(name: str, value: Any, n_dims: int) -> Array:
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers; got {value!r}.") from None
    if array.ndim != n_dims or not array.size or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be a finite array of {n_dims} dimensions; got the shape {array.shape}."
        )
    array.setflags(write=False)
    return array


def _correlation(name: str, value: Any) -> Array:
    """An autocorrelation over lags, the middle of which is lag zero."""
    kernel = _array(name, value, 2)
    rows, columns = kernel.shape
    if rows % 2 == 0 or columns % 2 == 0:
        raise ValueError(f"{name} must have odd numbers of lags; got {kernel.shape}.")
    if not np.isclose(kernel[rows // 2, columns // 2], 1) or np.abs(kernel).max() > 1 + 1e-9:
        raise ValueError(
            f"{name} must be 1 at lag zero, its middle, and at most 1 in size elsewhere; "
            f"got {kernel[rows // 2, columns // 2]:g} and {np.abs(kernel).max():g}."
        )
    if not np.allclose(kernel, kernel[::-1, ::-1]):
        raise ValueError(f"{name} must be the same at opposite lags; got another one.")
    return kernel


def _channel_correlation(name: str, value: Any) -> Array:
    matrix = _array(name, value, 2)
    if matrix.shape[0] != matrix.shape[1] or not np.allclose(matrix, matrix.T):
        raise ValueError(f"{name} must be a symmetric matrix; got the shape {matrix.shape}.")
    if not np.allclose(np.diag(matrix), 1) or np.linalg.eigvalsh(matrix)[0] < -1e-9:
        raise ValueError(
            f"{name} must be positive semi-definite with ones on its diagonal; "
            f"got the diagonal {np.diag(matrix)}."
        )
    return matrix


def _cross_correlation(value: Any) -> Array:
    """Correlations of pairs of channels over lags, the middle of which is lag zero."""
    cross = _array("cross_correlation", value, 4)
    channels, others, rows, columns = cross.shape
    if channels != others or rows % 2 == 0 or columns % 2 == 0:
        raise ValueError(
            "cross_correlation must be of pairs of channels and odd numbers of lags; "
            f"got the shape {cross.shape}."
        )
    _channel_correlation("cross_correlation at lag zero", cross[:, :, rows // 2, columns // 2])
    if np.abs(cross).max() > 1 + 1e-9:
        raise ValueError(
            f"cross_correlation must be at most 1 in size; got {np.abs(cross).max():g}."
        )
    if not np.allclose(cross, cross.transpose(1, 0, 2, 3)[..., ::-1, ::-1]):
        raise ValueError(
            "cross_correlation must be the same at opposite lags of swapped channels; got another."
        )
    return cross


@dataclass(frozen=True, eq=False, repr=False)
class Noise:
    """The noise of a picture: variance = gain · (signal - offset) + read variance.

    Parameters
    ----------
    gain, offset, read_variance : float or tuple of float, default=0.0
        For all channels, or for each.
    correlation : ndarray of shape (rows, columns), optional
        The autocorrelation over lags; both sizes are odd, and the middle is lag zero. None:
        neighbours are independent.
    channel_correlation : ndarray of shape (channels, channels), optional
        None: channels are independent.
    cross_correlation : ndarray of shape (channels, channels, rows, columns), optional
        The correlation of channel a with channel b at each lag, if it differs between channels;
        the other two then summarise it.
    clipped : pair of float or None, default=(None, None)
        The lowest and the highest level, at which values pile up.
    outliers : float, default=0.0
        Share of values that are not measurements: hot or dead pixels, salt and pepper, cosmic rays.
    compressed : bool, default=False
        Whether the picture went through JPEG, which leaves less noise where it is flat than beside
        detail.
    curve_signal, curve_variance : ndarray of shape (channels, points), optional
        The measured variances, and the signals they belong to.
    measured_correlation : ndarray of shape (rows, columns), optional
        The measured autocorrelation, whether of noise or of texture.
    notes : tuple of str, default=()
        What could not be estimated.
    told : bool, default=True
        False if the noise could not be estimated at all.

    Examples
    --------
    >>> from evoem import Noise
    >>> Noise(gain=18.1, offset=3.3).describe()
    'signal-dependent noise: gain 18.1, pedestal 3.3; neighbours independent'
    """

    gain: float | tuple[float, ...] = 0.0
    offset: float | tuple[float, ...] = 0.0
    read_variance: float | tuple[float, ...] = 0.0
    correlation: Array | None = None
    channel_correlation: Array | None = None
    cross_correlation: Array | None = None
    clipped: tuple[float | None, float | None] = (None, None)
    outliers: float = 0.0
    compressed: bool = False
    curve_signal: Array | None = None
    curve_variance: Array | None = None
    measured_correlation: Array | None = None
    notes: tuple[str, ...] = ()
    told: bool = True

    def __post_init__(self) -> None:
        keep = object.__setattr__
        keep(self, "gain", _per_channel("gain", self.gain, 0))
        keep(self, "offset", _per_channel("offset", self.offset, -np.inf))
        keep(self, "read_variance", _per_channel("read_variance", self.read_variance, 0))
        if self.correlation is not None:
            keep(self, "correlation", _correlation("correlation", self.correlation))
        if self.measured_correlation is not None:
            measured = _correlation("measured_correlation", self.measured_correlation)
            keep(self, "measured_correlation", measured)
        if self.channel_correlation is not None:
            between = _channel_correlation("channel_correlation", self.channel_correlation)
            keep(self, "channel_correlation", between)
        if self.cross_correlation is not None:
            keep(self, "cross_correlation", _cross_correlation(self.cross_correlation))
        channels = {len(law) for law in self._law if isinstance(law, tuple)}
        matrices = self.channel_correlation, self.cross_correlation
        channels |= {len(matrix) for matrix in matrices if matrix is not None}
        if len(channels) > 1:
            raise ValueError(f"noise must be of one number of channels; got {sorted(channels)}.")
        self._check_levels()
        keep(self, "outliers", real("outliers", self.outliers, 0, 1))
        self._check_curve()
        for name in ("compressed", "told"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False; got {getattr(self, name)!r}.")
        if isinstance(self.notes, str) or not all(isinstance(note, str) for note in self.notes):
            raise ValueError(f"notes must be sentences; got {self.notes!r}.")
        keep(self, "notes", tuple(self.notes))

    @property
    def _law(self) -> tuple[float | tuple[float, ...], ...]:
        return self.gain, self.offset, self.read_variance

    def _check_levels(self) -> None:
        levels = self.clipped
        if not isinstance(levels, Sequence) or len(levels) != 2:
            raise ValueError(f"clipped must be a lowest and a highest level; got {levels!r}.")
        low, high = (None if level is None else real("clipped", level, -np.inf) for level in levels)
        if low is not None and high is not None and low >= high:
            raise ValueError(f"clipped must have its lowest level first; got {levels!r}.")
        object.__setattr__(self, "clipped", (low, high))

    def _check_curve(self) -> None:
        if self.curve_signal is None and self.curve_variance is None:
            return
        signal = _array("curve_signal", self.curve_signal, 2)
        variance = _array("curve_variance", self.curve_variance, 2)
        if signal.shape != variance.shape:
            raise ValueError(
                f"curve_variance must have the shape of curve_signal, {signal.shape}; "
                f"got {variance.shape}."
            )
        object.__setattr__(self, "curve_signal", signal)
        object.__setattr__(self, "curve_variance", variance)

    def __repr__(self) -> str:
        """Fields that differ from their defaults; arrays by their shapes."""
        said = []
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                said.append(f"{each.name}=<{' x '.join(map(str, value.shape))} array>")
            elif value != each.default:
                said.append(f"{each.name}={value!r}")
        return f"Noise({', '.join(said)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Noise) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def variance(self, mean: ArrayLike) -> Array:
        """Variances of values with these means.

        Parameters
        ----------
        mean : array-like
            Channels are the last axis, if the noise differs between them.

        Returns
        -------
        variance : ndarray of the same shape

        Examples
        --------
        >>> from evoem import Noise
        >>> Noise(gain=2.0, offset=3.0, read_variance=1.0).variance([3.0, 8.0]).tolist()
        [1.0, 11.0]
        """
        gain, offset, read_variance = map(np.asarray, self._law)
        signal = np.maximum(np.asarray(mean, np.float64) - offset, 0)
        return np.asarray(gain * signal + read_variance, np.float64)

    @property
    def kind(self) -> str:
        """ "gaussian" or "poisson-gaussian", after "correlated " if values are not independent."""
        kinds = self.correlation, self.channel_correlation, self.cross_correlation
        correlated = any(correlation is not None for correlation in kinds)
        signal_dependent = np.max(self.gain) > 0
        name = "poisson-gaussian" if signal_dependent else "gaussian"
        return f"correlated {name}" if correlated else name

    def describe(self) -> str:
        """Describe the noise in one line.

        Returns
        -------
        line : str

        Examples
        --------
        >>> from evoem import Noise
        >>> Noise(read_variance=4.0, outliers=0.01).describe().split("; ")[1:]
        ['neighbours independent', 'outliers 1 %']
        """
        if not self.told:
            return "; ".join(("the noise could not be estimated", *self.notes))
        if np.max(self.gain) > 0:
            law = f"signal-dependent noise: gain {_numbers(self.gain)}"
            if np.any(self.offset):
                law += f", pedestal {_numbers(self.offset)}"
            if np.any(self.read_variance):
                law += f", read variance {_numbers(self.read_variance)}"
        else:
            deviation = np.sqrt(self.read_variance)
            law = f"uniform noise: standard deviation {_numbers(deviation)}"
        parts = [law, *self._correlation_in_words(), *self._values_in_words(), *self.notes]
        return "; ".join(parts)

    def _correlation_in_words(self) -> list[str]:
        parts = ["neighbours independent"]
        if self.correlation is not None:
            rows, columns = self.correlation.shape
            middle = rows // 2, columns // 2
            below = self.correlation[middle[0] + 1, middle[1]] if rows > 1 else 0.0
            beside = self.correlation[middle[0], middle[1] + 1] if columns > 1 else 0.0
            parts = [f"neighbours correlated by {below:.2f} (columns) and {beside:.2f} (rows)"]
        if self.channel_correlation is not None:
            pairs = self.channel_correlation[np.triu_indices(len(self.channel_correlation), 1)]
            parts.append(f"channels correlated by {', '.join(f'{pair:.2f}' for pair in pairs)}")
        return parts

    def _values_in_words(self) -> list[str]:
        low, high = self.clipped
        parts = []
        if low is not None:
            parts.append(f"clipped below at {low:g}")
        if high is not None:
            parts.append(f"clipped above at {high:g}")
        if self.outliers:
            parts.append(f"outliers {100 * self.outliers:.2g} %")
        return parts

    def with_correlation(self, space: Array | None, channels: Array | None) -> Self:
        """The same noise with another correlation of neighbours and of channels, alike in all.

        Parameters
        ----------
        space : ndarray of shape (rows, columns), or None
        channels : ndarray of shape (channels, channels), or None

        Returns
        -------
        noise : Noise

        Examples
        --------
        >>> from evoem import Noise
        >>> Noise(gain=0.1).with_correlation([[0.3, 1.0, 0.3]], None).kind
        'correlated poisson-gaussian'
        """
        return replace(
            self, correlation=space, channel_correlation=channels, cross_correlation=None
        )

    def scaled(self, offset: float, scale: float) -> Self:
        """The noise of (image − offset) / scale.

        Parameters
        ----------
        offset, scale : float

        Returns
        -------
        noise : Noise

        Examples
        --------
        >>> from evoem import Noise
        >>> Noise(gain=2.0, read_variance=8.0).scaled(0.0, 4.0).describe().split("; ")[0]
        'signal-dependent noise: gain 0.5, read variance 0.5'
        """
        offset = real("offset", offset, -np.inf)
        if real("scale", scale, 0) == 0:
            raise ValueError(f"scale must be positive; got {scale!r}.")

        def moved(level: float | None) -> float | None:
            return None if level is None else (level - offset) / scale

        def each(change: Any, value: float | tuple[float, ...]) -> float | tuple[float, ...]:
            return tuple(map(change, value)) if isinstance(value, tuple) else change(value)

        signal, variance = self.curve_signal, self.curve_variance
        return replace(
            self,
            gain=each(lambda gain: gain / scale, self.gain),
            offset=self._moved_pedestal(offset, scale),
            read_variance=each(lambda variance: variance / scale**2, self.read_variance),
            clipped=(moved(self.clipped[0]), moved(self.clipped[1])),
            curve_signal=None if signal is None else (signal - offset) / scale,
            curve_variance=None if variance is None else variance / scale**2,
        )

    def _moved_pedestal(self, offset: float, scale: float) -> float | tuple[float, ...]:
        """Pedestals of (image − offset) / scale; noise without a gain has none to be moved."""
        gains, pedestals = np.broadcast_arrays(self.gain, self.offset)
        moved = np.where(gains > 0, (pedestals - offset) / scale, pedestals)
        return tuple(moved.tolist()) if moved.ndim else float(moved)

    def to_json(self) -> str:
        """A JSON object from which `from_json` makes the same noise, to the last bit.

        Returns
        -------
        text : str

        Examples
        --------
        >>> from evoem import Noise
        >>> noise = Noise(gain=0.1)
        >>> Noise.from_json(noise.to_json()) == noise
        True
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(
            {
                name: value.tolist() if isinstance(value, np.ndarray) else value
                for name, value in values.items()
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The noise that `to_json` wrote.

        Parameters
        ----------
        text : str

        Returns
        -------
        noise : Noise

        Examples
        --------
        >>> from evoem import Noise
        >>> Noise.from_json('{"gain": 0.5}').gain
        0.5
        """
        try:
            values = json.loads(text)
        except (TypeError, ValueError):
            raise ValueError(f"noise must be a JSON object; got {str(text)[:40]!r}.") from None
        if not isinstance(values, dict):
            raise ValueError(f"noise must be a JSON object; got {str(text)[:40]!r}.")
        known = {field.name for field in fields(cls)}
        unknown = sorted(values.keys() - known)
        if unknown:
            raise ValueError(f"noise must have no keys but {sorted(known)}; got {unknown[0]!r}.")
        if not isinstance(values.get("notes", []), list):
            raise ValueError(f"notes must be sentences; got {values['notes']!r}.")
        return cls(**values)

    def save(self, path: str | Path) -> None:
        """Write the noise as JSON, over what is there.

        Parameters
        ----------
        path : str or Path

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evoem import Noise
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Noise(gain=0.1).save(Path(folder) / "camera.json")
        ...     Noise.load(Path(folder) / "camera.json").gain
        0.1
        """
        text = (self.to_json() + "\n").encode()
        write_whole(Path(path), lambda file: file.write(text), force=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        noise : Noise

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evoem import Noise
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Noise(outliers=0.01).save(Path(folder) / "camera.json")
        ...     Noise.load(Path(folder) / "camera.json").outliers
        0.01
        """
        return cls.from_json(input_files.text(Path(path), LARGEST_FILE))


def _numbers(value: ArrayLike) -> str:
    return ", ".join(f"{number:.3g}" for number in np.atleast_1d(value))
