"""What would be lost if a node died now, in bytes, in messages and in words.

A process that dies (kill -9) loses nothing: what it wrote is with the operating system. Two worse deaths are judged:

- its machine dies: what was not flushed is gone, unless another node has it;
- its disk is lost too: what no other node has is gone.

Everything is judged from log offsets: where the node's log ends, how far it is flushed, where the logs of the others
end. What a node that is down has on its disk is not lost, but cannot be read until that node is started again. A slave
acknowledges nothing, so nothing is lost with it while its master is up. The senders of what a SYNC_MASTER alone has
were not told SEND_OK, unless they did not wait, so nothing that was promised is lost with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.cluster.backlog import Backlog


class Loss(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would be lost; None where that is not known."""

    machine_bytes: int | None = None
    """With its machine: what is neither flushed nor anywhere else."""
    machine_messages: int | None = None
    disk_bytes: int | None = None
    """With its disk: what is nowhere else."""
    disk_messages: int | None = None
    is_promised: bool = False
    """Whether senders of that who waited may have been told SEND_OK."""
    words: str


NOTHING = Loss(machine_bytes=0, machine_messages=0, disk_bytes=0, disk_messages=0, words="nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One broker's copy of the log of its group, as far as it is known."""

    name: str
    is_up: bool
    is_master: bool
    is_sync: bool
    """Whether the group's master is a SYNC_MASTER."""
    end_offset: int | None
    flushed_offset: int | None = None

    @property
    def end(self) -> int:
        """What others can count on."""
        return self.end_offset or 0


def size_text(size: int) -> str:
    """A number of bytes as people read it."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def name_server_loss(*, is_up: bool, others_up: Sequence[str]) -> Loss:
    """Of a name server, which knows nothing that brokers do not tell again."""
    if others_up:
        words = f"nothing: {', '.join(others_up)} {_verb(others_up, 'knows', 'know')} the same"
    elif is_up:
        words = "no message, but clients would find no broker: it is the last name server"
    else:
        words = "no message, but clients find no broker until a name server is up"
    return msgspec.structs.replace(NOTHING, words=words)


def broker_loss(copy: Copy, others: Sequence[Copy], *, count: Callable[[int, int], Backlog | None]) -> Loss:
    """Of a broker. `others` are the rest of its group; `count(start, end)` tells what lies in its log between."""
    if copy.end_offset is None:
        cause = "it does not answer" if copy.is_up else "it is down, and its store cannot be read"
        return Loss(words=f"not known: {cause}")
    masters_up = [each for each in others if each.is_master and each.is_up]
    if copy.is_up and masters_up:
        return _slave_loss(copy, masters_up[0], others)
    kept_offset = min(max((each.end for each in others), default=0), copy.end_offset)
    if kept_offset == copy.end_offset:
        return msgspec.structs.replace(NOTHING, words=_kept_words(copy, others))
    flushed_offset = copy.end_offset if copy.flushed_offset is None else copy.flushed_offset
    unsafe_offset = min(max(kept_offset, flushed_offset), copy.end_offset)
    disk = count(kept_offset, copy.end_offset)
    machine = disk if unsafe_offset == kept_offset else count(unsafe_offset, copy.end_offset)
    disk_bytes, machine_bytes = copy.end_offset - kept_offset, copy.end_offset - unsafe_offset
    return Loss(
        machine_bytes=machine_bytes,
        machine_messages=None if machine is None else machine.messages,
        disk_bytes=disk_bytes,
        disk_messages=None if disk is None else disk.messages,
        is_promised=not copy.is_sync,
        words=_lost_words(copy, others, _amount(disk_bytes, disk), machine_bytes and _amount(machine_bytes, machine)),
    )


def _slave_loss(slave: Copy, master: Copy, others: Sequence[Copy]) -> Loss:
    words = f"nothing: {master.name} has what it has"
    if not any(each.is_up for each in others if each is not master):
        more = "and would be the only copy" if not slave.is_sync else "but its sends would get SLAVE_NOT_AVAILABLE"
        words = f"{words}, {more}"
    return msgspec.structs.replace(NOTHING, words=words)


def _kept_words(copy: Copy, others: Sequence[Copy]) -> str:
    if not copy.end_offset:
        return "nothing: its log is empty"
    holders = [each for each in others if each.end >= copy.end]
    up = [each.name for each in holders if each.is_up]
    if up:
        return f"nothing: {', '.join(up)} {_verb(up, 'has', 'have')} all of it"
    down = [each.name for each in holders]
    return f"no message, but none could be read: {', '.join(down)}, with the same, {_verb(down, 'is', 'are')} down"


def _lost_words(copy: Copy, others: Sequence[Copy], disk: str, machine: str | int) -> str:
    if not copy.is_up:
        words = f"its disk alone has {disk}: restart it, and do not delete it"
    elif not machine:
        words = f"with its disk: {disk} that {_nobody(others)}"
    elif machine == disk:
        words = f"with its machine: {disk}, not flushed, and {_nobody(others)}"
    else:
        words = f"with its machine: {machine}, not flushed; with its disk: {disk} that {_nobody(others)}"
    return f"{words}; no sender who waited was told SEND_OK" if copy.is_sync else words


def _nobody(others: Sequence[Copy]) -> str:
    return "no other node has" if others else "no other node has: it has no slave"


def _amount(size: int, backlog: Backlog | None) -> str:
    if backlog is None:
        return size_text(size)
    about = "about " if backlog.is_estimated else ""
    plural = "" if backlog.messages == 1 else "s"
    return f"{about}{backlog.messages:,} message{plural} ({size_text(size)})"


def _verb(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many
