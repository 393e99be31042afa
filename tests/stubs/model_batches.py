"""The batch interfaces of the stub model server: Anthropic's message batches, OpenAI's files and batches.

Each request of a batch is answered as the model of its name would answer it. A batch ends when it is first asked about,
or, while `held`, not before `held` is False again. A model whose name begins with `expired` has expired.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stubs.model_wire import Json

Answer = Callable[[str, Json], tuple[int, Json]]
Replied = tuple[int, bytes, str]


@dataclass
class Batch:
    """One batch: its requests as (id, body), in order."""

    id: str
    requests: list[tuple[str, Json]]
    cancelled: bool = False
    polls: int = 0


@dataclass
class Batches:
    """What the server knows of batches. `refuse` is the status that the next submission is answered with; with
    `keeps_cancels` a cancellation is never answered."""

    held: bool = False
    refuse: int = 0
    keeps_cancels: bool = False
    batches: list[Batch] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def reply(self, method: str, path: str, body: bytes, answer: Answer) -> Replied | None:
        """The reply to a call of these interfaces; None for any other call."""
        if match := re.fullmatch(r"/v1/messages/batches(?:/(\w+))?(?:/(results|cancel))?", path):
            return self._anthropic(method, match[1], match[2], body, answer)
        if match := re.fullmatch(r"/v1/files(?:/(\w+))?(?:/(content))?", path):
            return self._files(method, match[1], body)
        if match := re.fullmatch(r"/v1/batches(?:/(\w+))?(?:/(cancel))?", path):
            return self._openai(match[1], match[2], body, answer)
        return None

    def _submit(self, requests: list[tuple[str, Json]]) -> Batch:
        batch = Batch(f"batch{len(self.batches) + 1}", requests)
        self.batches.append(batch)
        return batch

    def _find(self, id: str) -> Batch | None:
        return next((batch for batch in self.batches if batch.id == id), None)

    def _ended(self, batch: Batch) -> bool:
        return batch.cancelled or not self.held

    # ------------------------------------------------------------ Anthropic

    def _anthropic(self, method: str, id: str | None, what: str | None, body: bytes, answer: Answer) -> Replied:
        if id is None:
            if self.refuse:
                return _json({"type": "error", "error": {"type": "api_error", "message": "no"}}, self._refused())
            requests = [(one["custom_id"], one["params"]) for one in json.loads(body)["requests"]]
            return _json(self._message_batch(self._submit(requests)))
        batch = self._find(id)
        if batch is None:
            return _json({"type": "error", "error": {"type": "not_found_error", "message": "no such batch"}}, 404)
        if what == "cancel":
            batch.cancelled = True
        elif what == "results":
            lines = [json.dumps(self._result(batch, *one, answer)) for one in batch.requests]
            return 200, "\n".join(lines).encode(), "application/x-jsonl"
        else:
            batch.polls += 1
        return _json(self._message_batch(batch))

    def _message_batch(self, batch: Batch) -> Json:
        done = self._ended(batch) and batch.polls > 0
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        counts["succeeded" if done else "processing"] = len(batch.requests)
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if done else "in_progress",
            "request_counts": counts,
            "created_at": "2026-11-22T00:00:00Z",
            "expires_at": "2026-11-23T00:00:00Z",
            "results_url": f"/v1/messages/batches/{batch.id}/results" if done else None,
        }

    def _result(self, batch: Batch, id: str, params: Json, answer: Answer) -> Json:
        if batch.cancelled:
            return {"custom_id": id, "result": {"type": "canceled"}}
        if params["model"].startswith("expired"):
            return {"custom_id": id, "result": {"type": "expired"}}
        status, said = answer("/v1/messages", params)
        told = {"type": "succeeded", "message": said} if status == 200 else {"type": "errored", "error": said}
        return {"custom_id": id, "result": told}

    # ------------------------------------------------------------ OpenAI

    def _files(self, method: str, id: str | None, body: bytes) -> Replied:
        if id is None:
            found = re.search(rb'\r\n\r\n(\{"custom_id".*?)\r\n--', body, re.DOTALL)
            id = f"file{len(self.files) + 1}"
            self.files[id] = found[1] if found else b""
        elif method == "DELETE":
            self.files.pop(id, None)
            return _json({"id": id, "object": "file", "deleted": True})
        else:
            return 200, self.files[id], "application/octet-stream"
        named = {"id": id, "object": "file", "bytes": 1, "created_at": 1, "filename": "batch.jsonl"}
        return _json({**named, "purpose": "batch", "status": "processed"})

    def _openai(self, id: str | None, what: str | None, body: bytes, answer: Answer) -> Replied:
        if id is None:
            if self.refuse:
                return _json({"error": {"message": "no", "type": "api_error"}}, self._refused())
            lines = self.files[json.loads(body)["input_file_id"]].decode().splitlines()
            told = [json.loads(line) for line in lines]
            batch: Batch | None = self._submit([(one["custom_id"], one["body"]) for one in told])
        else:
            batch = self._find(id)
        if batch is None:
            return _json({"error": {"message": "no such batch", "type": "invalid_request_error"}}, 404)
        if what == "cancel":
            batch.cancelled = True
        elif id is not None:
            batch.polls += 1
        return _json(self._batch(batch, answer))

    def _batch(self, batch: Batch, answer: Answer) -> Json:
        done = self._ended(batch) and batch.polls > 0
        if done and not batch.cancelled:
            lines = [json.dumps(self._line(*one, answer)) for one in batch.requests]
            self.files[f"out{batch.id}"] = "\n".join(lines).encode()
        status = "cancelled" if batch.cancelled else "completed" if done else "in_progress"
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": "/v1/responses",
            "completion_window": "24h",
            "created_at": 1,
            "input_file_id": f"file{self.batches.index(batch) + 1}",
            "status": status,
            "output_file_id": f"out{batch.id}" if status == "completed" else None,
        }

    def _line(self, id: str, body: Json, answer: Answer) -> Json:
        if str(body["model"]).startswith("expired"):
            return {"id": id, "custom_id": id, "response": None, "error": {"code": "batch_expired", "message": "late"}}
        status, said = answer("/v1/responses", body)
        return {"id": id, "custom_id": id, "response": {"status_code": status, "body": said}, "error": None}

    def _refused(self) -> int:
        status, self.refuse = self.refuse, 0
        return status


def _json(data: Any, status: int = 200) -> Replied:
    return status, json.dumps(data).encode(), "application/json"
