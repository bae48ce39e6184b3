"""`python -m tests.simulation [--ha] --seed 7`: a run of a simulation; the same seed gives the same run.

Without `--ha`, consumers under churn; with it, broker groups whose masters and slaves fail.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback

HASH_SEED = "PYTHONHASHSEED"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides everything that happens")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, counted from --seed")
    parser.add_argument("--steps", type=int, help="how many things happen (1000; with --ha 60)")
    parser.add_argument("--ha", action="store_true", help="masters and slaves that fail, instead of consumers")
    parser.add_argument("--ordered", action="store_true", help="listeners that consume in order")
    parser.add_argument("--strict", action="store_true", help="with --ha: slaves show nothing that a new master lacks")
    parser.add_argument("--log", action="store_true", help="show what clients and servers log")
    arguments = parser.parse_args()
    if os.environ.get(HASH_SEED) != "0":
        # Sets of queues are walked in the order of their hashes, which must be the same in every process.
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, HASH_SEED: "0"})
    logging.basicConfig(
        level=logging.DEBUG if arguments.log else logging.CRITICAL + 1,
        format="%(name)s: %(message)s",
        stream=sys.stdout,
    )
    from tests.simulation import churn, ha_run
    from tests.simulation.ha_world import HaPlan
    from tests.simulation.witness import PromiseBrokenError

    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        began = time.monotonic()
        plan: churn.Plan | HaPlan
        if arguments.ha:
            plan = HaPlan(seed=seed, steps=arguments.steps or 60, strict=arguments.strict)
        else:
            plan = churn.Plan(seed=seed, steps=arguments.steps or 1000, ordered=arguments.ordered)
        try:
            outcome: object = ha_run.simulate(plan) if isinstance(plan, HaPlan) else churn.simulate(plan)
        except PromiseBrokenError as broken:
            sys.stdout.write(f"seed {seed}: {broken}\n")
            return 1
        except Exception:  # noqa: BLE001 - whatever it is, the seed is what is needed
            traceback.print_exc(file=sys.stdout)
            sys.stdout.write(f"\nto see it again: {plan.command}\n")
            return 2
        sys.stdout.write(f"{outcome}; {time.monotonic() - began:.1f} s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
