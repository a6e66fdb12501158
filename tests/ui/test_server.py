"""Serve the page to this computer until it is closed."""

import signal
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest
from running import page

from evoem.ui.server import listening


@pytest.mark.parametrize(
    ("kind", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_page_is_served_until_a_signal_and_nothing_stays(kind, code, tmp_path):
    with page(tmp_path) as (program, address):
        with urllib.request.urlopen(address) as answer:
            assert b"Drop a picture here" in answer.read()
        assert len(list(tmp_path.glob("evoem-*"))) == 1
        other = address.rstrip("/")[:-1] + "/"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(other)
        assert refused.value.code == 404
        refused.value.close()
        program.send_signal(kind)
        told, errors = program.communicate(timeout=120)
        assert program.returncode == code
        assert errors == ""
        assert told.endswith("Closed.\n")
    assert list(tmp_path.glob("evoem-*")) == []


def test_only_this_computer_can_reach_it(tmp_path):
    with listening(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port must be one that is free.*{port} is not"):
            listening(port)


def test_a_port_can_be_asked_for(tmp_path):
    with listening(0) as free:
        port = free.getsockname()[1]
    with page(tmp_path, "--port", str(port)) as (_, address):
        assert urlsplit(address).port == port
