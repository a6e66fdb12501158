"""Stages are told to whoever watches."""

import threading

from evoem.runtime import stages


def test_stages_are_told_with_how_far_they_are():
    told = []
    with stages.watched(lambda *stage: told.append(stage)):
        advance = stages.begin("learning", 3)
        advance(1)
        advance(2)
        stages.begin("writing")
    assert told == [("learning", 0, 3), ("learning", 1, 3), ("learning", 3, 3), ("writing", 0, 0)]


def test_other_threads_may_tell_of_their_parts():
    told = []
    with stages.watched(lambda *stage: told.append(stage)):
        advance = stages.begin("restoring", 2)
        thread = threading.Thread(target=advance, args=[2])
        thread.start()
        thread.join()
    assert told[-1] == ("restoring", 2, 2)


def test_nobody_has_to_watch():
    stages.begin("learning", 3)(1)
    told = []
    with stages.watched(lambda *stage: told.append(stage)):
        with stages.watched(lambda *stage: None):
            stages.begin("inner")
        stages.begin("outer")
    stages.begin("after")
    assert told == [("outer", 0, 0)]
