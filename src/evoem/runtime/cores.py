"""The number of threads to use, on a machine that processes may share."""

import os
import platform

from joblib import effective_n_jobs

from evoem.runtime.communicator import ALONE, Communicator


def threads_of(n_jobs: int | None, comm: Communicator = ALONE) -> int:
    """What `n_jobs` means, in the manner of joblib; "all" are shared with other processes.

    Those that a launcher has bound to other cores have theirs.

    Examples
    --------
    >>> threads_of(None), threads_of(3)
    (1, 3)
    """
    wanted = int(effective_n_jobs(n_jobs))
    if n_jobs is None or n_jobs > 0 or comm.size == 1:
        return wanted
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    own = platform.node(), cores
    return max(1, wanted // comm.collect(own).count(own))
