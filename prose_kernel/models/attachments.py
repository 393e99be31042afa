"""The images and PDFs sent with a session's message (docs/how-to/data-and-images.md).

An image comes from a context value that is or contains one, or from a file that the program names (`file:` in a
context, a ref in the input of a VVM agent) with the suffix of an image. A file is read under the session's rules for
`read` and counts as read by the session, so a recording notices when it changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prose_kernel.access.safe_files import ResolvedPath, ToolFailed, ToolRefused, opened
from prose_kernel.errors import PermissionDenied, ProviderError
from prose_kernel.runtime.images import LARGEST, Picture, picture
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.value_text import images_in

if TYPE_CHECKING:
    from prose_kernel.models.tools.permission_check import Access

MOST: Final = 20
"""The number of images and PDFs that a message may have."""
TOGETHER: Final = 20_000_000
"""The total size limit, in bytes, of a message's attachments: base64 makes them a third longer, and servers accept
about 30 MB."""

_SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")


@dataclass(frozen=True, slots=True)
class Attachment:
    """One image or PDF. `label` is its name in the message; `path` is the path of a file that the program names, else
    ""."""

    label: str
    data: bytes = field(repr=False)
    picture: Picture
    path: str = ""


async def attachments(request: SessionRequest, access: Access) -> tuple[Attachment, ...]:
    """Return the attachments of the message, in the order of the context. Raises `PermissionDenied` for a file that may
    not be read, and `ProviderError` for a missing file, broken data, or too many or too large attachments."""
    wanted = list(_wanted(request))
    if len(wanted) > MOST:
        raise _refused(f"{len(wanted):,} images and PDFs", f"a message takes up to {MOST}", "ask in several sessions")
    found: list[Attachment] = []
    size = 0
    for label, data in wanted:
        found.append(await _file(label, access) if data is None else _checked(label, data))
        size += len(found[-1].data)
        if size > TOGETHER:
            why = f"together they have more than the {TOGETHER:,} bytes that a message takes"
            raise _refused(f"{len(wanted):,} images and PDFs", why, "give smaller ones, or ask in several sessions")
    return tuple(found)


def _wanted(request: SessionRequest) -> Iterator[tuple[str, bytes | None]]:
    """Yield the name and bytes of each image and PDF, in order; for a file, the path and None."""
    for item in request.context or ():
        if item.file and (item.text or "").lower().endswith(_SUFFIXES):
            yield item.text or "", None
        elif not item.file and not item.missing:
            yield from ((item.name, image) for image in images_in(item.content))
    for path in request.given.references if request.given else ():
        if path.lower().endswith(_SUFFIXES):
            yield path, None


def _checked(label: str, data: bytes, path: str = "") -> Attachment:
    drawn = picture(data)
    if drawn is None:
        raise _refused(label, "it isn't an image or a PDF: it begins with other bytes" if data else "it is empty")
    if drawn.broken:
        raise _refused(label, drawn.text)
    return Attachment(label, data, drawn, path)


async def _file(path: str, access: Access) -> Attachment:
    try:
        place = await access.file("read", path, path)
        data = await asyncio.to_thread(_read, place, access)
    except ToolRefused as refused:
        raise PermissionDenied(str(refused), hint=f'`read: ["{path}"]` in permissions would allow it') from None
    except ToolFailed as failed:
        raise _refused(path, str(failed).removeprefix(f"'{path}': ")) from None
    if len(data) > LARGEST:
        raise _refused(path, f"it has more than {LARGEST:,} bytes", "give a smaller one")
    return _checked(path, data, path)


def _read(place: ResolvedPath, access: Access) -> bytes:
    with opened(place) as descriptor, open(descriptor, "rb", closefd=False) as file:
        data = file.read(LARGEST + 1)
    access.saw(place)
    return data


def _refused(subject: str, why: str, hint: str | None = None) -> ProviderError:
    return ProviderError(f"{subject} cannot be given to the session: {why}", retryable=False, hint=hint)
