"""A page on this computer: drop a picture, watch it get better, keep the result."""
