"""What a group wants of one topic, parsed once and looked at for every message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fusee.errors import FilterError
from fusee.filter.sql import compile_sql
from fusee.filter.tags import EVERYTHING, parse_tags, tag_codes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusee.filter.sql import Predicate

TAG: Final = "TAG"
SQL92: Final = "SQL92"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A wish for messages of a topic.

    A message passes when its tag code is in `tags_codes` (None: whatever its tag) and the predicate (None: none)
    holds for its raw properties. An SQL92 subscription without a predicate is one that could not be understood;
    `fault` says why.
    """

    topic: str
    expression: str
    expression_type: str = TAG
    tags: frozenset[str] = frozenset()
    tags_codes: frozenset[int] | None = None
    predicate: Predicate | None = field(default=None, compare=False, repr=False)
    version: int = 0
    fault: str = field(default="", compare=False)

    @property
    def is_by_tag(self) -> bool:
        """Whether tags decide. An empty type counts as TAG, as it does for Java."""
        return self.expression_type in ("", TAG)


def parse_subscription(
    topic: str, expression: str | None, expression_type: str | None = TAG, version: int = 0
) -> Subscription:
    """The subscription that this expression means. Raises FilterError when it means none.

    Parsing SQL92 for the first time in a process takes about 0.1 s; an expression that was seen before costs nothing.
    """
    if expression_type is None or expression_type == TAG:
        choice = parse_tags(expression)
        return Subscription(
            topic=topic, expression=choice.expression, tags=choice.tags, tags_codes=choice.codes, version=version
        )
    if not expression:
        raise FilterError(f"a subscription of type {expression_type!r} to {topic} needs an expression")
    if expression_type == "":
        # Java takes it for a tag subscription when it matches, but has not looked for tags when it parsed.
        codes = None if expression == EVERYTHING else frozenset[int]()
        return Subscription(topic, expression, "", tags_codes=codes, version=version)
    if expression_type != SQL92:
        raise FilterError(f"the subscription to {topic} has the type {expression_type!r}; known are {TAG} and {SQL92}")
    return Subscription(topic, expression, SQL92, predicate=compile_sql(expression), version=version)


def declared_subscription(
    topic: str,
    expression: str | None,
    expression_type: str | None = TAG,
    *,
    tags: Iterable[str] = (),
    codes: Iterable[int] | None = None,
    version: int = 0,
    class_filter_mode: bool = False,
) -> Subscription:
    """The subscription that a client declares in its heartbeat; never raises.

    The client has hashed its tags itself, and its codes count, not ours. Without codes they are made from its tags,
    without tags from the expression. What cannot be understood matches nothing and carries its fault: a
    heartbeat speaks for many topics and is not refused for one of them.
    """
    text = EVERYTHING if expression is None else expression
    kind = TAG if expression_type is None else expression_type
    tag_set = frozenset(tags)
    if class_filter_mode:
        return Subscription(topic, text, kind, tag_set, version=version)
    if kind in ("", TAG) and text != EVERYTHING and (codes is not None or tag_set):
        code_set = tag_codes(tag_set) if codes is None else frozenset(codes)
        return Subscription(topic, text, kind, tag_set, code_set, version=version)
    try:
        return parse_subscription(topic, text, kind or TAG, version)
    except FilterError as error:
        return Subscription(topic, text, kind, tag_set, frozenset(), version=version, fault=str(error))
