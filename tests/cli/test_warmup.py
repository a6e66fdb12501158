"""`evoem warmup` compiles what is not there yet."""

from command_line import invoke

from evoem.images import kernels_ahead
from evoem.runtime.compile import CACHE
from evoem.runtime.compile_ahead import missing


def test_nothing_is_missing_afterwards():
    lines = kernels_ahead.needed_for_all(["subspaces"])
    number = len(missing(lines))
    result = invoke("warmup")
    assert result.exit_code == 0, result.output
    assert not missing(lines)
    if number:
        assert result.stdout.startswith(f"{number} kernels compiled in ")
        assert f"compiling: {number} of {number}\n" in result.stderr
    again = invoke("warmup")
    assert again.stdout == f"All kernels were there already, in {CACHE.folder}.\n"
    assert invoke("warmup", "--quiet").output == ""
