"""How far consumer groups have come in each queue, saved in config/consumerOffset.json (Java: ConsumerOffsetManager).

Three things are known of a group, topic and queue, each the offset of the next message:

- committed: what the group says it has consumed. It never moves by itself; a commit below it is taken, because the
  client decides, and is told in the log. Only one that rides on a pull is not: no client moves a group back that way,
  and while queues change hands the pull of a member that is behind would undo what another has committed. (Java does.)
- reset: where an administrator wants the group to go on. It is committed at once, and kept until the next pull has
  taken it (`take_reset`); until then clients, which do not know of it yet, would commit what they are at, so their
  commits are refused. In memory only: after a restart the committed one says the same.
- pulled: the end of the last pull, for what is on its way to a client. In memory only. (Java writes it into the file,
  too, and does not read it back.)

`commit`, `query` and `set_pull_offset` are on the way of every message: group, then topic, then queue, three lookups of
strings and integers that need not be joined first. Which topics a group has is the same table, and is written as
`groupTopicMap`, as Java does, which does not read it.

A save costs the loop one step for each group and topic that changed since the last one (see `documents`): the job gets
the queues themselves, and the first commit after that goes to a copy.

Slaves. A slave's table is its master's (`take_over`), but for what consumers have committed here while the master was
away: that is noted (`own_commits`, saved as `slaveCommits`), kept while it is ahead of the master, and told to the
master when it is back. (Java's slave overwrites it, and the group consumes again what it had consumed.) So that a slave
need not ask for everything every second, a master tells what has changed since a *mark* that it gave with the answer
before: `changes_since`. A mark is good for one run of the master and until an offset is removed.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fusee.broker.config import spelled
from fusee.broker.documents import CONSUMER_OFFSETS, TableDocument, TableFullError, next_version, pretty, quoted
from fusee.replication.metadata import OwnCommit
from fusee.wire.bodies.topic import DataVersion
from fusee.wire.fields import Int32, Int64
from fusee.wire.lenient_json import dumps_fastjson, dumps_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from fusee.broker.config import BrokerConfig
    from fusee.clock import Clock
    from fusee.store.filesystem import FileSystem

VERSION_STEP: Final = 500
"""Commits after which the data version changes."""

_OFFSETS: Final = "offsetTable"
_TOPICS: Final = "groupTopicMap"
_PULLED: Final = "pullOffsetTable"
_OWN: Final = "slaveCommits"

CHANGES_MAX: Final = 200_000
"""Offsets in one part of what `changes_since` tells: about 5 MB."""

_log = logging.getLogger(__name__)


class _Document(msgspec.Struct, rename="camel", kw_only=True):
    data_version: DataVersion | None = None
    offset_table: dict[str, dict[Int32, Int64]] = {}
    slave_commits: dict[str, dict[Int32, Int64]] = {}


class OffsetChanges(NamedTuple):
    """Part of a table for a slave: encoded, and what to ask with the next time."""

    body: bytes
    mark: str
    cursor: int | None
    """Where the next part begins; None behind the last."""
    is_whole: bool
    """Whether what no part mentions is gone."""


class _Progress:
    """How far one group is in one topic. As long as nothing has changed since the last save, that shares `queues`."""

    __slots__ = ("is_changed", "is_removed", "key", "queues")

    def __init__(self, key: str, queues: dict[int, int]) -> None:
        self.key = key
        self.queues = queues
        self.is_changed = False
        self.is_removed = False


def _key(topic: str, group: str) -> str:
    return f"{topic}@{group}"


def _queues_text(queues: dict[int, int]) -> str:
    # The repr of a dict of integers is made in C, and only its white space is not the file's.
    lines = repr(queues)[1:-1].replace(": ", ":").replace(", ", ",\n\t\t\t")
    return f"{{\n\t\t\t{lines}\n\t\t}}" if lines else "{}"


def _topics_text(topics: list[str]) -> str:
    return pretty(topics, 2)


def _compact(queues: dict[int, int]) -> str:
    return repr(queues).replace(" ", "")


def _compact_all(told: Iterable[_Progress]) -> str:
    return ",".join(f"{quoted(progress.key)}:{_compact(progress.queues)}" for progress in told)


class OffsetTable:
    """All offsets of one broker. `folder` is the store's config/; `config` may be replaced while it runs."""

    def __init__(self, *, config: BrokerConfig, folder: Path, files: FileSystem, clock: Clock) -> None:
        self.config = config
        self.state_version = 0
        """Version of the store's state machine, part of every new data version; 0 without a controller."""
        self._clock = clock
        texts: dict[str, Callable[[Any], str]] = {
            _TOPICS: _topics_text,
            _OFFSETS: _queues_text,
            _PULLED: _queues_text,
        }
        if not config.is_master:
            texts[_OWN] = _queues_text
        self._document = TableDocument(folder / CONSUMER_OFFSETS, files, document_type=_Document, texts=texts)
        self._version = DataVersion(timestamp=clock.time_ms())
        self._run = clock.time_ms()
        # By key and queue, what the master had when a consumer committed here; None on a master.
        self._own: dict[tuple[str, str], dict[int, int]] | None = None if config.is_master else {}
        self._own_changed: set[tuple[str, str]] = set()
        self._stamp = 0
        self._stamped: dict[_Progress, int] = {}
        self._is_followed = False
        self._removals = 0
        self._groups: dict[str, dict[str, _Progress]] = {}
        self._changed: list[_Progress] = []
        self._changed_groups: set[str] = set()
        self._resets: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[str, dict[str, dict[int, int]]] = {}
        self._count = 0
        self._pulled_count = 0
        self._commits = 0

    # Saving

    def load(self) -> None:
        """Take over what the file says. Raises StoreCorruptError when neither it nor its `.bak` can be read."""
        document = self._document.load()
        if document is None:
            return
        for key, queues in document.offset_table.items():
            topic, at, group = key.partition("@")
            if not at:
                continue  # no group: nothing could ever ask for it
            self._groups.setdefault(group, {})[topic] = _Progress(key, queues)
            self._count += len(queues)
            self._document.loaded(_OFFSETS, key, queues)
        for group, topics in self._groups.items():
            self._document.loaded(_TOPICS, group, list(topics))
        self._version = document.data_version or self._version
        if self._own is not None:
            for key, queues in document.slave_commits.items():
                topic, _, group = key.partition("@")
                self._own[group, topic] = queues
                self._document.loaded(_OWN, key, queues)

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes that are not saved."""
        return bool(self._changed or self._changed_groups or self._own_changed) or self._document.is_dirty

    def begin_save(self) -> Callable[[], None] | None:
        """The job that saves, for a worker thread; None when nothing changed or one is under way."""
        if self._document.is_saving:
            return None
        self._note_changes()
        return self._document.begin(self._version)

    def save(self) -> None:
        """Save what changed and return when it is on disk. Raises StoreFullError, StoreBusyError or StoreError."""
        self._note_changes()
        self._document.save(self._version)

    def _note_changes(self) -> None:
        changed, self._changed = self._changed, []
        for progress in changed:
            progress.is_changed = False
        if self._is_followed:
            for progress in changed:
                self._stamped.pop(progress, None)  # the order is that of the stamps
                if not progress.is_removed:
                    self._stamped[progress] = self._stamp
        self._document.changed_all(
            _OFFSETS, {progress.key: progress.queues for progress in changed if not progress.is_removed}
        )
        groups, self._changed_groups = self._changed_groups, set()
        self._document.changed_all(
            _TOPICS, {group: list(topics) if (topics := self._groups.get(group)) else None for group in groups}
        )
        if self._own_changed and self._own is not None:
            own, self._own_changed = self._own_changed, set()
            self._document.changed_all(
                _OWN,
                {
                    _key(topic, group): dict(bases) if (bases := self._own.get((group, topic))) else None
                    for group, topic in own
                },
            )

    def encode(self) -> bytes:
        """Everything as the compact JSON that Java answers to code 43. Costs about 0.3 us per offset.

        Only the keys of `pullOffsetTable` are quoted: a Java slave, which has no such table, cannot skip bare ones, and
        would lose all that the answer says.
        """
        topics = ",".join(
            f"{quoted(group)}:[{','.join(map(quoted, topics))}]" for group, topics in self._groups.items()
        )
        offsets = _compact_all(progress for topics in self._groups.values() for progress in topics.values())
        pulled = ",".join(
            f"{quoted(_key(topic, group))}:{dumps_plain(queues).decode()}"
            for group, topics in self._pulled.items()
            for topic, queues in topics.items()
        )
        version = dumps_fastjson(self._version).decode()
        return (
            f'{{"dataVersion":{version},"{_TOPICS}":{{{topics}}},"{_OFFSETS}":{{{offsets}}},"{_PULLED}":{{{pulled}}}}}'
        ).encode("utf-8", "replace")

    # Copies of the table

    def changes_since(self, mark: str, cursor: int = 0) -> OffsetChanges:
        """What has changed since this mark, or the part of everything that begins at `cursor`.

        An empty mark, or one that is no good any more, begins with everything. What changes while the parts of
        everything are told comes with the first changes after that.
        """
        known = self._stamp_of(mark)
        if known is not None and not cursor:
            recent: list[_Progress] = []
            for progress in reversed(self._stamped):
                if self._stamped[progress] < known:
                    break
                recent.append(progress)
            self._stamp += 1
            told = dict.fromkeys([*self._changed, *recent])
            return OffsetChanges(self._changes_body(told), self._mark(), None, is_whole=False)
        if known is None:
            cursor = 0
            self._is_followed = True
            self._stamp += 1
            mark = self._mark()
        part: list[_Progress] = []
        size = 0
        next_cursor: int | None = None
        for position, topics in enumerate(islice(self._groups.values(), cursor, None), start=cursor):
            if size >= CHANGES_MAX:
                next_cursor = position
                break
            part += topics.values()
            size += sum(len(progress.queues) for progress in topics.values())
        return OffsetChanges(self._changes_body(part), mark, next_cursor, is_whole=True)

    def _mark(self) -> str:
        return f"{self._run}.{self._removals}.{self._stamp}"

    def _stamp_of(self, mark: str) -> int | None:
        run, _, rest = mark.partition(".")
        removals, _, stamp = rest.partition(".")
        if not self._is_followed or run != str(self._run) or removals != str(self._removals) or not stamp.isdecimal():
            return None
        return int(stamp)

    def _changes_body(self, told: Iterable[_Progress]) -> bytes:
        version = dumps_fastjson(self._version).decode()
        offsets = _compact_all(progress for progress in told if not progress.is_removed)
        return f'{{"dataVersion":{version},"{_OFFSETS}":{{{offsets}}}}}'.encode("utf-8", "replace")

    def take_over(
        self, table: Mapping[str, Mapping[int, int]], version: DataVersion, *, is_whole: bool
    ) -> list[OwnCommit]:
        """Be where the master is, by `topic@group`; what was committed here and is ahead of it stays, and is returned.

        With `is_whole` what the table does not mention is forgotten. Raises TableFullError.
        """
        own = self._own if self._own is not None else {}
        if is_whole:
            for group, topic in [(group, topic) for group, topics in self._groups.items() for topic in topics]:
                if _key(topic, group) not in table and (group, topic) not in own:
                    self._remove(group, topic)
        for key, queues in table.items():
            topic, at, group = key.partition("@")
            if not at:
                continue
            self._be_at(group, topic, queues, own.get((group, topic), {}), is_whole=is_whole)
        self._version = version
        ahead: list[OwnCommit] = []
        for (group, topic), bases in list(own.items()):
            queues = table.get(_key(topic, group), {})
            for queue_id, base in list(bases.items()):
                theirs = queues.get(queue_id, -1 if is_whole else base)
                bases[queue_id] = theirs
                ours = self._committed(group, topic, queue_id)
                if ours > theirs:
                    ahead.append(OwnCommit(group, topic, queue_id, ours, theirs))
                else:
                    self._settle(group, topic, queue_id, theirs)
        return ahead

    def told(self, commit: OwnCommit, queue_offset: int) -> None:
        """The master was told of this, and is at this offset now."""
        if self._committed(commit.group, commit.topic, commit.queue_id) == commit.queue_offset:
            self._settle(commit.group, commit.topic, commit.queue_id, queue_offset)
        elif self._own is not None and commit.queue_id in self._own.get((commit.group, commit.topic), {}):
            self._own[commit.group, commit.topic][commit.queue_id] = queue_offset

    def cut_own(self, end_of: Callable[[str, int], int]) -> None:
        """The log was cut, or may have been: nothing that was committed here is behind the end of its queue.

        `end_of(topic, queue_id)` tells that end. What comes in the place of what was cut has been read by nobody.
        """
        for (group, topic), bases in list((self._own or {}).items()):
            for queue_id, base in list(bases.items()):
                end_offset = end_of(topic, queue_id)
                if self._committed(group, topic, queue_id) <= end_offset:
                    continue
                if end_offset > base:
                    self._set(group, topic, queue_id, end_offset)
                else:
                    self._settle(group, topic, queue_id, base)

    @property
    def own_commits(self) -> int:
        """How many offsets were committed here that the master does not know of, as far as this slave knows."""
        return sum(map(len, self._own.values())) if self._own else 0

    def _be_at(
        self, group: str, topic: str, queues: Mapping[int, int], own: Mapping[int, int], *, is_whole: bool
    ) -> None:
        progress = self._groups.get(group, {}).get(topic)
        current = progress.queues if progress is not None else {}
        if not own and current == queues:
            return
        kept = {queue_id: current[queue_id] for queue_id in own if current.get(queue_id, -1) > queues.get(queue_id, -1)}
        wanted = ({} if is_whole else dict(current)) | dict(queues) | kept
        self._check_room(group, topic, len(wanted) - len(current))
        self._count += len(wanted) - len(current)
        if progress is None:
            progress = _Progress(_key(topic, group), {})
            self._groups.setdefault(group, {})[topic] = progress
            self._changed_groups.add(group)
        progress.queues = wanted
        if not progress.is_changed:
            progress.is_changed = True
            self._changed.append(progress)

    def _settle(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """The master is here, and nothing that was committed here is ahead of it."""
        if self._own is None:
            return
        bases = self._own.get((group, topic))
        if bases is None or bases.pop(queue_id, None) is None:
            return
        self._own_changed.add((group, topic))
        if not bases:
            del self._own[group, topic]
        if queue_offset >= 0:
            self._set(group, topic, queue_id, queue_offset)

    def _committed(self, group: str, topic: str, queue_id: int) -> int:
        try:
            return self._groups[group][topic].queues[queue_id]
        except KeyError:
            return -1

    # Committed

    @property
    def version(self) -> DataVersion:
        return self._version

    def __len__(self) -> int:
        """How many offsets are committed."""
        return self._count

    def commit(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        client_address: str = "",
        only_forward: bool = False,
    ) -> bool:
        """Take what the group says; False when a reset waits for it, and nothing is taken. Raises TableFullError.

        With `only_forward` a smaller offset than the present one changes nothing.
        """
        if self._resets and self.pending_reset(topic, group, queue_id) is not None:
            return False
        if self._own is not None:
            bases = self._own.setdefault((group, topic), {})
            if queue_id not in bases:
                bases[queue_id] = self._committed(group, topic, queue_id)
                self._own_changed.add((group, topic))
        try:
            progress = self._groups[group][topic]
            before = progress.queues[queue_id]
        except KeyError:
            self._set(group, topic, queue_id, queue_offset)
        else:
            if before != queue_offset and not (only_forward and queue_offset < before):
                if progress.is_changed:
                    progress.queues[queue_id] = queue_offset
                else:
                    self._change(progress, queue_id, queue_offset)
                if queue_offset < before:
                    _log.warning(
                        "consumer %s of group %s moves back in %s queue %d: from %d to %d",
                        client_address, group, topic, queue_id, before, queue_offset,
                    )  # fmt: skip
        self._commits += 1
        if not self._commits % VERSION_STEP:
            self._version = next_version(self._version, self._clock, self.state_version)
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The offset to go on from: the reset that waits, else the committed one; -1 when there is none."""
        if self._resets:
            reset = self.pending_reset(topic, group, queue_id)
            if reset is not None:
                return reset
        try:
            return self._groups[group][topic].queues[queue_id]
        except KeyError:
            return -1

    def query_all(self, group: str, topic: str) -> dict[int, int]:
        """Committed offsets by queue, a copy."""
        progress = self._groups.get(group, {}).get(topic)
        return dict(progress.queues) if progress is not None else {}

    def topics_of(self, group: str) -> set[str]:
        """The topics in which the group has committed."""
        return set(self._groups.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have committed in the topic. Looks at every group."""
        return {group for group, topics in self._groups.items() if topic in topics}

    def entries(self) -> Iterator[tuple[str, str, Mapping[int, int]]]:
        """Group, topic and committed offsets by queue, of all; nothing may be changed meanwhile."""
        for group, topics in self._groups.items():
            for topic, progress in topics.items():
                yield group, topic, progress.queues

    def min_offsets_of(
        self, topic: str, excluded_groups: Collection[str] = (), *, queue_min: Callable[[int], int] | None = None
    ) -> dict[int, int]:
        """By queue the least offset that any other group has committed, without those below the queue's own minimum.

        (Java forgets all offsets of the excluded groups; here they are only not looked at.)
        """
        least: dict[int, int] = {}
        for group, topics in self._groups.items():
            progress = topics.get(topic)
            if progress is None or group in excluded_groups:
                continue
            for queue_id, queue_offset in progress.queues.items():
                if queue_min is None or queue_offset >= queue_min(queue_id):
                    least[queue_id] = min(queue_offset, least.get(queue_id, queue_offset))
        return least

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let the target group be where the source group is in this topic. Raises TableFullError."""
        offsets = self.query_all(source, topic)
        if not offsets:
            return
        self._check_room(target, topic, len(offsets) - len(self.query_all(target, topic)))
        self._remove(target, topic)
        for queue_id, queue_offset in offsets.items():
            self._set(target, topic, queue_id, queue_offset)

    def remove_topic(self, topic: str) -> None:
        """Forget everything about the topic."""
        for group in self.groups_of(topic):
            self._remove(group, topic)
        for group in [group for group, topics in self._pulled.items() if topic in topics]:
            self.clear_pull_offsets(group, topic)
        for key in [key for key in self._resets if key[0] == topic]:
            del self._resets[key]

    def remove_group(self, group: str) -> None:
        """Forget everything about the group."""
        for topic in self.topics_of(group):
            self._remove(group, topic)
        for topic in list(self._pulled.get(group, ())):
            self.clear_pull_offsets(group, topic)
        for key in [key for key in self._resets if key[1] == group]:
            del self._resets[key]

    # Reset

    def set_reset(self, topic: str, group: str, queue_id: int, queue_offset: int) -> bool:
        """Let the group go on from here; False, and nothing happens, when that is no place. Raises TableFullError."""
        if not topic or not group or queue_id < 0 or queue_offset < 0:
            return False
        self._set(group, topic, queue_id, queue_offset)
        self._resets.setdefault((topic, group), {})[queue_id] = queue_offset
        return True

    def pending_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The reset that waits for the next pull; None without one, and when useServerSideResetOffset is off."""
        queues = self._resets.get((topic, group))
        return queues.get(queue_id) if queues and self.config.use_server_side_reset_offset else None

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The reset that waits, as `pending_reset`; it waits no more after that."""
        if not self._resets:
            return None
        queues = self._resets.get((topic, group))
        if queues is None:
            return None
        reset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[topic, group]
        return reset if self.config.use_server_side_reset_offset else None

    # Pulled

    def set_pull_offset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Where the next pull is expected. Of more than offsetsMax queues it is not kept."""
        try:
            queues = self._pulled[group][topic]
        except KeyError:
            queues = {}
        if queue_id not in queues:
            if self._pulled_count >= self.config.offsets_max:
                return
            self._pulled_count += 1
            if not queues:
                self._pulled.setdefault(group, {})[topic] = queues
        queues[queue_id] = queue_offset

    def query_pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Where the next pull is expected, else what `query` says."""
        try:
            return self._pulled[group][topic][queue_id]
        except KeyError:
            return self.query(group, topic, queue_id)

    def clear_pull_offsets(self, group: str, topic: str) -> None:
        """Forget where the next pulls are expected."""
        topics = self._pulled.get(group)
        queues = topics.pop(topic, None) if topics is not None else None
        if queues is not None:
            self._pulled_count -= len(queues)
        if topics is not None and not topics:
            del self._pulled[group]

    # The table

    def _set(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        topics = self._groups.get(group)
        progress = topics.get(topic) if topics is not None else None
        if progress is None or queue_id not in progress.queues:
            self._check_room(group, topic, 1)
            self._count += 1
        if progress is None:
            progress = _Progress(_key(topic, group), {})
            self._groups.setdefault(group, {})[topic] = progress
            self._changed_groups.add(group)
        if progress.is_changed:
            progress.queues[queue_id] = queue_offset
        else:
            self._change(progress, queue_id, queue_offset)

    def _change(self, progress: _Progress, queue_id: int, queue_offset: int) -> None:
        """The first change since the last save, which may be at work on the queues: it keeps them, we take a copy."""
        progress.queues = {**progress.queues, queue_id: queue_offset}
        progress.is_changed = True
        self._changed.append(progress)

    def _remove(self, group: str, topic: str) -> None:
        topics = self._groups.get(group)
        progress = topics.pop(topic, None) if topics is not None else None
        if topics is None or progress is None:
            return
        if not topics:
            del self._groups[group]
        progress.is_removed = True
        self._removals += 1
        self._stamped.pop(progress, None)
        self._count -= len(progress.queues)
        self._changed_groups.add(group)
        self._document.changed(_OFFSETS, progress.key, None)

    def _check_room(self, group: str, topic: str, added: int) -> None:
        if added > 0 and self._count + added > self.config.offsets_max:
            raise TableFullError(
                f"no room for an offset of group {group!r} in topic {topic!r}: "
                f"{spelled('offsets_max')}={self.config.offsets_max} is reached; delete groups that nobody uses, or "
                "raise it"
            )
