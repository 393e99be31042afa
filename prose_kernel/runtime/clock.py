"""Real time as the `Clock` port, and times as text."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Literal


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def milliseconds(when: datetime) -> int:
    """Return a time as whole milliseconds since 1970, as records have it."""
    return int(when.timestamp() * 1000)


def timestamp(when: datetime, exact: Literal["seconds", "milliseconds"] = "milliseconds", zone: str = "Z") -> str:
    """Return a time as ISO 8601 in UTC; `zone` is how the text names UTC."""
    return when.astimezone(UTC).isoformat(timespec=exact).removesuffix("+00:00") + zone
