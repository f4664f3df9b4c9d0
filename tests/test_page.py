"""The page of `basis page` in a real browser, headless.

The Chromium that is found is used, or Playwright's own. With BASIS_SCREENSHOTS set to a folder the
pictures of the docs are written there.
"""

import os
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("gradio")
playwright = pytest.importorskip("playwright.sync_api")

from basis.page.inputs import NOT_YOURS
from basis.page.limits import Limits
from basis.page.server import make_app

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP rebound.example 127.0.0.1",
]
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
LONG = 90_000
"""Milliseconds that a busy machine may take."""


@pytest.fixture(scope="module")
def chromium():
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    with playwright.sync_playwright() as engine:
        try:
            browser = engine.chromium.launch(executable_path=found, args=FLAGS)
        except playwright.Error as error:
            pytest.skip(f"no Chromium to run the page in: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def outside():
    """Addresses beyond this machine that the server tried to reach."""
    tried = []
    connect = socket.socket.connect

    def watched(self, address):
        host = str(address[0]) if isinstance(address, tuple) else ""
        if host and not (host.startswith("127.") or host in ("::1", "localhost")):
            tried.append(address)
        return connect(self, address)

    socket.socket.connect = watched
    yield tried
    socket.socket.connect = connect


@pytest.fixture(scope="module")
def server(tmp_path_factory, outside, chromium):
    """The page with one run at a time and two draws; its address and what visitors share."""
    import uvicorn

    app = make_app(
        Limits(runs=1, draws=2, first_draws=1, megabytes=0.5),
        folder=tmp_path_factory.mktemp("page"),
    )
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    served = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=served.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/", app.state.work
    served.should_exit = True
    thread.join(20)


@pytest.fixture
def visit(chromium, server):
    """Opens the page as another visitor; complains at the end of what the page complained of."""
    contexts, complaints, requests = [], [], []

    def open_page(viewport=None, scheme="light", touch=False):
        context = chromium.new_context(
            viewport=viewport or LAPTOP, color_scheme=scheme, has_touch=touch,
            accept_downloads=True, reduced_motion="reduce",
        )  # fmt: skip
        context.set_default_timeout(LONG)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(server[0])
        page.wait_for_selector("#digits-go")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    away = [u for u in requests if not u.startswith((server[0], "data:", "blob:"))]
    assert away == [], "no request leaves the machine"
    assert len(requests) > 10


def shot(page, name, **options):
    """A picture for the docs, where they are asked for."""
    folder = os.environ.get("BASIS_SCREENSHOTS")
    if not folder:
        return
    path = Path(folder) / f"page-{name}.png"
    page.screenshot(path=path, **options)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(192)
    small.save(path, optimize=True)


def captions(page):
    return page.locator("#digits-equation .term .caption").all_inner_texts()


def pick(page, place):
    before = captions(page)
    page.locator("#digits-shelf button").nth(place).click()
    page.wait_for_function(
        "before => [...document.querySelectorAll('#digits-equation .term .caption')]"
        ".map(c => c.innerText).join() !== before.join()",
        arg=before,
    )


def start(page, tab="digits"):
    """Presses the button and waits for the first state; the seconds that it took."""
    pressed = time.monotonic()
    page.click(f"#{tab}-go")
    page.wait_for_selector(f"#{tab}-live .chain img")
    return time.monotonic() - pressed


def finish(page, tab="digits"):
    page.wait_for_selector(f"#{tab}-status .notice.good, #{tab}-status .notice.bad")
    return page.inner_text(f"#{tab}-status")


def choose(page, tab, words):
    """A method from the list of efforts and samplers."""
    if not page.locator(f"#{tab}-method").is_visible():
        page.get_by_role("button", name="How: prior").locator("visible=true").click()
    page.locator(f"#{tab}-method input").click()
    page.get_by_role("option", name=words).click()


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def test_from_picking_digits_to_taking_sources_home(visit, tmp_path):
    page = visit()
    assert page.get_by_text("What a source looks like").is_visible(), "the nouns are explained"
    shot(page, "start")
    pick(page, 7)
    pick(page, 2)
    assert captions(page)[:2] == ["digit 7", "digit 2"]
    page.get_by_role("button", name="How: prior").locator("visible=true").click()
    page.locator("#digits-draws input[type=number]").fill("2")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="How: prior").locator("visible=true").click()
    first = start(page)
    states = page.locator("#digits-live .chain").count()
    assert states == 2 and page.locator("#digits-live svg").count() == 3
    page.wait_for_timeout(700)
    shot(page, "live", full_page=True)
    said = finish(page)
    print(f"\nfirst change after {first:.1f} s; {said}")
    assert said.startswith("Done in")
    answer = page.inner_text("#digits-answer")
    assert "source 1" in answer and "dB" in answer and "draw 2" in answer
    assert "network evaluations" in answer
    assert "lausible" in answer and "uncertainty" in answer
    shot(page, "separated", full_page=True)

    # Back through the annealing: the first state is all noise.
    slider = page.locator("#digits-scrub input[type=range]")
    last = page.locator("#digits-live .pic img").first.get_attribute("src")
    slider.focus()
    slider.press("Home")
    page.wait_for_function(
        "src => document.querySelector('#digits-live .pic img').src !== src", arg=last
    )
    noise = page.locator("#digits-live figcaption b").first.inner_text()
    assert float(noise) > 0.8

    names = page.locator("#digits-files").inner_text()
    assert "source1" in names and "panel" in names and "run" in names
    for stem in ("source1", "panel", "run"):
        with page.expect_download() as waiting:
            page.locator(f"#digits-files a[download^={stem}]").first.click()
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        assert path.stat().st_size > 100
    with Image.open(tmp_path / "source1.png") as source:
        assert source.size == (28, 28)
    code = page.locator("#digits-python .cm-content").inner_text()
    assert "basis.separate(" in code and 'load_images("sample")' in code
    assert "basis separate mixture.npz" in page.locator("#digits-command").inner_text()

    # Another seed, another draw; and nobody says the weights.
    page.get_by_role("button", name="How: prior").locator("visible=true").click()
    page.locator("#digits-draws input[type=number]").fill("1")
    page.keyboard.press("Tab")
    page.locator("#digits-unknown input").check()
    page.click("#digits-again")
    page.wait_for_selector("#digits-status .notice.busy")
    finish(page)
    answer = page.inner_text("#digits-answer")
    assert "seed 1" in answer and ("weight 0." in answer or "weight 1." in answer)


def drag(page, selector, *points):
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    x, y = box["x"], box["y"]
    page.mouse.move(x + points[0][0] * box["width"], y + points[0][1] * box["height"])
    page.mouse.down()
    for across, down in points[1:]:
        page.mouse.move(x + across * box["width"], y + down * box["height"], steps=4)
    page.mouse.up()


def test_digits_are_drawn_by_mouse_and_by_keyboard(visit):
    page = visit()
    page.get_by_role("tab", name="Draw").click()
    drag(page, "#digits-pad canvas", (0.3, 0.2), (0.7, 0.2), (0.4, 0.8))
    page.wait_for_selector("#digits-equation .caption:text('drawn')")
    url = page.locator("#digits-equation .term img").first.get_attribute("src")
    shot(page, "drawn")
    page.get_by_role("button", name="Clear").locator("visible=true").click()
    canvas = page.locator("#digits-pad canvas")
    canvas.focus()
    page.keyboard.press("Space")
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.wait_for_function(
        "src => document.querySelector('#digits-equation .term img').src !== src", arg=url
    )


def test_all_of_it_goes_by_keyboard(visit):
    page = visit()
    page.locator("#digits-shelf button").nth(9).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#digits-equation .caption:text('digit 9')")
    weight = page.locator("#digits-weight2 input[type=range]")
    weight.focus()
    mixture = page.locator("#digits-equation .sum img").get_attribute("src")
    for _ in range(6):
        page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#digits-equation .weight:text('0.7 ×')")
    assert page.locator("#digits-equation .sum img").get_attribute("src") != mixture
    page.locator("#digits-count input").first.focus()
    page.keyboard.press("Tab")  # Gradio's choices are reached one by one
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelectorAll('#digits-equation button').length === 3")
    assert page.locator("#digits-weight3").is_visible()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.innerText"))
    assert "digits-go" in reached


def test_uploads_good_and_bad(visit, tmp_path):
    page = visit()
    page.get_by_role("tab", name="Upload").locator("visible=true").click()
    paper = np.full((120, 90), 240, dtype=np.uint8)
    paper[20:100, 40:50] = 20
    Image.fromarray(paper).save(tmp_path / "one.jpg")
    page.set_input_files("#digits-upload input[type=file]", tmp_path / "one.jpg")
    page.wait_for_selector("#digits-equation .caption:text('uploaded')")

    (tmp_path / "letter.png").write_text("no picture at all")
    frames = [Image.new("L", (32, 32), 90 * i) for i in range(3)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    noise = np.random.default_rng(0).integers(0, 255, (600, 600, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "huge.png")
    for name, words in (
        ("letter.png", "Letter.png is not a picture that can be read"),
        ("moving.gif", "Moving.gif is animated (3 frames)"),
        ("huge.png", "Huge.png has 1.1 MB; up to 0.5 MB"),
    ):
        page.locator("#digits-upload button[aria-label=Clear]").click()
        page.wait_for_selector("#digits-upload input[type=file]", state="attached")
        page.set_input_files("#digits-upload input[type=file]", tmp_path / name)
        page.wait_for_function(
            "words => (document.querySelector('#digits-equation .told')?.innerText || '')"
            ".toLowerCase().includes(words.toLowerCase())",
            arg=words,
        )
    assert captions(page)[0] == "uploaded", "what was there before stays"
    shot(page, "refused")


ATTACK = """async paths => {
    const config = await (await fetch('/config')).json();
    const kinds = Object.fromEntries(config.components.map(c => [c.id, c]));
    const answers = [];
    for (const event of config.dependencies.filter(e => e.backend_fn)) {
        const values = event.inputs.map(i =>
            ['state', 'file'].includes(kinds[i].type) ? null : kinds[i].props.value);
        const route = '/gradio_api/' + (event.queue ? 'queue/join' : 'run/predict');
        const send = (data, details) => fetch(route, {
            method: 'POST',
            headers: {'Content-Type': 'application/json'},
            body: JSON.stringify({
                data: data, event_data: details, fn_index: event.id,
                trigger_id: event.targets[0][0], session_hash: 'attack0',
            }),
        });
        for (const path of paths) {
            const file = {path: path, meta: {_type: 'gradio.FileData'}};
            const asked = values.map((_, i) => send(values.with(i, file), {index: 0}));
            asked.push(send(values, {index: 0, png: file}));
            for (const answer of await Promise.all(asked))
                answers.push([answer.status, (await answer.json()).detail]);
        }
    }
    for (const path of paths) {
        const answer = await fetch('/gradio_api/file=' + encodeURIComponent(path));
        answers.push([answer.status, (await answer.json()).detail]);
    }
    return answers;
}"""
"""Names every path as a file in every argument and the details of every event; all answers."""


def test_scripts_of_a_visitor_cannot_name_a_file(visit, tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (40, 40), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "one.png")
    private = tmp_path / "private.png"
    Image.fromarray(noise.T).save(private)
    (tmp_path / "link.png").symlink_to(private)
    other = visit()
    other.get_by_role("tab", name="Upload").locator("visible=true").click()
    with other.expect_response("**/gradio_api/upload?*") as sent:
        other.set_input_files("#digits-upload input[type=file]", tmp_path / "one.png")
    theirs = sent.value.json()[0]
    other.wait_for_selector("#digits-equation .caption:text('uploaded')")
    paths = [str(private), str(tmp_path / "link.png"), theirs, "/dev/zero"]
    page = visit()
    opened, watching = [], [True]
    sys.addaudithook(
        lambda name, values: opened.append(str(values[0])) if watching and name == "open" else None
    )
    answers = page.evaluate(ATTACK, paths)
    watching.clear()
    assert len(answers) > 500
    assert {tuple(answer) for answer in answers} == {(403, NOT_YOURS)}
    assert not set(opened) & set(paths)
    assert page.locator("#digits-go").is_enabled()


def test_another_name_for_this_computer_does_not_show_the_page(chromium, server):
    """A site may point its own name at 127.0.0.1; its scripts then have the page's origin."""
    port = server[0].rstrip("/").rpartition(":")[2]
    with chromium.new_context() as context:
        page = context.new_page()
        answer = page.goto(f"http://rebound.example:{port}/")
        assert answer.status == 421 and "digits-go" not in page.content()
        for address in (f"http://rebound.example:{port}/config", f"{server[0]}config"):
            got = page.evaluate(
                "address => fetch(address).then(answer => answer.status, () => 'nothing')", address
            )
            assert got in (421, "nothing")


def test_stop_frees_the_cores(visit, server):
    page = visit()
    choose(page, "digits", "the paper's")
    start(page)
    assert server[1].line.counts() == (1, 0)
    page.click("#digits-stop")
    pressed = time.monotonic()
    said = finish(page)
    assert "Stopped after" in said and time.monotonic() - pressed < 15
    assert server[1].line.counts() == (0, 0)
    assert not [t for t in threading.enumerate() if t.name == "separation"]
    assert page.locator("#digits-go").is_enabled()


def test_two_visitors_each_get_their_own(visit, server):
    one, two = visit(), visit()
    pick(one, 4)
    pick(two, 8)
    choose(one, "digits", "the paper's")
    start(one)
    two.click("#digits-go")
    two.wait_for_selector("#digits-status :text('number 1')")
    assert "in line" in two.inner_text("#digits-status")
    shot(two, "line")
    one.click("#digits-stop")
    choose(one, "digits", "fast")
    one.wait_for_selector("#digits-go:not([disabled])")
    one.click("#digits-go")
    assert finish(two).startswith("Done") and finish(one).startswith("Done")
    codes = [page.locator("#digits-python .cm-content").inner_text() for page in (one, two)]
    assert codes[0] != codes[1]
    truths = [
        page.locator("#digits-answer .pair .small img").first.get_attribute("src")
        for page in (one, two)
    ]
    chosen = [page.locator("#digits-equation .term img").first.get_attribute("src")
              for page in (one, two)]  # fmt: skip
    assert truths == chosen and truths[0] != truths[1]


def test_a_visitor_who_leaves_frees_the_cores(visit, server):
    page = visit()
    choose(page, "digits", "the paper's")
    start(page)
    page.context.close()
    deadline = time.monotonic() + 60
    while server[1].line.counts() != (0, 0):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_photo_is_filled_in_by_brush_at_phone_width_in_the_dark(visit):
    page = visit(PHONE, "dark", touch=True)
    assert overflow(page) <= 0
    shot(page, "phone")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(v) for v in background[4:-1].split(",")[:3]) < 80, "it is dark"
    page.get_by_role("tab", name="Photos").click()
    page.get_by_label("Fill in a hole").check()
    page.wait_for_selector("#photos-pad canvas")
    page.click("#photos-go")
    said = finish(page, "photos")
    assert "othing is brushed over yet" in said
    drag(page, "#photos-pad canvas", (0.3, 0.3), (0.6, 0.45))
    page.wait_for_timeout(500)
    start(page, "photos")
    assert finish(page, "photos").startswith("Done")
    assert page.locator("#photos-answer .large img").count() == 1
    assert overflow(page) <= 0
    page.locator("#photos-answer").scroll_into_view_if_needed()
    shot(page, "inpaint")


def test_two_ways_are_compared(visit):
    page = visit()
    page.get_by_role("button", name="Compare two ways").locator("visible=true").click()
    page.click("#digits-compare")
    page.wait_for_function(
        "document.querySelectorAll('#digits-compared td').length === 8", timeout=LONG
    )
    words = page.inner_text("#digits-compared")
    assert "effort fast" in words and "sampler gibbs" in words and "PSNR" in words
    page.locator("#digits-compared").scroll_into_view_if_needed()
    shot(page, "compared")


def test_the_server_reaches_for_nothing_outside(visit, outside):
    visit()
    assert outside == []
