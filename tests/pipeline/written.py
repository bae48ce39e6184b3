"""What a topic holds, read as any consumer reads it: plain pulls of every queue."""

from __future__ import annotations

from fusee.message.model import StoredMessage
from fusee.message.record import iterate_records
from fusee.pipeline.blocking_link import BlockingLink
from fusee.pipeline.write_routes import WriteQueue, WriteRoutes, WriteSettings
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.pull import PullMessage, PullMessageResponse


def messages_in(name_servers: str, topic: str) -> dict[WriteQueue, list[StoredMessage]]:
    """The messages of each queue, in order."""
    routes = WriteRoutes(WriteSettings(name_servers=name_servers, request_timeout_ms=10_000), None)
    return {queue: _pulled(routes.address(queue.broker_name), topic, queue) for queue in routes.queues(topic)}


def bodies_in(name_servers: str, topic: str) -> list[bytes]:
    """The bodies of all messages, sorted."""
    return sorted(found.body for each in messages_in(name_servers, topic).values() for found in each)


def _pulled(address: str, topic: str, queue: WriteQueue) -> list[StoredMessage]:
    link = BlockingLink(address, timeout_ms=10_000)
    found: list[StoredMessage] = []
    queue_offset = 0
    try:
        while True:
            header = PullMessage(
                consumer_group="readers",
                topic=topic,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                max_messages=1000,
                sys_flag=4,
                commit_offset=0,
                suspend_timeout_ms=0,
                subscription="*",
                sub_version=0,
            )
            command, body = link.request(Command.request(RequestCode.PULL_MESSAGE, header))
            if command.code != ResponseCode.SUCCESS:
                assert command.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED), command
                return found
            found += iterate_records(bytes(body))
            queue_offset = command.read(PullMessageResponse).next_offset
    finally:
        link.close()
