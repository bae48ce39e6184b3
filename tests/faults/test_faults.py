"""Faults against a cluster of real processes: five in the short form, a hundred with FUSEE_LONG=1.

Every fault, with its seed and a table of what clients saw: `python -m tests.faults --seed 1 --faults 20`.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from tests.faults.menu import FAULTS, NEED_MACHINE, NEED_NAMESPACE, NEED_REPLICATION, Stage, draw
from tests.faults.namespace import inside, is_possible
from tests.faults.run import Outcome, Plan, play
from tests.faults.timeline import show

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are watched by Linux's /proc")
in_namespace = pytest.mark.skipif(not is_possible(), reason="this user may not make network namespaces here")
ROOT = Path(__file__).parents[2]
long_form = pytest.mark.skipif(not os.environ.get("FUSEE_LONG"), reason="the long form; FUSEE_LONG=1 runs it")


def _check(outcome: Outcome) -> None:
    text = io.StringIO()
    show(outcome, Console(file=text, width=150), in_detail=True)
    assert not outcome.violations, text.getvalue()
    history = outcome.history
    # A hundred for each event on a disk that is not busy; a few are enough to be lost.
    assert history.acknowledged_count > 3 * len(history.events), text.getvalue()
    assert history.deliveries >= 2 * history.acknowledged_count
    assert outcome.polls > 0


@on_linux
@pytest.mark.timeout(400)
def test_with_sync_master_no_fault_breaks_a_promise() -> None:
    names = ("kill-master", "cut-slave", "lose-master-disk")
    _check(play(Plan(seed=1, faults=len(names), mode="sync", names=names)))


@on_linux
@pytest.mark.timeout(400)
def test_with_sync_flush_no_fault_breaks_a_promise() -> None:
    names = ("pause-master", "kill-all-brokers")
    _check(play(Plan(seed=1, faults=len(names), mode="flush", names=names)))


@on_linux
@in_namespace
@pytest.mark.timeout(400)
def test_partition_by_the_kernel_breaks_no_promise() -> None:
    _play_inside("--seed", "1", "--only", "isolate-master,isolate-slave")


@on_linux
@in_namespace
@long_form
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["sync", "flush"])
def test_faults_of_the_network_in_each_mode_break_no_promise(mode: str) -> None:
    names = [*sorted(NEED_NAMESPACE)] * 3
    _play_inside("--seed", os.environ.get("FUSEE_SEED", "1"), "--mode", mode, "--only", ",".join(names))


def _play_inside(*arguments: str) -> None:
    command, environment = inside(arguments)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "0 promises broken" in " ".join(done.stdout.split())
    assert done.stdout.count("partition: everybody") > 1


@on_linux
@long_form
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", ["sync", "flush"])
def test_fifty_faults_in_each_mode_break_no_promise(mode: str) -> None:
    _check(play(Plan(seed=int(os.environ.get("FUSEE_SEED", "1")), faults=50, mode=mode, name_servers=3)))


@on_linux
@long_form
@pytest.mark.timeout(400)
def test_loss_that_is_planted_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the logs that are kept are no news here

    async def lose_both_disks(stage: Stage) -> None:
        names = ("broker-a", "broker-a-s1")
        async with stage.event("kill -9 broker-a", "broker-a", forgets=True):
            for name in names:
                await stage.kill(name)
                await asyncio.to_thread(stage.cluster.erase, name)
            for name in names:
                await stage.start(name)
            await stage.settle()

    monkeypatch.setitem(FAULTS, "lose-both-disks", lose_both_disks)
    outcome = play(Plan(seed=1, faults=1, names=("lose-both-disks",)))
    kinds = {violation.split(": ")[1] for violation in outcome.violations}
    assert kinds & {"lost", "moved", "order"}


def test_draw_repeats_by_seed_and_gives_every_kind_its_turn() -> None:
    drawn = draw(2 * len(FAULTS), 7, has_machine=True, has_namespace=True, is_replicated=True)
    assert drawn == draw(2 * len(FAULTS), 7, has_machine=True, has_namespace=True, is_replicated=True)
    assert drawn != draw(2 * len(FAULTS), 8, has_machine=True, has_namespace=True, is_replicated=True)
    assert all(drawn.count(name) == 2 for name in FAULTS)


def test_draw_leaves_out_what_is_not_possible() -> None:
    assert set(draw(100, 7)) == FAULTS.keys() - NEED_MACHINE - NEED_NAMESPACE - NEED_REPLICATION
