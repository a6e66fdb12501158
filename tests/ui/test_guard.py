"""Who may talk to the page."""

import pytest
from asking import ask

from evoem.ui.guard import Guard, new_token

TOKEN = "secret"
HERE = ("host", "127.0.0.1:5000")


async def echo(scope, receive, send):
    """Answers with the path it was asked for."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


def answer(path, *headers, **options):
    return ask(Guard(echo, TOKEN, 5000), "GET", path, headers=headers, **options)


@pytest.mark.parametrize(("path", "inner"), [("/secret/", "/"), ("/secret/jobs/1", "/jobs/1")])
@pytest.mark.parametrize("host", ["127.0.0.1:5000", "localhost:5000"])
def test_who_knows_the_token_is_let_in(path, inner, host):
    found = answer(path, ("host", host), ("origin", f"http://{host}"))
    assert (found.status, found.body.decode()) == (200, inner)
    assert "default-src 'none'" in found.headers["content-security-policy"]
    assert found.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", [HERE]),
        ("/secret", [HERE]),
        ("/secrets/", [HERE]),
        ("/SECRET/", [HERE]),
        ("//secret/", [HERE]),
        ("/geheim\udce4/", [HERE]),
        ("/secret/", []),
        ("/secret/", [("host", "127.0.0.1")]),
        ("/secret/", [("host", "127.0.0.1:5001")]),
        ("/secret/", [("host", "evil.example:5000")]),
        ("/secret/", [HERE, ("host", "evil.example:5000")]),
        ("/secret/", [HERE, ("origin", "http://evil.example:5000")]),
        ("/secret/", [HERE, ("origin", "null")]),
        ("/secret/", [HERE, ("origin", "http://localhost:5000")]),
        ("/secret/", [HERE, ("sec-fetch-site", "cross-site")]),
        ("/secret/", [HERE, ("sec-fetch-site", "same-site")]),
    ],
)
def test_nobody_else_is(path, headers):
    found = ask(
        Guard(echo, TOKEN, 5000), "GET", path.encode("utf-8", "replace").decode(), headers=headers
    )
    assert found.status == 404
    assert found.body == b"Not found.\n"


def test_sockets_are_closed():
    sent = []

    async def send(message):
        sent.append(message)

    with pytest.raises(StopIteration):
        Guard(echo, TOKEN, 5000)({"type": "websocket"}, None, send).send(None)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_tokens_differ_and_are_long():
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 32
