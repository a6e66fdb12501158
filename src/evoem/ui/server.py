"""Serve the page to this computer until it is closed."""

import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

import uvicorn

from evoem.ui.app import Page
from evoem.ui.guard import HOST, Guard, new_token

# Seconds that answers under way may take when the page is closed.
PATIENCE = 2


def listening(port: int) -> socket.socket:
    """A socket that only this computer can reach; port 0 is any that is free."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # who is told the address may come at once
    except OSError as error:
        listener.close()
        raise ValueError(
            f"port must be one that is free, or 0 for any; {port} is not: {error.strerror}."
        ) from error
    return listener


def serve(port: int, max_pixels: int, *, tell: Callable[[str], None], open_browser: bool) -> None:
    """Serve until SIGINT or SIGTERM, and leave nothing behind."""
    token = new_token()
    with listening(port) as listener, tempfile.TemporaryDirectory(prefix="evoem-") as folder:
        port = listener.getsockname()[1]
        page = Page(Path(folder), max_pixels, lambda: server.should_exit)
        server = uvicorn.Server(
            uvicorn.Config(
                Guard(page.application(), token, port),
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="off",
                timeout_graceful_shutdown=PATIENCE,
            )
        )
        address = f"http://{HOST}:{port}/{token}/"
        tell(address)
        if open_browser:
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()
        try:
            server.run(sockets=[listener])
        finally:
            page.jobs.discard_all()
