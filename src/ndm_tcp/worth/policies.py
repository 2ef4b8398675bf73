# SPDX-License-Identifier: GPL-2.0-only
"""Policies simpler than the network: fitted to the same rounds, run in the same module.

Each gives C code for `ndm_test_outputs.h`, which takes the network's place (see kmod/ndm_tcp.c).
Fits are weighted as the training's; the step by the same expectile of asymmetric least squares
(Newey and Powell, 1987), the congestion output by logistic regression.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract
from ndm_tcp.errors import NdmError
from ndm_tcp.selection import sources
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.objective import STEP_SHARE
from ndm_tcp.training.prepared import Batch, prepare

Floats = npt.NDArray[np.float64]
OUTPUTS = "ndm_test_outputs.h"
CONSTANT, HAND, LINEAR, QUADRATIC, TREE = "constant", "hand rule", "linear", "quadratic", "tree"
NAMES = (CONSTANT, HAND, LINEAR, QUADRATIC, TREE)
ROUNDS, SETTLED = 12, 1e-3
"""of reweighting, at most; and change of a coefficient from which on another round is of no use"""
CHUNK = 1 << 16
"""rows at a time: all products of all rounds take gigabytes"""
MOST = 1 << 12
"""coefficients: 190 terms of up to 4 then fit 64 bits"""
RIDGE = 1e-6
"""of the mean square, for inputs that hardly vary"""
DEPTH = 6
"""of the tree"""
HAND_BDPS = 1.2
"""window of the hand rule, BDPs"""
RIVAL_QUEUE, SURE = 0.25, 4.0
"""mean queue floor from which the hand rule takes losses for overflow; its log odds"""


@dataclass(frozen=True)
class Rounds:
    """Rounds to fit: all that the training saw of its train split."""

    x: npt.NDArray[np.float32]
    """[n, dense] inputs and means"""
    step: Floats
    """[n] log2, towards the target window"""
    step_weight: Floats
    """[n] 0: no decision"""
    overflow: Floats
    """[n] 1: an overflow loss, 0: a random one"""
    overflow_weight: Floats
    """[n] 0: nothing lost, or the cause is not known"""
    expectile: float


def rounds(data: Sequence[Path], config: TrainConfig, sha256: str) -> Rounds:
    """The rounds that a training saw.

    Args:
        data: its datasets.
        config: of the training.
        sha256: of its data.

    Raises:
        NdmError: these are other datasets, or in another order.
    """
    prepared = prepare(data, config)
    if prepared.dataset_sha256 != sha256:
        raise NdmError(
            "--data: not the datasets that trained the population; name those, in the same order"
        )
    batch: Batch = prepared.train
    cause = batch.cause.numpy().astype(np.float64)
    balance = prepared.balance.numpy()
    weight = np.where(cause > 0, balance[1], balance[0]) * (cause >= 0)
    return Rounds(
        batch.x.numpy(),
        batch.action.numpy().astype(np.float64),
        batch.weight.numpy().astype(np.float64),
        cause.clip(0),
        weight,
        config.expectile,
    )


@dataclass(frozen=True)
class Tree:
    """Nodes of a decision tree; [nodes] each."""

    left: npt.NDArray[np.int64]
    """the node if the input is at most `at`; that of `right`: a leaf"""
    right: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    """of the input, from 0"""
    at: npt.NDArray[np.int64]
    """Q12"""
    value: Floats
    """of a leaf"""


def pairs(degree: int) -> list[tuple[int, int]]:
    """Numbers of the two factors of each term; 0 is the constant 1, i the i-th input."""
    n = contract.N_DENSE + 1
    if degree == 0:
        return [(0, 0)]
    return [(i, j) for i in range(n if degree == 2 else 1) for j in range(i, n)]


def _terms(x: npt.NDArray[np.float32], terms: Sequence[tuple[int, int]]) -> Iterator[Floats]:
    """[rows, terms] of some rows at a time."""
    first, second = (list(numbers) for numbers in zip(*terms, strict=True))
    for start in range(0, len(x), CHUNK):
        rows = x[start : start + CHUNK].astype(np.float64)
        z = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
        yield z[:, first] * z[:, second]


def _solve(gram: Floats, right: Floats) -> Floats:
    ridge = RIDGE * float(np.trace(gram)) / len(gram)
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(len(gram)), right), np.float64)


def fit_step(data: Rounds, terms: Sequence[tuple[int, int]]) -> Floats:
    """[terms] coefficients of the step."""
    beta: Floats = np.zeros(len(terms))
    for _ in range(ROUNDS):
        gram, right = np.zeros((len(terms),) * 2), np.zeros(len(terms))
        for k, z in enumerate(_terms(data.x, terms)):
            rows = slice(k * CHUNK, k * CHUNK + len(z))
            y, above = data.step[rows], data.step[rows] > z @ beta
            w = data.step_weight[rows] * np.where(above, data.expectile, 1 - data.expectile)
            gram += z.T @ (z * w[:, None])
            right += z.T @ (w * y)
        solved = _solve(gram, right)
        change, beta = np.abs(solved - beta).max(), solved
        if change < SETTLED:
            break
    return beta


def fit_congestion(data: Rounds, terms: Sequence[tuple[int, int]]) -> Floats:
    """[terms] coefficients of the log odds of an overflow loss; Newton's method."""
    beta: Floats = np.zeros(len(terms))
    for _ in range(ROUNDS):
        gram, right = np.zeros((len(terms),) * 2), np.zeros(len(terms))
        for k, z in enumerate(_terms(data.x, terms)):
            rows = slice(k * CHUNK, k * CHUNK + len(z))
            logit = (z @ beta).clip(contract.OUTPUTS[1].lo, contract.OUTPUTS[1].hi)
            p, w = 1 / (1 + np.exp(-logit)), data.overflow_weight[rows]
            gram += z.T @ (z * (w * p * (1 - p))[:, None])
            right += z.T @ (w * (data.overflow[rows] - p))
        change = _solve(gram, right)
        beta = beta + change
        if np.abs(change).max() < SETTLED:
            break
    return beta


# --- as C ------------------------------------------------------------------------------------

HEAD = """/* SPDX-License-Identifier: GPL-2.0-only */
/* The policy `{name}`, in the network's place. */
"""
TAIL = """
	out[NDM_OUT_CWND_GAIN] = ndm_clamp(step, NDM_OUT_CWND_GAIN_LO, NDM_OUT_CWND_GAIN_HI);
	out[NDM_OUT_CONGESTION] = ndm_clamp(logit, NDM_OUT_CONGESTION_LO, NDM_OUT_CONGESTION_HI);
}
"""
PREDICT = "static inline void ndm_predict(u32 window, const s16 *x, s32 *out)\n{\n"


def regression_c(name: str, terms: Sequence[tuple[int, int]], step: Floats, logit: Floats) -> str:
    """C of two regressions on the same terms. Coefficients and outputs are Q16, inputs Q12."""

    def table(values: Floats) -> str:
        if np.abs(values).max() >= MOST:
            raise NdmError(
                f"{name}: a coefficient is {np.abs(values).max():.3g}, too large; fit more rounds"
            )
        return ", ".join(str(round(value * (1 << contract.Q_PRE))) for value in values)

    first, second = (", ".join(map(str, numbers)) for numbers in zip(*terms, strict=True))
    shift = 2 * contract.Q_INPUT
    return (
        HEAD.format(name=name)
        + f"static const u8 ndm_first[] = {{ {first} }};\n"
        + f"static const u8 ndm_second[] = {{ {second} }};\n"
        + f"static const s32 ndm_step_of[] = {{ {table(step)} }};\n"
        + f"static const s32 ndm_logit_of[] = {{ {table(logit)} }};\n\n"
        + "static inline s32 ndm_saturated(s64 value)\n{\n"
        + "\treturn value < -(1 << 30) ? -(1 << 30) :\n"
        + "\t       value > 1 << 30 ? 1 << 30 : (s32)value;\n}\n\n"
        + PREDICT
        + "\ts64 steps = 0, logits = 0;\n\ts32 step, logit;\n\tu32 k;\n\n"
        + "\tfor (k = 0; k < sizeof(ndm_first); k++) {\n"
        + "\t\ts32 a = ndm_first[k] ? x[ndm_first[k] - 1] : NDM_ONE;\n"
        + "\t\ts32 b = ndm_second[k] ? x[ndm_second[k] - 1] : NDM_ONE;\n\n"
        + "\t\tsteps += (s64)ndm_step_of[k] * (a * b);\n"
        + "\t\tlogits += (s64)ndm_logit_of[k] * (a * b);\n\t}\n"
        + f"\tstep = ndm_saturated(steps >> {shift});\n"
        + f"\tlogit = ndm_saturated(logits >> {shift});"
        + TAIL
    )


def hand_c() -> str:
    """C of a rule by hand: towards a little more than the BDP; rivals keep a queue."""
    numbers = {one.name: i for i, one in enumerate(contract.DENSE)}
    bdp, queue = numbers["bdp_ratio"], numbers["queue_floor_mean"]
    over = round(math.log2(HAND_BDPS) * (1 << contract.Q_PRE))
    share = round(STEP_SHARE * 256)
    sure, floor = round(SURE * (1 << contract.Q_PRE)), round(RIVAL_QUEUE * (1 << contract.Q_INPUT))
    return (
        HEAD.format(name=HAND)
        + "/* log2(value / 1.0), Q16: linear between powers of two. */\n"
        + "static inline s32 ndm_log2(u32 value)\n{\n"
        + "\tu32 top = 31 - (u32)__builtin_clz(value | 1);\n\n"
        + "\treturn (s32)(top << 16) - (NDM_Q_INPUT << 16) +\n"
        + "\t       (s32)(((u64)(value - (1U << top)) << 16) >> top);\n}\n\n"
        + PREDICT
        + f"\ts32 step = ((ndm_log2((u32)x[{bdp}] + 1) + {over}) * {share}) >> 8;\n"
        + f"\ts32 logit = x[{queue}] > {floor} ? {sure} : -{sure};\n"
        + TAIL
    )


def fit_tree(x: npt.NDArray[np.float32], y: Floats, weight: Floats, expectile: float) -> Tree:
    """A tree that parts the rows as a regression does, and has this expectile of y in each leaf.

    Needs scikit-learn (the extra `bench`).
    """
    from sklearn.tree import DecisionTreeRegressor

    made = DecisionTreeRegressor(max_depth=DEPTH, min_weight_fraction_leaf=1e-3, random_state=0)
    made.fit(x, y, sample_weight=weight)
    leaf, tree = made.apply(x), made.tree_
    value = np.zeros(tree.node_count)
    for number in np.unique(leaf):
        rows = leaf == number
        for _ in range(ROUNDS):
            w = weight[rows] * np.where(y[rows] > value[number], expectile, 1 - expectile)
            value[number] = float(w @ y[rows] / w.sum())
    # Between two inputs, so that the C goes the same way for both.
    at = np.floor(tree.threshold * (1 << contract.Q_INPUT)).astype(np.int64)
    return Tree(tree.children_left, tree.children_right, tree.feature, at, value)


def tree_c(data: Rounds) -> str:
    """C of two trees: the step's expectile, and the log odds of an overflow loss."""
    lines = []
    for output, y, weight, expectile in (
        ("step", data.step, data.step_weight, data.expectile),
        ("logit", data.overflow, data.overflow_weight, 0.5),
    ):
        rows = weight > 0
        made = fit_tree(data.x[rows], y[rows], weight[rows], expectile)
        if output == "logit":
            p = made.value.clip(1e-3, 1 - 1e-3)
            made = replace(made, value=np.log(p / (1 - p)))
        lines += _branches(made, 0, output, 1)
    body = "\n".join(lines)
    return HEAD.format(name=TREE) + PREDICT + "\ts32 step, logit;\n\n" + body + TAIL


def _branches(tree: Tree, node: int, output: str, depth: int) -> list[str]:
    """Lines of C of a node and those below it."""
    left, right = tree.left[node], tree.right[node]
    tabs = "\t" * depth
    if left == right:
        return [f"{tabs}{output} = {round(tree.value[node] * (1 << contract.Q_PRE))};"]
    return [
        f"{tabs}if (x[{tree.number[node]}] <= {tree.at[node]}) {{",
        *_branches(tree, left, output, depth + 1),
        f"{tabs}}} else {{",
        *_branches(tree, right, output, depth + 1),
        f"{tabs}}}",
    ]


def code(name: str, data: Rounds) -> str:
    """C of one of `NAMES`."""
    if name == HAND:
        return hand_c()
    if name == TREE:
        return tree_c(data)
    terms = pairs((CONSTANT, LINEAR, QUADRATIC).index(name))
    step = np.zeros(1) if name == CONSTANT else fit_step(data, terms)
    return regression_c(name, terms, step, fit_congestion(data, terms))


def module(text: str, to: Path) -> Path:
    """A copy of the module's sources with this C in the network's place."""
    sources(None, to)
    (to / OUTPUTS).write_text(text)
    kbuild = to / "Kbuild"
    kbuild.write_text("NDM_TEST_OUTPUTS := y\n" + kbuild.read_text())
    return to
