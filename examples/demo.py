"""What Fusee can do, shown on this machine in a few seconds: `make demo`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

PARTS = {
    "A message queue inside a Python program": "demo_clients.py",
    "A cluster that loses a master and a name server": "demo_cluster.py",
    "A broker that is killed in the middle of its work": "demo_broker.py",
    "A store that loses power while it writes": "demo_store.py",
}

out = Console(highlight=False)


def main() -> None:
    for title, program in PARTS.items():
        out.print(Rule(f"[bold]{title}", align="left"))
        done = subprocess.run([sys.executable, str(Path(__file__).with_name(program))])
        if done.returncode:
            raise SystemExit(f"{program} failed")
    out.print(Rule())
    out.print("Next: examples/README.md, docs/clients.md, fusee --help")


if __name__ == "__main__":
    main()
