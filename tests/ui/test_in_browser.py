"""The page and the report in a real browser, as a person uses them."""

import base64
import io
import re
import shutil

import numpy as np
import pytest
from command_line import noisy
from PIL import Image
from running import page as served
from sample_images import TINY

from evoem import restore

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FOUND = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 300_000  # milliseconds
SIZE = (32, 40)

pytestmark = pytest.mark.skipif(FOUND is None, reason="no browser is installed, such as chromium")

DROP = """([coded, name]) => {
  const bytes = Uint8Array.from(atob(coded), letter => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, {type: 'image/png'}));
  const options = {bubbles: true, cancelable: true, dataTransfer: transfer};
  document.querySelector('#drop').dispatchEvent(new DragEvent('drop', options));
}"""


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=FOUND, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def tab(browser):
    """A tab that must not say anything on its console, nor ask anybody else."""
    context = browser.new_context(viewport={"width": 1200, "height": 850}, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    opened, said, asked = context.new_page(), [], []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    own = opened.url.rsplit("/", 1)[0]
    context.close()
    # What the program refuses is said there by the browser.
    assert [words for words in said if not words.startswith("Failed to load resource")] == []
    assert [url for url in asked if not url.startswith((own, "data:", "blob:"))] == []


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def drop(tab, content, name):
    tab.evaluate(DROP, [base64.b64encode(content).decode(), name])
    tab.wait_for_selector("#controls:not([hidden])")


def downloaded(tab, what):
    with tab.expect_download() as download:
        tab.click(f"#get-{what}")
    return download.value.suggested_filename, download.value.path().read_bytes()


def until(tab, place, words):
    """Wait until something says so."""
    tab.locator(place, has_text=words).wait_for()


def marked(tab):
    """Pixels of the mask that are painted."""
    return tab.evaluate("""() => {
      const canvas = document.querySelector('#mask');
      const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return data.filter((value, place) => place % 4 === 3 && value > 127).length;
    }""")


def fits(tab):
    return tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_drop_paint_run_compare_and_download(tab, tmp_path):
    given = noisy(SIZE)
    with served(tmp_path) as (_, address):
        tab.goto(address)
        drop(tab, png(given), "steps.png")
        assert "32 × 40, uint8" in tab.inner_text("#about")
        tab.check("input[value=inpaint]")
        tab.check("input[value=fast]")
        tab.click("#run")
        tab.wait_for_selector("#error:not([hidden])")
        assert "paint or load a mask first" in tab.inner_text("#error")

        box = tab.locator("#mask").bounding_box()
        scale = box["width"] / SIZE[1]
        tab.mouse.move(box["x"] + 10 * scale, box["y"] + 8 * scale)
        tab.mouse.down()
        tab.mouse.move(box["x"] + 30 * scale, box["y"] + 8 * scale, steps=8)
        tab.mouse.up()
        # A second stroke is taken back, by the button or by keys; the first one stays.
        first = marked(tab)
        for undo in (lambda: tab.click("#undo"), lambda: tab.keyboard.press("Control+z")):
            tab.mouse.move(box["x"] + 5 * scale, box["y"] + 20 * scale)
            tab.mouse.down()
            tab.mouse.move(box["x"] + 35 * scale, box["y"] + 25 * scale, steps=3)
            tab.mouse.up()
            assert marked(tab) > first
            undo()
            assert marked(tab) == first
        tab.click("#run")
        tab.wait_for_selector("#results:not([hidden])")
        assert tab.is_hidden("#error")
        assert re.fullmatch(r"\d+ pixels are marked\.", tab.inner_text("#masked"))
        assert tab.inner_text("#job-state").startswith("Done in")

        slider = tab.locator("#slider")
        before = slider.input_value()
        slider.focus()
        tab.keyboard.press("ArrowLeft")
        assert float(slider.input_value()) < float(before)
        clip = tab.evaluate("getComputedStyle(document.querySelector('#after')).clipPath")
        assert clip == f"inset(0px 0px 0px {slider.input_value()}%)"

        name, content = downloaded(tab, "result")
        restored = np.asarray(Image.open(io.BytesIO(content)))
        assert name == "steps-restored.png"
        changed = restored != given
        assert changed[8, 12:28].mean() > 0.5
        assert not changed[11:].any()  # was not painted, and so is as it was
        name, content = downloaded(tab, "uncertainty")
        assert name == "steps-uncertainty.tif"
        name, content = downloaded(tab, "report")
        assert name == "steps-report.html"
        assert b"Before and after" in content
        tab.set_viewport_size({"width": 340, "height": 700})
        assert fits(tab)


def test_run_stop_keep_and_wait_in_the_queue(tab, tmp_path):
    with served(tmp_path) as (_, address):
        tab.goto(address)
        drop(tab, png(noisy((96, 96))), "first.png")
        tab.check("input[value=best]")
        tab.click("#run")
        until(tab, "#job-state", " of ")
        tab.wait_for_selector("#after:not([hidden])")  # it is seen while it gets better
        drop(tab, png(noisy(SIZE, seed=1)), "second.png")
        tab.check("input[value=fast]")
        tab.click("#run")
        until(tab, "#job-state", "Waiting")
        until(tab, "#jobs", "second.png")
        tab.click("#jobs button[aria-label='Show first.png']")
        until(tab, "#job-title", "first.png")
        tab.click("#stop")
        tab.wait_for_selector("#results:not([hidden])")
        assert downloaded(tab, "result")[0] == "first-restored.png"
        tab.click("#jobs button[aria-label='Show second.png']")
        tab.wait_for_selector("#results:not([hidden])")
        tab.click("#jobs button[aria-label='Remove first.png']")
        tab.locator("#jobs li", has_text="first.png").wait_for(state="detached")
        assert tab.locator("#jobs li").count() == 1


def test_keys_alone_are_enough_to_paint(tab, tmp_path):
    with served(tmp_path) as (_, address):
        tab.goto(address)
        tab.set_input_files(
            "#file", {"name": "a.png", "mimeType": "image/png", "buffer": png(noisy(SIZE))}
        )
        tab.wait_for_selector("#controls:not([hidden])")
        tab.focus("input[value=denoise]")
        tab.keyboard.press("ArrowDown")
        tab.focus("#mask")
        for key in ("ArrowLeft", "ArrowUp", "Space"):
            tab.keyboard.press(key)
        assert marked(tab) > 0


def test_a_finger_paints_and_the_picture_can_be_enlarged(browser, tmp_path):
    context = browser.new_context(viewport={"width": 400, "height": 800}, has_touch=True)
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    with served(tmp_path) as (_, address):
        tab.goto(address)
        tab.set_input_files(
            "#file", {"name": "a.png", "mimeType": "image/png", "buffer": png(noisy(SIZE))}
        )
        tab.wait_for_selector("#controls:not([hidden])")
        tab.check("input[value=inpaint]")
        box = tab.locator("#mask").bounding_box()
        session = context.new_cdp_session(tab)
        start = {"x": box["x"] + box["width"] / 4, "y": box["y"] + box["height"] / 2}
        end = start | {"x": box["x"] + box["width"] / 2}
        for kind, points in (("Start", [start]), ("Move", [end]), ("End", [])):
            session.send(
                "Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points}
            )
        few = marked(tab)
        assert few >= SIZE[1] / 4
        tab.click("#larger")
        assert tab.inner_text("#zoomed") == "2×"
        assert tab.locator("#mask").bounding_box()["width"] == pytest.approx(2 * box["width"])
        assert fits(tab)
        tab.click("#smaller")
        assert tab.is_disabled("#smaller")
    context.close()


def test_tabs_share_the_queue(browser, tmp_path):
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    one, other = context.new_page(), context.new_page()
    with served(tmp_path) as (program, address):
        one.goto(address)
        other.goto(address)
        drop(one, png(noisy(SIZE)), "a.png")
        one.check("input[value=fast]")
        one.click("#run")
        other.click("#jobs button[aria-label='Show a.png']")
        other.wait_for_selector("#results:not([hidden])")
        program.terminate()
        for tab in (one, other):
            until(tab, "#error", "The program was closed.")
    context.close()


def test_a_file_that_is_no_picture_is_refused_in_one_sentence(tab, tmp_path):
    with served(tmp_path) as (_, address):
        tab.goto(address)
        tab.set_input_files(
            "#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"hello"}
        )
        tab.wait_for_selector("#error:not([hidden])")
        assert tab.inner_text("#error").startswith("a.txt must be a")


@pytest.mark.parametrize("width", [1100, 320])
def test_a_report_needs_no_network(browser, width, tmp_path):
    result = restore(noisy(SIZE), **TINY)
    result.report(tmp_path / "report.html")
    context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
    tab, said, asked = context.new_page(), [], []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((tmp_path / "report.html").as_uri())
    slider = tab.locator(".compare input").first
    slider.focus()
    tab.keyboard.press("Home")
    at = "getComputedStyle(document.querySelector('.compare')).getPropertyValue('--at')"
    assert tab.evaluate(at) == "0%"
    assert tab.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
    assert fits(tab)
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()
