import os
import signal

from hypothesis import settings

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so the programs that
# they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Kernels are compiled in the first example, and shared machines are slow at times.
settings.register_profile("evoem", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "evoem"))


def _refuse():
    raise RuntimeError("Tests must start programs, not fork this one: JAX has threads in it.")


# JAX warns of a fork only where it was imported, that is, in some orders of the tests. This fails
# in all of them: what is raised here is a warning to pytest, and an error therefore.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_refuse)
