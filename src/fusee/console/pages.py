"""The pages: one table of paths, what each asks, and how it is shown; the JSON API has the same paths under /api."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fusee.console.views import cluster, groups, messages, pipelines, settings, topics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import msgspec

    from fusee.console.context import Asked, Context


class Page(NamedTuple):
    """One page. Without a template it is JSON only; without a word for the menu it is reached from another page."""

    path: str
    ask: Callable[[Context, Asked], Awaitable[Any]]
    answers: type[msgspec.Struct]
    template: str = ""
    menu: str = ""
    query: tuple[str, ...] = ()


PAGES: Final = (
    Page("/", cluster.overview, cluster.Overview, "overview.html", "Overview"),
    Page("/cluster", cluster.cluster, cluster.ClusterPage, "cluster.html", "Cluster"),
    Page("/topics", topics.topics, topics.TopicsPage, "topics.html", "Topics", ("search", "kinds", "page")),
    Page("/topic-counts", topics.topic_counts, topics.TopicCounts, query=("topics",)),
    Page("/topics/{topic}", topics.topic, topics.TopicPage, "topic.html"),
    Page(
        "/topics/{topic}/messages",
        messages.browse,
        messages.BrowsePage,
        "browse.html",
        query=("begin", "end", "tags", "queue", "key", "form", "limit"),
    ),
    Page("/groups", groups.groups, groups.GroupsPage, "groups.html", "Groups", ("search", "page")),
    Page("/groups/{group}", groups.group, groups.GroupPage, "group.html"),
    Page("/groups/{group}/reset", groups.reset_preview, groups.ResetPreview, "reset.html", query=("topic", "to")),
    Page("/groups/{group}/members/{client_id}", groups.member, groups.MemberPage, "member.html"),
    Page("/messages/{message_id}", messages.message, messages.MessagePage, "message.html", query=("topic", "form")),
    Page("/dead-letters", messages.dead_letters, messages.DeadLettersPage, "dead_letters.html", "Dead letters"),
    Page("/dead-letters/{group}", messages.dead_letter, messages.DeadLetterPage, "dead_letter.html", query=("form",)),
    Page("/pending", messages.pending, messages.PendingPage, "pending.html", "Pending"),
    Page("/pipelines", pipelines.pipelines, pipelines.PipelinesPage, "pipelines.html", "Pipelines"),
    Page(
        "/configuration",
        settings.configuration,
        settings.ConfigurationPage,
        "configuration.html",
        "Configuration",
        ("search",),
    ),
    Page("/audit", settings.audit, settings.AuditPage, "audit.html", "Audit"),
)
