"""The samples that a page holds: rankings of them as cards, to look at page by page and to decide on."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from hardsight.cleaning.decisions import COLUMNS, guarded
from hardsight.files.tokens import Tokens, pieces, tokens_of
from hardsight.report.reading import Score, thumbnails
from hardsight.report.view import View

# Cards that are seen at one time.
PAGE = 24
# So many of a ranking are held at least, where it has them; all suspects that an audit counts, but no more than `MOST`.
HELD, MOST = 200, 1000
# Of each other kind of finding.
MOST_OF_A_KIND = 100
# Of a text; the rest of it is in the table on disk.
_LONGEST = 2000


@dataclass(frozen=True)
class Card:
    """One sample; `flipped` is None where the truth is not known, `values` are its scores in the table's order.

    `place` is its row in the page's table; `classes` are the codes of its given, expected and predicted class; `line`
    is its line of the action list as JSON, with the action and the new label to be filled in. `pieces` are those of a
    text whose tokens have scores, each with the tenth of all tokens that it is in, the hardest last; -1 between tokens.
    """

    place: int
    id: str
    given: str
    expected: str = ""
    true: str = ""
    flipped: bool | None = None
    values: tuple[float, ...] = ()
    path: str = ""
    reasons: str = ""
    shown: tuple[tuple[str, str], ...] = ()
    pieces: tuple[tuple[str, int], ...] = ()
    kinds: tuple[str, ...] = ()
    picture: str = ""
    classes: tuple[int, int, int] = (0, 0, 0)
    line: str = ""


@dataclass(frozen=True)
class Ranking:
    """The first samples by one score, out of `total`; the first `counted` are those that an audit counts as wrong."""

    kind: ClassVar = "cards"
    score: Score
    values: list[float]
    cards: list[Card]
    total: int
    counted: int = 0
    page: int = PAGE

    @property
    def pictured(self) -> int:
        return sum(bool(card.picture) for card in self.cards)


class PageView(View):
    """A record with the samples that its page holds."""

    @cached_property
    def _suspects(self) -> np.ndarray:
        """Rows of the first suspects, and of the first of every other kind of finding."""
        rows = self.suspect_rows
        first = [rows[: max(HELD, min(MOST, self.estimated or 0))]]
        kinds = self.samples.rows_of_kinds().values()
        first += [rows[np.isin(rows, of_kind)][:MOST_OF_A_KIND] for of_kind in kinds]
        found = np.concatenate(first)
        return rows[np.isin(rows, found)]

    @property
    def ids(self) -> list[str]:
        hardest = self.hardest_rows[:HELD]
        first = [self._suspects[:PAGE], hardest[:PAGE], self._suspects, hardest]
        rows = np.array(list(dict.fromkeys(np.concatenate(first).tolist())), np.int64)
        return self.samples.texts("id", rows)

    @property
    def suspects(self) -> Ranking | None:
        return self._ranking(self.suspicion, self._suspects, len(self.suspect_rows), self.estimated or 0)

    @property
    def hardest(self) -> Ranking | None:
        return self._ranking(self.hardness, self.hardest_rows[:HELD], len(self.hardest_rows))

    def _ranking(self, score: Score | None, rows: np.ndarray, total: int, counted: int = 0) -> Ranking | None:
        """These rows as cards; None where there is nothing to rank."""
        if score is None or not len(rows):
            return None
        at, cards = self.samples.scores.index(score), [self.cards[row] for row in rows.tolist()]
        return Ranking(score, [card.values[at] for card in cards], cards, total, counted)

    @cached_property
    def cards(self) -> dict[int, Card]:
        """A card for each row that is held, with every score."""
        # None twice, the suspects first.
        held = list(dict.fromkeys([*self._suspects.tolist(), *self.hardest_rows[:HELD].tolist()]))
        samples, rows = self.samples, np.array(held, np.int64)
        if not len(rows):
            return {}
        ids = samples.texts("id", rows)
        codes = [self.codes(name)[rows] for name in ("label", self.expected_column, "predicted", "clean_label")]
        given, expected, _, true = ([self.labels.names[code] if code >= 0 else "" for code in of] for of in codes)
        values = np.stack([samples.values(score.name)[rows] for score in samples.scores], 1)
        paths, reasons = (samples.texts(name, rows) for name in ("path", "reasons"))
        shown = [(name, samples.texts(name, rows)) for name in samples.shown]
        kinds, pictures = samples.kinds(rows), thumbnails(self.run.folder, self.ids)
        texts = dict(shown).get("text", [])
        cut = _pieces(tokens_of(samples.path, samples.schema), ids, texts, self.hardness)
        suspicion = samples.score("suspicion")
        suspicions = samples.values("suspicion")[rows] if suspicion else np.full(len(rows), np.nan)
        return {
            row: Card(
                place=at,
                id=ids[at],
                given=given[at],
                expected=expected[at],
                true=true[at],
                flipped=bool(self.wrong[row]) if self.wrong is not None and self.known[row] else None,
                values=tuple(values[at].tolist()),
                path=paths[at],
                reasons=reasons[at],
                shown=tuple((name, _cut(column[at])) for name, column in shown if column[at]),
                pieces=cut[at] if cut else (),
                kinds=tuple(kinds[at]),
                picture=pictures.get(ids[at], ""),
                classes=(int(codes[0][at]), int(codes[1][at]), int(codes[2][at])),
                line=_line(ids[at], given[at], expected[at], float(suspicions[at]), reasons[at], paths[at]),
            )
            for at, row in enumerate(held)
        }

    @property
    def choices(self) -> list[tuple[str, str]]:
        """The classes in the order of the codes, then those of no sample: each one's name, and its cell in the list."""
        names = self.labels.names
        others = [name for name in self.run.class_names if name and name not in set(names)]
        return [(name, guarded(name)) for name in [*names, *others]]

    @property
    def decisions(self) -> dict[str, str]:
        """What the page's script is told: the head of the action list, empty where no sample has a label, and a key.

        The key is the same for the same samples with the same labels, however often their page is written.
        """
        known = json.dumps([[card.line for card in self.cards.values()], self.choices])
        key = hashlib.sha256(known.encode()).hexdigest()[:16]
        return {"key": key, "header": json.dumps(COLUMNS) if "label" in self.labels.codes else ""}


def _line(identity: str, given: str, expected: str, suspicion: float, reasons: str, path: str) -> str:
    cells = (identity, given, expected, "keep", expected, f"{suspicion:.6f}" if suspicion == suspicion else "")
    return json.dumps([guarded(cell) for cell in (*cells, reasons, path)])


def _pieces(
    tokens: Tokens | None, ids: Sequence[str], texts: Sequence[str], by: Score | None
) -> list[tuple[tuple[str, int], ...]]:
    """Each text cut into its tokens, with their tenths by this score, else by the first that tokens have."""
    if tokens is None or not tokens.scores:
        return []
    score = by.name if by and by.name in tokens.scores else next(iter(tokens.scores))
    return [
        tuple(
            (piece, -1 if span is None else span.tenth)
            for piece, span in pieces(_cut(text), tokens.spans(document, score))
        )
        for document, text in zip((int(one) if one.isdecimal() else -1 for one in ids), texts, strict=True)
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
