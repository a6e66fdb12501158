"""Kinds of experiments by the name that recipes give."""

from evoem.reproduction import bars_experiment, bars_reliability, natural_patches, restoration
from evoem.reproduction.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "bars": bars_experiment.EXPERIMENT,
    "bars-reliability": bars_reliability.EXPERIMENT,
    "natural-patches": natural_patches.EXPERIMENT,
    "restoration": restoration.EXPERIMENT,
}
