"""The command line: pictures in, pictures out, and one sentence where that cannot be."""

import inspect
import json
import os
import platform
import signal
import subprocess
import sys

import numpy as np
import pytest
import tifffile
from PIL import Image
from typer.testing import CliRunner

import evoem
from evoem import cli, progress
from evoem.images import canonical_arrays, nonlocal_bayes
from evoem.images.learning import Progress
from evoem.images.options import OPTIONS
from evoem.images.patch_model import PatchModel, PatchSource
from evoem.images.quality import psnr
from evoem.images.restore import restore

SIZE = (24, 22)
TINY = ["--preset", "fast", "--start", "mean", "--max-iter", "2", "--n-jobs", "1"]
FEW_CHANNELS = ["--patch-size", "4", "--n-latents", "12"]


def noisy(shape=SIZE, dtype=np.uint8, seed=0):
    rows, columns = shape[:2]
    steps = 100.0 + 60 * (np.add.outer(np.arange(rows) // 6, np.arange(columns) // 6) % 2)
    steps = steps.reshape(rows, columns, *[1] * (len(shape) - 2))
    return (steps + np.random.default_rng(seed).normal(0, 10, shape)).astype(dtype)


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def refused(folder, *arguments):
    """The sentence of a command that fails and leaves the folder as it was."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = invoke(*arguments, *TINY)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("evoem: ")
    assert result.stderr.endswith(".\n")
    assert result.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    return result.stderr


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "in.png"
    Image.fromarray(noisy()).save(path)
    return path


@pytest.fixture
def holes(tmp_path):
    mask = np.zeros(SIZE, np.uint8)
    mask[4:8, 5:9] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    return mask > 0


@pytest.fixture
def interrupt(monkeypatch):
    """Ctrl-C after so many iterations, counted over all slices."""

    def after(n_iterations):
        count = 0
        own = PatchModel.iterate

        def stopping(model):
            nonlocal count
            count += 1
            info = own(model)
            if count == n_iterations:
                signal.raise_signal(signal.SIGINT)
            return info

        monkeypatch.setattr(PatchModel, "iterate", stopping)

    return after


# What goes in comes out


def test_a_png_is_denoised_as_restore_does_it(tmp_path, picture):
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY, "--seed", 3)
    assert result.exit_code == 0, result.output
    expected = restore(noisy(), preset="fast", start="mean", max_iter=2, seed=3)
    written = np.array(Image.open(tmp_path / "out.png"))
    assert (written == expected.image).all()
    line = f"{tmp_path / 'out.png'}: noise level {expected.noise_level:.4g}, 2 iterations, "
    assert result.stdout.startswith(line)
    assert result.stdout.endswith(" s, all iterations done\n")


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_a_tiff_keeps_its_type_and_resolution(tmp_path, dtype):
    source, target = tmp_path / "in.tif", tmp_path / "out.tif"
    tifffile.imwrite(source, noisy(dtype=dtype), resolution=(300, 200), resolutionunit="inch")
    assert invoke("denoise", source, "-o", target, *TINY).exit_code == 0
    with tifffile.TiffFile(target) as file:
        assert file.asarray().dtype == dtype
        assert file.asarray().shape == SIZE
        assert file.pages[0].get_resolution("inch") == (300, 200)


def test_an_npy_file_comes_back_as_one(tmp_path):
    np.save(tmp_path / "in.npy", noisy(dtype=np.float64))
    arguments = tmp_path / "in.npy", "-o", tmp_path / "out.npy", "--model", "ebsc"
    assert invoke("denoise", *arguments, *TINY).exit_code == 0
    written = np.load(tmp_path / "out.npy")
    assert written.dtype == np.float64
    assert (written == restore(np.load(tmp_path / "in.npy"), model="ebsc", preset="fast",
                               start="mean",
                               max_iter=2).image).all()  # fmt: skip


def test_alpha_is_kept(tmp_path):
    colours = noisy((*SIZE, 4))
    Image.fromarray(colours).save(tmp_path / "in.png")
    arguments = "denoise", tmp_path / "in.png", "-o", tmp_path / "out.png"
    assert invoke(*arguments, *TINY, *FEW_CHANNELS).exit_code == 0
    written = np.array(Image.open(tmp_path / "out.png"))
    assert written.shape == (*SIZE, 4)
    assert (written[..., 3] == colours[..., 3]).all()
    assert (written[..., :3] != colours[..., :3]).any()


def test_inpainting_keeps_what_was_observed(tmp_path, picture, holes):
    arguments = "inpaint", picture, "--mask", tmp_path / "mask.png", "-o", tmp_path / "out.png"
    assert invoke(*arguments, *TINY).exit_code == 0
    written = np.array(Image.open(tmp_path / "out.png"))
    assert (written[~holes] == noisy()[~holes]).all()
    assert (written[holes] != noisy()[holes]).any()


@pytest.mark.parametrize("option", ["--denoise", "--no-keep-observed"])
def test_inpainting_denoises_the_rest_if_asked(tmp_path, picture, holes, option):
    arguments = "inpaint", picture, "--mask", tmp_path / "mask.png", "-o", tmp_path / "out.png"
    assert invoke(*arguments, option, *TINY).exit_code == 0
    written = np.array(Image.open(tmp_path / "out.png"))
    assert (
        written == restore(noisy(), mask=holes, preset="fast", start="mean", max_iter=2).image
    ).all()


def test_nan_needs_no_mask(tmp_path, holes):
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, np.where(holes, np.nan, noisy(dtype=np.float64)))
    assert invoke("inpaint", source, "-o", target, *TINY).exit_code == 0
    assert np.isfinite(np.load(target)).all()


@pytest.mark.parametrize("channels", [(), (3,)])
@pytest.mark.parametrize("each", [False, True])
def test_a_stack_is_restored_slice_by_slice(tmp_path, holes, channels, each):
    stack = np.stack([noisy((*SIZE, *channels), seed=seed) for seed in (1, 2)])
    masks = np.stack([holes, holes[::-1]]) if each else holes
    photometric = "rgb" if channels else "minisblack"
    tifffile.imwrite(tmp_path / "in.tif", stack, photometric=photometric)
    tifffile.imwrite(tmp_path / "mask.tif", 255 * masks.astype(np.uint8), photometric="minisblack")
    arguments = "inpaint", tmp_path / "in.tif", "--mask", tmp_path / "mask.tif"
    result = invoke(*arguments, "-o", tmp_path / "out.tif", *TINY, *FEW_CHANNELS,
                    "--json", tmp_path / "out.json", "--time-limit", 500)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "4 iterations" in result.stdout
    written = tifffile.imread(tmp_path / "out.tif")
    assert written.shape == stack.shape
    for k in range(2):
        alone = restore(stack[k], mask=masks[k] if each else masks, keep_observed=True,
                        channel_axis=-1 if channels else None, preset="fast", start="mean",
                        max_iter=2,
                        patch_size=4, n_latents=12)  # fmt: skip
        assert (written[k] == alone.image).all()
    told = json.loads((tmp_path / "out.json").read_text())
    assert [one["iterations"] for one in told["slices"]] == [2, 2]
    assert told["settings"]["time_limit"] == 500


# What else is written and said


@pytest.mark.parametrize("name", ["std.tif", "std.npy", "std.png"])
def test_the_uncertainty_is_written(tmp_path, picture, name):
    arguments = "denoise", picture, "-o", tmp_path / "out.png", "--uncertainty", tmp_path / name
    assert invoke(*arguments, *TINY).exit_code == 0
    std = restore(noisy(), preset="fast", start="mean", max_iter=2).std
    if name == "std.png":
        written = np.array(Image.open(tmp_path / name))
        assert written.dtype == np.uint8
        np.testing.assert_allclose(written, std * 255 / std.max(), atol=0.51)
    else:
        read = tifffile.imread if name == "std.tif" else np.load
        written = read(tmp_path / name)
        assert written.dtype == np.float32
        assert (written == std.astype(np.float32)).all()


def test_json_holds_settings_and_results(tmp_path, picture):
    clean = tmp_path / "clean.png"
    Image.fromarray(noisy(seed=5)).save(clean)
    target = tmp_path / "out.json"
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", "--json", target, *TINY,
                    "--reference", clean, "--memory", "1G", "--seed", 7)  # fmt: skip
    assert result.exit_code == 0, result.output
    told = json.loads(target.read_text())
    expected = restore(noisy(), preset="fast", start="mean", max_iter=2, seed=7)
    assert told["command"] == "denoise"
    assert told["input"] == str(picture)
    assert told["output"] == str(tmp_path / "out.png")
    assert told["seed"] == 7
    assert expected.settings.items() <= told["settings"].items()
    assert told["settings"]["memory"] == 2**30
    assert told["settings"]["keep_observed"] is False
    assert told["versions"]["evoem"] == evoem.__version__
    assert told["versions"]["python"] == platform.python_version()
    assert told["versions"].keys() == {"evoem", "python", "numpy", "scipy", "numba"}
    assert told["noise_level"] == expected.noise_level
    assert told["bound"] == expected.free_energies.tolist()
    assert told["iterations"] == 2
    assert told["seconds"] > 0
    assert told["ended"] == "max_iter"
    assert told["notes"] == []
    reference = noisy(seed=5)
    assert told["psnr"]["before"] == pytest.approx(psnr(reference, noisy()))
    assert told["psnr"]["after"] == pytest.approx(psnr(reference, expected.image))
    assert told["ssim"].keys() == {"before", "after"}


def test_a_reference_is_compared_with(tmp_path, picture):
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", "--reference", picture, *TINY)
    assert "PSNR from inf to " in result.stdout
    assert "SSIM from 1 to " in result.stdout


def test_pictures_too_small_for_ssim_have_none(tmp_path):
    np.save(tmp_path / "in.npy", noisy((10, 24), np.float32))
    arguments = tmp_path / "in.npy", "-o", tmp_path / "out.npy", "--reference", tmp_path / "in.npy"
    result = invoke("denoise", *arguments, "--json", tmp_path / "out.json", *TINY)
    assert "PSNR" in result.stdout
    assert "SSIM" not in result.stdout
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["psnr"]["before"] is None  # infinite
    assert "ssim" not in told


def test_notes_are_said(tmp_path):
    np.save(tmp_path / "in.npy", np.full(SIZE, 7.0))
    result = invoke("denoise", tmp_path / "in.npy", "-o", tmp_path / "out.npy", *TINY)
    assert result.exit_code == 0
    assert result.stdout.endswith("converged\nThe image is constant: there was nothing to learn.\n")


def test_quiet_is_silent(tmp_path, picture, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", "--quiet", *TINY)
    assert result.exit_code == 0
    assert result.output == ""
    assert (tmp_path / "out.png").exists()


def test_progress_is_told_on_standard_error(tmp_path, picture, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY)
    lines = result.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == ["iteration 1/2", "iteration 2/2"]
    for word in ("left", "bound", "noise", "active", "replaced", "patches/s"):
        assert all(word in line for line in lines)


def test_a_terminal_has_a_live_line(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    state = Progress(3, 9, -1.5, 25.0, 4.0, 17, 1000.0, 6.0, 12.0, None, "learning", None)
    with progress.Screen(4, quiet=False).shown() as show:
        show(1, state)
    assert "slice 2/4, iteration 3/9, 0:00:48 left, noise 25, bound -1.50" in capfd.readouterr().err


def test_the_version_is_told():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout == f"evoem {evoem.__version__}\n"


@pytest.mark.parametrize("command", [cli.denoise, cli.inpaint])
def test_the_options_of_restore_have_its_names_and_defaults(command):
    theirs = inspect.signature(restore).parameters
    ours = inspect.signature(command).parameters
    for name in OPTIONS.keys() - {"channel_axis", "alpha", "callback"}:
        assert ours[name].default == theirs[name].default, name


def test_nonlocal_passes_can_be_turned_off(tmp_path, picture):
    arguments = "denoise", picture, "-o", tmp_path / "out.png", "--json", tmp_path / "out.json"
    assert invoke(*arguments, *TINY, "--nonlocal-passes", 0).exit_code == 0
    expected = restore(noisy(), preset="fast", start="mean", max_iter=2, nonlocal_passes=0)
    assert (np.array(Image.open(tmp_path / "out.png")) == expected.image).all()
    assert json.loads((tmp_path / "out.json").read_text())["settings"]["nonlocal_passes"] == 0


def test_an_image_is_read_once(tmp_path, picture, monkeypatch):
    calls, read = [], canonical_arrays.read

    def noted(*arguments):
        calls.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(canonical_arrays, "read", noted)
    assert invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY).exit_code == 0
    assert len(calls) == 1


def test_quiet_measures_nothing(tmp_path, picture, monkeypatch):
    monkeypatch.setattr("evoem.images.budget.forecast", None)
    arguments = "denoise", picture, "-o", tmp_path / "out.png", *TINY
    assert invoke(*arguments, "--quiet").exit_code == 0


def test_the_demo_writes_three_pictures(tmp_path, monkeypatch):
    pytest.importorskip("skimage")
    monkeypatch.setattr(cli, "DEMO_SIDE", 32)
    target = tmp_path / "demo.png"
    result = invoke("demo", "-o", target, "--max-iter", 2, "--n-jobs", 1)
    assert result.exit_code == 0, result.output
    assert np.array(Image.open(target)).shape == (32, 96)
    assert "PSNR from 20." in result.stdout
    assert invoke("demo", "-o", target).exit_code == 1
    assert invoke("demo", "-o", target, "--max-iter", 1, "--force").exit_code == 0


def test_the_demo_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage", None)
    result = invoke("demo", "-o", tmp_path / "demo.png")
    assert result.exit_code == 1
    assert result.stderr == "evoem: demo needs scikit-image: pip install 'evoem[demo]'.\n"


# Errors


def test_a_missing_file_is_an_error(tmp_path):
    said = refused(tmp_path, "denoise", tmp_path / "none.png", "-o", tmp_path / "out.png")
    assert "none.png must be an existing file" in said


def test_a_truncated_file_is_an_error(tmp_path, picture):
    picture.write_bytes(picture.read_bytes()[:100])
    said = refused(tmp_path, "denoise", picture, "-o", tmp_path / "out.png")
    assert "whole and readable" in said


def test_a_mask_of_another_size_is_an_error(tmp_path, picture):
    Image.fromarray(np.eye(5, dtype=np.uint8)).save(tmp_path / "mask.png")
    arguments = "inpaint", picture, "-o", tmp_path / "out.png", "--mask", tmp_path / "mask.png"
    assert "24 x 22; got 5 x 5" in refused(tmp_path, *arguments)


def test_a_mask_of_everything_is_an_error(tmp_path, picture):
    Image.fromarray(np.full(SIZE, 255, np.uint8)).save(tmp_path / "mask.png")
    arguments = "inpaint", picture, "-o", tmp_path / "out.png", "--mask", tmp_path / "mask.png"
    assert "got all missing" in refused(tmp_path, *arguments)


@pytest.mark.parametrize("given", [True, False])
def test_inpainting_needs_something_missing(tmp_path, picture, given):
    Image.fromarray(np.zeros(SIZE, np.uint8)).save(tmp_path / "mask.png")
    arguments = ["--mask", tmp_path / "mask.png"] if given else []
    said = refused(tmp_path, "inpaint", picture, "-o", tmp_path / "out.png", *arguments)
    assert "mask must mark missing pixels unless the picture has NaN" in said


def test_a_slice_that_cannot_be_restored_is_found_first(tmp_path, monkeypatch):
    stack = np.stack([noisy(dtype=np.float32)] * 5)
    stack[4] = np.nan
    np.save(tmp_path / "in.npy", stack)
    monkeypatch.setattr(progress, "restore_canonical", None)
    said = refused(tmp_path, "denoise", tmp_path / "in.npy", "-o", tmp_path / "out.npy")
    assert "got all missing" in said


@pytest.mark.parametrize("option", ["-o", "--uncertainty", "--json"])
def test_existing_files_are_replaced_only_by_force(tmp_path, picture, option):
    existing = tmp_path / "there.png"
    existing.write_bytes(b"something")
    arguments = ["denoise", picture, option, existing]
    if option != "-o":
        arguments += ["-o", tmp_path / "out.png"]
    assert "must not exist yet unless force is given" in refused(tmp_path, *arguments)
    assert invoke(*arguments, *TINY, "--force").exit_code == 0
    assert existing.read_bytes() != b"something"


def test_the_input_is_replaced_only_by_force(tmp_path, picture):
    arguments = "denoise", picture, "-o", tmp_path / "." / "in.png"
    assert "must not be input and output unless force is given" in refused(tmp_path, *arguments)
    before = picture.read_bytes()
    assert invoke(*arguments, *TINY, "--force").exit_code == 0
    assert picture.read_bytes() != before


def test_two_outputs_are_two_files(tmp_path, picture):
    same = tmp_path / "out.png"
    said = refused(tmp_path, "denoise", picture, "-o", same, "--uncertainty", same, "--force")
    assert "must be the path of one output" in said


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
@pytest.mark.parametrize("option", ["-o", "--uncertainty", "--json"])
def test_a_folder_that_cannot_be_written_to_is_an_error(tmp_path, picture, option):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    arguments = [] if option == "-o" else ["-o", tmp_path / "out.png"]
    said = refused(tmp_path, "denoise", picture, *arguments, option, folder / "other.png")
    assert "must be a place that can be written to" in said


@pytest.mark.parametrize("option", ["-o", "--uncertainty", "--json"])
def test_outputs_lie_in_folders_that_exist(tmp_path, picture, option):
    arguments = [] if option == "-o" else ["-o", tmp_path / "out.png"]
    target = tmp_path / "none" / "other.png"
    said = refused(tmp_path, "denoise", picture, *arguments, option, target)
    assert "must be in an existing folder" in said


@pytest.mark.parametrize("option", ["-o", "--uncertainty"])
def test_an_unknown_format_is_an_error(tmp_path, picture, option):
    arguments = [] if option == "-o" else ["-o", tmp_path / "out.png"]
    said = refused(tmp_path, "denoise", picture, *arguments, option, tmp_path / "other.bmp")
    assert "must end in one of .png" in said


def test_a_format_that_cannot_hold_the_picture_is_an_error(tmp_path, monkeypatch):
    np.save(tmp_path / "in.npy", noisy(dtype=np.float32))
    monkeypatch.setattr(progress, "restore_canonical", None)
    said = refused(tmp_path, "denoise", tmp_path / "in.npy", "-o", tmp_path / "out.png")
    assert "float32" in said


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        (
            "--preset",
            "slow",
            "preset must be one of 'fast', 'balanced', 'best', 'paper'; got 'slow'.",
        ),
        ("--model", "x", "model must be one of"),
        ("--memory", "4X", "memory must be a number of bytes, or of K, M or G; got '4X'."),
        ("--memory", "1K", "memory must hold"),
        (
            "--memory",
            "9" * 400 + "x",
            "memory must be a number of bytes, or of K, M or G; got '999",
        ),
        ("--patch-size", 0, "patch_size must be an integer at least 1; got 0."),
        ("--time-limit", -1, "time_limit must be a number at least 0"),
        ("--stride", 0, "stride must be an integer at least 1; got 0."),
    ],
)
def test_settings_that_cannot_be_are_errors(tmp_path, picture, option, value, sentence):
    target = tmp_path / "out.png"
    result = invoke("denoise", picture, "-o", target, *TINY, option, value)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"evoem: {sentence}")
    assert not target.exists()


def test_a_reference_of_another_size_is_an_error(tmp_path, picture):
    Image.fromarray(noisy((12, 12))).save(tmp_path / "clean.png")
    arguments = "denoise", picture, "-o", tmp_path / "out.png"
    said = refused(tmp_path, *arguments, "--reference", tmp_path / "clean.png")
    assert "must have the shape of the picture, (24, 22); got (12, 12)." in said


def test_too_little_memory_is_a_sentence(tmp_path, picture, monkeypatch):
    def exhausted(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(progress, "restore_canonical", exhausted)
    assert "--memory" in refused(tmp_path, "denoise", picture, "-o", tmp_path / "out.png")


def test_wrong_usage_is_told_by_its_own_exit_code(tmp_path, picture):
    assert invoke("denoise", picture).exit_code == 2
    assert invoke("denoise", picture, "-o", tmp_path / "o.png", "--seed", "x").exit_code == 2
    assert invoke("sharpen", picture).exit_code == 2


# Ctrl-C


def test_an_interrupted_run_writes_what_it_has(tmp_path, picture, interrupt):
    interrupt(2)
    target = tmp_path / "out.png"
    arguments = "denoise", picture, "-o", target, "--json", tmp_path / "out.json"
    result = invoke(*arguments, *TINY, "--max-iter", 9)
    assert result.exit_code == 130
    assert "2 iterations" in result.stdout
    assert "Interrupted: the output holds what was learnt up to then.\n" in result.stdout
    written = np.array(Image.open(target))
    assert (written == restore(noisy(), preset="fast", start="mean", max_iter=2).image).all()
    assert json.loads((tmp_path / "out.json").read_text())["ended"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("option", ["--json", "--uncertainty"])
def test_what_is_read_is_not_written_over(picture, tmp_path, option):
    before = picture.read_bytes()
    result = invoke("denoise", picture, "-o", tmp_path / "o.png", option, picture, "--force", *TINY)
    assert result.exit_code == 1
    assert result.output == f"evoem: {picture} must not be written over: it is read.\n"
    assert picture.read_bytes() == before


def test_any_amount_of_memory_can_be_given(picture, tmp_path):
    result = invoke("denoise", picture, "-o", tmp_path / "o.png", "--memory", "9" * 400, *TINY)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("option", ["--time-limit", "--tol"])
def test_numbers_without_end_are_refused_before_the_work(picture, tmp_path, option):
    result = invoke("denoise", picture, "-o", tmp_path / "o.png", option, "inf", *TINY)
    name = option.strip("-").replace("-", "_")
    assert result.exit_code == 1
    assert result.output == f"evoem: {name} must be a number at least 0; got inf.\n"
    assert not (tmp_path / "o.png").exists()


def interrupt_in_nonlocal_step(monkeypatch, times):
    """So many interrupts, each in a part of the nonlocal step of its own."""
    estimate, refine, left = nonlocal_bayes._estimate_rows, nonlocal_bayes.refine, 0

    def begun(*arguments, **options):  # the forecast estimates some rows before
        nonlocal left
        left = times
        return refine(*arguments, **options)

    def stopping(*arguments):
        nonlocal left
        if left:
            left -= 1
            signal.raise_signal(signal.SIGINT)
        estimate(*arguments)

    monkeypatch.setattr(nonlocal_bayes, "refine", begun)
    monkeypatch.setattr(nonlocal_bayes, "_estimate_rows", stopping)


def test_an_interrupt_while_merging_waits_for_the_result(tmp_path, picture, monkeypatch):
    interrupt_in_nonlocal_step(monkeypatch, 1)
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY)
    assert result.exit_code == 0, result.output
    expected = restore(noisy(), preset="fast", start="mean", max_iter=2)
    assert (np.array(Image.open(tmp_path / "out.png")) == expected.image).all()


def test_a_second_interrupt_while_merging_leaves_out_the_nonlocal_step(
    tmp_path, picture, monkeypatch
):
    interrupt_in_nonlocal_step(monkeypatch, 2)
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY)
    assert result.exit_code == 130
    assert "The nonlocal step was left out" in result.stdout
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == [
        "Interrupted",
        "Interrupted again",
    ]
    monkeypatch.undo()
    plain = restore(noisy(), preset="fast", start="mean", max_iter=2, nonlocal_passes=0)
    assert (np.array(Image.open(tmp_path / "out.png")) == plain.image).all()


def test_a_third_interrupt_writes_nothing(tmp_path, picture, interrupt, monkeypatch):
    interrupt(2)
    target = tmp_path / "out.png"

    def twice(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("evoem.images.restore.whole_image", twice)
    result = invoke("denoise", picture, "-o", target, *TINY, "--max-iter", 9)
    assert result.exit_code == 130
    assert result.stderr.endswith("evoem: interrupted before everything was written.\n")
    assert not target.exists()


def test_the_first_interrupt_is_acknowledged_with_what_is_done_and_how_long(
    tmp_path, picture, interrupt
):
    interrupt(2)
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY, "--max-iter", 9)
    assert "Interrupted: finishing the picture from what was learnt, in at most" in result.stderr


def test_an_interrupt_before_anything_is_learnt_writes_nothing(tmp_path, picture, monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("evoem.em.step", stopped)
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY)
    assert result.exit_code == 130
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize("where", ["learning", "elsewhere"])
def test_an_interrupted_stack_keeps_the_slices_that_are_done(
    tmp_path, interrupt, monkeypatch, where
):
    stack = np.stack([noisy(dtype=np.float32, seed=seed) for seed in range(3)])
    np.save(tmp_path / "in.npy", stack)
    alone = restore(stack[0], preset="fast", start="mean", max_iter=2).image
    if where == "learning":
        interrupt(3)
    else:
        own, calls = PatchSource.cut, []

        def cut(source, numbers):
            calls.append(numbers)
            if len(calls) == 2:
                signal.raise_signal(signal.SIGINT)
            return own(source, numbers)

        monkeypatch.setattr(PatchSource, "cut", cut)
    outputs = "-o", tmp_path / "out.npy", "--uncertainty", tmp_path / "std.npy"
    result = invoke("denoise", tmp_path / "in.npy", *outputs, *TINY)
    assert result.exit_code == 130, result.output
    n_left = 1 if where == "learning" else 2
    assert f"The last {n_left} of 3 slices are as they were.\n" in result.stdout
    written = np.load(tmp_path / "out.npy")
    assert (written[0] == alone).all()
    assert (written[3 - n_left :] == stack[3 - n_left :]).all()
    assert np.isnan(np.load(tmp_path / "std.npy")).all((1, 2)).tolist().count(True) == n_left


# As a program of its own


def run_program(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_help_needs_no_numerical_packages():
    code = "import sys, evoem.cli; print('numpy' in sys.modules, 'numba' in sys.modules)"
    assert run_program("-c", code).stdout == "False False\n"


def test_the_program_fails_without_a_traceback(tmp_path):
    source = tmp_path / "none.png"
    result = run_program("-m", "evoem", "denoise", source, "-o", tmp_path / "out.png")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == f"evoem: {source} must be an existing file; found none.\n"


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_program_can_be_interrupted(tmp_path, picture, kind, code):
    target = tmp_path / "out.png"
    program = "from evoem import cli, progress; progress.SECONDS_BETWEEN_LINES = 0; cli.app()"
    arguments = "denoise", picture, "-o", target, *TINY, "--max-iter", 10**6, "--time-limit", 60
    command = [sys.executable, "-c", program, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as run:
        assert run.stderr.readline().startswith("iteration 1/1000000, ")
        run.send_signal(kind)
        out, err = run.communicate(timeout=120)
    assert run.returncode == code
    assert "Traceback" not in err
    assert "Interrupted: " in out
    assert "Interrupted: " in err
    assert np.array(Image.open(target)).shape == SIZE
    assert not list(tmp_path.glob(".evoem-*"))


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", ["import typer", "import numpy"])
def test_the_program_can_be_interrupted_while_it_is_imported(tmp_path, picture, kind, code, moment):
    # The signal comes when the package is looked for.
    program = f"""
import os, sys
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == "{moment.split()[1]}":
            os.kill(os.getpid(), {int(kind)})
sys.meta_path.insert(0, Sender())
from evoem.__main__ import main
main()
"""
    result = run_program("-c", program, "denoise", picture, "-o", tmp_path / "out.png")
    assert result.returncode == code
    assert result.stderr == "evoem: interrupted before everything was written.\n"
