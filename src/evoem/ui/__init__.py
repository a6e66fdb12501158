"""A page on this computer: drop a picture, watch it getting better, keep the result."""
