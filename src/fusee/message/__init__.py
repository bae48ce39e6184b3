"""What a message is, byte for byte."""

from fusee.message.model import Message, MessageQueue, StoredMessage

__all__ = ["Message", "MessageQueue", "StoredMessage"]
