"""Recipes say what the paper says, and name every option."""

import pytest

from evoem.images.options import OPTIONS
from evoem.images.settings import checked
from evoem.reproduction import recipes
from evoem.reproduction.kinds import EXPERIMENTS
from evoem.reproduction.pictures import wanted_by_paper
from evoem.reproduction.recipes import NAMES, SIZES, Recipe, Row, joined, load

RESTORATIONS = ("bound-and-psnr", "controlled", "denoising", "inpainting")
# tab:hyperparams B to E: patch size, H, S, N_p, N_m, N_g, iterations.
LARGE, BINARY = (12, 512, 60, 60, 1, 1, 4000), (8, 256, 200, 10, 9, 4)
PRINTED = {
    "bound-and-psnr": {"house-50": (8, 256, 60, 6, 5, 2, 2000)},
    "controlled": {
        f"{model}-{size}": numbers
        for model in ("es3c", "ebsc")
        for size, numbers in {
            "8-64": (8, 64, *LARGE[2:]),
            "8-256": (8, 256, *LARGE[2:]),
            "12-512": LARGE,
        }.items()
    },
    "denoising": {
        "house-15-es3c": LARGE,
        "house-25-es3c": LARGE,
        "house-50-es3c": LARGE,
        "barbara-25-es3c": (11, 512, 60, 60, 1, 1, 3000),
        "lena-25-es3c": (11, 512, 60, 60, 1, 1, 4000),
        "peppers-25-es3c": (10, 800, 40, 30, 1, 1, 6000),
        "house-15-ebsc": (*BINARY, 4000),
        "house-25-ebsc": (*BINARY, 4000),
        "house-50-ebsc": (*BINARY, 4000),
        "barbara-25-ebsc": (*BINARY, 3000),
        "lena-25-ebsc": (*BINARY, 4000),
        "peppers-25-ebsc": (*BINARY, 6000),
    },
    "inpainting": {
        "barbara-50-es3c": (12, 512, 30, 20, 1, 1, 4000),
        "cameraman-50-es3c": (12, 512, 30, 20, 1, 1, 4000),
        "lena-50-es3c": (12, 512, 30, 20, 1, 1, 4000),
        "house-50-es3c": (12, 512, 30, 20, 1, 1, 4000),
        "house-80-es3c": (15, 512, 30, 20, 1, 1, 500),
        "castle-50-es3c": (7, 900, 30, 20, 1, 1, 2000),
        "castle-80-es3c": (7, 900, 60, 60, 1, 1, 200),
        "new-orleans-es3c": (14, 900, 60, 60, 1, 1, 3000),
    },
}
COUNTS = (
    "patch_size", "n_latents", "n_states", "n_parents", "n_children", "n_generations", "max_iter",
)  # fmt: skip


@pytest.mark.parametrize("name", RESTORATIONS)
def test_full_recipes_have_the_paper_s_hyperparameters(name):
    rows = {row.name: row.settings for row in load(name, "full").rows}
    own = {row for row, settings in rows.items() if settings.get("base") == "own"}
    assert rows.keys() - own == PRINTED[name].keys()
    for row, numbers in PRINTED[name].items():
        options = rows[row]["options"]
        assert tuple(options[count] for count in COUNTS) == numbers
        assert (options["parents"], options["mutation"]) == ("fit", "uniform")
        assert not options["crossover"]
        model = "ebsc" if "ebsc" in row else "es3c"
        slab = {"ebsc": None, "es3c": "fixed" if name == "inpainting" else "full"}[model]
        assert (options["model"], options.get("slab")) == (model, slab)
        assert rows[row]["repeats"] == (
            5 if name == "bound-and-psnr" else 1 if "orleans" in row else 3
        )
    for row in own:
        assert rows[row]["options"] == {"preset": "balanced"}


@pytest.mark.parametrize("name", RESTORATIONS)
@pytest.mark.parametrize("size", SIZES)
def test_recipes_name_every_option_that_a_preset_would_decide(name, size):
    decided = {name for name, option in OPTIONS.items() if option.setting.preset} - {"rank"}
    for row in load(name, size).rows:
        options = row.settings["options"]
        checked("restore", options)
        wanted_by_paper(row.settings["image"])
        if row.settings.get("base") != "own":
            lacking = {"slab"} if options["model"] == "ebsc" else set()
            assert options.keys() >= decided - lacking


def test_bars_have_the_paper_s_hyperparameters():
    for name in ("bars", "bars-reliability"):
        for row in load(name, "full").rows:
            assert row.settings["n_rows"] == 5000
            assert row.settings["repeats"] == (30 if name == "bars-reliability" else 1)
            assert row.settings["search"].items() >= {
                "n_latents": 10, "n_states": 20, "n_parents": 5, "n_children": 4,
                "n_generations": 2, "max_iter": 300,
            }.items()  # fmt: skip
    best = {row.name: row.settings["best"] for row in load("bars-reliability", "full").rows}
    assert best == {
        "noisy-or": "randparents-cross-sparseflips",
        "bsc": "fitparents-cross-sparseflips",
        "sssc": "fitparents-randflips",
    }


def test_names_of_combinations_say_what_they_are():
    for operators in (row.settings["operators"] for row in load("bars-reliability", "full").rows):
        assert len(operators) == 6
        for name, one in operators.items():
            assert name.startswith({"random": "rand", "fit": "fit"}[one["parents"]] + "parents")
            assert ("cross" in name) == one["crossover"]
            assert ("sparseflips" in name) == (one["mutation"] == "sparse")


def test_natural_patches_have_the_paper_s_hyperparameters():
    printed = {
        "noisy-or": (10, 30_000, 100, 120, 8, 2, 200),
        "bsc": (16, 100_000, 300, 200, 10, 4, 4000),
        "sssc": (12, 100_000, 512, 60, 6, 2, 2000),
    }
    names = ("n_latents", "n_states", "n_parents", "n_generations", "max_iter")
    for row in load("natural-patches", "full").rows:
        patches, search = row.settings["patches"], row.settings["search"]
        found = (patches["size"], patches["number"], *(search[name] for name in names))
        assert found == printed[row.name]
        assert (search["parents"], search["mutation"], search["crossover"]) == (
            "fit", "sparse", True,
        )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_quick_recipes_say_what_is_smaller(name):
    assert load(name, "quick").reduced
    assert not load(name, "full").reduced
    assert recipes.data(name)["kind"] in EXPERIMENTS


def test_every_file_of_the_folder_is_read():
    stems = {entry.name.removesuffix(".toml") for entry in recipes.FOLDER.iterdir()}
    assert stems == {*NAMES, "published", "pictures", "methods"}


def tiny(**settings):
    rows = tuple(Row(name, {"repeats": n, "options": {}} | settings) for name, n in NUMBERS.items())
    return Recipe("tiny", "full", "Tiny", "nowhere", "Nothing.", "", rows)


NUMBERS = {"a": 2, "b": 1, "c": 3}


def test_every_row_is_run_once_before_any_is_run_again():
    names = [part.name for part in tiny().parts(0)]
    assert names == ["a-1", "b-1", "c-1", "a-2", "c-2", "c-3"]


def test_parts_of_other_settings_and_seeds_are_other_parts():
    keys = [part.key for part in tiny().parts(0)]
    assert len(set(keys)) == len(keys)
    assert keys == [part.key for part in tiny().parts(0)]
    assert not {*keys} & {part.key for part in tiny().parts(1)}
    assert not {*keys} & {part.key for part in tiny(crop=3).parts(0)}


def test_some_rows_can_be_asked_for():
    assert [row.name for row in tiny().only(["c", "a"]).rows] == ["a", "c"]
    with pytest.raises(ValueError, match=r"^only must be one of 'a', 'b', 'c'; got 'd'\.$"):
        tiny().only(["d"])


def test_updates_change_where_there_is_a_choice():
    recipe = load("denoising", "full").with_updates("printed")
    for row in recipe.rows:
        own = row.settings.get("base") == "own"
        assert row.settings["options"].get("updates") == (None if own else "printed")


def test_the_authors_programs_have_printed_updates_of_noisy_or_and_a_start_of_their_own():
    rows = load("bars", "full").with_updates("authors").rows
    found = {row.name: row.settings["options"] for row in rows}
    updates = {name: options["updates"] for name, options in found.items()}
    assert updates == {"noisy-or": "printed", "bsc": "authors", "sssc": "authors"}
    starts = {name: options["init"] for name, options in found.items()}
    assert starts == {"noisy-or": "random", "bsc": "mean", "sssc": "authors"}


def test_tables_are_joined_without_being_changed():
    first = {"a": {"b": 1}, "c": 2}
    assert joined(first, {"a": {"d": 3}, "c": {"e": 4}}) == {"a": {"b": 1, "d": 3}, "c": {"e": 4}}
    assert first == {"a": {"b": 1}, "c": 2}


@pytest.mark.parametrize(("name", "size"), [("bar", "full"), ("bars", "tiny")])
def test_what_there_is_no_recipe_of_is_refused(name, size):
    with pytest.raises(ValueError, match=r"^(name|size) must be one of "):
        load(name, size)
