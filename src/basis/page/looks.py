"""How the page looks: system fonts, colours of Gradio's theme in light and dark, any width."""

from __future__ import annotations

from typing import Any

CSS = """
.gradio-container { max-width: 1240px !important; margin: 0 auto !important; }
.gradio-container h1 { font-size: 1.7rem; margin: 0.2rem 0 0; }
.gradio-container h2 { font-size: 1.1rem; margin: 0; }
.gradio-container .html-container { padding: 2px 4px; }
.actions { flex-wrap: nowrap !important; }
.actions button { min-width: 0 !important; }
.gradio-container h3 { font-size: 1rem; margin: 0 0 0.2rem; }
.hint, .cost, .caption, .told { font-size: 0.85rem; color: var(--body-text-color-subdued); }
.hint { margin: 0.1rem 0 0.5rem; }
.told { color: var(--error-text-color, #b91c1c); font-weight: 600; margin: 0.3rem 0; }
.nouns { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 0.8rem; }
.nouns > div { border: 1px solid var(--border-color-primary); border-radius: 10px;
  padding: 0.7rem 0.9rem; background: var(--background-fill-secondary); }
.nouns b { color: var(--color-accent); }
.nouns p { margin: 0.2rem 0 0; font-size: 0.9rem; }
.lead { margin: 0.2rem 0 0.8rem; }
.shelf { display: grid; grid-template-columns: repeat(10, 1fr); gap: 5px; }
.shelf button, .equation button { padding: 0; border: 2px solid transparent; border-radius: 8px;
  background: none; cursor: pointer; line-height: 0; overflow: hidden; }
.shelf img { width: 100%; border-radius: 6px; image-rendering: pixelated; }
.shelf button:hover, .equation button:hover { border-color: var(--color-accent); }
button:focus-visible, canvas:focus-visible { outline: 3px solid var(--color-accent);
  outline-offset: 2px; }
.equation { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0.4rem 0.5rem; }
.equation .term { display: flex; flex-direction: column; align-items: center; gap: 2px; }
.equation img { width: 84px; height: 84px; image-rendering: pixelated; border-radius: 6px; }
.equation .sum img { border: 2px solid var(--border-color-primary); }
.equation button[aria-pressed=true] { border-color: var(--color-accent); }
.equation .weight { font-variant-numeric: tabular-nums; font-size: 0.9rem; }
.equation .caption { max-width: 100px; text-align: center; line-height: 1.15; }
.equation .sign { font-size: 1.4rem; margin-top: 46px; color: var(--body-text-color-subdued); }
.notice { border-radius: 8px; padding: 0.55rem 0.8rem; margin: 0.2rem 0;
  border-left: 4px solid var(--color-accent); background: var(--background-fill-secondary); }
.notice.bad { border-color: #dc2626; }
.notice.good { border-color: #16a34a; }
.notice.busy { border-color: #d97706; }
.notice.doubt { border-color: #d97706; }
.part { margin: 0.9rem 0; }
.pics { display: flex; flex-wrap: wrap; gap: 8px; }
.pics.tight { gap: 4px; flex-wrap: nowrap; }
.pic { margin: 0; }
.pic img { width: 100%; image-rendering: pixelated; border-radius: 6px; display: block; }
.pic.smooth img { image-rendering: auto; }
.pic figcaption { font-size: 0.8rem; color: var(--body-text-color-subdued); text-align: center; }
.pics.found .pair { width: 132px; }
.pics.found .small figcaption { white-space: nowrap; }
.pics.found .small { width: 66px; margin: 6px auto 0; }
.pics.large .pic { width: clamp(140px, 30%, 260px); }
.pics.seen .pic { width: 130px; }
.pics.tight .pic { flex: 1 1 0; min-width: 0; }
.chains { display: grid; gap: 10px; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); }
.chain { border: 1px solid var(--border-color-primary); border-radius: 10px; padding: 7px;
  background: var(--background-fill-secondary); display: grid; gap: 4px; align-content: start; }
.chain-name { font-size: 0.78rem; color: var(--body-text-color-subdued); }
.compared { grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); }
.compared table { font-size: 0.85rem; width: 100%; }
.compared th, .compared td { border: 0 !important; padding: 2px 4px !important; }
.compared th { text-align: left; font-weight: 400; color: var(--body-text-color-subdued); }
.compared td { text-align: right; font-variant-numeric: tabular-nums; }
.curves { display: grid; gap: 8px; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr));
  margin-top: 10px; }
.curve { margin: 0; }
.curve figcaption { font-size: 0.8rem; color: var(--body-text-color-subdued); }
.curve svg { width: 100%; height: auto; }
.curve polyline { fill: none; stroke: var(--color-accent); stroke-width: 2; }
.curve circle { fill: var(--color-accent); }
.curve .axis { fill: none; stroke: var(--border-color-primary); }
.curve text { font-size: 9px; fill: var(--body-text-color-subdued); }
.canvas-box { display: flex; flex-direction: column; align-items: center; gap: 6px; }
.canvas-box canvas { width: min(280px, 100%); aspect-ratio: 1; background-color: black;
  border-radius: 10px; touch-action: none; cursor: crosshair; background-size: 100% 100%;
  image-rendering: pixelated; }
.plain { border: 1px solid var(--border-color-primary); border-radius: 8px; padding: 3px 14px;
  background: var(--background-fill-primary); color: var(--body-text-color); cursor: pointer; }
.alternatives { display: grid; gap: 4px; }
footer { display: none !important; }
@media (max-width: 640px) {
  .equation img { width: 62px; height: 62px; }
  .equation .sign { margin-top: 38px; }
  .gradio-container { padding: 8px !important; }
}
"""


def theme() -> Any:
    """Gradio's plain theme with the system's own fonts, so that none is fetched."""
    import gradio as gr

    return gr.themes.Default(
        primary_hue="indigo",
        secondary_hue="indigo",
        neutral_hue="slate",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )
