"""Whether the properties of a message ask for nothing unusual, seen without taking them apart.

Unusual is what a broker must look at: a delay, a transaction, a timer, an inner batch, a pop, an answer before the
message is stored; and forms that only few clients send. Seeing too much is no error, since whoever asks can also do it
the long way.

The compiled form is `usual_properties.pyx`, a twin of this module written for C.
"""

from __future__ import annotations


def usual_unique_id(properties: str) -> bytes | None:
    """The unique id in these properties; None when they are unusual, or have none, or two."""
    # Text is searched several times as fast as bytes.
    at = properties.find("UNIQ_KEY\x01")
    end = properties.find("\x02", at)
    if (
        at < 0
        or (at > 0 and properties[at - 1] != "\x02")
        or end < at + 10
        or "DELAY\x01" in properties
        or "TRAN_MSG\x01" in properties
        or "TIMER_D" in properties
        or "MSG_REGION\x01" in properties
        or "POP_CK\x01" in properties
        or "INNER_NUM\x01" in properties
        or ("WAIT\x01true\x02" not in properties and "WAIT\x01" in properties)
        or properties[-1] != "\x02"
        or properties.find("UNIQ_KEY\x01", end) >= 0
    ):
        return None
    return properties[at + 9 : end].encode()
