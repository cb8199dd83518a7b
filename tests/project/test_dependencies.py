"""What the package says it needs is what it imports: no more, and no less."""

import ast
import itertools
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED_AS = {"scikit-learn": "sklearn", "pillow": "PIL", "faiss-cpu": "faiss"}
# The first three come with jinja2, transformers and pydantic. Of the others, the sentence that asks for one names it.
UNDECLARED = {"markupsafe", "huggingface_hub", "pydantic_core", "torchvision", "umap"}


def modules(requirements: list[str]) -> set[str]:
    names = (re.match(r"[\w.-]+", one)[0] for one in requirements)
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def imported(source: str) -> set[str]:
    """The first names of what is imported anywhere in a source, that of the package itself apart."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).split(".")[0])
    return found - {"hardsight"}


IMPORTS = {path: imported(source) for path, source in SOURCES.items()}
EXTRAS = {
    name: modules(wanted) for name, wanted in PROJECT["optional-dependencies"].items() if name not in ("dev", "docs")
}
# Ray does not start without it.
DECLARED = modules(PROJECT["dependencies"]).union(*EXTRAS.values()) - {"aiohttp"}


@pytest.mark.parametrize("module", sorted(DECLARED))
def test_every_dependency_is_used(module: str) -> None:
    assert any(
        module in names or re.search(rf'import(_or_say|_module)?\("{module}"', SOURCES[path])
        for path, names in IMPORTS.items()
    )


def test_every_import_is_declared() -> None:
    known = DECLARED | UNDECLARED | sys.stdlib_module_names
    assert {path.name: others for path, names in IMPORTS.items() if (others := names - known)} == {}


def test_the_torch_that_make_installs_may_bring_its_own_triton() -> None:
    """Builds of torch with CUDA ask for one release of triton: where another is pinned, nothing can be installed."""
    asks_for = {"2.13.0": "3.7.1"}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {one.name: one.specifier for line in lines if not line.startswith("#") for one in [Requirement(line)]}
    (torch,) = pinned["torch"]
    assert asks_for[torch.version] in pinned["triton"]


# What the sentences may ask for besides the declared: others of the package index, a folder of the repository, names
# that are put in when it is told.
ALSO_THERE = {
    "ray[data]",
    "torchvision",
    "umap-learn",
    "./studies",
    "{name}",
    "{wanted}",
    "{package}",
    "{packages}",
}


def installations(source: str) -> set[str]:
    """What the sentences of a source tell people to give to pip."""
    return {word.strip("'") for told in re.findall(r"pip install ([^\"`,)\n]+)", source) for word in told.split()}


def test_every_hint_names_an_installation_that_exists() -> None:
    """The library itself is on no index: its extras are no answer to who has no checkout."""
    wanted = [*PROJECT["dependencies"], *itertools.chain(*PROJECT["optional-dependencies"].values())]
    there = {Requirement(one).name for one in wanted} - {"hardsight"} | ALSO_THERE
    unknown = {path.name: installations(source) - there for path, source in SOURCES.items()}
    assert {name: hints for name, hints in unknown.items() if hints} == {}
    assert installations("(pip install 'hardsight[report]')") == {"hardsight[report]"}
