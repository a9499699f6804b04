"""The keys of all pages: one table each, of which bindings, the help and the palette are made."""

from collections.abc import Iterable
from typing import NamedTuple

from textual.binding import Binding, BindingType


class Key(NamedTuple):
    """A key, what it does, and its meaning in the help; "" for the second key of a pair.

    `keys`: Textual's names, separated by commas. `shown`: as the help spells it, and the pair's
    other key. `foot`: whether the footer names it.
    """

    keys: str
    action: str
    title: str
    meaning: str = ""
    shown: str = ""
    foot: bool = False

    @property
    def slug(self) -> str:
        """The title as a part of an identifier, such as `next-run`."""
        return self.title.lower().replace(" ", "-")


TABLES: dict[str, tuple[Key, ...]] = {}
"""The keys by the title of their page, or of what else they act on."""


def keys(page: str, *rows: Key) -> list[BindingType]:
    """The bindings of a page's keys, whose identifiers (`run.zoom-in`) a configuration names."""
    TABLES[page] = TABLES.get(page, ()) + rows
    return [
        Binding(
            row.keys,
            row.action,
            row.title,
            id=f"{page.lower()}.{row.slug}",
            show=row.foot,
            key_display=row.shown.split()[0] if row.shown and row.foot else None,
            tooltip=row.meaning,
            priority=row.keys == "ctrl+c",
        )
        for row in rows
    ]


def help_rows(changed: dict[str, str], pages: Iterable[str]) -> list[tuple[str, str]]:
    """Keys and meanings, or a page and "", `pages` in this order.

    `changed`: configured keys by identifier.
    """
    found: list[tuple[str, str]] = []
    order = ("Everywhere", "Lists", *pages, "Playing back")
    for page, rows in ((page, TABLES[page]) for page in order if page in TABLES):
        found.append((page, ""))
        for row in rows:
            own = changed.get(f"{page.lower()}.{row.slug}")
            if row.meaning:
                found.append((own or row.shown or row.keys, row.meaning))
            elif own:
                found.append((own, row.title))
    return found
