"""Restore images: patches, files, degradations, quality."""
