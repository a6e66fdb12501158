"""C libraries are silent for a while, and Python and they speak again afterwards."""

import os
from contextlib import suppress

from evoem.runtime.silence import STANDARD_ERROR, silent_libraries


def test_what_libraries_write_is_lost_only_inside_however_it_ends(capfd):
    def write(word):
        os.write(STANDARD_ERROR, word)  # as a C library does, past Python's `sys.stderr`

    write(b"before ")
    with silent_libraries():
        write(b"inside ")
        with silent_libraries():
            write(b"twice inside ")
        write(b"inside again ")
    with suppress(KeyError), silent_libraries():
        write(b"before an error ")
        raise KeyError
    write(b"after")
    assert capfd.readouterr().err == "before after"


def test_no_file_stays_open():
    def is_open():
        found = []
        for number in range(50):
            try:
                os.fstat(number)
            except OSError:
                continue
            found.append(number)
        return found

    before = is_open()
    for _ in range(3):
        with silent_libraries():
            pass
    assert is_open() == before


def test_a_program_without_standard_error_can_be_silent_too():
    kept = os.dup(STANDARD_ERROR)
    os.close(STANDARD_ERROR)
    try:
        with silent_libraries():
            done = True
    finally:
        os.dup2(kept, STANDARD_ERROR)
        os.close(kept)
    assert done
