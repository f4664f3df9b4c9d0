"""Pictures and results as HTML that needs no other files, and the style of the page."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from basis import metrics
from basis.mixings.matrix import mixture
from basis.page.images import Picture
from basis.page.task import Frame, Run, pixels
from basis.result import Result

_BRIGHTEST_STD = 0.5

CSS = """
.gradio-container { max-width: 1240px !important; margin: 0 auto !important; }
.gradio-container h1 { font-size: 1.7rem; margin: 0.2rem 0 0; }
.gradio-container h2 { font-size: 1.1rem; margin: 0; }
.gradio-container h3 { font-size: 1rem; margin: 0 0 0.2rem; }
.gradio-container .html-container { padding: 2px 4px; }
.hint, .caption, .pic figcaption { font-size: 0.83rem; color: var(--body-text-color-subdued); }
.hint { margin: 0.1rem 0 0.5rem; }
.samples { display: grid; grid-template-columns: repeat(10, 1fr); gap: 5px; }
.samples button, .equation button { padding: 0; border: 2px solid transparent; line-height: 0;
  border-radius: 8px; background: none; cursor: pointer; overflow: hidden; }
.samples img { width: 100%; border-radius: 6px; image-rendering: pixelated; }
.samples button:hover, .equation button:hover, .equation button[aria-pressed=true] {
  border-color: var(--color-accent); }
button:focus-visible, canvas:focus-visible { outline: 3px solid var(--color-accent);
  outline-offset: 2px; }
.equation { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0.4rem 0.5rem; }
.equation .term { display: flex; flex-direction: column; align-items: center; gap: 2px; }
.equation img { width: 84px; height: 84px; image-rendering: pixelated; border-radius: 6px; }
.equation .alpha { font-variant-numeric: tabular-nums; font-size: 0.9rem; }
.equation .caption { max-width: 100px; text-align: center; line-height: 1.15; }
.equation .sign { font-size: 1.4rem; margin-top: 46px; color: var(--body-text-color-subdued); }
.notice { border-radius: 8px; padding: 0.55rem 0.8rem; margin: 0.2rem 0;
  border-left: 4px solid var(--color-accent); background: var(--background-fill-secondary); }
.notice.bad { border-color: #dc2626; }
.notice.good { border-color: #16a34a; }
.notice.busy { border-color: #d97706; }
.part { margin: 0.9rem 0; }
.pics { display: flex; flex-wrap: wrap; gap: 8px; }
.pic { margin: 0; text-align: center; width: 132px; }
.pic img { width: 100%; image-rendering: pixelated; border-radius: 6px; display: block; }
.pic.smooth img { image-rendering: auto; }
.pic.small { width: 66px; margin: 6px auto 0; }
.pics.large .pic { width: clamp(140px, 30%, 260px); }
.cards { display: grid; gap: 10px; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); }
.card { border: 1px solid var(--border-color-primary); border-radius: 10px; padding: 7px;
  background: var(--background-fill-secondary); display: grid; gap: 4px; align-content: start; }
.card > * { min-width: 0; }
.card .pics { gap: 4px; flex-wrap: nowrap; }
.card .pic { flex: 1 1 0; min-width: 0; }
.compared { grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); }
.canvas-box { display: flex; flex-direction: column; align-items: center; gap: 6px; }
.canvas-box canvas { width: min(280px, 100%); aspect-ratio: 1; background: black;
  background-size: 100% 100%; border-radius: 10px; touch-action: none; cursor: crosshair;
  image-rendering: pixelated; }
.canvas-box button { border: 1px solid var(--border-color-primary); border-radius: 8px;
  padding: 3px 14px; background: var(--background-fill-primary); color: var(--body-text-color); }
footer { display: none !important; }
@media (max-width: 640px) {
  .equation img { width: 62px; height: 62px; }
  .equation .sign { margin-top: 38px; }
  .gradio-container { padding: 8px !important; }
}
"""


CLICK_JS = """
element.addEventListener('click', e => {
  const button = e.target.closest('button[data-index]');
  if (button) trigger('click', {index: +button.dataset.index});
});
"""
"""Reports which button of a block of HTML was clicked."""

CANVAS_HTML = """
<div class="canvas-box">
  <canvas width="${size}" height="${size}" tabindex="0" role="img"
    aria-label="${label} Arrow keys move the brush, space lowers and lifts it."></canvas>
  <button type="button">Clear</button>
</div>
"""
# The canvas holds the strokes only; a photo is its background. Elements are looked up each time,
# because the template may be rendered again.
CANVAS_JS = """
const canvas = () => element.querySelector('canvas');
let down = false, at = null;
function clear() {
  const c = canvas();
  if (!c) return;
  c.getContext('2d').clearRect(0, 0, c.width, c.height);
  c.style.backgroundImage = props.value ? `url(${props.value})` : 'none';
}
function stroke(to) {
  const c = canvas(), pen = c.getContext('2d');
  pen.lineCap = pen.lineJoin = 'round';
  pen.lineWidth = c.width * props.brush;
  pen.strokeStyle = props.ink;
  pen.beginPath();
  pen.moveTo(at[0], at[1]);
  pen.lineTo(to[0] + 0.01, to[1]);
  pen.stroke();
  at = to;
}
function lift() {
  if (down) trigger('submit', {png: canvas().toDataURL('image/png')});
  down = false;
}
function position(e) {
  const c = canvas(), box = c.getBoundingClientRect();
  return [(e.clientX - box.left) * c.width / box.width,
          (e.clientY - box.top) * c.height / box.height];
}
element.addEventListener('pointerdown', e => {
  if (e.target !== canvas()) return;
  e.preventDefault();
  canvas().focus();
  canvas().setPointerCapture(e.pointerId);
  down = true;
  at = position(e);
  stroke(at);
});
element.addEventListener('pointermove', e => { if (down) stroke(position(e)); });
element.addEventListener('pointerup', lift);
element.addEventListener('pointercancel', lift);
element.addEventListener('keydown', e => {
  const c = canvas();
  if (e.target !== c) return;
  const move = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[e.key];
  at = at || [c.width / 2, c.height / 2];
  if (e.key === ' ') {
    if (down) lift(); else { down = true; stroke(at); }
  } else if (move) {
    const to = at.map((v, i) => Math.min(c.width, Math.max(0, v + move[i] * c.width / 28)));
    if (down) stroke(to); else at = to;
  } else return;
  e.preventDefault();
});
element.addEventListener('click', e => {
  if (!e.target.closest('button')) return;
  clear();
  trigger('clear');
});
watch('value', clear);
clear();
"""


def picture_url(image: Tensor) -> str:
    """A picture, (1 or 3, height, width), uint8 or in [0, 1], as a data URL."""
    values = image if image.dtype == torch.uint8 else pixels(image)
    array = values[0] if len(values) == 1 else values.movedim(0, -1).contiguous()
    file = io.BytesIO()
    Image.fromarray(array.numpy()).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def picture(image: Tensor, alt: str, caption: str = "", kind: str = "") -> str:
    """A picture with a caption below. Small ones are enlarged pixel by pixel, photos smoothly."""
    smooth = " smooth" if max(image.shape[1:]) > 96 else ""
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure class="pic {kind}{smooth}"><img src="{picture_url(image)}" '
        f'alt="{html.escape(alt, quote=True)}">{words}</figure>'
    )


def sentence(error: object) -> str:
    """An error as a sentence of the page."""
    text = str(error)
    return html.escape(text[:1].upper() + text[1:])


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 1.5:
        return "a second"
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def notice(words: str, kind: str = "info") -> str:
    """A status line, which screen readers read when it changes; kind: info, busy, bad, good."""
    return f'<div class="notice {kind}" role="status" aria-live="polite">{words}</div>'


def _section(title: str, body: str, words: str = "") -> str:
    hint = f'<p class="hint">{words}</p>' if words else ""
    return f'<section class="part"><h3>{title}</h3>{hint}{body}</section>'


def _card(words: str, *rows: Tensor, below: str = "") -> str:
    """A title and rows of sources, each (sources, channels, height, width)."""
    shown = "".join(
        f'<div class="pics">{"".join(picture(x, f"{words}, source {i}") for i, x in row)}</div>'
        for row in (enumerate(sources, start=1) for sources in rows)
    )
    return f'<div class="card"><span class="caption">{words}</span>{shown}{below}</div>'


def samples_view(pictures: Sequence[Picture]) -> str:
    """Pictures to choose from, each a button."""
    buttons = [
        f'<button type="button" data-index="{i}" title="{html.escape(p.label)}" '
        f'aria-label="{html.escape(p.label)}"><img src="{picture_url(p.image)}" alt=""></button>'
        for i, p in enumerate(pictures)
    ]
    return f'<div class="samples">{"".join(buttons)}</div>'


def equation_view(pictures: Sequence[Picture], alphas: Sequence[float], active: int) -> str:
    """The sum of the pictures. Each is a button that makes it the one that is replaced next."""
    observation = mixture(tuple(alphas))(torch.stack([p.image for p in pictures])[None])[0]
    highest = observation.max().item()
    terms = []
    for i, (alpha, chosen) in enumerate(zip(alphas, pictures, strict=True)):
        words = html.escape(f"source {i + 1}: {chosen.label}")
        terms.append(
            f'<div class="term"><span class="alpha">{alpha:g} ×</span><button type="button" '
            f'data-index="{i}" aria-pressed="{str(i == active).lower()}" aria-label="{words}; '
            f'choose another"><img src="{picture_url(chosen.image)}" alt="{words}"></button>'
            f'<span class="caption">{html.escape(chosen.label)}</span></div>'
        )
    plus, equals = (f'<span class="sign" aria-hidden="true">{sign}</span>' for sign in "+=")
    total = (
        '<div class="term sum"><span class="alpha">the mixture</span>'
        f'<img src="{picture_url(observation / max(1.0, highest))}" alt="the mixture">'
        f'<span class="caption">maximum {highest:.2f}</span></div>'
    )
    return f'<div class="equation">{plus.join(terms)}{equals}{total}</div>'


def frame_view(frames: Sequence[Frame]) -> str:
    """The chains of the last frame, and below each the prior's estimate."""
    if not frames:
        return ""
    frame = frames[-1]
    cards = [
        _card(f"chain {i}", states, clean)
        for i, (states, clean) in enumerate(zip(frame.states, frame.clean, strict=True), start=1)
    ]
    words = (
        f"Step {frame.step} of {frame.steps}, noise level {frame.sigma:.2g}. "
        "Above: the noisy sources. Below: the prior's estimate of the clean ones."
    )
    return f'<div class="cards">{"".join(cards)}</div><p class="hint">{words}</p>'


def result_view(run: Run) -> str:
    """The result of a run: the sources, a summary, samples and their uncertainty."""
    task, result = run.task, run.result
    if result is None:
        return ""
    parts = []
    if task.kind == "separate":
        parts.append(_sources(result))
    else:
        found = result.sources if result.samples is None else result.samples[0]
        shown = [picture(x[0], f"result {i}") for i, x in enumerate(found, start=1)]
        parts.append(_section("Result", f'<div class="pics large">{"".join(shown)}</div>'))
    parts.append(notice("<br>".join(html.escape(line) for line in str(result).splitlines())))
    if result.std is not None:
        parts.append(_uncertainty(result, task.kind == "separate"))
    return "".join(parts)


def _sources(result: Result) -> str:
    assert result.alphas is not None
    found, alphas = result.sources[0], result.alphas[0].tolist()
    columns = []
    for i, (x, alpha) in enumerate(zip(found, alphas, strict=True), start=1):
        words, below = f"source {i}, alpha {alpha:.2f}", ""
        if result.truth is not None:
            y = result.truth[0, i - 1]
            words += f", {metrics.psnr(x[None, None], y[None, None]).item():.1f} dB"
            below = picture(y, f"true source {i}", f"true source {i}", "small")
        columns.append(picture(x, f"separated source {i}", words) + below)
    observation = result.observation[0]
    highest = max(1.0, observation.max().item())
    mixed = picture(mixture(alphas)(found[None])[0] / highest, "mixed again", "mixed again")
    below = picture(observation / highest, "the mixture", "the mixture", "small")
    body = "".join(f"<div>{column}</div>" for column in (*columns, mixed + below))
    words = ""
    if result.truth is not None:
        words = "Above: what was found. Below: the true sources, which the separation did not use."
    return _section("Sources", f'<div class="pics">{body}</div>', words)


def _uncertainty(result: Result, with_samples: bool) -> str:
    """The posterior samples, their mean and standard deviation, and the modes."""
    assert result.samples is not None and result.mean is not None
    assert result.std is not None and result.modes is not None
    modes = result.modes[0]
    heat = (result.std[0].mean(dim=1, keepdim=True) / _BRIGHTEST_STD).clamp(0, 1) * 3
    colors = torch.cat([heat, heat - 1, heat - 2], dim=1).clamp(0, 1)  # black, red, yellow, white
    cards = [_card(f"sample {i}", x) for i, x in enumerate(result.samples[0], start=1)]
    cards = cards if with_samples else []
    cards += [_card("mean", result.mean[0]), _card("standard deviation", colors)]
    words = "All samples agree: the posterior has one mode."
    if len(modes) > 1:
        words = f"The observation is ambiguous: the samples have {len(modes)} modes."
        cards += [
            _card(f"mode {i}, {mode.weight:.0%} of the samples", mode.sources)
            for i, mode in enumerate(modes, start=1)
        ]
    return _section("Uncertainty", f'<div class="cards">{"".join(cards)}</div>', words)


def comparison_view(runs: Sequence[Run]) -> str:
    """The results of several runs side by side, with what they cost."""
    columns = []
    for run in runs:
        result = run.result
        assert result is not None
        facts = [
            f"{result.evaluations:,} network evaluations, {result.seconds:.1f} s",
            f"residual {255 * result.residual[0].item():.2f} of 255",
        ]
        if result.truth is not None:
            facts.append(f"PSNR {metrics.psnr(result.sources, result.truth).item():.1f} dB")
        below = f'<span class="caption">{"<br>".join(facts)}</span>'
        columns.append(_card(str(run.task), result.sources[0], below=below))
    return f'<div class="cards compared">{"".join(columns)}</div>' if runs else ""
