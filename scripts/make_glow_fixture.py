"""Writes tests/fixtures/glow: a small Glow saved by TensorFlow itself, with log-likelihoods from
its graph.

Needs TensorFlow (any version with tf.compat.v1), which the package and its tests do not: run this
by hand in an environment that has it. The graph follows the published one (github.com/openai/glow)
in names, shapes and arithmetic, in TensorFlow's own layout.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
SIZE, CHANNELS, LEVELS, DEPTH, WIDTH = 8, 3, 2, 2, 6
RANDOM = np.random.default_rng(0)


def variable(name: str, shape: list[int], centre: float = 0.0, spread: float = 0.1):
    value = (centre + spread * RANDOM.standard_normal(shape)).astype("float32")
    return tf1.get_variable(name, initializer=value)


def actnorm(name: str, x, total=None):
    with tf1.variable_scope(name + "_center"):
        x = x + variable("b", [1, 1, 1, x.shape[3]])
    with tf1.variable_scope(name + "_scale"):
        logs = 3.0 * variable("logs", [1, 1, 1, x.shape[3]], spread=0.05)
    x = x * tf.exp(logs)
    return x if total is None else (x, total + tf.reduce_sum(logs) * x.shape[1] * x.shape[2])


def edge(x):
    """Pads by one and marks the padding in a channel of its own."""
    mark = np.ones([1, x.shape[1] + 2, x.shape[2] + 2, 1], "float32")
    mark[:, 1:-1, 1:-1] = 0
    mark = tf.tile(tf.constant(mark), [tf.shape(x)[0], 1, 1, 1])
    return tf.concat([tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), mark], axis=3)


def conv(name: str, x, width: int, side: int, zeros: bool = False):
    with tf1.variable_scope(name):
        x = edge(x) if side == 3 else x
        w = variable("W", [side, side, x.shape[3], width])
        x = tf.nn.conv2d(x, w, 1, "VALID")
        if not zeros:
            return actnorm("actnorm", x)
        x = x + variable("b", [1, 1, 1, width])
        return x * tf.exp(3.0 * variable("logs", [1, width], spread=0.05))


def squeeze(x):
    h, w, c = x.shape[1] // 2, x.shape[2] // 2, x.shape[3]
    x = tf.reshape(x, [-1, h, 2, w, 2, c])
    return tf.reshape(tf.transpose(x, [0, 1, 3, 5, 2, 4]), [-1, h, w, 4 * c])


def normal(z, mean, logsd):
    logp = -0.5 * (np.log(2 * np.pi) + 2 * logsd + (z - mean) ** 2 / tf.exp(2 * logsd))
    return tf.reduce_sum(logp, [1, 2, 3])


def step(z, total, affine: bool):
    z, total = actnorm("actnorm", z, total)
    n = z.shape[3]
    with tf1.variable_scope("invconv"):
        start = np.linalg.qr(RANDOM.standard_normal([n, n]))[0]
        start = start + 0.1 * RANDOM.standard_normal([n, n])
        w = tf1.get_variable("W", initializer=start.astype("float32"))
    total += tf.math.log(tf.abs(tf.linalg.det(w))) * (z.shape[1] * z.shape[2])
    z = tf.nn.conv2d(z, tf.reshape(w, [1, 1, n, n]), 1, "SAME")
    kept, changed = z[..., : n // 2], z[..., n // 2 :]
    with tf1.variable_scope("f1"):
        h = tf.nn.relu(conv("l_1", kept, WIDTH, 3))
        h = tf.nn.relu(conv("l_2", h, WIDTH, 1))
        h = conv("l_last", h, n if affine else n // 2, 3, zeros=True)
    if affine:
        scale = tf.sigmoid(h[..., 1::2] + 2.0)
        changed = (changed + h[..., 0::2]) * scale
        total += tf.reduce_sum(tf.math.log(scale), [1, 2, 3])
    else:
        changed = changed + h
    return tf.concat([kept, changed], 3), total


def log_prob(x, affine: bool):
    """log p of what the graph calls z: pixels about zero."""
    with tf1.variable_scope("model"):
        total = tf.zeros_like(x[:, 0, 0, 0])
        z = squeeze(x)
        for level in range(LEVELS):
            with tf1.variable_scope(str(level)):
                for number in range(DEPTH):
                    with tf1.variable_scope(str(number)):
                        z, total = step(z, total, affine)
            if level < LEVELS - 1:
                n = z.shape[3] // 2
                z, away = z[..., :n], z[..., n:]
                with tf1.variable_scope(f"pool{level}"):
                    h = conv("conv", z, 2 * n, 3, zeros=True)
                total += normal(away, h[..., 0::2], h[..., 1::2])
                z = squeeze(z)
        with tf1.variable_scope("prior"):
            n = z.shape[3]
            h = conv("p", tf.tile(tf.zeros_like(z), [1, 1, 1, 2]), 2 * n, 3, zeros=True)
        return total + normal(z, h[..., :n], h[..., n:])


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for affine in (True, False):
        name = "affine" if affine else "additive"
        with tf.Graph().as_default(), tf1.Session() as session:
            x = tf1.placeholder(tf.float32, [None, SIZE, SIZE, CHANNELS])
            answer = log_prob(x, affine)
            session.run(tf1.global_variables_initializer())
            images = RANDOM.random([3, SIZE, SIZE, CHANNELS]).astype("float32")
            # The paper's authors hand over pixels v / 255 - 1/2.
            value = session.run(answer, {x: images - 0.5})
            path = str(out / f"{name}.ckpt")
            tf1.train.Saver().save(session, path, write_meta_graph=False)
        np.savez(out / f"{name}.npz", images=images.transpose(0, 3, 1, 2), log_prob=value)
    (out / "checkpoint").unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/glow"))
