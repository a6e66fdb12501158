"""Models made from a user's log-joint alone."""
