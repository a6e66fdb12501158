"""`evoem warmup`."""

import time
from typing import Annotated

import typer
from typer import Option

from evoem.cli.app import Quiet, app, one_sentence


@app.command()
def warmup(
    all_models: Annotated[
        bool, Option("--all", help="Also for es3c and ebsc, and so for the preset paper.")
    ] = False,
    n_jobs: Annotated[int, Option(help="Processes; -1 for all processors.")] = -1,
    quiet: Quiet = False,
) -> None:
    """Compile in advance what the first denoise and inpaint need, for containers and clusters.

    Compiled code is kept in NUMBA_CACHE_DIR, or else in the user's cache folder, for this version
    and this kind of processor.
    """
    with one_sentence():
        from evoem.images import image_models, kernels_ahead
        from evoem.runtime.compile import CACHE
        from evoem.runtime.compile_ahead import Count, compilers
        from evoem.runtime.cores import threads_of

        if CACHE.folder is None:
            raise ValueError("warmup must have a folder to keep code in; got none, see above.")
        started = time.perf_counter()
        models = image_models.IMAGE_MODELS if all_models else [image_models.default_model("fast")]

        def tell(count: Count) -> None:
            if not quiet:
                typer.echo(f"compiling: {count.done} of {count.total}", err=True)

        with compilers(threads_of(n_jobs)) as ahead:
            ahead.want(kernels_ahead.needed_for_all(models))
            ahead.finish(tell)
        done, total = ahead.count
        if done < total:
            raise ValueError(f"kernels must all be compiled; got {done} of {total}.")
        if not quiet:
            seconds = time.perf_counter() - started
            typer.echo(
                f"{total} kernels compiled in {seconds:.1f} s, kept in {CACHE.folder}."
                if total
                else f"All kernels were there already, in {CACHE.folder}."
            )
