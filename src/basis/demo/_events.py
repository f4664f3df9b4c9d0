"""Listeners that are told what was clicked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def with_event(listener: Callable[..., Any]) -> Callable[..., Any]:
    """The listener with Gradio's event as its keyword `event`.

    Gradio passes an event by position to a parameter that is annotated with its class, which is not
    to be loaded before a page is built.
    """
    import gradio as gr

    def told(event: Any, *values: Any) -> Any:
        return listener(*values, event=event)

    told.__annotations__ = {"event": gr.EventData}
    assert "event" in inspect.signature(listener).parameters
    return told
