"""A user's log-joint, and nothing else, made into a model."""
