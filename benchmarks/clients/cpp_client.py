"""The C++ client by its Python binding as a benchmark program, run in an environment without this package.

With several threads a send now and then ends with 'No route info of this topic' before it leaves the client, whichever
broker and name server it is used with, Apache RocketMQ's own too; perhaps while it refreshes its route. Such
a send is made again, as its users have to; any other failure counts.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore[import-not-found]
from rocketmq.exceptions import ProducerSendSyncFailed  # type: ignore[import-not-found]

sys.path.insert(0, str(Path(__file__).parent))

from reporting import REPORT_EVERY_S, Tally  # type: ignore[import-not-found]

ROUTE_LOST = "No route info of this topic"


def send(arguments: argparse.Namespace, tally: Tally) -> object:
    """Threads that each send and wait, as RocketMQ's own program has them."""
    body = "".join(chr(ord("a") + number % 26) for number in range(arguments.size))
    producer = Producer("benchmark_producer_cpp", timeout=10_000)
    producer.set_namesrv_addr(arguments.name_server)
    producer.start()

    def one_at_a_time() -> None:
        while True:
            message = Message(arguments.topic)
            message.set_body(body)
            try:
                producer.send_sync(message)
            except ProducerSendSyncFailed as error:
                tally.failed += ROUTE_LOST not in str(error)  # with a failure the run is no figure
            else:
                tally.done += 1

    for _ in range(arguments.workers):
        threading.Thread(target=one_at_a_time, daemon=True).start()
    return producer


def consume(arguments: argparse.Namespace, tally: Tally) -> object:
    """A listener that takes the body and says yes. The consumer ends when nobody keeps it."""
    consumer = PushConsumer(arguments.group)
    consumer.set_namesrv_addr(arguments.name_server)

    def listen(message: object) -> None:
        len(message.body)  # type: ignore[attr-defined]
        tally.done += 1

    consumer.subscribe(arguments.topic, listen)
    consumer.start()
    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--name-server", required=True)
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-w", "--workers", type=int, default=64)
    parser.add_argument("-s", "--size", type=int, default=1024)
    parser.add_argument("-g", "--group", default="")
    arguments = parser.parse_args()
    tally = Tally("Consume" if arguments.group else "Send")
    client = (consume if arguments.group else send)(arguments, tally)
    while client:
        time.sleep(REPORT_EVERY_S)
        tally.report()


if __name__ == "__main__":
    main()
