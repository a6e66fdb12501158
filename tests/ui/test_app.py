"""What the page asks for, and the answers."""

import io
import json
import time

import numpy as np
import pytest
import tifffile
from asking import ask
from command_line import noisy
from PIL import Image

from evoem.ui import app
from evoem.ui.app import STATIC, Page


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def page(tmp_path):
    made = Page(tmp_path, 10_000, lambda: False)
    yield made
    made.jobs.discard_all()


@pytest.fixture
def talk(page):
    application = page.application()
    return lambda *arguments, **options: ask(application, *arguments, **options)


def given(talk, array=None, name="in.png"):
    content = png(noisy() if array is None else array)
    return talk("POST", "/pictures", content, query=f"name={name}".encode()).json


def wish(picture, **more):
    asked = {"picture": picture, "task": "denoise", "preset": "fast", "keep": True} | more
    return json.dumps(asked).encode()


def finished(page, number):
    ends = time.monotonic() + 300
    while page.jobs[number].state not in ("done", "failed"):
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_the_page_and_its_parts_are_there_and_nothing_else(talk):
    assert b"Drop a picture here" in talk("GET", "/").body
    for name, kind in STATIC.items():
        found = talk("GET", f"/static/{name}")
        assert (found.status, found.headers["content-type"]) == (200, kind)
        assert b"://" not in found.body
    for path in ("/static/app.py", "/static/..", "/jobs/1/secrets/x", "/nowhere"):
        assert talk("GET", path).status == 404


def test_every_static_file_is_served():
    from importlib.resources import files

    shipped = {path.name for path in files("evoem.ui").joinpath("static").iterdir()}
    assert shipped == set(STATIC)


def test_a_picture_goes_in_and_a_result_a_map_and_a_report_come_out(page, talk):
    told = given(talk, name="my%20house.png")
    assert (told["name"], told["rows"], told["columns"]) == ("my house.png", 24, 22)
    assert talk("GET", f"/pictures/{told['id']}/before.png").body.startswith(b"\x89PNG")
    number = talk("POST", "/jobs", wish(told["id"])).json["id"]
    for what in ("result", "report"):
        assert talk("GET", f"/jobs/{number}/{what}").json == {"error": "There is no result yet."}
    finished(page, number)
    result = talk("GET", f"/jobs/{number}/result")
    assert "my%20house-restored.png" in result.headers["content-disposition"]
    restored = np.asarray(Image.open(io.BytesIO(result.body)))
    np.testing.assert_array_equal(restored, page.jobs[number].restored)
    std = tifffile.imread(io.BytesIO(talk("GET", f"/jobs/{number}/uncertainty").body))
    np.testing.assert_array_equal(std, page.jobs[number].std)
    assert "Before and after" in talk("GET", f"/jobs/{number}/report").body.decode()
    assert talk("GET", f"/jobs/{number}/after.png").body.startswith(b"\x89PNG")
    assert talk("GET", f"/jobs/{number}/secrets").status == 404
    assert talk("DELETE", f"/jobs/{number}").status == 204
    assert talk("GET", f"/jobs/{number}/result").json["error"].endswith("has expired.")


def test_a_mask_goes_in_and_is_shown(talk):
    number = given(talk)["id"]
    mask = np.zeros((24, 22), np.uint8)
    mask[3:5, 2:9] = 255
    assert talk("POST", f"/pictures/{number}/mask", png(mask)).json["masked"] == 14
    shown = np.asarray(Image.open(io.BytesIO(talk("GET", f"/pictures/{number}/mask.png").body)))
    np.testing.assert_array_equal(shown, mask)
    assert talk("POST", f"/pictures/{number}/mask", b"").json["masked"] == 0
    assert talk("GET", f"/pictures/{number}/mask.png").status == 400


def test_jpeg_is_not_compressed_again(talk, page):
    file = io.BytesIO()
    Image.fromarray(noisy()).save(file, "JPEG")
    told = talk("POST", "/pictures", file.getvalue(), query=b"name=in.jpg").json
    number = talk("POST", "/jobs", wish(told["id"])).json["id"]
    finished(page, number)
    found = talk("GET", f"/jobs/{number}/result")
    assert "in-restored.png" in found.headers["content-disposition"]


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", "/pictures", b"nonsense", "must be a"),
        ("GET", "/pictures/7/before.png", b"", "This picture has expired"),
        ("POST", "/jobs/7/stop", b"", "This result has expired"),
        ("POST", "/jobs", b"{}", "Unexpected error: KeyError"),
        ("POST", "/jobs", b"nonsense", "Expecting value"),
        ("POST", "/jobs", b" " * 10_000, "request is too large"),
    ],
)
def test_errors_are_one_sentence(method, path, body, words, talk):
    found = talk(method, path, body)
    assert found.status in (400, 500)
    assert words in found.json["error"]
    assert "\n" not in found.json["error"]


def test_an_upload_that_says_it_is_too_large_is_not_read(talk, monkeypatch, tmp_path):
    monkeypatch.setattr(app, "MOST_BYTES", 100)
    found = talk("POST", "/pictures", b"", headers=[("content-length", "101")])
    assert "must have at most" in found.json["error"]
    assert list(tmp_path.iterdir()) == []


def test_slices_are_those_of_the_stack(talk):
    number = given(talk)["id"]
    found = talk("GET", f"/pictures/{number}/before.png", query=b"slice=1")
    assert found.json == {"error": "slice must be from 0 to 0; got 1."}


def test_all_jobs_are_told_until_the_program_ends(tmp_path):
    looks = iter([False, False, True])
    page = Page(tmp_path, 10_000, lambda: next(looks))
    told = ask(page.application(), "GET", "/events").body.decode()
    assert told == "data: []\n\nevent: closed\ndata: {}\n\n"
    assert page.jobs.watchers == 0
