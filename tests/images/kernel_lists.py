"""Which kernels restorations need: `python tests/images/kernel_lists.py` writes the list anew."""

import subprocess
import sys

import numpy as np

from evoem.images.kernels_ahead import COMPLETE, INCOMPLETE, KINDS, LIST, MOSTLY_MISSING

SHARE_MISSING = {COMPLETE: 0.0, INCOMPLETE: 0.1, MOSTLY_MISSING: 0.5}
# What takes longest to compile is begun first, though it is needed last.
FIRST = ("evoem.images.nonlocal_bayes._estimate_rows(",)
HEADER = """\
# Kernels that restorations need, and for which models and images: see kernels_ahead.py.
# Written by `make kernels`.
"""


def noisy_picture(kind):
    rng = np.random.default_rng(0)
    picture = 100.0 + 50 * (np.add.outer(np.arange(48), np.arange(48)) > 45)
    picture += rng.normal(0, 10, picture.shape)
    picture[rng.random(picture.shape) < SHARE_MISSING[kind]] = np.nan
    return picture


def restore_and_tell(model, kind):
    """Restore a picture in this process, and return kernels in the order of need."""
    import evoem
    from evoem.runtime.compile import NEEDED
    from evoem.runtime.signatures import text_of

    evoem.restore(noisy_picture(kind), preset="fast", model=model)
    return list(dict.fromkeys(text_of(*one) for one in NEEDED))


def kernels_of(model, kind, known=()):
    """The same in a process of its own, where nothing but that was needed.

    In two if there are others than those that are known: what is compiled, and not loaded, needs
    kernels within kernels too.
    """
    command = [sys.executable, __file__, model, kind]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        found = done.stdout.splitlines()
        if set(found) <= set(known):
            break
    return found


def write_lists(models):
    needed = {}
    for model in models:
        for kind in KINDS:
            for kernel in kernels_of(model, kind):
                needed.setdefault(kernel, []).append(f"{model}:{kind}")
    in_order = sorted(needed.items(), key=lambda entry: not entry[0].startswith(FIRST))
    lines = [f"{','.join(cases)} {kernel}\n" for kernel, cases in in_order]
    LIST.write_text(HEADER + "".join(lines))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.stdout.write("\n".join(restore_and_tell(*sys.argv[1:])) + "\n")
    else:
        write_lists(sys.argv[1:] or ["subspaces", "es3c", "ebsc"])
