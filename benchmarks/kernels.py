"""`hardsight bench` without the command line: the fused kernels beside the plain and compiled versions and the floor.

    python benchmarks/kernels.py [--only angular_scores] [--no-compiled]

Appends to `benchmarks/results.csv`; needs a CUDA device.
"""

import argparse
import sys
from pathlib import Path

import torch

from hardsight.kernels.benchmark import Measured, append, run

RESULTS = Path(__file__).parent / "results.csv"


def tell(row: Measured) -> None:
    print(f"{row.op:30} {row.shape:26} {row.variant:28} {row.median_ms:9.3f} ms {row.peak_mib:9.1f} MiB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="one op")
    parser.add_argument("--no-compiled", action="store_true", help="leave torch.compile out: it takes minutes")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("the kernels are measured on a CUDA device; there is none here")
        sys.exit()
    append(run(arguments.only, not arguments.no_compiled, tell), RESULTS)
