"""Access to the page: only with its token, and from a page with its own address."""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

HOST = "127.0.0.1"
# Names by which a browser on this computer may call it. A name that others have made to lead here
# (DNS rebinding) is none of them.
NAMES = (HOST, "localhost")
# Nothing is loaded from elsewhere, shown in a frame, kept in a cache or told to others.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def new_token() -> str:
    """Part of the address that nobody can guess."""
    return secrets.token_urlsafe(24)


class Guard:
    """Passes on what may be, with the token taken off the path; else there is nothing here."""

    def __init__(self, application: Application, token: str, port: int) -> None:
        self._application = application
        self._token = token.encode()
        self._hosts = [f"{name}:{port}".encode() for name in NAMES]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._is_known(scope):
            if scope["type"] == "websocket":  # there is none
                await send({"type": "websocket.close", "code": 1008})
            elif scope["type"] == "http":
                await _nothing_here(send)
            return
        path = "/" + scope["path"].split("/", 2)[2]

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        await self._application(inner, receive, send_guarded)

    def _is_known(self, scope: Scope) -> bool:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value)
        host = headers.get(b"host", [])
        if len(host) != 1 or host[0] not in self._hosts:
            return False
        if any(origin != b"http://" + host[0] for origin in headers.get(b"origin", [])):
            return False
        # Browsers say so where no origin is sent, as with pictures and links of other pages.
        sites = headers.get(b"sec-fetch-site", [])
        if any(site not in (b"same-origin", b"none") for site in sites):
            return False
        parts = scope["path"].encode("utf-8", "surrogateescape").split(b"/", 2)
        return len(parts) == 3 and secrets.compare_digest(parts[1], self._token)


async def _nothing_here(send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": b"Not found.\n"})
