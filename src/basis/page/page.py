"""The page as a whole."""

from __future__ import annotations

from typing import Any

from basis.errors import BasisError
from basis.page import digits_tab, photos_tab
from basis.page.events import logged
from basis.page.work import Work

_HEAD = """
<h1>Pull apart what was added together</h1>
<p class="lead">Two digits laid over each other, a photo that lost its colour or a piece: choose,
mix, and watch the sources come out of noise. All of it happens on this computer.</p>
"""
_NOUNS = """
<div class="nouns">
<div><b>Prior</b><p>What a source looks like. A network that has seen many digits (or photos) and
never a mixture: shown a noisy picture, it says what could be under the noise.</p></div>
<div><b>Mixing</b><p>How the sources became what you see: each times its weight, added up. A grey
photo and a photo with a hole are mixings too.</p></div>
<div><b>Sampler</b><p>How the sources are looked for. It starts from noise and goes down in noise
level, step by step: as the prior likes it, and always so that the sum fits.</p></div>
</div>
"""


def gradio() -> Any:
    """Gradio, with its telemetry off, or one line on what to install."""
    import os

    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        import gradio as gr
    except ImportError as error:
        raise BasisError("the page needs Gradio: pip install 'basis-separation[page]'") from error
    return gr


def build_page(work: Work) -> Any:
    """The page, a `gradio.Blocks`."""
    gr = gradio()
    with gr.Blocks(
        title="basis: pull apart what was added together",
        analytics_enabled=False,
        delete_cache=(600, 3600),
    ) as page:
        gr.HTML(_HEAD)
        with gr.Accordion("New here? Three words are enough", open=True, elem_id="nouns"):
            gr.HTML(_NOUNS)
        with gr.Tabs():
            with gr.Tab("Digits", id="digits"):
                digits_tab.build(work)
            with gr.Tab("Photos", id="photos"):
                photos_tab.build(work)
    for event in page.fns.values():
        if event.fn is not None:
            event.fn = logged(event.fn)
    page.queue(default_concurrency_limit=None, max_size=64, status_update_rate=1)
    return page
