"""Pictures in, pictures out: `evoem denoise` and `evoem inpaint`."""

import json
import platform
import signal

import numpy as np
import pytest
import tifffile
from command_line import FEW_CHANNELS, SAME, SIZE, TINY, invoke, noisy, press_ctrl_c, refused
from PIL import Image
from watched_models import at, watch

import evoem
from evoem import inpaint, screen
from evoem.images import files, heldout_selection
from evoem.images.quality import psnr
from evoem.images.restore import restore


def test_a_png_is_denoised_as_restore_does_it(tmp_path, picture):
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY, "--seed", 3)
    assert result.exit_code == 0, result.output
    expected = restore(noisy(), **SAME, seed=3)
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
    assert (written == restore(np.load(tmp_path / "in.npy"), model="ebsc", **SAME).image).all()


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
    assert (written == restore(noisy(), mask=holes, **SAME).image).all()


def test_nan_needs_no_mask(tmp_path, holes):
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, np.where(holes, np.nan, noisy(dtype=np.float64)))
    assert invoke("inpaint", source, "-o", target, *TINY).exit_code == 0
    assert np.isfinite(np.load(target)).all()


@pytest.mark.parametrize("channels", [(), (3,)])
@pytest.mark.parametrize("each", [False, True])
def test_slices_of_a_stack_are_restored_together(tmp_path, holes, channels, each):
    stack = np.stack([noisy((*SIZE, *channels), seed=seed) for seed in (1, 2)])
    masks = np.stack([holes, holes[::-1]]) if each else holes
    photometric = "rgb" if channels else "minisblack"
    tifffile.imwrite(tmp_path / "in.tif", stack, photometric=photometric)
    tifffile.imwrite(tmp_path / "mask.tif", 255 * masks.astype(np.uint8), photometric="minisblack")
    arguments = "inpaint", tmp_path / "in.tif", "--mask", tmp_path / "mask.tif"
    result = invoke(*arguments, "-o", tmp_path / "out.tif", *TINY, *FEW_CHANNELS,
                    "--json", tmp_path / "out.json", "--time-limit", 500)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "2 iterations" in result.stdout
    written = tifffile.imread(tmp_path / "out.tif")
    assert written.shape == stack.shape
    axis = -1 if channels else None
    expected = inpaint(stack, masks, channel_axis=axis, **SAME, patch_size=4, n_latents=12)
    np.testing.assert_array_equal(written, expected)
    told = json.loads((tmp_path / "out.json").read_text())
    assert [one["iterations"] for one in told["slices"]] == [2, 2]
    assert told["settings"]["time_limit"] == 500


def test_json_holds_settings_and_results(tmp_path, picture):
    clean = tmp_path / "clean.png"
    Image.fromarray(noisy(seed=5)).save(clean)
    target = tmp_path / "out.json"
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", "--json", target, *TINY,
                    "--reference", clean, "--memory", "1G", "--seed", 7)  # fmt: skip
    assert result.exit_code == 0, result.output
    told = json.loads(target.read_text())
    expected = restore(noisy(), **SAME, seed=7)
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


def test_progress_is_told_on_standard_error(tmp_path, picture, monkeypatch):
    monkeypatch.setattr(screen, "SECONDS_BETWEEN_LINES", 0)
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY)
    lines = [line for line in result.stderr.splitlines() if line.startswith("iteration")]
    assert [line.split(",")[0] for line in lines] == ["iteration 1/2", "iteration 2/2"]
    for word in ("left", "bound", "noise", "active", "replaced", "patches/s"):
        assert all(word in line for line in lines)


def test_the_command_line_selects(tmp_path, monkeypatch):
    monkeypatch.setattr(heldout_selection, "FEWEST_HELD_OUT", 5)
    monkeypatch.setattr(screen, "SECONDS_BETWEEN_LINES", 0)
    Image.fromarray(noisy()).save(tmp_path / "in.png")
    arguments = "denoise", tmp_path / "in.png", "-o", tmp_path / "out.png", *TINY
    chosen = "--select", "heldout", "--patch-size", 4, "--patch-size", 5, "--restarts", 2
    result = invoke(*arguments, *chosen, "--json", tmp_path / "out.json")
    assert result.exit_code == 0, result.output
    expected = restore(
        noisy(), select="heldout", patch_size=[4, 5], restarts=2, **SAME,
    )  # fmt: skip
    assert (np.array(Image.open(tmp_path / "out.png")) == expected.image).all()
    told = json.loads((tmp_path / "out.json").read_text())
    assert expected.settings.items() <= told["settings"].items()
    assert told["selection"] == [score._asdict() for score in expected.selection]
    iterations = [line for line in result.stderr.splitlines() if ", noise " in line]
    assert iterations[0].startswith("selecting 1/2, noise ")
    assert iterations[-1].startswith("iteration ")
    said = invoke(*arguments, "--restarts", 2, "--force").stderr
    assert said == "evoem: restarts must be 1 unless select is given; got 2.\n"


@pytest.mark.usefixtures("nothing_is_learnt")
def test_a_slice_that_cannot_be_restored_is_found_first(tmp_path):
    stack = np.stack([noisy(dtype=np.float32)] * 5)
    stack[4] = np.nan
    np.save(tmp_path / "in.npy", stack)
    said = refused(tmp_path, "denoise", tmp_path / "in.npy", "-o", tmp_path / "out.npy")
    assert "got all missing" in said


# Ctrl-C


def test_an_interrupted_run_writes_what_it_has(tmp_path, picture, interrupt):
    interrupt(2)
    target = tmp_path / "out.png"
    arguments = "denoise", picture, "-o", target, "--json", tmp_path / "out.json"
    result = invoke(*arguments, *TINY, "--max-iter", 9)
    assert result.exit_code == 130
    assert "2 iterations" in result.stdout
    assert (
        "Interrupted: the output is the result of what had been learnt so far.\n" in result.stdout
    )
    written = np.array(Image.open(target))
    assert (written == restore(noisy(), **SAME).image).all()
    assert json.loads((tmp_path / "out.json").read_text())["ended"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def interrupt_while_merging(monkeypatch, times):
    """So many interrupts at the first block of patches that is reconstructed to be merged."""
    ended = []

    def merging():
        if ended == [1, 2, 3]:  # after the third iteration nothing is measured
            for _ in range(times):
                press_ctrl_c()
            ended.clear()

    watch(
        monkeypatch, canonical=lambda: ended.append(len(ended) + 1), reconstruct=merging
    )  # fmt: skip


def test_an_interrupt_while_merging_waits_for_the_result(tmp_path, picture, monkeypatch):
    expected = restore(noisy(), **SAME | {"max_iter": 3})
    interrupt_while_merging(monkeypatch, 1)
    arguments = "denoise", picture, "-o", tmp_path / "out.png", *TINY, "--max-iter", 3
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["Interrupted"]
    assert (np.array(Image.open(tmp_path / "out.png")) == expected.image).all()


def test_a_second_interrupt_while_merging_leaves_out_the_nonlocal_step(
    tmp_path, picture, monkeypatch
):
    plain = restore(noisy(), **SAME | {"max_iter": 3}, nonlocal_passes=0)
    interrupt_while_merging(monkeypatch, 2)
    arguments = "denoise", picture, "-o", tmp_path / "out.png", *TINY, "--max-iter", 3
    result = invoke(*arguments)
    assert result.exit_code == 130
    assert "The nonlocal step was skipped" in result.stdout
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == [
        "Interrupted",
        "Interrupted again",
    ]
    assert (np.array(Image.open(tmp_path / "out.png")) == plain.image).all()


def test_a_third_interrupt_writes_nothing(tmp_path, picture, monkeypatch):
    interrupt_while_merging(monkeypatch, 3)
    target = tmp_path / "out.png"
    result = invoke("denoise", picture, "-o", target, *TINY, "--max-iter", 3)
    assert result.exit_code == 130
    assert result.stderr.endswith("evoem: interrupted before everything was written.\n")
    assert not target.exists()


def test_the_first_interrupt_is_acknowledged_with_what_is_done_and_how_long(
    tmp_path, picture, interrupt
):
    interrupt(2)
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", *TINY, "--max-iter", 9)
    assert "Interrupted: finishing the picture from what was learnt, in at most" in result.stderr


@pytest.mark.parametrize("n_slices", [1, 2])
def test_an_interrupt_before_anything_is_learnt_restores_and_writes_nothing(
    tmp_path, monkeypatch, n_slices
):
    stack = np.stack([noisy(dtype=np.float32, seed=seed) for seed in range(n_slices)])
    np.save(tmp_path / "in.npy", stack)
    restored = []
    watch(monkeypatch, initialize=press_ctrl_c, reconstruct=lambda: restored.append(True))
    result = invoke("denoise", tmp_path / "in.npy", "-o", tmp_path / "out.npy", *TINY)
    assert result.exit_code == 130
    assert result.stderr.endswith("evoem: interrupted before everything was written.\n")
    assert restored == []
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("where", ["learning", "elsewhere"])
def test_an_interrupted_stack_keeps_the_slices_that_are_done(
    tmp_path, interrupt, monkeypatch, where
):
    stack = np.stack([noisy(dtype=np.float32, seed=seed) for seed in range(3)])
    np.save(tmp_path / "in.npy", stack)
    if where == "learning":
        interrupt(1)
    else:  # twice three times it was measured how long it takes
        watch(monkeypatch, reconstruct=at([7], press_ctrl_c))
    outputs = "-o", tmp_path / "out.npy", "--uncertainty", tmp_path / "std.npy"
    result = invoke("denoise", tmp_path / "in.npy", *outputs, *TINY)
    assert result.exit_code == 130, result.output
    n_left = 0 if where == "learning" else 2
    assert (f"The last {n_left} of 3 slices are unchanged.\n" in result.stdout) == (n_left > 0)
    written = np.load(tmp_path / "out.npy")
    assert ((written == stack).mean((1, 2)) > 0.9).tolist().count(True) == n_left
    assert (written[3 - n_left :] == stack[3 - n_left :]).all()
    assert np.isnan(np.load(tmp_path / "std.npy")).all((1, 2)).tolist().count(True) == n_left


# Checkpoints


@pytest.mark.parametrize("shape", [SIZE, (3, *SIZE)])
def test_a_run_goes_on_from_its_checkpoint(tmp_path, interrupt, monkeypatch, shape):
    np.save(tmp_path / "in.npy", noisy(shape, np.float32))
    command = "denoise", tmp_path / "in.npy", *TINY, "--max-iter", 3
    assert invoke(*command, "-o", tmp_path / "whole.npy").exit_code == 0
    kept = *command, "-o", tmp_path / "out.npy", "--checkpoint", tmp_path / "run"
    with monkeypatch.context():
        interrupt(2)
        stopped = invoke(*kept, "--every", "1h")
        monkeypatch.undo()
    assert stopped.exit_code == 130
    kept_line = f"The run is kept in {tmp_path / 'run'}: --resume --force goes on with it.\n"
    assert stopped.stdout.endswith(kept_line)
    resumed = invoke(*kept, "--resume", "--force")
    assert resumed.exit_code == 0, resumed.output
    assert "kept" not in resumed.stdout
    whole = (tmp_path / "whole.npy").read_bytes()
    assert (tmp_path / "out.npy").read_bytes() == whole
    again = invoke(*kept, "--resume", "--force", "--quiet")
    assert (again.exit_code, again.output) == (0, "")
    assert (tmp_path / "out.npy").read_bytes() == whole


def test_a_run_that_is_not_kept_yet_is_not_said_to_be(tmp_path, picture, monkeypatch):
    # The second interrupt does not wait for the end of the first iteration.
    watch(monkeypatch, update=at([2], lambda: [press_ctrl_c(), press_ctrl_c()]))
    output, run = tmp_path / "out.png", tmp_path / "run"
    stopped = invoke("denoise", picture, "-o", output, "--checkpoint", run, *TINY, "--max-iter", 3)
    assert stopped.exit_code == 130
    assert not run.exists()
    assert "Interrupted: " in stopped.stdout
    assert "is kept" not in stopped.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--every", "often"], "every must be a time, such as 90s, 10m or 1h; got 'often'."),
        (["--checkpoint", "{0}/out.png"], "must not be an output: it is the checkpoint."),
        (["--checkpoint", "{0}/in.png"], "checkpoint must not exist yet unless resume is given"),
        (["--checkpoint", "{0}/in.png", "--resume"], "must be a whole file that evoem wrote"),
        (["--checkpoint", "{0}/no/run"], "must be in an existing folder"),
    ],
)
def test_a_run_that_cannot_be_kept_is_refused(tmp_path, picture, arguments, sentence):
    arguments = [argument.format(tmp_path) for argument in arguments]
    assert sentence in refused(tmp_path, "denoise", picture, "-o", tmp_path / "out.png", *arguments)


def test_another_run_is_not_resumed(tmp_path, picture):
    command = "denoise", picture, "-o", tmp_path / "out.png", "--checkpoint", tmp_path / "run"
    assert invoke(*command, *TINY).exit_code == 0
    said = refused(tmp_path, *command, "--resume", "--force", "--seed", 1)
    assert "seed must be 0 to resume" in said


def test_a_mask_says_what_it_marks_and_may_be_grown(tmp_path, picture, holes):
    soft = np.where(holes, 255, 0).astype(np.uint8)
    soft[3, 5:9] = 100
    Image.fromarray(soft).save(tmp_path / "mask.png")
    command = "inpaint", picture, "--mask", tmp_path / "mask.png", "--force", "-o"
    plain = invoke(*command, tmp_path / "out.png", *TINY)
    assert plain.stderr.startswith(
        f"{tmp_path / 'mask.png'}: 16 pixels missing; 4 grey ones at the edge of the mask kept: "
        "--mask-grow 1 takes them too.\n"
    )
    changed = np.array(Image.open(tmp_path / "out.png")) != noisy()
    assert not (changed & ~holes).any()
    for option in (("--mask-grow", 1), ("--mask-threshold", 90)):
        grown = invoke(*command, tmp_path / "out.png", *TINY, *option)
        assert grown.exit_code == 0, grown.output
        assert "grey" not in grown.stderr
        changed = np.array(Image.open(tmp_path / "out.png")) != noisy()
        assert changed[3, 5:9].any()


def test_values_that_mean_missing_are_filled_in(tmp_path):
    pixels = noisy()
    pixels[3, 4:6], pixels[9, 9] = 0, 255
    Image.fromarray(pixels).save(tmp_path / "in.png")
    command = "inpaint", tmp_path / "in.png", "-o", tmp_path / "out.png", "--mask-value", "0,255"
    result = invoke(*command, *TINY)
    assert result.exit_code == 0, result.output
    written = np.array(Image.open(tmp_path / "out.png"))
    assert not np.isin(written, (0, 255)).any()
    assert "2 values equal to missing_value, 0, were treated as missing." in result.stdout
    assert "1 value equal to missing_value, 255, was treated as missing." in result.stdout
    said = refused(tmp_path, *command, "--mask-value", "0;255", "--force")
    assert "missing_value must be numbers, such as 0,255; got '0;255'." in said


def test_without_a_mask_the_error_says_how_to_get_one(tmp_path, picture):
    said = refused(tmp_path, "inpaint", picture, "-o", tmp_path / "out.png")
    assert "white on a black image of the same size" in said
    assert "--propose-mask" in said


def test_a_mask_is_proposed_and_nothing_else_done(tmp_path, nothing_is_learnt):
    pixels = np.full((60, 60), 90, np.uint8)
    pixels[10:50, 20] = 255
    Image.fromarray(pixels).save(tmp_path / "in.png")
    command = "inpaint", tmp_path / "in.png", "--propose-mask", tmp_path / "mask.png"
    result = invoke(*command)
    assert result.exit_code == 0, result.output
    assert "40 of 3,600 pixels differ from their surroundings" in result.stdout
    assert (np.array(Image.open(tmp_path / "mask.png")) == 255 * (pixels == 255)).all()
    assert "without -o" in refused(tmp_path, *command, "--force", "-o", tmp_path / "out.png")


def test_an_ome_zarr_becomes_another_with_its_axes(tmp_path):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed: OME-Zarr")
    pixels = np.stack([noisy(seed=seed) for seed in range(2)])
    sizes = {"Y": (0.5, "µm"), "X": (0.5, "µm")}
    files.write(
        tmp_path / "in.zarr", files.Picture(pixels, None, False, True, {"pixel_size": sizes})
    )
    given, output = tmp_path / "in.zarr", tmp_path / "out.zarr"
    arguments = ["denoise", given, "-o", output, "--uncertainty", tmp_path / "std.zarr", *TINY]
    for options in ([], ["--force"]):  # and once more in place of what is there
        result = invoke(*arguments, *options)
        assert result.exit_code == 0, result.output
    expected = evoem.denoise(pixels, **SAME)
    found = zarr.open_group(output, mode="r")
    np.testing.assert_array_equal(found["0"], expected)
    assert found.attrs.asdict() == zarr.open_group(given, mode="r").attrs.asdict()
    std = files.read(tmp_path / "std.zarr")
    assert (std.pixels.dtype, std.metadata["pixel_size"]) == (np.float32, sizes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.zarr", "out.zarr", "std.zarr"]
    again = invoke("denoise", given, "-o", given, "--force", *TINY)
    assert again.stderr == f"evoem: {given} must not be written over: it is read.\n"
