"""The models in the manner of scikit-learn."""
