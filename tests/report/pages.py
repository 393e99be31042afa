"""The parts of a report page for tests: tags, ids, links, and the page without the parts that differ between runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "hr", "img"}
ATTRIBUTES = {
    *("id", "class", "href", "name", "content", "charset", "lang", "http-equiv", "type", "checked", "for", "open"),
    *("rel", "target", "aria-label", "role", "xmlns", "width", "height", "viewbox", "transform", "d", "x", "y", "rx"),
    *("src", "alt", "text-anchor", "x1", "x2", "y1", "y2", "font-family", "font-size"),
}


@dataclass
class Page(HTMLParser):
    """Parse a page, and fail if a tag is not closed in its place."""

    source: str
    tags: dict[str, int] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    without_volatile_parts: list[str] = field(default_factory=list)
    """The page without the parts that differ between runs: elements of the class `v`, and the title."""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._volatile: list[bool] = []
        self.feed(self.source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        volatile = tag == "title" or any(self._volatile) or "v" in (dict(attrs).get("class") or "").split()
        if not volatile:
            self.without_volatile_parts.append(f"<{tag} {attrs}>")
        if tag not in VOID:
            self._open.append(tag)
            self._volatile.append(volatile)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name == "src":  # an image, in the page itself
                assert tag == "img" and (value or "").startswith("data:image/")
            if name == "href":
                self.links.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()
            self._volatile.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._volatile.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.texts.append(data)
            if not any(self._volatile):
                self.without_volatile_parts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def checked(source: str) -> Page:
    """Check that a page has no active content and no broken links, and return it."""
    page = Page(source)
    assert not page.tags.keys() & {"script", "iframe", "object", "embed", "link", "form", "base", "foreignobject"}
    assert page.attributes <= ATTRIBUTES, page.attributes - ATTRIBUTES
    assert len(set(page.ids)) == len(page.ids)
    for link in page.links:
        assert link.startswith(("https://", "http://", "mailto:")) or link.removeprefix("#") in page.ids, link
    return page
