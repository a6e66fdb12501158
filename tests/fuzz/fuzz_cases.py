"""Cases: what is given to the program or the library, and what must come of it.

Every case ends in success or in one sentence. A case of the program that fails leaves the folder
as it was, with the exit code 1, or 2 for wrong usage; one that does not has written everything.
"""

import json
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from damage import COLOUR, GREY, HOLES, NOISE, PICTURES, STACK, damaged, pictures, saved
from hypothesis import strategies as st
from scipy import sparse
from typer.testing import CliRunner

import evoem
from evoem import cli, em
from evoem.cli.options import UNASKED
from evoem.images.options import OPTIONS
from evoem.models import BinarySparseCodingModel, NoisyOrModel, SpikeSlabModel, SubspaceModel

SMALL = {
    "preset": "fast", "start": "mean", "max_iter": 1, "patch_size": 3, "n_latents": 4,
    "n_states": 4, "n_jobs": 1, "nonlocal_passes": 0,
}  # fmt: skip
# Numbers and words for options and arguments. None of them asks for work without end.
NUMBERS = (-1, 0, 1, 2, 3, 5, 10**20, -(10**20), 2**31, 2**63, 0.5, -0.5, 1e-300, 1e300)
WORDS = ("", "x", "nan", "inf", "-inf", "1e999", "0x10", "٣", "é\ud800"[:1], "None", "[1]", " 2 ")
LONG = ("max_iter", "n_generations", "restarts")  # a large number of them is a wish, not an error
FEW = (-1, 0, 1, 2, 10**20, -(10**20), 0.5)


# Options that name a file to write, and what its name must end in.
WRITTEN = {
    "--json": "", "--report": ".html", "--propose-mask": ".png", "--uncertainty": ".npy",
    "--checkpoint": ".run",
}  # fmt: skip
# What is no number, nor declared as a choice.
NAMES = {
    "parents": ("fit", "random", "best"), "mutation": ("uniform", "sparse", "guided"),
    "memory": ("64M", "1G", "1", 10**20), "noise": ("auto", "gaussian", "correlated"),
    "crossover": ("True", "False"),
}  # fmt: skip


def fitting(name):
    """Values that an option may have, or that are near to them."""
    choices = NAMES.get(name) or (name in OPTIONS and OPTIONS[name].setting.choices)
    return st.sampled_from(choices or (FEW if name in LONG else NUMBERS))


class Failure(AssertionError):
    """What must not come of a case."""


def one_sentence(text):
    """Refuse more, or less."""
    if not text.endswith(".") or "\n" in text or "Traceback" in text or not text[:-1].strip():
        raise Failure(f"no sentence: {text[:2000]!r}")


# ------------------------------------------------------------------------------------- the program


def run(arguments, folder):
    """The command line, of which nothing but its promises is known."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    after = {path: path.read_bytes() for path in folder.iterdir()}
    said = f"\n{arguments}\n{result.output[:2000]}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise Failure(f"{result.exception!r}{said}") from result.exception
    if result.exit_code not in (0, 1, 2):
        raise Failure(f"exit code {result.exit_code}{said}")
    if {path: after.get(path) for path in before} != before:
        raise Failure(f"inputs changed{said}")
    new = {path.name for path in after.keys() - before.keys()}
    expected = set()
    if result.exit_code == 0:
        written = {
            option: Path(arguments[place + 1]).name  # the last one counts
            for place, option in enumerate(arguments)
            if option == "-o" or option in WRITTEN
        }
        expected = set(written.values())
    if {name for name in new if not name.endswith(".run")} != {
        name
        for name in expected
        if not name.endswith(".run")  # which stays for another time
    }:
        raise Failure(f"{new} instead of {expected}{said}")
    if result.exit_code == 1:
        if not result.stderr.startswith("evoem: "):
            raise Failure(f"not our sentence{said}")
        one_sentence(result.stderr.removesuffix("\n"))
    if result.exit_code == 0 and result.stderr:
        raise Failure(f"something beside the result{said}")
    ours = [one for one in told if "evoem" in one.filename and "files" not in one.filename]
    if ours:
        raise Failure(f"{ours[0].message} from {ours[0].filename}:{ours[0].lineno}{said}")
    return result.exit_code


def small(**other):
    """Options for a run of a moment."""
    options = ["--quiet"]
    for name, value in (SMALL | other).items():
        options += [f"--{name.replace('_', '-')}", str(value)]
    return options


@st.composite
def files_case(draw):
    """A file of any role, damaged or not, given to the program."""
    name, content = draw(pictures())
    role = draw(st.sampled_from(("input", "input", "--mask", "--reference", "--noise-variance")))
    options = draw(
        st.lists(
            st.sampled_from(
                (
                    ("--accept-truncated",),
                    ("--missing-value", "140"),
                    ("--max-pixels", "300"),
                    ("--axes", "YX"),
                    ("--axes", "ZYX"),
                    ("--axes", "CYX"),
                    ("--axes", "X Y"),
                )
            ),
            max_size=2,
            unique=True,
        )
    )
    command = draw(st.sampled_from(("denoise", "inpaint", "inpaint", "noise")))
    written = draw(st.sampled_from((".npy", ".tif", ".png", ".fits", ".nii.gz", ".h5")))
    proposed, reported = (draw(st.integers(0, 9)) == 0 for _ in range(2))

    def case(folder):
        (folder / name).write_bytes(content)
        given = [folder / name]
        if command != "noise" and role != "input":
            other = "colour.png" if "colour" in name else "grey.png"
            (folder / f"in-{other}").write_bytes(PICTURES[other])
            given = [folder / f"in-{other}", role, folder / name]
        (folder / "holes.png").write_bytes(PICTURES["mask.png"])
        if command == "inpaint" and role != "--mask":
            given += ["--mask", folder / "holes.png"]
        if command == "noise":
            rest = [option for option in options if option[0] != "--missing-value"]
            rest = [part for option in rest for part in option]
            told = [] if reported else ["--json", folder / "out.json"]
            return run(["noise", *given, *told, *rest], folder)
        if role == "--mask" and command == "denoise":
            given = ["inpaint", *given]
        else:
            given = [command, *given]
        given += [part for option in options for part in option]
        if given[0] == "inpaint" and proposed:
            return run([*given, "--quiet", "--propose-mask", folder / "proposed.png"], folder)
        if reported:
            given += ["--report", folder / "page.html"]
        given += ["-o", folder / f"out{written}", "--uncertainty", folder / "std.npy"]
        return run([*given, "--json", folder / "out.json", *small()], folder)

    return case


@st.composite
def options_case(draw):
    """Options of the program, as anybody may write them."""
    flags = [f"--{name.replace('_', '-')}" for name in OPTIONS if name not in UNASKED]
    flags += ["--max-pixels", "--reference", "--mask", *WRITTEN]
    given = []
    for _ in range(draw(st.integers(1, 3))):
        flag = draw(st.sampled_from(flags))
        name = flag.removeprefix("--").replace("-", "_")
        value = draw(fitting(name) if draw(st.integers(0, 4)) else st.sampled_from(WORDS))
        given += [flag, str(value)] if draw(st.integers(0, 9)) else [flag]
    command = draw(st.sampled_from(("denoise", "inpaint")))

    def case(folder):
        (folder / "in.png").write_bytes(PICTURES["grey.png"])
        (folder / "holes.png").write_bytes(PICTURES["mask.png"])
        arguments = [command, folder / "in.png", "-o", folder / "out.png", *small(), *given]
        if command == "inpaint" and "--mask" not in given:
            arguments += ["--mask", folder / "holes.png"]
        # What is written must lie in the folder.
        for place, option in enumerate(arguments):
            if option in WRITTEN and place + 1 < len(arguments):
                name = "".join(letter for letter in str(arguments[place + 1]) if letter.isalnum())
                arguments[place + 1] = folder / f"w{name}{WRITTEN[option]}"
        return run(arguments, folder)

    return case


@st.composite
def noise_file_case(draw):
    """A file that tells the noise."""
    content = draw(
        st.one_of(
            damaged(NOISE),
            st.dictionaries(
                st.sampled_from(("gain", "offset", "read_variance", "clipped", "notes", "told",
                                 "correlation", "channel_correlation", "outliers", "curve_signal")),
                st.recursive(
                    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
                    lambda inner: st.lists(inner, max_size=4), max_leaves=8,
                ),
            ).map(lambda values: json.dumps(values).encode()),
        )
    )  # fmt: skip

    def case(folder):
        (folder / "in.png").write_bytes(PICTURES["grey.png"])
        (folder / "n.json").write_bytes(content)
        arguments = ["denoise", folder / "in.png", "--noise", folder / "n.json"]
        return run([*arguments, "-o", folder / "out.png", *small()], folder)

    return case


# ------------------------------------------------------------------------------------- the library


def refused(call):
    """Whether a call is refused, in one sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*did not converge")
        try:
            call()
        except (ValueError, TypeError, MemoryError) as error:
            if not isinstance(error, TypeError | MemoryError):
                one_sentence(str(error))
            return True
    return False


def whole_numbers():
    """Integers of Python and NumPy, and what is none."""
    small_ones = st.integers(1, 6)
    kinds = st.sampled_from((np.int8, np.uint8, np.int16, np.uint64, np.intp, int))
    return st.one_of(
        st.builds(lambda kind, value: kind(value), kinds, small_ones),
        st.sampled_from((0, -1, 10**20, np.int8(-3), True, None, "3", 2.0, np.nan, [2], b"2")),
    )


def arrays():
    """Images and data of any type and shape, with values that hurt."""
    values = st.sampled_from(
        (0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e5, -3.4e38, 1e300, 5e-324, 255.0)
    )
    shapes = st.one_of(
        st.sampled_from(((16, 14), (16, 14, 3), (2, 16, 14), (14, 16, 4))),
        st.lists(st.integers(0, 12), max_size=4).map(tuple),
    )
    kinds = st.sampled_from(
        ("f8", "f4", "f2", "u1", "i2", "u8", "i8", "?", "c8", "U2", "O", "M8[s]")
    )

    def made(shape, kind, odd, number, seed):
        rng = np.random.default_rng(seed)
        array = rng.normal(100, 20, shape)
        if array.size:
            array.flat[rng.integers(0, array.size, number)] = odd
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return array.astype("i8").astype(kind) if kind == "M8[s]" else array.astype(kind)

    return st.builds(made, shapes, kinds, values, st.integers(0, 9), st.integers(0, 99))


def tables():
    """Tables of all sorts that somebody may have."""
    good = GREY / 10.0
    kinds = {
        "sparse": lambda: sparse.csr_array(good),
        "no number": lambda: [["a", "b"]] * 4,
        "unequal": lambda: [[1.0, 2.0], [3.0]],
        "objects": lambda: good.astype(object),
        "nothing among objects": lambda: np.where(good > 10, None, good.astype(object)),
        "masked": lambda: np.ma.masked_greater(good, 12),
        "no rows": lambda: good[:0],
        "no features": lambda: good[:, :0],
        "one row": lambda: good[:1],
        "one feature": lambda: good[:, :1],
        "one value": lambda: good[:1, :1],
        "nothing observed": lambda: np.full_like(good, np.nan),
        "a row of nothing": lambda: with_line(good, np.s_[3], np.nan),
        "a feature of nothing": lambda: with_line(good, np.s_[:, 3], np.nan),
        "a feature of zeros": lambda: with_line(good, np.s_[:, 3], 0.0),
        "the same rows": lambda: np.repeat(good[:1], 9, axis=0),
        "the same features": lambda: np.repeat(good[:, :1], 9, axis=1),
        "twice the same": lambda: np.hstack([good, good]),
        "other scales": lambda: good * np.logspace(-90, 90, good.shape[1]),
        "huge": lambda: good * 1e98,
        "tiny": lambda: good * 1e-99,
        "far away": lambda: good + 1e12,
        "every other": lambda: np.repeat(good, 2, axis=1)[:, ::2],
        "read-only": lambda: np.frombuffer(good.tobytes()).reshape(good.shape),
        "big-endian": lambda: good.astype(">f4"),
        "columns first": lambda: np.asfortranarray(good.astype("f4")),
    }
    return st.sampled_from(sorted(kinds)).map(lambda name: kinds[name]())


def with_line(table, where, value):
    """The table with another row or column."""
    table = table.copy()
    table[where] = value
    return table


def anything():
    """A value of any kind, for an argument."""
    return st.one_of(
        whole_numbers(), st.sampled_from((*NUMBERS, *WORDS, "coarse", "mean", "es3c", "ebsc")),
        st.sampled_from((np.float32(0.5), (), {}, object(), np.array([1, 2]), np.array(3))),
    )  # fmt: skip


@st.composite
def images_case(draw):
    """Arguments of `restore`, `denoise` and `inpaint`."""
    function = draw(st.sampled_from((evoem.restore, evoem.denoise, evoem.inpaint)))
    options = dict(SMALL)
    with_holes = np.where(HOLES > 0, np.nan, GREY)
    image = draw(st.one_of(arrays(), st.just(with_holes), st.just(with_holes.astype("f4"))))
    if image.ndim == 3 and draw(st.booleans()):
        options["channel_axis"] = draw(st.sampled_from((-1, 0, 2, 7, np.int8(-1), "x")))
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(OPTIONS.keys() - {"checkpoint"})))
        near = name in LONG or draw(st.booleans())
        options[name] = draw(fitting(name) if near else anything())
    if function is not evoem.denoise:
        mask = draw(st.one_of(st.none(), arrays(), st.just(HOLES > 0)))
        options["mask"] = mask

    return lambda folder: refused(lambda: function(image, **options))


@st.composite
def estimators_case(draw):
    """Arguments of the estimators, and data."""
    kind = draw(
        st.sampled_from(
            (evoem.NoisyOr, evoem.BinarySparseCoding, evoem.SpikeSlabCoding, evoem.SubspaceCoding)
        )
    )
    options = {"n_latents": 4, "n_states": 6, "max_iter": 2, "tol": 0.0, "random_state": 1}
    names = sorted(kind(2).get_params())
    for _ in range(draw(st.integers(0, 1))):
        name = draw(st.sampled_from([*names, "n_latents", "n_states", "n_children", "n_parents"]))
        long = name in (*LONG, "n_generations")
        options[name] = draw(st.sampled_from(FEW) if long else anything())
    options["mutation"] = draw(st.sampled_from(("uniform", "sparse", "guided")))
    good = GREY > 110 if kind is evoem.NoisyOr else GREY / 10.0
    X = draw(st.one_of(arrays(), tables(), st.just(good)))
    other = draw(st.one_of(st.none(), arrays(), tables()))
    if kind is evoem.NoisyOr and draw(st.booleans()):
        options["binarize"] = 10.0
    method = draw(st.sampled_from(("transform", "reconstruct", "score", "score_samples")))

    def call():
        model = kind(**options).fit(X)
        found = getattr(model, method)(X if other is None else other)
        if not np.isfinite(found).all():
            raise Failure(f"{method} gave what is not finite")

    return lambda folder: refused(call)


@st.composite
def core_case(draw):
    """Arguments of the functional core."""
    model = draw(
        st.sampled_from(
            (NoisyOrModel(), BinarySparseCodingModel(), SpikeSlabModel(), SubspaceModel(2))
        )
    )
    X = (GREY > 110).astype(float) if isinstance(model, NoisyOrModel) else GREY / 10.0
    numbers = {"n_latents": 3, "n_states": 4, "seed": 0, "n_parts": 2}
    numbers |= {"n_parents": 3, "n_children": 2}
    for name in draw(st.lists(st.sampled_from(sorted(numbers)), max_size=2)):
        numbers[name] = draw(whole_numbers())
    n_parts = numbers.pop("n_parts")
    evolution = em.Evolution(
        numbers.pop("n_parents"), numbers.pop("n_children"),
        draw(st.sampled_from((1, 2, np.int8(2), 0))),
        draw(st.sampled_from(("fit", "random", "best", "x"))),
        draw(st.sampled_from(("uniform", "sparse", "guided"))),
        draw(st.booleans()),
    )  # fmt: skip

    def call():
        data = em.Data(X)
        state = em.init(model, data, **numbers)
        em.run(model, data, state, evolution, max_iter=2, n_parts=n_parts)

    return lambda folder: refused(call)


# --------------------------------------------------------------------------------------- own files


def _run(path, max_iter, resume=True):
    data = em.Data(GREY / 10.0)
    state = em.init(BinarySparseCodingModel(), data, n_latents=4, n_states=6, seed=0)
    em.run(
        BinarySparseCodingModel(), data, state, em.Evolution(3, 2, 1), max_iter=max_iter,
        checkpoint=path, resume=resume,
    )  # fmt: skip


def _log_joint(params, X, states):
    return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)


def _black_box():
    return evoem.BlackBox(_log_joint, {"W": np.ones((3, 14))}, n_latents=3, update=False)


def _of_picture(path, resume=True):
    evoem.denoise(GREY, **SMALL | {"max_iter": 2}, seed=0, checkpoint=path, every=0, resume=resume)


@cache
def own_file(kind):
    """A whole one."""
    if kind == "parameters":
        return saved(np.savez, W=np.ones((3, 14)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c"
        if kind == "of a picture":
            _of_picture(path, resume=False)
        else:
            _run(path, 1, resume=False)
        return path.read_bytes()


@st.composite
def own_files_case(draw):
    """Checkpoints and saved parameters."""
    kind = draw(st.sampled_from(("checkpoint", "of a picture", "parameters")))
    content = draw(damaged(own_file(kind)))

    def case(folder):
        (folder / kind).write_bytes(content)
        if kind == "checkpoint":
            return refused(lambda: _run(folder / kind, 2))
        if kind == "of a picture":
            return refused(lambda: _of_picture(folder / kind))
        return refused(lambda: _black_box().load_params(folder / kind))

    return case


CASES = {
    "files": files_case, "options": options_case, "noise files": noise_file_case,
    "images": images_case, "estimators": estimators_case, "core": core_case,
    "own files": own_files_case,
}  # fmt: skip
WEIGHTS = ("files",) * 5 + ("options",) * 2 + ("own files",) * 3 + (
    "noise files", "images", "images", "estimators", "core"
)  # fmt: skip


@st.composite
def any_case(draw):
    """A case and its kind."""
    kind = draw(st.sampled_from(WEIGHTS))
    return kind, draw(CASES[kind]())


def warm_up(folder):
    """Compile what most cases need, so that it is not told to be their memory and time."""
    for place, name in enumerate(("grey.png", "colour.png", "float.tif", "stack.npy")):
        own = folder / str(place)
        own.mkdir()
        (own / name).write_bytes(PICTURES[name])
        run(["denoise", own / name, "-o", own / "out.npy", *small()], own)
    evoem.inpaint(np.where(HOLES > 0, np.nan, GREY), **SMALL)
    evoem.denoise(STACK, **SMALL)
    evoem.denoise(COLOUR, channel_axis=-1, **SMALL)
    for kind in (evoem.NoisyOr, evoem.BinarySparseCoding, evoem.SpikeSlabCoding):
        X = GREY > 110 if kind is evoem.NoisyOr else GREY / 10.0
        refused(lambda kind=kind, X=X: kind(4, n_states=6, max_iter=2).fit(X))
