"""Build the site below build/site: the docs, the studies' pages, and a reference made from the code (`make docs`)."""

import importlib
import inspect
import logging
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from mkdocs.commands.build import build
from mkdocs.config import load_config

import hardsight
from hardsight.cli import app

DOCS = Path(__file__).parent
PAGES = DOCS.parent / "build" / "pages"
# Behind the one-screen API: packages that guides and recipes name.
FURTHER = ("hardness", "heads", "dynamics", "engines", "geometry", "records")
API = """# {name}

{about}

{members}
"""
EXCUSE = re.compile(r"^(```\w+)[ \t]*\([^)\n]*\)$", re.MULTILINE)
# Links of the pages beside docs/, from where the pages of the site are.
OUTSIDE = re.compile(r"(docs/|CHANGELOG\.md|CONTRIBUTING\.md)")
MOVED = {"docs/": "", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}
COMMANDS = """# Commands

Every command ends bad input with one sentence and exit code 2; Ctrl-C ends each with a sentence that says how to go on.

"""


def packages() -> list[str]:
    """The packages of the one-screen API, then those behind it."""
    named = [name for name in hardsight.__all__ if isinstance(getattr(hardsight, name), ModuleType)]
    return [*named, *(name for name in FURTHER if name not in named)]


def public_names(module: ModuleType) -> list[str]:
    """What a module lists; without a list, the functions and classes that it defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    own = inspect.getmembers(module, lambda one: getattr(one, "__module__", None) == module.__name__)
    return [name for name, _ in own if not name.startswith("_")]


def api_page(name: str) -> str:
    """The reference of one module; mkdocstrings fills in signatures and docstrings."""
    module = importlib.import_module(name)
    # Packages under names of the one-screen API have pages of their own.
    names = [one for one in public_names(module) if not isinstance(getattr(module, one), ModuleType)]
    members = "\n\n".join(f"::: {name}.{one}" for one in names)
    return API.format(name=name, about=inspect.getdoc(module) or "", members=members)


def commands_page() -> str:
    """Every command with its options, as `--help` says them."""
    root = typer.main.get_command(app)
    return COMMANDS + "\n".join(_command(root, "hardsight", typer.Context(root, info_name="hardsight")))


def _command(command: Any, name: str, context: Any) -> list[str]:
    if hasattr(command, "list_commands"):
        found = []
        for one in command.list_commands(context):
            inner = command.get_command(context, one)
            found += _command(inner, f"{name} {one}", typer.Context(inner, info_name=one, parent=context))
        return found
    lines = [
        f"## {name}",
        "",
        inspect.cleandoc(command.help or ""),
        "",
        "| argument, option | default | meaning |",
        "|---|---|---|",
    ]
    for one in command.params:
        spelled = ", ".join(f"`{flag}`" for flag in [*one.opts, *one.secondary_opts]) if one.opts else f"`{one.name}`"
        plain = one.default is None or isinstance(one.default, bool | tuple | list) or callable(one.default)
        default = "" if plain else f"`{one.default}`"
        meaning = " ".join((getattr(one, "help", None) or "").split()).replace("|", "\\|")
        lines.append(f"| {spelled} | {default} | {meaning} |")
    return [*lines, ""]


def collect_pages() -> list[dict[str, Any]]:
    """Write all pages below build/pages; the two parts of the navigation whose pages are made."""
    from hardsight_studies.engine.pages import build_pages

    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for source, name in (("README", "index"), ("CHANGELOG", "changes"), ("CONTRIBUTING", "contributing")):
        text = (DOCS.parent / f"{source}.md").read_text()
        (PAGES / f"{name}.md").write_text(OUTSIDE.sub(lambda link: MOVED.get(link[1], link[0]), text))
    for page in PAGES.glob("*.md"):
        # A fence may say why it is not run, which is for the tests.
        page.write_text(EXCUSE.sub(r"\1", page.read_text()))
    studies = [path for path in build_pages(PAGES / "studies") if path.suffix == ".md"]
    reference = PAGES / "reference"
    reference.mkdir()
    (reference / "commands.md").write_text(commands_page())
    modules = ["hardsight", *(f"hardsight.{name}" for name in packages())]
    for name in modules:
        (reference / f"{name}.md").write_text(api_page(name))
    return [
        {"Research": ["results.md", *(f"studies/{path.name}" for path in sorted(studies))]},
        {
            "Reference": [
                "reference/commands.md",
                "configuration.md",
                "scores.md",
                *({name: f"reference/{name}.md"} for name in modules),
            ]
        },
    ]


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    made = collect_pages()
    config = load_config(str(DOCS.parent / "mkdocs.yml"))
    config.nav = [*config.nav[:-1], *made, config.nav[-1]]
    build(config)
    print(Path(config.site_dir) / "index.html")


if __name__ == "__main__":
    main()
