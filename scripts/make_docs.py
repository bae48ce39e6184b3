"""Writes the documents that are made from tables; `--check` only compares."""

from __future__ import annotations

import sys


def main() -> int:
    return 0


if __name__ == "__main__":
    sys.exit(main())
