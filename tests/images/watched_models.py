"""Models of images that tell when a member of theirs is called: rows of the table of one's own."""

import itertools

from evoem.images.image_models import IMAGE_MODELS


class Watched:
    """A model, and functions to call before some of its members."""

    def __init__(self, model, tell):
        self.model, self.tell = model, tell

    def __getattr__(self, name):
        member = getattr(self.model, name)
        if name not in self.tell:
            return member

        def told(*arguments, **options):
            self.tell[name]()
            return member(*arguments, **options)

        return told


def watch(monkeypatch, kind="subspaces", make=None, **tell):
    """In the table, put a watched model in place of one; `make` is called before one is made."""
    own = IMAGE_MODELS[kind]

    def made(settings, canonical):
        if make is not None:
            make()
        return Watched(own.make(settings, canonical), tell)

    monkeypatch.setitem(IMAGE_MODELS, kind, own._replace(make=made))


def at(numbers, act):
    """A function that acts when it is called for one of these times, counted from one."""
    calls = itertools.count(1)  # threads may call it

    def count():
        if next(calls) in numbers:
            act()

    return count
