# SPDX-License-Identifier: GPL-2.0-only
"""How long an inference of the committed network takes, beside float C and onnxruntime.

    python tests/bench/bench_inference.py [--json]

`ndm_tcp.export.integers.speed` says how it is measured; `ndm export --measure` puts the same in its
report.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import generated, speed
from ndm_tcp.export.integers.network import IntegerNetwork


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Time the integer network against float ones.")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = generated.GENERATED
    try:
        found = speed.measure(IntegerNetwork.read(folder), folder)
    except NdmError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(found), indent=2) if args.json else found.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
