import os

from hypothesis import settings

# Kernels are compiled in the first example, and shared machines are slow at times.
settings.register_profile("evoem", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "evoem"))
