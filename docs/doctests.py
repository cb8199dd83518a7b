"""For the reference: examples in docstrings become code, where Markdown would see quotations."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)


class FenceDoctests(griffe.Extension):
    """Puts every `>>>` example of a docstring into a fence."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = _EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
