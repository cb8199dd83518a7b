"""`hardsight score-text`: the scores of every token of a file of documents, by a language model in a folder."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json

# What is shown of a document's text.
_LETTERS = 60


def score_text(
    model: Annotated[Path, Option(help="Folder of a Hugging Face model and its tokenizer.")],
    text: Annotated[Path, Option(help="Lines of a text file, or rows of a .parquet or .jsonl file.")],
    output: Annotated[Path, Option("--output", "-o", help="The Parquet file to write.")] = Path("tokens.parquet"),
    column: Annotated[str | None, Option(help="The column that holds the text. [default: text]")] = None,
    source: Annotated[str | None, Option(help="A column that says where a document is from.")] = None,
    scores: Annotated[list[str] | None, Option("--score", help="A score to compute; may be repeated.")] = None,
    length: Annotated[
        int | None, Option(help="Tokens that the model reads at once. [default: 1024 or its own]")
    ] = None,
    context: Annotated[int | None, Option(help="Tokens that two windows share. [default: a quarter]")] = None,
    batch_tokens: Annotated[int, Option(min=1, help="Tokens at a time.")] = 2**13,
    device: Annotated[str | None, Option(help="cpu, cuda, cuda:1, ... [default: cuda if there]")] = None,
    as_json: AsJson = False,
) -> None:
    """Score every token of a file of documents: how likely, how hard by angle, and how far from the right one.

    Beside the tokens, OUTPUT-documents.parquet has the documents with their means: look at them by `hardsight explore`.
    A run that was stopped goes on where it stopped.

    Example: hardsight score-text --model my-gpt --text reviews.jsonl --column body -o tokens.parquet
    """
    with one_sentence("model", "text", "output", "column", "length", "context", "device", scores="--score"):
        from transformers.utils import logging

        from hardsight.files import plain_file
        from hardsight.language.head import load_language_model
        from hardsight.language.scoring import TOKEN_SCORES, choose_token_scores
        from hardsight.language.text_scoring import hardest, means_by_source, score_text
        from hardsight.records import check_writable, read_table

        # Before the model is loaded.
        plain_file(text)
        check_writable(output)
        chosen = choose_token_scores(scores or TOKEN_SCORES)
        # Its notes and bars are not about the user's text.
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        loaded, tokenizer, about = load_language_model(model, device)
        path = score_text(
            loaded, tokenizer, text, output, column=column, source=source, scores=chosen, length=length,
            context=context, batch_tokens=batch_tokens, about=about,
        )  # fmt: skip
        documents = read_table(path)
        sources = means_by_source(documents) if source else None
        worst = hardest(documents, chosen[0], 5)
    _print(documents, sources, worst, chosen, output, path, as_json)


def _print(
    documents: Any, sources: Any, worst: Any, scores: list[str], output: Path, path: Path, as_json: bool
) -> None:
    counts = documents.column("tokens").to_pylist()
    empty = [at for at, count in enumerate(counts) if not count]
    total = sum(counts)
    means = {
        name: sum(
            (value or 0.0) * count for value, count in zip(documents.column(name).to_pylist(), counts, strict=True)
        )
        / total
        for name in scores
    }
    if as_json:
        say_json(
            {
                "output": str(output),
                "documents_output": str(path),
                "documents": len(counts),
                "tokens": total,
                "without_tokens": empty,
                "means": means,
                "sources": [] if sources is None else sources.to_pylist(),
                "hardest": worst.select(["id", scores[0]]).to_pylist(),
            }
        )
        return
    say(f"{total:,} tokens of {len(counts):,} documents")
    say("means: " + ", ".join(f"{name} {value:.4g}" for name, value in means.items()))
    if empty:
        say(f"{len(empty):,} documents have no token to score, first document {empty[0]}")
    if sources is not None:
        rows = [[_number(one) for one in row.values()] for row in sources.to_pylist()]
        print_table("by source", sources.column_names, rows)
    rows = [[one["id"], _number(one[scores[0]]), one["text"][:_LETTERS]] for one in worst.to_pylist()]
    print_table(f"hardest by {scores[0]}", ["id", scores[0], "text"], rows, cut_last=True)
    say(f"tokens: {output}")
    say(f"documents: {path}")


def _number(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value
