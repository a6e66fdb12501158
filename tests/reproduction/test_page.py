"""The page shows what it is given as it is, and is one file."""

import base64
from html.parser import HTMLParser

import pytest

from evoem.reproduction import figures
from evoem.reproduction.comparison import Table
from evoem.reproduction.page import Page, write

STRANGE = '<b> & "quotes" </td>'


class Reader(HTMLParser):
    """All tags, and all text that a reader sees."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.shown = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.shown.append(data)


def page_of(**changes):
    table = Table(STRANGE, (STRANGE, "b"), ((STRANGE, "1"), ("2", STRANGE)))
    page = Page(STRANGE, STRANGE, STRANGE, STRANGE, [STRANGE], [table], {}, {"versions": table})
    return Reader(write(page._replace(**changes)))


def test_what_looks_like_a_tag_is_shown_as_it_is():
    found = page_of()
    assert not [tag for tag, _ in found.tags if tag == "b"]
    # Twice as title, where, what it shows, what is less, a note; twice 4 times in a table.
    assert sum(text.count(STRANGE) for text in found.shown) == 6 + 2 * 4
    assert sum(tag == "td" for tag, _ in found.tags) == 8


def test_figures_lie_in_the_page_and_nothing_lies_elsewhere():
    pytest.importorskip("matplotlib")
    figure = figures.new(2, 2)
    found = page_of(figures={"a-line": figure})
    (image,) = [attributes for tag, attributes in found.tags if tag == "img"]
    kind, coded = image["src"].split(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(coded) == figures.as_bytes(figure, "png")
    assert image["alt"] == "a line"
    elsewhere = {"src", "href", "srcset", "action"}
    assert not [a for tag, a in found.tags if elsewhere & a.keys() and tag != "img"]


@pytest.mark.parametrize(("n_rows", "attributes"), [(3, {"open": None}), (300, {})])
def test_long_tables_of_facts_are_folded(n_rows, attributes):
    table = Table("settings", ("a",), (("1",),) * n_rows)
    assert ("details", attributes) in page_of(facts={"settings": table}).tags


def test_nothing_is_said_of_what_there_is_not():
    found = page_of(reduced="", notes=[], tables=[], facts={})
    assert not {"ul", "table", "h2"} & {tag for tag, _ in found.tags}
    assert "Reduced: " not in " ".join(found.shown)
