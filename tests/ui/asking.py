"""Requests to an application, without a network."""

import asyncio
import json
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def ask(application, method, path, body=b"", headers=(), query=b"", kind="http"):
    """The answer to one request; its body comes in two parts."""
    sent = []
    half = len(body) // 2
    parts = [
        {"type": "http.request", "body": body[:half], "more_body": True},
        {"type": "http.request", "body": body[half:], "more_body": False},
    ]

    async def receive():
        if parts:
            return parts.pop(0)
        await asyncio.sleep(3600)  # nobody leaves

    async def send(message):
        sent.append(message)

    scope = {
        "type": kind, "method": method, "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query, "headers": [(a.encode(), b.encode()) for a, b in headers],
        "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80), "asgi": {},
    }  # fmt: skip
    asyncio.run(application(scope, receive, send))
    start = sent[0]
    headers = {key.decode(): value.decode() for key, value in start.get("headers", [])}
    return Answer(
        start.get("status", 0), headers, b"".join(each.get("body", b"") for each in sent[1:])
    )
