"""The page in headless Chromium.

With BASIS_SCREENSHOTS set to a folder, the pictures of the documentation are written there.
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

import basis  # noqa: E402
from basis.page.events import NOT_YOURS  # noqa: E402

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
LONG = 180_000
"""Milliseconds that a busy machine may take."""


@pytest.fixture(scope="module")
def chromium():
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    with playwright.sync_playwright() as engine:
        try:
            browser = engine.chromium.launch(executable_path=found, args=FLAGS, timeout=LONG)
        except playwright.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def outside():
    """Addresses beyond this computer that the server tried to reach."""
    tried, connect = [], socket.socket.connect

    def watched(self, address):
        host = str(address[0]) if isinstance(address, tuple) else ""
        if host and not (host.startswith("127.") or host in ("::1", "localhost")):
            tried.append(address)
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", watched)
        yield tried


@pytest.fixture(scope="module")
def address(start_page, outside, chromium):
    return start_page(megabytes=0.5)[0] + "/"


@pytest.fixture
def visit(chromium, address, outside):
    """Opens the page as another visitor; at the end no script has failed or left the page."""
    contexts, errors, requests = [], [], []

    def open_page(viewport=LAPTOP, scheme="light", touch=False):
        context = chromium.new_context(
            viewport=viewport, color_scheme=scheme, has_touch=touch, reduced_motion="reduce"
        )
        context.set_default_timeout(LONG)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("#digits-go")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == [] and outside == []
    assert [u for u in requests if not u.startswith((address, "data:", "blob:"))] == []
    wait_for_idle()


def wait_for_idle():
    """Waits until no separation is running, so that tests do not slow down each other."""
    deadline = time.monotonic() + LONG / 1000
    while [t for t in threading.enumerate() if t.name == "separation"]:
        assert time.monotonic() < deadline, "a separation goes on without a visitor"
        time.sleep(0.05)


def shot(page, name, **options):
    """A picture for the documentation."""
    if folder := os.environ.get("BASIS_SCREENSHOTS"):
        path = Path(folder) / f"page-{name}.png"
        page.screenshot(path=path, **options)
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(192)
        small.save(path, optimize=True)


def caption(page, words):
    page.wait_for_selector(f"#digits-equation .caption:text('{words}')")


def source(page):
    return page.locator("#digits-equation .term img").first.get_attribute("src")


def start(page, tab="digits"):
    """Presses the button and waits for the first frame."""
    page.click(f"#{tab}-go")
    page.wait_for_selector(f"#{tab}-live .card img")


def finish(page, tab="digits"):
    page.wait_for_selector(f"#{tab}-status .notice.good, #{tab}-status .notice.bad")
    return page.inner_text(f"#{tab}-status")


def choose_slow_method(page):
    """A separation of photos that takes minutes."""
    page.get_by_role("tab", name="Photos").click()
    page.locator("#photos-size").get_by_label("64", exact=True).check()
    page.get_by_role("button", name="Method, prior").locator("visible=true").click()
    page.locator("#photos-method input").click()
    page.get_by_role("option", name="1,000 steps").locator("visible=true").click()


def drag(page, selector, *points):
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()


def test_digits_are_picked_separated_and_downloaded(visit, tmp_path):
    page = visit()
    page.locator("#digits-samples button").nth(7).click()
    caption(page, "digit 7")
    shot(page, "start")
    start(page)
    shot(page, "live", full_page=True)
    assert finish(page).startswith("Done in")
    result = page.inner_text("#digits-result")
    for words in ("source 1", "dB", "sample 2", "standard deviation", "evaluations", "plausib"):
        assert words in result
    page.wait_for_selector("#digits-files a")
    shot(page, "separated", full_page=True)

    last = page.locator("#digits-live img").first.get_attribute("src")
    slider = page.locator("#digits-frame input[type=range]")
    slider.focus()
    slider.press("Home")
    page.wait_for_function(
        "src => document.querySelector('#digits-live img').src !== src", arg=last
    )
    for stem in ("01-source1", "panel", "run", "mixture"):
        with page.expect_download() as waiting:
            page.locator(f"#digits-files a[download^='{stem}']").first.click()
        waiting.value.save_as(tmp_path / waiting.value.suggested_filename)
    with Image.open(tmp_path / "01-source1.png") as picture:
        assert picture.size == (28, 28)
    file = page.locator("#digits-files a").first.get_attribute("href")
    status = "file => fetch(file).then(answer => answer.status)"
    assert page.evaluate(status, file) == 200 and visit().evaluate(status, file) == 403
    codes = page.locator(".cm-content").locator("visible=true").all_inner_texts()
    assert "basis.separate(" in codes[0] and codes[1].startswith("basis separate mixture.npz")


def test_digits_are_drawn_by_mouse_and_by_keyboard(visit):
    page = visit()
    page.get_by_role("tab", name="Draw").click()
    drag(page, "#digits-pad canvas", (0.3, 0.2), (0.7, 0.2), (0.4, 0.8))
    caption(page, "drawn")
    drawn = source(page)
    page.get_by_role("button", name="Clear").locator("visible=true").click()
    page.locator("#digits-pad canvas").focus()
    for key in ("Space", *["ArrowDown"] * 6, "Space"):
        page.keyboard.press(key)
    page.wait_for_function(
        "src => document.querySelector('#digits-equation .term img').src !== src", arg=drawn
    )
    slider = page.locator("#digits-alpha2 input[type=range]")
    slider.focus()
    slider.press("ArrowLeft")
    page.wait_for_selector("#digits-equation .alpha:text('0.95 ×')")
    page.locator("#digits-count input").nth(1).check()
    page.wait_for_function("document.querySelectorAll('#digits-equation button').length === 3")
    assert page.locator("#digits-alpha3").is_visible()


def test_uploads_are_read_or_refused(visit, tmp_path):
    page = visit()
    page.get_by_role("tab", name="Upload").locator("visible=true").click()
    paper = np.full((120, 90), 240, dtype=np.uint8)
    paper[20:100, 40:50] = 20
    Image.fromarray(paper).save(tmp_path / "one.jpg")
    page.set_input_files("#digits-upload input[type=file]", tmp_path / "one.jpg")
    caption(page, "uploaded")
    noise = np.random.default_rng(0).integers(0, 255, (600, 600, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "huge.png")
    page.locator("#digits-upload button[aria-label=Clear]").click()
    page.wait_for_selector("#digits-upload input[type=file]", state="attached")
    page.set_input_files("#digits-upload input[type=file]", tmp_path / "huge.png")
    page.wait_for_selector("#digits-equation .notice.bad:text('1.1 MB')")
    caption(page, "uploaded")  # the earlier picture is kept


def test_a_mixture_of_a_visitor_is_separated_until_it_changes(visit, tmp_path):
    page = visit()
    basis.mix(["sample:3", "sample:18"], (0.5, 0.5)).save(tmp_path / "one.png")
    page.get_by_label("Separate a mixture of mine").check()
    page.wait_for_selector("#digits-own input[type=file]", state="attached")
    page.set_input_files("#digits-own input[type=file]", tmp_path / "one.png")
    page.wait_for_selector("#digits-equation img")
    page.wait_for_selector("#digits-status :text('It takes about')")
    start(page)
    assert finish(page).startswith("Done")
    assert "source 2" in page.inner_text("#digits-result")
    shot(page, "mine", full_page=True)
    page.locator("#digits-count input").nth(1).check()
    page.wait_for_selector("#digits-status :text('It takes about')")
    page.wait_for_function("document.querySelector('#digits-result').innerText.trim() === ''")
    assert not page.locator("#digits-files").is_visible()


def test_visitors_wait_stop_and_leave(visit):
    one, two = visit(), visit()
    choose_slow_method(one)
    start(one, "photos")
    two.locator("#digits-samples button").nth(8).click()
    caption(two, "digit 8")
    assert "digit 8" not in one.locator("#digits-equation").inner_html()
    two.click("#digits-go")
    two.wait_for_selector("#digits-status :text('queue: 1/1')")
    shot(two, "queue")
    two.click("#digits-stop")  # leaves the queue
    two.wait_for_selector("#digits-status :text('Stopped.')")
    one.click("#photos-stop")
    one.wait_for_selector("#photos-status :text('Stopped after')")
    wait_for_idle()
    start(one, "photos")
    two.click("#digits-go")
    one.context.close()  # frees the computer for the next visitor
    assert finish(two).startswith("Done")


def test_a_photo_is_filled_in_on_a_dark_phone(visit):
    page = visit(PHONE, "dark", touch=True)
    overflow = "document.documentElement.scrollWidth - window.innerWidth"
    assert page.evaluate(overflow) <= 0
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(v) for v in background[4:-1].split(",")[:3]) < 80, "it is dark"
    page.get_by_role("tab", name="Photos").click()
    page.get_by_label("Fill in a part").check()
    page.wait_for_selector("#photos-pad canvas")
    page.click("#photos-go")
    assert "othing is marked yet" in finish(page, "photos")
    with page.expect_response("**/run/predict*"):
        drag(page, "#photos-pad canvas", (0.3, 0.3), (0.6, 0.45))
    start(page, "photos")
    assert finish(page, "photos").startswith("Done")
    assert page.locator("#photos-result .large img").count() == 2
    assert page.evaluate(overflow) <= 0
    page.locator("#photos-result").scroll_into_view_if_needed()
    shot(page, "inpaint")


def test_two_methods_are_compared(visit):
    page = visit()
    page.get_by_role("button", name="Compare two methods").locator("visible=true").click()
    page.click("#digits-compare")
    page.wait_for_function("document.querySelectorAll('#digits-comparison .card').length === 2")
    words = page.inner_text("#digits-comparison")
    assert "mnist, fast" in words and "mnist, gibbs" in words and "PSNR" in words
    page.locator("#digits-comparison").scroll_into_view_if_needed()
    shot(page, "compared")


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
"""Names every path as a file in every argument and in the details of every event."""


def test_scripts_of_a_visitor_cannot_name_a_file(visit, tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (40, 40), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "one.png")
    private = tmp_path / "private.png"
    Image.fromarray(noise.T).save(private)
    other = visit()
    other.get_by_role("tab", name="Upload").locator("visible=true").click()
    with other.expect_response("**/gradio_api/upload?*") as sent:
        other.set_input_files("#digits-upload input[type=file]", tmp_path / "one.png")
    theirs = sent.value.json()[0]
    caption(other, "uploaded")
    paths = [str(private), theirs]
    page = visit()
    opened, watching = [], [True]
    sys.addaudithook(
        lambda name, values: opened.append(str(values[0])) if watching and name == "open" else None
    )
    answers = page.evaluate(ATTACK, paths)
    watching.clear()
    assert len(answers) > 200
    assert {tuple(answer) for answer in answers} == {(403, NOT_YOURS)}
    assert not set(opened) & set(paths)


def test_another_name_for_this_computer_does_not_show_the_page(chromium, address):
    """A site may point its own name at 127.0.0.1; its scripts then have the page's origin."""
    port = address.rstrip("/").rpartition(":")[2]
    with chromium.new_context() as context:
        page = context.new_page()
        answer = page.goto(f"http://rebound.example:{port}/")
        assert answer.status == 421 and "digits-go" not in page.content()
        for target in (f"http://rebound.example:{port}/config", f"{address}config"):
            got = page.evaluate(
                "target => fetch(target).then(answer => answer.status, () => 'nothing')", target
            )
            assert got in (421, "nothing")
