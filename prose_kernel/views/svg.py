"""Remove active content and external references from SVG.

An untrusted SVG may contain scripts, event handlers, animated links, whole HTML pages in `foreignObject`, references
that reveal the viewer to a server, and entities that expand without end. An SVG must stay XML, which an HTML sanitiser
would change. So `defusedxml` reads it; it also refuses entities before they are expanded. Only elements that draw are
kept, and only attributes that refer to nothing outside of the drawing. It is then shown as an image (`<img>`), in which
no browser runs or fetches anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_NAMESPACE: Final = "http://www.w3.org/2000/svg"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_SPACE: Final = "{http://www.w3.org/XML/1998/namespace}space"
_DRAWN: Final = frozenset(
    """
    svg g defs symbol use switch title desc style path rect circle ellipse line polyline polygon text tspan textPath
    image clipPath mask pattern linearGradient radialGradient stop marker filter feBlend feColorMatrix
    feComponentTransfer feComposite feConvolveMatrix feDiffuseLighting feDisplacementMap feDistantLight feDropShadow
    feFlood feFuncA feFuncB feFuncG feFuncR feGaussianBlur feImage feMerge feMergeNode feMorphology feOffset
    fePointLight feSpecularLighting feSpotLight feTile feTurbulence
    """.split()  # noqa: SIM905 - a list of words
)
_HARMLESS: Final = frozenset({"metadata", "a", "view"})
"""Elements that are omitted, or replaced by their content, without a notice."""
_LOCAL_IMAGE: Final = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*\Z")
_ELSEWHERE: Final = re.compile(r"url\(\s*[\"']?\s*(?!#)|@import|image-set|image\(|src\(|\\|&", re.IGNORECASE)
_INSIDE: Final = re.compile(r"url\(\s*[\"']?\s*#([^\"')]+)")
_DRAWN_AT_MOST: Final = 1_000_000
_WIDEST: Final = 1_000_000
_NUMBER: Final = re.compile(r"\s*(\d{1,6}(?:\.\d+)?)\s*(?:px|pt)?\s*\Z")


class NotDrawn(ValueError):
    """The text is not a drawing that can be shown; the message gives the reason."""


class Drawing(Struct, frozen=True):
    """A harmless SVG. `width` and `height` are 0 if it has none; `removed` describes the removed parts."""

    text: str
    width: int
    height: int
    removed: tuple[str, ...]


def drawing(data: bytes) -> Drawing:
    """Return the drawing without harmful parts. Raises `NotDrawn`."""
    from xml.etree.ElementTree import ParseError, tostring

    from defusedxml import DefusedXmlException  # type: ignore[import-untyped]
    from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]

    try:
        root = fromstring(data)
    except DefusedXmlException:
        raise NotDrawn("it defines entities, which are not read") from None
    except ParseError as problem:
        line, column = problem.position
        raise NotDrawn(f"it is not well-formed at line {line:,}, column {column + 1:,}") from None
    except (ValueError, LookupError):
        raise NotDrawn("its encoding is unknown") from None
    if _name(root) != "svg":
        raise NotDrawn("its first element is not `svg`")
    removed: set[str] = set()
    _clean(root, removed)
    if _drawn_elements(root) > _DRAWN_AT_MOST:
        raise NotDrawn(f"its parts repeat each other: it would draw more than {_DRAWN_AT_MOST:,} elements")
    root.set("xmlns", _NAMESPACE)
    try:
        text = tostring(root, encoding="unicode")
    except RecursionError:
        raise NotDrawn("it is nested too deeply") from None
    return Drawing(text, *_size(root), tuple(sorted(removed)))


def _name(element: Element) -> str:
    """Return the name of an SVG element; "" for other elements and comments."""
    tag: object = element.tag
    if not isinstance(tag, str):
        return ""  # a comment
    namespace, _, name = tag.rpartition("}")
    return name if namespace in ("", f"{{{_NAMESPACE}") else ""


def _clean(root: Element, removed: set[str]) -> None:
    waiting = [root]
    while waiting:
        element = waiting.pop()
        name = _name(element)
        element.tag = "g" if name == "a" else name
        _clean_attributes(element, removed)
        if name == "style" and (len(element) or _ELSEWHERE.search(element.text or "")):
            removed.add("a style that refers elsewhere")
            element.clear()
            element.tag = name
        for child in list(element):
            kind = _name(child)
            if kind in _DRAWN or kind == "a":
                waiting.append(child)
                continue
            if kind and kind not in _HARMLESS:
                removed.add(kind)
            element.remove(child)


def _clean_attributes(element: Element, removed: set[str]) -> None:
    for name, value in list(element.attrib.items()):
        plain = "href" if name == _LINK else "xml:space" if name == _SPACE else name
        if plain != name or plain.startswith("{") or ":" in plain:
            del element.attrib[name]
        if plain.startswith("{"):
            continue  # an attribute of an editor
        if plain.lower().startswith("on"):
            removed.add("event handlers")
        elif plain == "href":
            if value.startswith("#") or (element.tag == "image" and _LOCAL_IMAGE.match(value)):
                element.set("href", value)
                continue
            if element.tag != "g":
                removed.add("references to elsewhere")
        elif _ELSEWHERE.search(value):
            removed.add("references to elsewhere")
        else:
            element.set(plain, value)
            continue
        element.attrib.pop(name, None)


def _size(root: Element) -> tuple[int, int]:
    found = [_NUMBER.match(root.get(side, "")) for side in ("width", "height")]
    if all(found):
        width, height = (round(float(one[1])) for one in found if one)
        return width, height
    box = root.get("viewBox", "").replace(",", " ").split()
    try:
        width, height = (round(float(box[2])), round(float(box[3]))) if len(box) == 4 else (0, 0)
    except (ValueError, OverflowError):
        return 0, 0
    return (width, height) if 0 < width < _WIDEST and 0 < height < _WIDEST else (0, 0)


def _drawn_elements(root: Element) -> int:
    """Return how many elements a browser draws: each reference to a part draws that part again, with the references in
    it. So a few lines that refer to each other may take a day."""
    named: dict[str, Element] = {}
    for element in root.iter():
        if known := element.get("id"):
            named.setdefault(known, element)
    counts: dict[Element, int] = {}
    agenda: list[tuple[Element, list[Element] | None]] = [(root, None)]
    while agenda:
        element, parts = agenda.pop()
        if parts is not None:
            counts[element] = min(1 + sum(counts[part] for part in parts), 2 * _DRAWN_AT_MOST)
        elif element not in counts:
            counts[element] = 0  # an element that refers to itself is drawn once
            parts = [*element, *(named[name] for name in _refers_to(element) if name in named)]
            agenda.append((element, parts))
            agenda += [(part, None) for part in parts if part not in counts]
    return counts[root]


def _refers_to(element: Element) -> Iterator[str]:
    for name, value in element.attrib.items():
        if name == "href" and value.startswith("#"):
            yield value[1:]
        elif "url(" in value:
            yield from _INSIDE.findall(value)
