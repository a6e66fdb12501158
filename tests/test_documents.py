"""What the documents say: paths of the source, links, and the paper's equations by their labels."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "evoem"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MODELS = ROOT / "docs" / "models.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
)

# A folder ends in a slash; a file has an extension, and a folder before it unless it is a module.
PATH = re.compile(r"(?<![\w/.-])(?:(?:[\w-]+/)+(?:\w+\.\w+)?|\w+\.py\b)(?![\w/])")
LABEL = re.compile(r"\b(?:eq|app|subsec|sec|tab|alg):\w+")
NUMBERED = re.compile(r"\b(?:eqs?\.|[Ee]quations?) ?\(?\d", re.ASCII)
# SSIM is not of our paper, and the paper it is of has only numbers.
OTHER_PAPERS = {
    PACKAGE / "images" / "quality.py": "Wang",
    ROOT / "tests" / "images" / "test_quality.py": "Wang",
}


def text_of(page):
    return page.read_text("utf-8")


def exists(path):
    """A path from the root of the project, or from the package."""
    return any(
        (root / path).is_dir() if path.endswith("/") else (root / path).is_file()
        for root in (ROOT, PACKAGE)
    )


def paths_in_code(text):
    """Paths in backticks, and nothing else in them."""
    return [code for code in re.findall(r"`([^`\n]+)`", text) if PATH.fullmatch(code)]


def equations():
    """The rows of the table of equations: label, place in the paper, formula and files."""
    _, table = text_of(MODELS).split("\n## Equations\n")
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return {label.strip("`"): rest for label, *rest in lines}


def cited_labels():
    """Labels that the source and the tests cite, each with a place where they do."""
    return {
        label: f"{path.relative_to(ROOT)}: {label}"
        for path in SOURCES
        if path != Path(__file__)
        for label in LABEL.findall(text_of(path))
    }


def anchors(page):
    """Where links into a page may lead: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", text_of(page)):
        other = page.parent / target if target else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


@pytest.mark.parametrize("path", sorted(set(PATH.findall(text_of(ARCHITECTURE)))))
def test_a_path_in_the_architecture_exists(path):
    assert exists(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_the_documents_exist(page):
    assert [path for path in paths_in_code(text_of(page)) if not exists(path)] == []


def test_a_path_that_does_not_exist_is_noticed():
    text = "See `images/restored.py`, `runtme/` and\n    em2.py   the loop, `src/evoem/emm.py`"
    assert paths_in_code(text) == ["images/restored.py", "runtme/", "src/evoem/emm.py"]
    found = PATH.findall(text)
    assert found == ["images/restored.py", "runtme/", "em2.py", "src/evoem/emm.py"]
    assert not any(map(exists, found))
    # A folder is no file, and a file no folder.
    assert all(map(exists, ["models/", "models/base.py", "src/evoem/em.py", "em.py"]))
    assert not any(map(exists, ["models/base.py/", "models/spike_slab.py"]))


def test_every_folder_and_module_of_the_package_is_in_the_architecture():
    named = set(PATH.findall(text_of(ARCHITECTURE)))
    folders = {f"{init.parent.relative_to(PACKAGE)}/" for init in PACKAGE.rglob("*/__init__.py")}
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert (folders | modules) - named == set()


def test_every_label_that_is_cited_stands_in_the_table_of_equations():
    known = equations()
    assert [where for label, where in cited_labels().items() if label not in known] == []


def test_labels_in_the_documents_stand_in_the_table_of_equations():
    known = equations()
    for page in PAGES:
        cited = set(LABEL.findall(text_of(page)))
        assert cited - set(known) == set(), page.name


@pytest.mark.parametrize("label", sorted(equations()))
def test_an_equation_has_a_place_a_formula_and_files(label):
    assert LABEL.fullmatch(label)
    place, formula, files = equations()[label]
    assert re.match(r"(section \d|appendix [A-F])", place)
    assert formula
    assert paths_in_code(files)


@pytest.mark.parametrize("citation", ["eq. 12", "eqs. 10, 11", "equation 8", "Equation (3)"])
def test_a_citation_by_number_is_noticed(citation):
    assert NUMBERED.search(f"as in {citation} of the paper")
    assert not NUMBERED.search("as in eq:bsc_gen_model, or equations of 3 models")


def test_equations_are_cited_by_label_not_by_number():
    numbered = [path for path in [*SOURCES, *PAGES] if NUMBERED.search(text_of(path))]
    assert set(numbered) - {Path(__file__)} == set(OTHER_PAPERS)


@pytest.mark.parametrize("path", OTHER_PAPERS, ids=lambda path: path.name)
def test_numbers_of_another_paper_are_cited_with_its_author(path):
    assert OTHER_PAPERS[path] in text_of(path)
