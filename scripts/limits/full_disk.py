"""A disk that fills while messages are sent, and has space again later."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

from fusee.message.record import iterate_records
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.pull import PullMessageResponse
from scripts.limits.bounds import Bound, Row, Scale
from scripts.limits.broker_process import KIB, MIB, broker
from scripts.limits.clients import PATIENCE_S, Sender, pull_request

if TYPE_CHECKING:
    from pathlib import Path


def can_mount() -> bool:
    """Whether a process may have a file system of its own here."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /tmp"]
    return subprocess.run(command, capture_output=True).returncode == 0


def on_small_disk(store: Path) -> list[str]:
    """Runs a command with a file system of 48 MiB at the place of the store."""
    return ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=48m tmpfs {store} && exec "$@"', "sh"]


async def full_disk(scale: Scale) -> Row:
    """A small file system that really fills; where none can be mounted, settings that call this one full."""
    settings = {
        "mappedFileSizeCommitLog": str(4 * MIB),
        "mappedFileSizeConsumeQueue": str(20 * 10_000),
        "maxHashSlotNum": "1000",
        "maxIndexNum": "10000",
        "cleanResourceInterval": "100",
        "cleanFileForciblyEnable": "false",
    }
    is_real = can_mount()
    if is_real:
        settings |= {"diskFreeBytesMin": "0", "diskSpaceWarningLevelRatio": "100"}
    else:
        settings |= {"diskFreeBytesEnough": str(2**62), "diskSpaceWarningLevelRatio": "99"}
    with broker(settings, on_small_disk if is_real else None) as server:
        sender = Sender(server.address)
        await sender.send_for(count=5)
        ballast = server.store / "ballast"
        if is_real:
            ballast.write_bytes(b"\1" * (8 * MIB))
        else:
            await set_warning_level(sender, 1)
        acknowledged, answer = 5, await sender.send(b"y" * 32 * KIB)
        deadline = time.perf_counter() + PATIENCE_S
        while answer.code == ResponseCode.SUCCESS and time.perf_counter() < deadline:
            acknowledged += 1
            answer = await sender.send(b"y" * 32 * KIB)
        refused_by = int(answer.code)
        reasons = {answer.remark or ""}
        for _ in range(20):
            answer = await sender.send(b"y" * 32 * KIB)
            acknowledged += answer.code == ResponseCode.SUCCESS
            reasons.add(answer.remark or "")
        unread = acknowledged - await count_messages(sender)
        if is_real:
            ballast.unlink()
        else:
            await set_warning_level(sender, 99)
        recovered = await until_sent(sender)
        acknowledged += 1
        unread += abs(acknowledged - await count_messages(sender))
        server.check_alive()
        await sender.client.close()
    how = "a file system of 48 MiB" if is_real else "called full by diskSpaceWarningLevelRatio: none could be mounted"
    return Row(
        f"A full disk ({how}) while messages of 32 KiB are sent",
        (
            Bound("refused by a code other than 14", float(refused_by != ResponseCode.SERVICE_NOT_AVAILABLE), 0, ""),
            Bound("acknowledged messages that cannot be read", unread, 0, ""),
            Bound("taking messages again after space was made", recovered, 2 * scale.slack, "s"),
        ),
        (f"{acknowledged:,} acknowledged; the reason ends: …{max(reasons, key=len)[-150:]}",),
    )


async def set_warning_level(sender: Sender, percent: int) -> None:
    body = f"diskSpaceWarningLevelRatio={percent}".encode()
    answer = await sender.client.request(sender.address, Command.request(RequestCode.UPDATE_BROKER_CONFIG, body=body))
    if answer.code != ResponseCode.SUCCESS:
        raise SystemExit(f"the setting was not changed: {answer.remark}")


async def until_sent(sender: Sender) -> float:
    """How long until a message is taken again."""
    begun = time.perf_counter()
    while time.perf_counter() - begun < PATIENCE_S:
        if (await sender.send(b"y" * 32 * KIB)).code == ResponseCode.SUCCESS:
            return time.perf_counter() - begun
        await asyncio.sleep(0.02)
    return float("inf")


async def count_messages(sender: Sender) -> int:
    """Messages in the first queue."""
    place = total = 0
    while True:
        answer = await sender.client.request(sender.address, pull_request(0, place))
        if answer.code != ResponseCode.SUCCESS:
            return total
        total += sum(1 for _ in iterate_records(answer.body))
        place = answer.read(PullMessageResponse).next_offset
