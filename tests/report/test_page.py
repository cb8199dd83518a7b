"""The page holds what the record says, asks the network for nothing, and lets no record write markup into it."""

import base64
import hashlib
import html.parser
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hardsight.report import samples_shown, write_report
from hardsight.report.view import number

Maker = Callable[..., Path]
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>alert(2)</script>",
    "' onmouseover='alert(3)",
    "{{ 7 * 7 }}{% raw %}",
    "$\\frac{1}{",
    "]]></svg><script src=//evil.example/x.js></script>",
    "javascript:alert(4)",
    "猫 🐈 \x00 ‮",
    "https://evil.example/pixel.png",
]


class _Page(html.parser.HTMLParser):
    """Elements and their attributes, and whether every element that was opened is closed in order."""

    VOID = frozenset({"meta", "img", "br", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data if self.open[-1:] not in (["script"], ["style"]) else ""

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def _check_harmless(text: str) -> _Page:
    """Refuse a page that could run what is not ours or fetch anything."""
    page = _Page(text)
    kinds = Counter(tag for tag, _ in page.elements)
    assert kinds["script"] == 1
    assert not kinds.keys() & {"link", "iframe", "object", "embed", "form", "base", "audio", "video", "foreignobject"}
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "href", "xlink:href", "srcset", "action", "poster", "data"):
            target = attributes.get(name, "#")
            assert target.startswith("#") or (tag == "img" and target.startswith("data:image/png;base64,"))
        assert not re.search(r"url\((?!#)", attributes.get("style", ""))
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    return page


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def digits_page(digits_record: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return _read(write_report(digits_record, tmp_path_factory.mktemp("page") / "page.html"))


def test_the_page_is_whole_and_harmless(digits_page: str) -> None:
    page = _check_harmless(digits_page)
    assert "://" not in digits_page
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert link["href"].removeprefix("#") in ids
    for reference in re.findall(r'(?:url\(#|xlink:href="#)([^)"]+)', digits_page):
        assert reference in ids
    assert page.all("img")
    assert all(image["alt"] for image in page.all("img"))
    assert all(drawing["aria-label"] and drawing["role"] == "img" for drawing in page.all("svg"))


def test_what_scrolls_can_be_reached_by_keyboard_and_has_a_name(digits_page: str) -> None:
    scrolling = re.findall('<div class="scroll[^>]*>', digits_page)
    assert len(scrolling) == digits_page.count("<table") == 7
    assert all('tabindex="0" role="region" aria-label="' in box for box in scrolling)


@pytest.mark.parametrize(
    "unsafe",
    [
        "<script>alert(1)</script>",
        '<img src="x.png">',
        '<b onclick="x()">x</b>',
        '<link href="#x">',
        '<a href="https://x.example">x</a>',
        '<p style="background: url(//x.example/y)">x</p>',
        "</p>",
    ],
)
def test_that_check_rejects_an_unsafe_page(digits_page: str, unsafe: str) -> None:
    with pytest.raises(AssertionError):
        _check_harmless(digits_page.replace("</header>", unsafe + "</header>"))


def test_the_policy_allows_our_script_alone(digits_page: str) -> None:
    page = _Page(digits_page)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    script = re.search(r"<script>(.*?)</script>", digits_page, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert rules["base-uri"] == rules["form-action"] == "'none'"


def test_hostile_names_are_only_words(make_record: Maker) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 10
    folder = make_record(
        {
            "id": [HOSTILE[at % 10] + str(at) for at in range(60)],
            "label": labels,
            "predicted": (labels + generator.integers(0, 2, 60)) % 10,
            "clean_label": (labels + generator.integers(0, 2, 60)) % 10,
            "avh": generator.random(60),
            "confidence": generator.random(60),
            "<script>alert(5)</script>": generator.random(60),
            "$x_{": generator.random(60),
        },
        name=HOSTILE[0],
        class_names=HOSTILE,
        device=HOSTILE[1],
        created=HOSTILE[2],
        config={HOSTILE[0]: HOSTILE[1], "nested": {HOSTILE[3]: [HOSTILE[4]]}},
        versions={HOSTILE[1]: HOSTILE[6]},
        results={"label_issues": {"best": HOSTILE[0], "scores": {HOSTILE[0]: {"auroc": 0.5}}}},
    )
    epochs = {"epoch": [1, 2], "train_loss": [1.0, 0.5], HOSTILE[0] + "loss": [1.0, 2.0], "$_{": [0.1, 0.2]}
    pq.write_table(pa.table(epochs), folder / "epochs.parquet")
    page = _check_harmless(_read(write_report(folder)))
    assert HOSTILE[0] in page.words
    assert "{{ 7 * 7 }}" in page.words


def test_the_page_says_what_the_record_holds(digits_record: Path, digits_page: str) -> None:
    words = _Page(digits_page).words
    table = pq.read_table(digits_record / "samples.parquet").sort_by([("avh", "descending")]).to_pydict()
    wrong = np.array(table["label"]) != np.array(table["clean_label"])
    assert f"{wrong[:200].sum()} of these 200" in words
    assert "hardsight audit" in words
    flipped = int(wrong.sum())
    assert flipped == 359
    assert f"{wrong[:flipped].mean():.1%}" in words
    assert f"{len(wrong):,}" in words
    assert "1/10" in words
    agreed = [
        i for i, given, said in zip(table["id"], table["label"], table["predicted"], strict=True) if given == said
    ]
    suspects = table["id"]
    seen = [*suspects[:24], *agreed[:24], *suspects[24:200], *agreed[24:200]]
    assert samples_shown(digits_record) == [str(at) for at in dict.fromkeys(seen)]
    assert digits_page.count("data:image/png;base64,") == 400
    rows = re.findall(r'<tr><td class="name">(\d+)</td>', digits_page)
    assert rows == [str(at) for at in [*table["id"][:200], *agreed[:200]]]
    for anchor in ("suspects", "hardest", "histograms", "plane", "scores", "curves", "classes", "confusion", "samples"):
        assert f'<section id="{anchor}">' in digits_page


def test_the_table_of_scores_is_sorted_by_what_was_measured(digits_record: Path, digits_page: str) -> None:
    from sklearn.metrics import roc_auc_score

    samples = pq.read_table(digits_record / "samples.parquet")
    table = {name: samples.column(name).to_numpy() for name in samples.column_names}
    wrong = table["label"] != table["clean_label"]
    expected = {name: roc_auc_score(wrong, table[name]) for name in ("avh", "loss", "entropy")}
    expected |= {name: roc_auc_score(wrong, -table[name]) for name in ("confidence", "margin", "norm")}
    section = digits_page[digits_page.index('<section id="scores">') :]
    found = re.findall(
        r"<code>(\w+)</code></td><td>\w+</td><td class=\"range\">[^<]*</td><td class=\"n\">([\d.]+)</td>", section
    )
    assert dict(found) == {name: number(value) for name, value in expected.items()}
    measured = [float(value) for _, value in found]
    assert measured == sorted(measured, reverse=True)


# As records name it now, and as they did.
@pytest.mark.parametrize("ranked_by", [{"ranked_by": ["loss", "avh"]}, {"best": "loss"}])
def test_recorded_results_outweigh_recomputed_ones(ranked_by: dict, make_record: Maker) -> None:
    issues = {
        **ranked_by,
        "scores": {"loss": {"auroc": 0.1234, "average_precision": 0.4321}, "gone": {"auroc": 0.9}},
    }
    folder = make_record(
        {
            "id": [0, 1, 2],
            "label": [0, 1, 0],
            "clean_label": [0, 0, 0],
            "loss": [0.1, 2.0, 0.3],
            "avh": [0.3, 0.2, 0.1],
        },
        kind="demo",
        results={"test_accuracy": 0.875, "label_issues": issues},
    )
    words = _Page(_read(write_report(folder))).words
    for text in ("0.1234", "0.4321", "0.9", "87.5%", "ranked by Cross-entropy loss"):
        assert text in words


def test_the_marked_score_is_the_one_that_ranks_the_suspects(make_record: Maker) -> None:
    facts = {"id": [0, 1, 2], "label": [0, 1, 0], "clean_label": [0, 0, 0]}
    scores = {"loss": [0.1, 2.0, 0.3], "avh": [0.3, 0.2, 0.1], "suspicion": [0.0, 0.5, 1.0]}
    page = _read(write_report(make_record(facts | scores, results={"label_issues": {"ranked_by": ["avh", "loss"]}})))
    assert re.findall("<tr class=marked>.*?<code>(.*?)</code>", page) == ["suspicion"]
    assert "marked row ranks" in page


def test_the_same_record_gives_the_same_bytes(digits_record: Path, digits_page: str, tmp_path: Path) -> None:
    assert _read(write_report(digits_record, tmp_path / "again.html")) == digits_page


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (None, "no samples.parquet"),
        ({"id": []}, "holds no rows"),
        ({"id": ["a"]}, "How this run was made"),
        ({"id": ["a"], "avh": [0.2]}, "Hardest samples"),
        ({"id": ["a"], "label": [0], "avh": [0.2], "confidence": [0.5]}, "Suspected"),
        ({"id": ["a", "b"], "label": [0, 1], "avh": [np.nan, np.inf]}, "Not finite"),
        ({"id": ["a", "b"], "label": ["x", None], "predicted": ["x", "y"], "mystery": [1.0, 2.0]}, "x"),
        ({"id": ["a", "b"], "predicted": [3, 4], "avh": [0.1, 0.4]}, "Hardness by class"),
        ({"id": [1, 2], "label": [0, 1], "clean_label": [0, 1], "avh": [0.1, 0.4]}, "0 of these 2"),
        ({"id": [1, 2], "label": [0, 1], "expected": [1, 1], "suspicion": [0.1, 0.4]}, "ranked by Suspicion"),
    ],
)
def test_thin_records_still_make_a_page(make_record: Maker, columns: dict | None, expected: str) -> None:
    if columns == {"id": []}:
        columns = {"id": np.zeros(0, np.int64), "avh": np.zeros(0), "label": np.zeros(0, np.int64)}
    assert expected in _check_harmless(_read(write_report(make_record(columns)))).words


@pytest.mark.parametrize(("status", "words"), [("running", "had not finished"), ("failed", "This run failed")])
def test_an_unfinished_run_says_so(make_record: Maker, status: str, words: str) -> None:
    assert words in _read(write_report(make_record(status=status)))
    assert words not in _read(write_report(make_record(status="finished")))


def test_many_samples_and_classes_make_a_small_page(make_record: Maker) -> None:
    generator = np.random.default_rng(0)
    count = 100_000
    labels = generator.integers(0, 1000, count)
    confidence = generator.random(count)
    columns = {"id": np.arange(count), "label": labels, "predicted": np.roll(labels, 1), "confidence": confidence}
    page = _read(write_report(make_record(columns | {"avh": 0.002 * (1 - confidence), "loss": -np.log(confidence)})))
    words = _check_harmless(page).words
    assert len(page) < 2_000_000
    assert "30 hardest of 1,000 classes" in words


def test_of_many_scores_the_best_are_drawn_and_all_are_listed(make_record: Maker) -> None:
    generator = np.random.default_rng(0)
    columns = {"id": np.arange(50), "label": np.arange(50) % 2, "clean_label": np.zeros(50, np.int64)}
    scores = {f"score_{at:02d}": generator.random(50) for at in range(20)} | {"avh": generator.random(50)}
    page = _read(write_report(make_record(columns | scores)))
    drawn = re.findall('aria-label="Histogram of ([^"]+?) for', page)
    assert len(drawn) == 12
    assert "Angular visual hardness" in drawn
    assert all(f"<code>{name}</code>" in page for name in scores)
    assert "12 of 21" in page


def test_a_long_class_name_is_cut_on_its_card_and_one_without_letters_is_its_number(make_record: Maker) -> None:
    columns = {"id": [1, 2, 3], "label": [0, 1, 2], "predicted": [1, 0, 2], "avh": [0.3, 0.2, 0.1]}
    page = _read(write_report(make_record(columns, class_names=["x" * 400, "ant", ""])))
    cards = page.partition('class="cards')[2].partition("</section>")[0]
    assert f'<span title="{"x" * 400}">{"x" * 59}…</span>' in cards
    assert ">" + "x" * 60 not in cards
    assert "(no label)" not in page
    assert '<span class="change">2' in page
    assert "(1 sample)" in page
    assert "(1 samples)" not in page


def test_a_long_path_keeps_its_end_on_its_card_and_its_whole_in_the_table(make_record: Maker) -> None:
    path = "/very/long/" + "folder/" * 20 + "photo.jpg"
    columns = {"id": [1, 2], "label": [0, 1], "avh": [0.3, 0.2], "path": [path, "short.jpg"]}
    page = _read(write_report(make_record(columns)))
    cards = page.partition('class="cards')[2].partition("</section>")[0]
    assert f'<span title="{path}">…{path[-39:]}</span>' in cards
    assert ">short.jpg<" in cards
    assert f'<td class="name">{path}</td>' in page


def test_cards_without_pictures_have_the_room_of_their_words(digits_page: str, make_record: Maker) -> None:
    assert '<div class="cards" ' in digits_page
    page = _read(write_report(make_record({"id": [1, 2], "label": [0, 1], "avh": [0.3, 0.2]})))
    assert '<div class="cards words" ' in page


def test_the_number_of_a_round_is_no_learning_curve(make_record: Maker) -> None:
    folder = make_record({"id": [1, 2], "avh": [0.3, 0.2]}, results={"class_accuracy": [0.123456, 1.0]})
    pq.write_table(pa.table({"epoch": [1, 2], "round": [0, 1], "loss": [2.0, 1.0]}), folder / "epochs.parquet")
    page = _read(write_report(folder))
    assert ">loss</text>" in page
    assert ">round</text>" not in page
    assert "<code>0.1235, 1</code>" in page


def test_a_suspicion_is_no_score_that_was_left_undrawn(make_record: Maker) -> None:
    columns = {"id": [1, 2, 3], "label": [0, 1, 0], "avh": [0.3, 0.2, 0.1], "suspicion": [1.0, 0.5, 0.0]}
    assert "most important" not in _read(write_report(make_record(columns)))


def test_a_score_without_a_number_is_no_score_that_was_left_undrawn(make_record: Maker) -> None:
    columns = {"id": [1, 2, 3], "label": [0, 1, 0], "avh": [0.3, 0.2, 0.1], "confidence": np.full(3, np.nan)}
    assert "most important" not in _read(write_report(make_record(columns)))


def test_the_chance_level_counts_the_classes_the_table_names(make_record: Maker) -> None:
    folder = make_record({"id": [1, 2], "label": [0, 1], "avh": [0.1, 0.2]})
    table = pq.read_table(folder / "samples.parquet")
    pq.write_table(table.replace_schema_metadata({"classes": "8"}), folder / "samples.parquet")
    assert "1/8 = 0.125" in _read(write_report(folder))


def test_nothing_is_written_when_the_record_is_bad(make_record: Maker, tmp_path: Path) -> None:
    folder = make_record({"id": [1], "avh": [0.1]})
    (folder / "samples.parquet").write_bytes(b"PAR1")
    before = sorted(folder.iterdir())
    with pytest.raises(ValueError, match=r"samples\.parquet"):
        write_report(folder)
    assert sorted(folder.iterdir()) == before
    with pytest.raises(ValueError, match="output must be a file"):
        write_report(make_record({"id": [1]}), tmp_path)


def test_numbers_have_four_figures() -> None:
    assert [number(value) for value in (None, float("nan"), float("inf"), 0.123456, 3)] == ["", "", "", "0.1235", "3"]


def test_a_suspicion_has_as_many_figures_on_every_card(make_record: Maker) -> None:
    columns = {"id": [1, 2, 3], "label": [0, 1, 0], "avh": [0.3, 0.2, 0.1], "suspicion": [1.0, 0.99, 0.0]}
    page = _read(write_report(make_record(columns)))
    assert re.findall(r"suspicion</span> ([\d.]+)<", page) == ["1.0000", "0.9900", "0.0000"]


def test_what_the_table_of_scores_says_is_not_listed_again(make_record: Maker) -> None:
    issues = {"estimated": 1, "ranked_by": ["avh", "loss"], "scores": {"avh": {"auroc": 0.625}}}
    columns = {"id": [1, 2, 3], "label": [0, 1, 0], "clean_label": [0, 0, 0], "avh": [0.3, 0.2, 0.1]}
    page = _read(write_report(make_record(columns, results={"test_accuracy": 0.5, "label_issues": issues})))
    made = page.partition('<section id="run">')[2]
    assert "label_issues.estimated" in made
    assert "<code>avh, loss</code>" in made
    assert "auroc" not in made
    assert "0.625" in page.partition('<section id="scores">')[2].partition("</section>")[0]


def test_importing_the_report_is_light_and_names_what_is_missing(make_record: Maker) -> None:
    program = (
        "import sys, hardsight.report as report\n"
        "assert not {'matplotlib', 'jinja2', 'sklearn'} & set(sys.modules), 'heavy import'\n"
        "for name in ('jinja2', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "    try: report.write_report(sys.argv[1])\n"
        "    except ImportError as refusal: assert 'pip install jinja2 matplotlib' in str(refusal), refusal\n"
        "    else: raise SystemExit(f'{name} was not missed')\n"
        "    del sys.modules[name]\n"
    )
    folder = make_record({"id": [1], "avh": [0.1]})
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=120)
    assert not (folder / "report.html").exists()


def test_an_estimate_from_one_look_is_not_said_twice(make_record: Maker) -> None:
    columns = {"id": [1, 2, 3], "label": [0, 1, 1], "predicted": [1, 1, 0], "avh": [0.6, 0.1, 0.7]}
    columns |= {"expected": [1, 1, 0], "suspicion": [0.5, 0.0, 1.0]}
    issues = {"estimated": 2, "estimate": "disagreement"}
    words = _check_harmless(_read(write_report(make_record(columns, results={"label_issues": issues})))).words
    assert "labels are suspects:" in words
    assert "probably wrong" not in words
    assert "labels the model disagrees with" not in words
    assert "ranked by Suspicion (" in words
    issues = {"estimated": 1, "estimate": "confident_joint"}
    words = _check_harmless(_read(write_report(make_record(columns, results={"label_issues": issues})))).words
    assert "labels are probably wrong" in words
    assert "labels the model disagrees with" in words


def test_an_estimate_over_training_says_what_the_model_has_learned_since(make_record: Maker) -> None:
    columns = {"id": [1, 2, 3, 4], "label": [0, 1, 1, 0], "predicted": [1, 1, 0, 0], "aum": [-0.6, 0.1, -0.7, -0.1]}
    columns |= {"expected": [1, 1, 0, 0], "suspicion": [0.5, 0.0, 1.0, 0.2]}
    issues = {"estimated": 3, "estimate": "disagreement", "agreed": 1}
    words = _check_harmless(_read(write_report(make_record(columns, results={"label_issues": issues})))).words
    assert "agrees with 1 of them" in words
    issues |= {"agreed": 0}
    words = _check_harmless(_read(write_report(make_record(columns, results={"label_issues": issues})))).words
    assert "labels are probably wrong" in words


def test_a_recorder_alone_expects_nothing_and_the_page_says_so(make_record: Maker) -> None:
    columns = {"id": [1, 2, 3], "label": [0, 1, 1], "avh": [0.6, 0.1, 0.7], "suspicion": [0.5, 0.0, 1.0]}
    words = _check_harmless(_read(write_report(make_record(columns)))).words
    assert "first 3 of 3 samples" in words


def test_samples_never_learned_are_counted_apart_from_forgotten_ones(make_record: Maker) -> None:
    columns = {"id": [0, 1, 2, 3], "label": [0, 1, 0, 1], "loss": [0.1, 2.0, 0.3, 0.4]}
    learning = {"never_learned": [False, True, False, None], "forgotten": [3, 0, 1, None]}
    words = _check_harmless(_read(write_report(make_record(columns | learning)))).words
    assert re.search(r"\b1 samples .* never learned\b.*\b2 .* forgotten\b", words)
    assert "never learned" not in _check_harmless(_read(write_report(make_record(columns)))).words


@pytest.mark.parametrize("nothing", [-1, -100, None])
def test_a_sample_without_a_label_is_no_suspect(make_record: Maker, nothing: int | None) -> None:
    columns = {"id": [10, 11, 12, 13], "predicted": [1, 1, 0, 1], "avh": [0.4, 0.3, 0.2, 0.1]}
    names = ["ant", "bee"]
    unlabelled = {"label": pa.array([nothing] * 4, pa.int64())}
    none = _Page(_read(write_report(make_record(columns | unlabelled, class_names=names)))).words
    for untrue in ("Suspected", "disagrees", "Given and predicted", "flipped", str(nothing)):
        assert untrue not in none
    assert "Hardest samples" in none

    labels = pa.array([nothing, 1, 1, nothing], pa.int64())
    clean = pa.array([0, 1, 0, 0], pa.int64())
    some = _read(write_report(make_record(columns | {"label": labels, "clean_label": clean}, class_names=names)))
    suspects = some.partition('<section id="suspects">')[2].partition("</section>")[0]
    assert re.findall(r"id (\d+)<", suspects) == ["11", "12"]
    assert "the first 2 of 2 samples" in suspects
    assert "1 of these 2 were" in suspects


def test_samples_shown_are_those_of_the_page(make_record: Maker) -> None:
    count = 100
    columns = {"id": np.arange(count), "predicted": np.zeros(count, np.int64), "avh": np.linspace(1, 0, count)}
    folder = make_record(columns | {"label": np.where(np.arange(count) % 3, np.arange(count) % 2, -1)})
    shown = re.findall(r"id (\d+)<", _read(write_report(folder)).partition('<section id="histograms">')[0])
    assert sorted(samples_shown(folder)) == sorted(set(shown))


def test_a_class_chart_needs_a_number(make_record: Maker) -> None:
    page = _read(write_report(make_record({"id": [1, 2], "label": [0, 1], "avh": [np.nan, np.nan]})))
    assert "Hardness by class" not in page


def test_hardness_against_the_prediction_makes_no_label_suspect(make_record: Maker) -> None:
    columns = {"id": [10, 11], "label": [0, 1], "predicted": [0, 0], "avh": [0.4, 0.3]}
    folder = make_record(columns)
    assert "Suspected wrong labels" in _read(write_report(folder))
    table = pq.read_table(folder / "samples.parquet")
    against = table.replace_schema_metadata({"hardness against": "predicted class"})
    pq.write_table(against, folder / "samples.parquet")
    page = _read(write_report(folder))
    assert "Suspected wrong labels" not in page
    assert "the model&#39;s own prediction" in page
    assert "two rankings" not in page
    assert samples_shown(folder) == re.findall(r"id (\d+)<", page) == ["10", "11"]


def test_on_paper_the_table_is_its_first_rows_and_says_how_many_are_left_out(
    digits_page: str, make_record: Maker
) -> None:
    rows = digits_page.partition('id="samples-table"')[2].partition("</table>")[0].count("<tr>") - 1
    assert rows > 40
    said = re.search(r'<p class="paper" id="samples-paper" data-rows="(\d+)">(.*?)</p>', digits_page)
    assert said is not None
    shown = int(said[1])
    assert (
        re.sub("<.*?>", "", said[2]) == f"{rows - shown} more rows are left out on paper; the page on a screen has all."
    )
    screen, paper = digits_page.partition("</style>")[0].split("@media print")
    assert ".paper { display: none; }" in screen
    assert f"#samples-table tbody tr:nth-child(n + {shown + 1} of :not([hidden])) {{ display: none; }}" in paper
    # All of a short table is printed.
    few = make_record({"id": range(40), "label": [0, 1] * 20, "avh": np.linspace(0, 1, 40)})
    assert '<p class="paper"' not in _read(write_report(few))


def test_what_a_training_noted_stands_above_its_numbers(make_record: Maker) -> None:
    note = "no sample is predicted as <cat>"
    page = write_report(make_record({"id": [1], "avh": [0.1]}, notes=[note])).read_text()
    assert "predicted as &lt;cat&gt;" in page.partition("<main>")[0]


def test_a_self_training_shows_its_rounds(make_record: Maker) -> None:
    folder = make_record({"id": [1], "avh": [0.1]}, kind="adaptation")
    rounds = {"round": [0, 1, 2], "accuracy": [0.5, 0.625, 0.75], "agreement": [None, 0.813, 0.938]}
    rounds |= {"changed_labels": [None, 0.042, None], "test_accuracy": pa.nulls(3, pa.float64())}
    pq.write_table(pa.table(rounds), folder / "rounds.parquet")
    shown = write_report(folder).read_text().partition('<section id="rounds">')[2].partition("</section>")[0]
    for text in ("62.5%", "93.8%", "4.2%", ">2<"):
        assert text in shown
    assert "Test accuracy" not in shown, "of no column that was not measured"
    (folder / "rounds.parquet").unlink()
    assert 'id="rounds"' not in write_report(folder).read_text()


def test_a_table_of_texts_has_a_page_with_its_tokens_coloured(tmp_path: Path) -> None:
    fields = [("document", pa.int64()), ("start", pa.int32()), ("end", pa.int32()), ("loss", pa.float32())]
    tokens = pa.table([[7, 7, 7], [0, 4, 6], [3, 5, 15], [0.1, 0.2, 9.0]], schema=pa.schema(fields))
    pq.write_table(tokens, tmp_path / "tokens.parquet")
    text = pa.field("text", pa.string(), metadata={"kind": "shown"})
    schema = pa.schema([("id", pa.int64()), text, ("loss", pa.float64())], {"tokens file": "tokens.parquet"})
    table = pa.table([[3, 7], ["no tokens", "the 🐈 <script>x"], [0.5, 1.0]], schema=schema)
    pq.write_table(table, tmp_path / "texts.parquet")
    path = write_report(tmp_path / "texts.parquet")
    assert path == tmp_path / "texts.html"
    page = _read(path)
    assert "the 🐈 &lt;script&gt;x" in re.sub("</?span.*?>", "", page.partition('class="cards')[2])
    assert re.findall(r'<span class="tenth9">(.*?)</span>', page) == ["&lt;script&gt;x"]
    assert "no tokens" in _check_harmless(page).words
