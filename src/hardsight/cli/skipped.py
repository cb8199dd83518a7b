"""Images that could not be read, as a command names them."""


def tell_left_out(skipped: list[str]) -> None:
    """Say which image was left out, or how many were."""
    if len(skipped) == 1:
        print(f"1 image was left out: {skipped[0]}")
    elif skipped:
        print(f"{len(skipped):,} images were left out, first {skipped[0]}; --json names all")
