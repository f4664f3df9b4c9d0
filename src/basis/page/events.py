"""Listeners of the page's events."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger("basis.page")


def with_event(listener: Callable[..., Any], wants: str) -> Callable[..., Any]:
    """The listener with Gradio's event as its keyword `event`.

    Gradio passes an event by position to a parameter that is annotated with its class, which is not
    to be loaded before a page is built.

    Args:
        listener: Takes the keyword `event`.
        wants: The field of the event that it reads, `index` or `png`; requests without are refused.
    """
    import gradio as gr

    def told(event: Any, *values: Any) -> Any:
        return listener(*values, event=event)

    told.__annotations__ = {"event": gr.EventData}
    told.wants = wants  # type: ignore[attr-defined]
    assert "event" in inspect.signature(listener).parameters
    return told


def logged(listener: Callable[..., Any]) -> Callable[..., Any]:
    """The listener, with errors as one line in the log and one sentence on the page."""
    import gradio as gr

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
