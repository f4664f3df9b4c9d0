"""A canvas to draw or to brush on, by mouse, finger or keyboard.

Gradio's own image editor asks for a graphics card and half a megabyte of script; what is needed
here is a brush.
"""

from __future__ import annotations

from typing import Any

_TEMPLATE = """
<div class="canvas-box">
  <canvas width="${size}" height="${size}" tabindex="0" role="img"
    aria-label="${label} Arrow keys move the brush, space puts it down and lifts it."></canvas>
  <div class="canvas-tools">
    <button type="button" data-do="clear" class="plain">Clear</button>
  </div>
</div>
"""

# The canvas holds black and white alone: what is under it is shown through by blending, and what
# is sent is the strokes. Elements are asked for anew each time, as the template may be redrawn.
_SCRIPT = """
const canvas = () => element.querySelector('canvas');
const context = () => canvas().getContext('2d');
let down = false, last = null, at = null;
const width = () => canvas().width * (+props.brush);
function wipe() {
  const c = canvas();
  if (!c) return;
  context().globalCompositeOperation = 'source-over';
  context().clearRect(0, 0, c.width, c.height);
  c.style.backgroundImage = props.value ? `url(${props.value})` : 'none';
}
function place(e) {
  const c = canvas(), box = c.getBoundingClientRect();
  return [(e.clientX - box.left) * c.width / box.width,
          (e.clientY - box.top) * c.height / box.height];
}
function stroke(from, to) {
  const pen = context();
  pen.lineCap = pen.lineJoin = 'round';
  pen.lineWidth = width();
  pen.strokeStyle = props.ink;
  pen.beginPath();
  pen.moveTo(from[0], from[1]);
  pen.lineTo(to[0] + 0.01, to[1]);
  pen.stroke();
}
function send() {
  const c = canvas(), flat = document.createElement('canvas');
  flat.width = c.width; flat.height = c.height;
  const pen = flat.getContext('2d');
  pen.fillStyle = 'black';
  pen.fillRect(0, 0, flat.width, flat.height);
  // Any ink becomes white: what is sent says where, not in which colour.
  const made = document.createElement('canvas');
  made.width = c.width; made.height = c.height;
  const white = made.getContext('2d');
  white.drawImage(c, 0, 0);
  white.globalCompositeOperation = 'source-in';
  white.fillStyle = 'white';
  white.fillRect(0, 0, made.width, made.height);
  pen.drawImage(made, 0, 0);
  trigger('submit', {png: flat.toDataURL('image/png')});
}
element.addEventListener('pointerdown', e => {
  if (e.target !== canvas()) return;
  e.preventDefault();
  canvas().focus();
  canvas().setPointerCapture(e.pointerId);
  down = true; last = place(e);
  stroke(last, last);
});
element.addEventListener('pointermove', e => {
  if (!down) return;
  const now = place(e);
  stroke(last, now);
  last = now;
});
for (const end of ['pointerup', 'pointercancel'])
  element.addEventListener(end, () => { if (down) { down = false; send(); } });
element.addEventListener('keydown', e => {
  if (e.target !== canvas()) return;
  const c = canvas(), step = c.width / 28;
  const moves = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  at = at || [c.width / 2, c.height / 2];
  if (e.key === ' ') {
    e.preventDefault();
    if (down) { down = false; send(); } else { down = true; stroke(at, at); }
  } else if (moves[e.key]) {
    e.preventDefault();
    const to = [Math.min(c.width, Math.max(0, at[0] + step * moves[e.key][0])),
                Math.min(c.height, Math.max(0, at[1] + step * moves[e.key][1]))];
    if (down) stroke(at, to);
    at = to;
  }
});
element.addEventListener('click', e => {
  if (!e.target.closest('[data-do=clear]')) return;
  wipe();
  trigger('clear');
});
watch('value', wipe);
wipe();
"""


def canvas(label: str, *, elem_id: str, ink: str, brush: float, size: int = 280) -> Any:
    """A canvas whose strokes arrive as `submit` events with a PNG, white where the brush was.

    Args:
        label: What it is for, for screen readers.
        ink: The brush's colour on the screen.
        brush: Its width, as a share of the canvas.
        size: Pixels along a side.
    """
    import gradio as gr

    return gr.HTML(
        "",
        html_template=_TEMPLATE,
        js_on_load=_SCRIPT,
        elem_id=elem_id,
        size=size,
        ink=ink,
        brush=brush,
        label=label,
    )
