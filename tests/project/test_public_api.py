"""The public API: every promised name is there, and importing it stays light."""

import json
import subprocess
import sys

import pytest

import hardsight as hs

# What a plain `import hardsight` must not pull in: each costs time or is an extra.
HEAVY = {
    "PIL", "accelerate", "fastapi", "jinja2", "lightning", "matplotlib", "plotly", "pyarrow", "ray", "rich", "scipy",
    "sklearn", "torchmetrics", "torchvision", "transformers", "triton", "typer",
}  # fmt: skip


@pytest.mark.parametrize("name", hs.__all__)
def test_every_public_name_can_be_used(name: str) -> None:
    assert getattr(hs, name) is not None
    assert name in dir(hs)
    assert f"`{name}" in (hs.__doc__ or ""), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'utils'"):
        _ = hs.utils


def test_importing_hardsight_imports_nothing_heavy() -> None:
    # Against what torch alone imports: some builds of it pull in more than others.
    script = (
        "import json, sys, torch; before = set(sys.modules); import hardsight; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    added = {name.split(".")[0] for name in json.loads(out)}
    assert added & HEAVY == set()
    assert "hardsight" in added


def test_no_public_name_waits_for_the_compiler() -> None:
    """`torch._dynamo` takes longer than all of the package; calls that compile import it themselves."""
    script = (
        "import sys, torch, hardsight; before = set(sys.modules)\n"
        "for name in hardsight.__all__: getattr(hardsight, name)\n"
        "print(sorted({'torch._dynamo', 'sympy'} & (set(sys.modules) - before)))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out == "[]\n"


def test_a_commands_help_does_not_wait_for_torch() -> None:
    script = "import sys, hardsight, hardsight.cli; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out == "False\n"


@pytest.mark.parametrize("room", ["hardness", "geometry", "heads", "engines", "dynamics"])
def test_the_rooms_of_public_names_are_there_too(room: str) -> None:
    script = f"import hardsight as hs; print(hs.{room}.__name__)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out == f"hardsight.{room}\n"
