"""Checks of what browsers send to the page's events, before Gradio sees it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

Mine = Callable[[str], bool]
"""Whether a path is a file that this visitor uploaded."""

NOT_YOURS = "only a file that you uploaded on this page can be used; please upload it again"
"""The refusal of any file that is not the visitor's own upload, whether it exists or not."""
_MALFORMED = "the request does not match any control of this page; please reload the page"
_SESSION = re.compile(r"[A-Za-z0-9]{4,64}")
_INDEX = 1000  # the most elements that can be clicked in one block
_DEPTH = 32


class RefusedError(Exception):
    """A request that is answered with one sentence and an HTTP status."""

    def __init__(self, sentence: str, status: int = 422) -> None:
        super().__init__(sentence)
        self.sentence, self.status = sentence, status


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object of a request."""

    def refuse(_: str) -> Any:
        raise ValueError("not a JSON number")

    try:
        value = json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise RefusedError(_MALFORMED, 400) from None
    if not isinstance(value, dict):
        raise RefusedError(_MALFORMED, 400)
    return value


def session_of(value: object) -> str:
    """A session hash, which each tab of a browser makes up."""
    if not isinstance(value, str) or not _SESSION.fullmatch(value):
        raise RefusedError(_MALFORMED, 400)
    return value


class Events:
    """The events of a page and the values that each of them takes.

    Args:
        page: The `gradio.Blocks`. Every kind of input that it uses must be known here.
    """

    def __init__(self, page: Any) -> None:
        self._events = {
            number: _Event(event) for number, event in page.fns.items() if event.fn is not None
        }

    def check(self, body: dict[str, Any], queued: bool, mine: Mine) -> dict[str, Any]:
        """The body of an event, with nothing in it but checked values.

        Args:
            body: What the browser sent.
            queued: Whether it was sent to the queue.
            mine: Whether a path is an upload of the visitor.
        """
        _check_files(body, mine)
        number = body.get("fn_index")
        event = self._events.get(number) if _is_whole(number) else None
        if event is None or event.queued != queued:
            raise RefusedError(_MALFORMED)
        trigger = body.get("trigger_id")
        if trigger is not None and not (_is_whole(trigger) and trigger in event.triggers):
            raise RefusedError(_MALFORMED)
        data = body.get("data")
        if not isinstance(data, list) or len(data) != len(event.rules):
            raise RefusedError(_MALFORMED)
        return {
            "data": [rule(value, mine) for rule, value in zip(event.rules, data, strict=True)],
            "event_data": event.detail(body.get("event_data")),
            "fn_index": number,
            "trigger_id": trigger,
            "session_hash": session_of(body.get("session_hash")),
        }

    def check_cancel(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of a request to cancel an event."""
        number, event = body.get("fn_index"), body.get("event_id")
        if not _is_whole(number) or number not in self._events:
            raise RefusedError(_MALFORMED)
        if not isinstance(event, str) or not re.fullmatch(r"[A-Za-z0-9-]{1,64}", event):
            raise RefusedError(_MALFORMED)
        return {
            "session_hash": session_of(body.get("session_hash")),
            "fn_index": number,
            "event_id": event,
        }


Rule = Callable[[Any, Mine], Any]
"""Returns a value that an input takes, or raises `RefusedError`."""


class _Event:
    """One event: its inputs, what triggers it, and what its listener wants to know."""

    def __init__(self, event: Any) -> None:
        self.queued = event.queue is not False
        self.rules = [_rule(block) for block in event.inputs]
        self.triggers = {target for target, _ in event.targets}
        self.wants: str | None = getattr(event.fn, "wants", None)

    def detail(self, value: Any) -> dict[str, Any] | None:
        """The part of the event data that the listener reads; the rest is dropped."""
        if self.wants is None:
            return None
        found = value.get(self.wants) if isinstance(value, dict) else None
        if self.wants == "index" and isinstance(found, int) and not isinstance(found, bool):
            if 0 <= found < _INDEX:
                return {"index": found}
            raise RefusedError(_MALFORMED)
        if self.wants == "png" and isinstance(found, str):
            return {"png": found}
        raise RefusedError(_MALFORMED)


def _rule(block: Any) -> Rule:
    """What one input takes."""
    import gradio as gr

    if isinstance(block, gr.State):
        return _nothing
    if isinstance(block, gr.File):
        return _upload
    if isinstance(block, gr.Checkbox):
        return _choice([False, True], block.label)
    if isinstance(block, gr.Radio | gr.Dropdown):
        return _choice([value for _, value in block.choices], block.label)
    if isinstance(block, gr.Slider):
        return _number(block.minimum, block.maximum, block.label, empty=False)
    if isinstance(block, gr.Number):
        return _number(block.minimum, block.maximum, block.label, empty=True)
    raise TypeError(f"there is no check for inputs of type {type(block).__name__}")


def _nothing(value: Any, mine: Mine) -> None:
    if value is not None:
        raise RefusedError(_MALFORMED)


def _upload(value: Any, mine: Mine) -> dict[str, Any] | None:
    if value is None:
        return None
    if not _is_file(value) or not isinstance(value.get("path"), str) or not mine(value["path"]):
        raise RefusedError(NOT_YOURS, 403)
    return {"path": value["path"], "meta": {"_type": "gradio.FileData"}}


def _choice(values: list[Any], label: str) -> Rule:
    def check(value: Any, mine: Mine) -> Any:
        for known in values:
            if type(known) is type(value) and known == value:
                return known
        raise RefusedError(f"{label}: please choose one of the values on offer")

    return check


def _number(least: float | None, most: float | None, label: str, empty: bool) -> Rule:
    low = -1e9 if least is None else least
    high = 1e9 if most is None else most

    def check(value: Any, mine: Mine) -> float | None:
        if value is None and empty:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise RefusedError(f"{label}: please enter a number from {low:g} to {high:g}")

    return check


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_file(value: object) -> bool:
    """Whether a value could be taken for Gradio's description of a file."""
    return isinstance(value, dict) and not {"path", "url", "_type", "is_stream"}.isdisjoint(value)


def _check_files(value: Any, mine: Mine) -> None:
    """Refuses files that are not the visitor's own, wherever in a body they are."""
    waiting = [(value, 0)]
    while waiting:
        found, depth = waiting.pop()
        if depth > _DEPTH:
            raise RefusedError(_MALFORMED, 400)
        if isinstance(found, float) and not math.isfinite(found):
            raise RefusedError(_MALFORMED, 400)
        if isinstance(found, list):
            waiting += [(item, depth + 1) for item in found]
        elif isinstance(found, dict):
            typed = found == {"_type": "gradio.FileData"}  # the mark inside a file's description
            if _is_file(found) and not typed:
                path = found.get("path")
                if not isinstance(path, str) or not mine(path):
                    raise RefusedError(NOT_YOURS, 403)
            waiting += [(item, depth + 1) for item in found.values()]
