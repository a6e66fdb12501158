"""Requests of the page, and their answers."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from functools import wraps
from importlib.resources import files as resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from evoem.images import files, viewing
from evoem.images.files import FileError, Picture
from evoem.runtime.atomic_files import FolderWrite
from evoem.ui.jobs import Jobs, sentence
from evoem.ui.pictures import MOST_BYTES, Pictures, discard, safe_name, too_large

STATIC = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "paint.js": "text/javascript; charset=utf-8",
    "talk.js": "text/javascript; charset=utf-8",
    "viewer.js": "text/javascript; charset=utf-8",
    "jobs.js": "text/javascript; charset=utf-8",
}
# Seconds between looks at whether there is something to tell, and between signs of life.
LOOK_EVERY, SIGN_EVERY = 0.15, 10.0
MOST_BYTES_OF_A_WISH = 4096

Endpoint = Callable[["Page", Request], Any]


def answered(endpoint: Endpoint) -> Endpoint:
    """Say what went wrong in one sentence."""

    @wraps(endpoint)
    async def answer(page: "Page", request: Request) -> Response:
        try:
            response: Response = await endpoint(page, request)
            return response
        except ClientDisconnect:
            return Response(status_code=400)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        except MemoryError:
            return JSONResponse({"error": "Out of memory: try a smaller picture."}, 507)
        except Exception as error:
            return JSONResponse({"error": sentence(error)}, 500)

    return answer


class Page:
    """Pictures, jobs, and who is about to leave."""

    def __init__(self, folder: Path, max_pixels: int, is_leaving: Callable[[], bool]) -> None:
        self.pictures = Pictures(folder, max_pixels)
        self.jobs = Jobs()
        self._is_leaving = is_leaving

    def application(self) -> Starlette:
        """All of it by address."""
        routes: list[tuple[str, str, Endpoint]] = [
            ("GET", "/", Page.index),
            ("GET", "/static/{name}", Page.static),
            ("GET", "/events", Page.events),
            ("POST", "/pictures", Page.add_picture),
            ("GET", "/pictures/{number:int}/before.png", Page.before),
            ("POST", "/pictures/{number:int}/mask", Page.add_mask),
            ("GET", "/pictures/{number:int}/mask.png", Page.mask),
            ("POST", "/jobs", Page.add_job),
            ("GET", "/jobs/{number:int}/after.png", Page.after),
            ("POST", "/jobs/{number:int}/stop", Page.stop),
            ("DELETE", "/jobs/{number:int}", Page.remove),
            ("GET", "/jobs/{number:int}/{what}", Page.download),
        ]

        def bound(endpoint: Endpoint) -> Callable[[Request], Any]:
            async def answer(request: Request) -> Response:
                response: Response = await answered(endpoint)(self, request)
                return response

            return answer

        return Starlette(
            routes=[
                Route(path, bound(endpoint), methods=[method]) for method, path, endpoint in routes
            ]
        )

    # ---------------------------------------------------------------------------- what is shown

    async def index(self, request: Request) -> Response:
        return _static("index.html")

    async def static(self, request: Request) -> Response:
        return _static(request.path_params["name"])

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._changes(request), media_type="text/event-stream")

    async def _changes(self, request: Request) -> AsyncIterator[str]:
        """All jobs whenever one has changed."""
        told, quiet = -1, 0.0
        self.jobs.watchers += 1
        try:
            while not self._is_leaving() and not await request.is_disconnected():
                version = self.jobs.version
                if version != told:
                    told, quiet = version, 0.0
                    yield f"data: {json.dumps(self.jobs.told())}\n\n"
                elif quiet >= SIGN_EVERY:
                    quiet = 0.0
                    yield ": still here\n\n"
                await asyncio.sleep(LOOK_EVERY)
                quiet += LOOK_EVERY
            yield "event: closed\ndata: {}\n\n"
        finally:
            self.jobs.watchers -= 1

    # ------------------------------------------------------------------------------- pictures

    async def add_picture(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        path = await self._uploaded(name, request)
        try:
            number = await run_in_threadpool(self.pictures.read, safe_name(name), path)
        finally:
            discard(path)
        return JSONResponse({"id": number, **self.pictures[number].facts()})

    async def add_mask(self, request: Request) -> Response:
        number = request.path_params["number"]
        name = request.query_params.get("name", "mask")
        path = await self._uploaded(name, request)
        try:
            given = path if path.stat().st_size else None
            changed = await run_in_threadpool(self.pictures.mask, number, given)
        finally:
            discard(path)
        return JSONResponse({"id": number, **changed.facts()})

    async def _uploaded(self, name: str, request: Request) -> Path:
        size = request.headers.get("content-length", "0")
        if not size.isdecimal() or int(size) > MOST_BYTES:
            raise too_large(name)
        return await self.pictures.upload(name, request.stream())

    async def before(self, request: Request) -> Response:
        given = self.pictures[request.path_params["number"]]
        return _png(await run_in_threadpool(given.png, _slice(request, given.n_slices)))

    async def mask(self, request: Request) -> Response:
        given = self.pictures[request.path_params["number"]]
        mask = given.mask
        if mask is None:
            raise FileError("This picture has no mask.")
        if mask.ndim > 2 and given.picture.stack and len(mask) == given.n_slices:
            mask = mask[_slice(request, given.n_slices)]
        shown = np.atleast_3d(mask.astype(np.float64)).max(axis=2, keepdims=True)
        return _png(viewing.png(np.repeat(shown, 3, axis=2)))

    # ----------------------------------------------------------------------------------- jobs

    async def add_job(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES_OF_A_WISH:
                raise ValueError("The request is too large.")
        wish = json.loads(body)
        picture = int(wish["picture"])
        job = self.jobs.add(
            picture, self.pictures[picture], wish["task"], wish["preset"], bool(wish["keep"])
        )
        return JSONResponse({"id": job.number})

    async def after(self, request: Request) -> Response:
        job = self.jobs[request.path_params["number"]]
        return _png(await run_in_threadpool(job.after, _slice(request, job.given.n_slices)))

    async def stop(self, request: Request) -> Response:
        self.jobs.stop(request.path_params["number"])
        return Response(status_code=204)

    async def remove(self, request: Request) -> Response:
        self.jobs.remove(request.path_params["number"])
        return Response(status_code=204)

    async def download(self, request: Request) -> Response:
        job, what = self.jobs[request.path_params["number"]], request.path_params["what"]
        if what not in ("result", "uncertainty", "report"):
            return _nothing()
        if job.state != "done":
            raise FileError("There is no result yet.")
        picture, stem = job.given.picture, Path(job.given.name).stem
        if what == "report":
            content = (await run_in_threadpool(job.page)).encode()
            return _file(f"{stem}-report.html", content, "text/html; charset=utf-8")
        if what == "result":
            return await run_in_threadpool(
                _picture, f"{stem}-restored", job.given.name, picture, job.restored
            )
        return await run_in_threadpool(
            _picture, f"{stem}-uncertainty", "", picture._replace(alpha=None, metadata={}), job.std
        )


def _static(name: str) -> Response:
    if name not in STATIC:
        return _nothing()
    content = resources("evoem.ui").joinpath("static", name).read_bytes()
    return Response(content, media_type=STATIC[name])


def _nothing() -> Response:
    return Response("Not found.\n", 404, media_type="text/plain")


def _slice(request: Request, n_slices: int) -> int:
    number = int(request.query_params.get("slice", "0"))
    if not 0 <= number < n_slices:
        raise ValueError(f"slice must be from 0 to {n_slices - 1}; got {number}.")
    return number


def _png(content: bytes) -> Response:
    return Response(content, media_type="image/png")


def _file(name: str, content: bytes, kind: str) -> Response:
    told = f"attachment; filename*=UTF-8''{quote(name)}"
    return Response(content, media_type=kind, headers={"content-disposition": told})


def _picture(stem: str, like: str, picture: Picture, pixels: NDArray[Any]) -> Response:
    """A picture as a file: of the format that was given if that loses nothing, else TIFF or PNG."""
    own = Path(like).suffix.lower()
    picture = picture._replace(pixels=pixels)
    suffixes = [own, ".png", ".tif"] if own in (".jpg", ".jpeg") else [own, ".tif", ".npy"]
    for suffix in suffixes:
        if suffix in (".jpg", ".jpeg"):
            continue
        try:
            write = files.writer(f"picture{suffix}", picture)
        except FileError:
            continue
        if isinstance(write, FolderWrite):
            continue
        file = io.BytesIO()
        write(file)
        return _file(stem + suffix, file.getvalue(), "application/octet-stream")
    raise FileError(f"{stem} cannot be written in any supported format.")
