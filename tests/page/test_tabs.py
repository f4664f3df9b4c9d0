"""The tabs of the page: mixtures of visitors, own priors, results that no longer belong to them."""

import threading
from types import SimpleNamespace

import pytest
import torch

gr = pytest.importorskip("gradio")

import basis  # noqa: E402
from basis.page.access import Limits, RefusedError, Visitors  # noqa: E402
from basis.page.events import _rule  # noqa: E402
from basis.page.forms import Chosen, Form, Shared  # noqa: E402
from basis.page.tabs import DigitsTab, PhotosTab  # noqa: E402
from basis.page.task import Run  # noqa: E402
from basis.signals.observation import Observation  # noqa: E402


@pytest.fixture(scope="module")
def shared(cache):
    return Shared(Limits(samples=2), Visitors(), threading.BoundedSemaphore(1), 1)


def build(kind, shared):
    with gr.Blocks():
        tab = kind(shared)
        tab.build()
    return tab


@pytest.fixture(scope="module")
def digits(shared):
    return build(DigitsTab, shared)


@pytest.fixture(scope="module")
def photos(shared):
    return build(PhotosTab, shared)


def values(tab, **changes):
    form = {**vars(tab.form), **changes}
    return [*list(form.values())[:-1], *form["alphas"]]


def chosen(tab):
    return Chosen(list(tab.start.pictures))


def save(observation, path):
    Observation(observation, batched=True).save(path)
    return str(path)


def test_a_mixture_of_a_visitor_is_separated_as_it_is(digits, tmp_path):
    alphas = (0.5, 0.5)
    mixed = basis.mix(["sample:3", "sample:18"], alphas).values
    path, mine = save(mixed, tmp_path / "mine.png"), chosen(digits)
    form = values(digits, kind="mine", alphas=(0.5,) * 4)
    shown = digits._upload_own(mine, path, *form)
    assert "28 × 28 pixels" in shown[digits.equation] and mine.message == ""
    task = digits.task(mine, Form.of(form))
    assert torch.allclose(task.observation.values, mixed, atol=0.6 / 255)
    assert task.alphas == [0.5, 0.5] and task.observation.sources is None
    *_, last = digits._separate(mine, SimpleNamespace(session_hash="session"), *form)
    assert "mixed again" in last[digits.result] and "true source" not in last[digits.result]
    assert any(file.endswith("mixture.npz") for file in last[digits.files])
    visible = digits.visible(Form.of(form))
    assert visible[digits.own_choice] and visible[digits.size] and not visible[digits.choice]


def test_the_alphas_of_a_mixture_of_a_visitor_add_up_to_one_at_first(digits):
    shown = digits._change(chosen(digits), *values(digits, kind="mine", count=4))
    assert [shown[slider]["value"] for slider in digits.alphas] == [0.25] * 4
    shown = digits._change(chosen(digits), *values(digits, alphas=(0.7,) * 4, count=3))
    assert [shown[slider]["value"] for slider in digits.alphas] == [0.7] * 4


def test_dark_ink_on_light_paper_is_inverted(digits, tmp_path):
    mixed = basis.mix(["sample:3", "sample:18"], (0.5, 0.5)).values
    mine = chosen(digits)
    form = values(digits, kind="mine")
    digits._upload_own(mine, save(1 - mixed, tmp_path / "mine.png"), *form)
    found = digits.task(mine, Form.of(form)).observation.values
    assert torch.allclose(found, mixed, atol=1 / 255)


def test_larger_mixtures_are_reduced_or_separated_in_tiles(photos, tmp_path):
    path = save(torch.rand(1, 3, 300, 400), tmp_path / "mine.png")
    mine, seconds = chosen(photos), []
    for size, shape, tiles in ((32, (32, 32), 1), (64, (48, 64), 6)):
        form = values(photos, kind="mine", size=size)
        shown = photos._upload_own(mine, path, *form)
        task = photos.task(mine, Form.of(form))
        assert task.observation.values.shape == (1, 3, *shape) and task.tiles == tiles
        seconds.append(task.expected_seconds())
        assert (f"{tiles} overlapping tiles" in shown[photos.status]) == (tiles > 1)
        assert "It takes about" in shown[photos.status]
    assert seconds[1] == pytest.approx(6 * seconds[0])


def test_what_takes_longer_than_allowed_is_said_before(shared):
    tab = build(DigitsTab, Shared(Limits(seconds=0.01), shared.visitors, shared.slots, 1))
    assert "The limit is" in tab._show(chosen(tab), *values(tab))[tab.status]


def test_a_mixture_that_cannot_be_read_is_one_sentence(digits, tmp_path):
    (tmp_path / "mine.png").write_text("nothing")
    mine, form = chosen(digits), values(digits, kind="mine")
    shown = digits._upload_own(mine, str(tmp_path / "mine.png"), *form)
    assert "cannot be read as a picture" in shown[digits.equation]
    *_, last = digits._separate(mine, SimpleNamespace(session_hash="session"), *form)
    assert "no mixture yet" in last[digits.status]


def test_own_priors_that_fit_are_listed(shared, tiny_prior, tmp_path, monkeypatch):
    monkeypatch.setenv("BASIS_DATA", str(tmp_path))
    tiny_prior.save(tmp_path / "priors" / "own-prior")
    (tmp_path / "priors" / "broken").mkdir()
    (tmp_path / "priors" / "broken" / "card.json").write_text("{}")
    tab, other = build(DigitsTab, shared), build(PhotosTab, shared)
    names = [name for _, name in tab.priors]
    assert names[-1] == "own-prior" and "mnist" in names and "cifar10" not in names
    assert "own-prior" not in other.sides and "broken" not in tab.sides
    assert ("mnist: score prior of handwritten digits", "mnist") in tab.priors
    task = tab.task(chosen(tab), Form.of(values(tab, prior="own-prior")))
    assert task.observation.values.shape == (1, 1, 8, 8)
    rule = _rule(tab.prior_of)
    assert rule("own-prior", None) == "own-prior"
    for typed in (str(tmp_path / "priors" / "own-prior"), "../own-prior", "hf:a/b@main", "broken"):
        with pytest.raises(RefusedError):
            rule(typed, None)


def assert_cleared(tab, shown):
    for part in (tab.live, tab.result):
        assert shown[part] == ""
    for part in (tab.frame, tab.downloads):
        assert shown[part]["visible"] is False


@pytest.mark.parametrize("change", [{"kind": "mine"}, {"prior": "mnist-glow"}, {"count": 3}])
def test_a_change_clears_the_results_and_stops_the_separation(digits, change):
    mine, form = chosen(digits), values(digits, method="basis")
    updates = digits._separate(mine, SimpleNamespace(session_hash="session"), *form)
    for update in updates:
        if mine.run is not None and update.get(digits.live):
            break
    run = mine.run
    assert digits.live not in digits._show(mine, *form) and not run.stopping  # nothing changed
    assert_cleared(digits, digits._change(mine, *values(digits, **change)))
    assert run.stopping and mine.run is None
    *_, last = updates
    assert_cleared(digits, last)
    assert last[digits.status] == mine.ready


def test_a_brush_clears_the_results_and_keeps_the_strokes(photos):
    mine, form = chosen(photos), values(photos, kind="inpaint")
    task = photos.task(mine, Form.of(values(photos)))
    mine.run = Run(task, photos.limits)
    shown = photos._clear(mine, *form)
    assert_cleared(photos, shown)
    assert mine.run is None and photos.pad not in shown
