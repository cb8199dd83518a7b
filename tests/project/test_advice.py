"""What the examples tell people to copy: hyperparameters that the library's own limits allow."""

import ast
import doctest
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardsight.losses import GradientRescaling
from hardsight.losses.emphasis import largest_beta

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted((ROOT / "src").rglob("*.py"))
RESCALING = {"GradientRescaling", "gradient_rescaling", "linear_gradient_rescaling"}
# With more classes the limit falls no further.
MANY_CLASSES = 100
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SIGNATURE = inspect.signature(GradientRescaling)
DEFAULTS = {name: SIGNATURE.parameters[name].default for name in ("beta", "lam", "transform")}

Settings = dict[str, object]


def in_python(code: str) -> Iterator[Settings]:
    """Each use of rescaling in a piece of Python: as a call, or as the options of a configuration."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return  # a piece to put into a file; whole examples are run by another test
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in RESCALING:
            # The functions take logits and labels first, and their settings by name.
            positional = node.args if ast.unparse(node.func).endswith("GradientRescaling") else []
            given = dict(zip(("beta", "lam", "transform"), map(literal, positional), strict=False))
            yield DEFAULTS | given | {one.arg: literal(one.value) for one in node.keywords if one.arg}
        elif isinstance(node, ast.Call):
            swept = {one.arg: literal(one.value) for one in node.keywords if one.arg}
            for beta in swept.get("loss__options__beta", []):
                for lam in swept.get("loss__options__lam", [DEFAULTS["lam"]]):
                    yield DEFAULTS | {"beta": beta, "lam": lam}
        elif isinstance(node, ast.Dict):
            yield from in_table(literal(node))


def literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def in_table(table: object) -> Iterator[Settings]:
    """A configuration whose loss is rescaling."""
    loss = table.get("loss") if isinstance(table, dict) else None
    if isinstance(loss, dict) and loss.get("name") in ("gradient_rescaling", "gr"):
        yield DEFAULTS | loss.get("options", {})


def on_page(text: str) -> Iterator[Settings]:
    for language, code in FENCE.findall(text):
        if language == "toml":
            yield from in_table(tomllib.loads(code))
        elif language in ("python", "py"):
            yield from in_python(code_of(code))
    for span in re.findall(r"`((?:\w+\.)*\w*[rR]escal\w*\([^`]*\))`", FENCE.sub("", text)):
        # A sentence may name a function with its arguments left out.
        if "..." not in span:
            yield from in_python(span)


def code_of(block: str) -> str:
    """A block as a program, whether it is one or a session at the prompt."""
    if ">>> " not in block:
        return block
    return "".join(example.source for example in doctest.DocTestParser().get_examples(block))


def in_docstrings(module: str) -> Iterator[Settings]:
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield from in_python(code_of(text) if ">>> " in text else "")


def unstable(settings: Settings) -> bool:
    beta, lam = settings["beta"], settings["lam"]
    numbers = isinstance(beta, int | float) and isinstance(lam, int | float)
    return numbers and settings["transform"] == "exp" and beta > largest_beta(lam, MANY_CLASSES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_on_pages_rule_no_class_out(page: Path) -> None:
    assert [one for one in on_page(page.read_text()) if unstable(one)] == []


def test_examples_in_docstrings_rule_no_class_out() -> None:
    found = {path.name: [one for one in in_docstrings(path.read_text()) if unstable(one)] for path in MODULES}
    assert {name: settings for name, settings in found.items() if settings} == {}


def test_the_default_rules_no_class_out() -> None:
    assert not unstable(DEFAULTS)


UNSTABLE = {
    "a call": "```python\nlosses.GradientRescaling(8.0, lam=0.5)\n```\n",
    "a function": "```python\nlosses.gradient_rescaling(logits, labels, beta=8.0)\n```\n",
    "a session": "```python\n>>> loss = hs.losses.GradientRescaling(beta=16.0, lam=1.0)\n>>> loss\nx\n```\n",
    "a file": '```toml\n[loss]\nname = "gr"\noptions = { beta = 16.0, lam = 1.0 }\n```\n',
    "a dictionary": '```python\nconfig = {"loss": {"name": "gr", "options": {"beta": 16.0}}}\n```\n',
    "a grid": "```python\ntraining.grid(loss__options__beta=[4.0, 8.0], seed=[0])\n```\n",
    "a sentence": "Take `GradientRescaling(8.0, 0.5, epsilon=1e-6)`.\n",
}


@pytest.mark.parametrize("text", UNSTABLE.values(), ids=UNSTABLE)
def test_an_unstable_example_is_noticed(text: str) -> None:
    assert sum(unstable(one) for one in on_page(text)) == 1
    stable = text.replace("16.0", "4.0").replace("8.0", "6.0")
    assert not any(unstable(one) for one in on_page(stable))
    assert list(on_page(stable))
