"""Checks of what browsers send to the page's events, before Gradio handles it."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import math
import re
from collections.abc import Callable
from typing import Any

import gradio as gr

from basis.page.access import RefusedError

log = logging.getLogger("basis.page")

Owns = Callable[[str], bool]
"""Whether a path is a file of this visitor."""
Rule = Callable[[Any, Owns], Any]
"""Returns the value of an input, or raises `RefusedError`."""

NOT_YOURS = "only a file that you uploaded on this page can be used; please upload it again"
"""The refusal of any file that is not the visitor's own, whether it exists or not."""
_MALFORMED = "the request does not match any control of this page; please reload the page"
_SESSION = re.compile(r"[A-Za-z0-9]{4,64}")
_LARGEST_INDEX = 1000  # of elements that can be clicked in one block
_DEPTH = 32


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
    """The events of a page and the values that each of them accepts.

    Args:
        page: The `gradio.Blocks`. Every kind of input that it uses must be known here.
    """

    def __init__(self, page: Any) -> None:
        self._events = {
            number: _Event(event, page)
            for number, event in page.fns.items()
            if event.fn is not None
        }
        self._cancellable = set(page.fns)

    def detail_of(self, number: int) -> str | None:
        """The field of the event's details that its listener reads, or None."""
        return self._events[number].detail_name

    def check(self, body: dict[str, Any], queued: bool, owns: Owns) -> dict[str, Any]:
        """The body of an event, with nothing in it but checked values.

        Args:
            body: What the browser sent.
            queued: Whether it was sent to the queue.
            owns: Whether a path is a file of the visitor.
        """
        _check_files(body, owns)
        number = body.get("fn_index")
        event = self._events.get(number) if _is_integer(number) else None
        if event is None or event.queued != queued:
            raise RefusedError(_MALFORMED)
        trigger = body.get("trigger_id")
        if trigger is not None and not (_is_integer(trigger) and trigger in event.triggers):
            raise RefusedError(_MALFORMED)
        data = body.get("data")
        if not isinstance(data, list) or len(data) != len(event.rules):
            raise RefusedError(_MALFORMED)
        return {
            "data": [rule(value, owns) for rule, value in zip(event.rules, data, strict=True)],
            "event_data": event.detail(body.get("event_data")),
            "fn_index": number,
            "trigger_id": trigger,
            "session_hash": session_of(body.get("session_hash")),
        }

    def check_cancel(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of a request to cancel an event."""
        number, event = body.get("fn_index"), body.get("event_id")
        if not _is_integer(number) or number not in self._cancellable:
            raise RefusedError(_MALFORMED)
        if not isinstance(event, str) or not re.fullmatch(r"[A-Za-z0-9-]{1,64}", event):
            raise RefusedError(_MALFORMED)
        return {
            "session_hash": session_of(body.get("session_hash")),
            "fn_index": number,
            "event_id": event,
        }


class _Event:
    """One event: its inputs, what triggers it, and the detail that its listener reads."""

    def __init__(self, event: Any, page: Any) -> None:
        self.queued = event.queue is not False
        self.rules = [_rule(block) for block in event.inputs]
        self.triggers = {target for target, _ in event.targets}
        # Blocks of HTML report which of their elements was clicked, or what was drawn on a canvas.
        names = {n for t, n in event.targets if isinstance(page.blocks.get(t), gr.HTML)}
        self.detail_name = "index" if "click" in names else "png" if "submit" in names else None

    def detail(self, value: Any) -> dict[str, Any] | None:
        """The part of the event's details that the listener reads; the rest is dropped."""
        if self.detail_name is None:
            return None
        found = value.get(self.detail_name) if isinstance(value, dict) else None
        if self.detail_name == "png" and isinstance(found, str):
            return {"png": found}
        if self.detail_name == "index" and found in range(_LARGEST_INDEX) and _is_integer(found):
            return {"index": found}
        raise RefusedError(_MALFORMED)


def _rule(block: Any) -> Rule:
    """What one input accepts."""
    if isinstance(block, gr.State):
        return _nothing
    if isinstance(block, gr.File):
        return _upload
    if isinstance(block, gr.Checkbox):
        return _choice([False, True], block.label)
    if isinstance(block, gr.Radio | gr.Dropdown):
        return _choice([value for _, value in block.choices], block.label)
    if isinstance(block, gr.Slider | gr.Number):
        return _number(block.minimum, block.maximum, block.label, isinstance(block, gr.Number))
    raise TypeError(f"there is no check for inputs of type {type(block).__name__}")


def _nothing(value: Any, owns: Owns) -> None:
    if value is not None:
        raise RefusedError(_MALFORMED)


def _upload(value: Any, owns: Owns) -> dict[str, Any] | None:
    if value is None:
        return None
    if not _is_file(value) or not isinstance(value.get("path"), str) or not owns(value["path"]):
        raise RefusedError(NOT_YOURS, 403)
    return {"path": value["path"], "meta": {"_type": "gradio.FileData"}}


def _choice(values: list[Any], label: str) -> Rule:
    def check(value: Any, owns: Owns) -> Any:
        for known in values:
            if type(known) is type(value) and known == value:
                return known
        raise RefusedError(f"{label}: please choose one of the listed values")

    return check


def _number(least: float | None, most: float | None, label: str, optional: bool) -> Rule:
    low = -1e9 if least is None else least
    high = 1e9 if most is None else most

    def check(value: Any, owns: Owns) -> float | None:
        if value is None and optional:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise RefusedError(f"{label}: please enter a number from {low:g} to {high:g}")

    return check


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_file(value: object) -> bool:
    """Whether a value could be taken for Gradio's description of a file."""
    return isinstance(value, dict) and not {"path", "url", "_type", "is_stream"}.isdisjoint(value)


def _check_files(value: Any, owns: Owns) -> None:
    """Refuses files that are not the visitor's own, wherever in a body they are."""
    waiting = [(value, 0)]
    while waiting:
        found, depth = waiting.pop()
        if depth > _DEPTH or (isinstance(found, float) and not math.isfinite(found)):
            raise RefusedError(_MALFORMED, 400)
        if isinstance(found, list):
            waiting += [(item, depth + 1) for item in found]
        elif isinstance(found, dict):
            mark = found == {"_type": "gradio.FileData"}  # inside the description of a file
            if _is_file(found) and not mark:
                path = found.get("path")
                if not isinstance(path, str) or not owns(path):
                    raise RefusedError(NOT_YOURS, 403)
            waiting += [(item, depth + 1) for item in found.values()]


def logged(listener: Callable[..., Any]) -> Callable[..., Any]:
    """The listener, with its errors as one line in the log and one sentence on the page."""

    def fail(error: Exception) -> Exception:
        words = " ".join(str(error).split())[:200]
        log.error("%s failed: %s: %s", listener.__name__, type(error).__name__, words)
        return gr.Error("This did not work; please reload the page.", print_exception=False)

    @functools.wraps(listener)
    def stream(*values: Any) -> Any:
        try:
            yield from listener(*values)
        except Exception as error:
            raise fail(error) from None

    @functools.wraps(listener)
    def call(*values: Any) -> Any:
        try:
            return listener(*values)
        except Exception as error:
            raise fail(error) from None

    return stream if inspect.isgeneratorfunction(listener) else call
