# SPDX-License-Identifier: GPL-2.0-only
"""The experiment on rules and policies: each rule is there, each policy computes its fit."""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ndm_tcp import contract, selection, teaching
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.guest.workers import ONE
from ndm_tcp.lab.paths import sealed_paths, truth
from ndm_tcp.lab.score.metrics import RunMetrics
from ndm_tcp.training import checkpoint, objective
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.objective import STEP_SHARE
from ndm_tcp.worth import experiment, modules, policies, populations, rules

from .conftest import TRACES
from .kmod import lab

Q12, Q16 = 1 << contract.Q_INPUT, 1 << contract.Q_PRE


@pytest.mark.parametrize("rule", rules.RULES)
def test_a_rule_is_one_change_of_the_sources(rule: str, tmp_path: Path) -> None:
    made = rules.without(rule, uml_build.KMOD, tmp_path / "kmod")
    changed = [
        path.name
        for path in made.glob("ndm_*.h")
        if path.read_text() != (uml_build.KMOD / path.name).read_text()
    ]
    assert changed == [rules.RULES[rule].file]


@pytest.mark.long
def test_the_module_without_any_rule_builds(tmp_path: Path) -> None:
    kmod = uml_build.KMOD
    for number, rule in enumerate(rules.RULES):
        kmod = rules.without(rule, kmod, tmp_path / str(number))
    assert uml_build.build_module(kmod).is_file()
    made = policies.module(policies.hand_c(), tmp_path / "hand")
    assert uml_build.build_module(made).is_file()


def test_a_rule_that_moved_is_named(tmp_path: Path) -> None:
    once = rules.without("guard", uml_build.KMOD, tmp_path / "once")
    with pytest.raises(NdmError, match="guard is not where it was; correct its entry"):
        rules.without("guard", once, tmp_path / "twice")


def rounds(n: int = 4000) -> policies.Rounds:
    """Rounds whose step is a product of two inputs, and losses with a known cause."""
    rng = np.random.default_rng(7)
    units = rng.integers(0, Q12 + 1, (n, contract.N_DENSE))
    x = units.astype(np.float32) / np.float32(Q12)
    step = 0.5 * x[:, 2].astype(np.float64) * x[:, 9] - 0.2
    odds = 6 * x[:, 0].astype(np.float64) - 3
    overflow = (rng.uniform(size=n) < 1 / (1 + np.exp(-odds))).astype(np.float64)
    return policies.Rounds(x, step, np.ones(n), overflow, np.ones(n), 0.65)


def in_c(code: str, x: np.ndarray, to: Path) -> np.ndarray:
    """[n, 2] the outputs, real numbers, of a policy compiled with the module's own headers."""
    source = to / "policy.c"
    source.write_text(
        '#include "ndm_infer.h"\n'
        + code
        + "void run(const short *x, int *out, int n)\n{\n"
        + "\tfor (int i = 0; i < n; i++)\n"
        + "\t\tndm_predict(10, x + i * NDM_N_DENSE, out + 2 * i);\n}\n"
    )
    command = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{uml_build.KMOD}"]
    subprocess.run([*command, "-o", str(to / "policy.so"), str(source)], check=True)
    library = ctypes.CDLL(str(to / "policy.so"))
    inputs = np.ascontiguousarray(np.round(x * Q12).astype(np.int16))
    out = np.zeros((len(x), 2), np.int32)
    library.run(inputs.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), len(x))
    return out / Q16


@pytest.mark.parametrize("name", [policies.LINEAR, policies.QUADRATIC])
def test_a_regression_in_c_is_the_one_that_was_fitted(name: str, tmp_path: Path) -> None:
    data = rounds()
    terms = policies.pairs(1 + (name == policies.QUADRATIC))
    step, logit = policies.fit_step(data, terms), policies.fit_congestion(data, terms)
    got = in_c(policies.regression_c(name, terms, step, logit), data.x, tmp_path)
    z = np.concatenate([*policies._terms(data.x, terms)])
    want = np.stack([(z @ step).clip(-1, 1), (z @ logit).clip(-8, 8)], axis=1)
    assert np.abs(got - want).max() < len(terms) / Q16 * 2
    off = np.abs(got[:, 0] - data.step).max()
    assert (off < 1e-3) == (name == policies.QUADRATIC), "only squares fit a product"
    assert np.corrcoef(got[:, 1], 6 * data.x[:, 0] - 3)[0, 1] > 0.9


def test_the_rule_by_hand_steps_towards_its_window(tmp_path: Path) -> None:
    names = [one.name for one in contract.DENSE]
    x = np.full((3, contract.N_DENSE), 0.1, np.float32)
    x[:, names.index("bdp_ratio")] = [0.5, 1 / policies.HAND_BDPS, 2 - 1 / Q12]
    x[2, names.index("queue_floor_mean")] = 0.5
    step, logit = in_c(policies.hand_c(), x, tmp_path).T
    want = STEP_SHARE * np.log2(policies.HAND_BDPS * x[:, names.index("bdp_ratio")])
    # A logarithm that is linear between powers of two is off by up to 0.086.
    assert np.abs(step - want.clip(-1, 1)).max() < 0.06 and step[0] < 0 < step[2]
    assert logit.tolist() == [-4, -4, 4]


def test_a_tree_in_c_is_the_one_that_was_fitted(tmp_path: Path) -> None:
    pytest.importorskip("sklearn.tree")
    data = rounds()
    data = replace(data, step=data.step + np.random.default_rng(5).normal(0, 0.2, len(data.step)))
    got = in_c(policies.tree_c(data), data.x, tmp_path)[:, 0]
    tree = policies.fit_tree(data.x, data.step, data.step_weight, data.expectile)
    leaves = np.round(tree.value[tree.left == tree.right] * Q16) / Q16
    assert set(got.tolist()) == set(leaves.tolist())
    for value in set(got.tolist()):
        rest = data.step[got == value] - value
        above, below = rest[rest > 0].sum(), -rest[rest < 0].sum()
        assert above * data.expectile == pytest.approx(below * (1 - data.expectile), rel=0.01)


def test_a_policy_without_integers_is_refused() -> None:
    terms = policies.pairs(1)
    with pytest.raises(NdmError, match="linear: a coefficient is 1e\\+06, too large"):
        policies.regression_c("linear", terms, np.full(len(terms), 1e6), np.zeros(len(terms)))


def test_a_policy_takes_the_networks_place(tmp_path: Path) -> None:
    made = policies.module(policies.hand_c(), tmp_path / "kmod")
    assert (made / "Kbuild").read_text().startswith("NDM_TEST_OUTPUTS := y\n")
    assert policies.HAND in (made / policies.OUTPUTS).read_text()


def alone(ones: np.ndarray) -> experiment.Interval:
    """Less nothing: one module of which every number is zero."""
    return experiment.difference(ones, np.zeros((len(ones), 1)))


def test_an_interval_covers_paths_and_training_seeds() -> None:
    """Where nothing differs, at most about one interval of twenty excludes zero."""
    rng = np.random.default_rng(3)
    wrong = sum(
        alone(
            rng.normal(0, path, (60, 1)) + rng.normal(0, seed, (1, 5)) + rng.normal(0, 1, (60, 5))
        ).significant
        for path, seed in [(1, 0.01), (0.3, 1), (1, 1)]
        for _ in range(200)
    )
    assert wrong < 0.08 * 600
    sure = alone(np.full((40, 5), 0.1))
    assert sure.significant and sure.mean == pytest.approx(0.1)
    assert not alone(np.full((2, 1), 0.1)).significant, "two paths say nothing"
    for nothing in (np.full((4, 5), np.nan), np.zeros((0, 5))):
        assert not alone(nothing).significant
        assert experiment.cell(alone(nothing)) == "-"
    assert experiment.cell(alone(np.full((1, 1), 0.1))) == "-"


def test_the_noise_is_the_other_half_of_the_shipped_networks_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scenario may run several times for each lab seed."""

    def runs_of(name: str, kmod: Path, suites: object, seeds: int, *_: object) -> object:
        for seed in range(1, 3 * seeds + 1):
            m = RunMetrics("a", "ndm_tcp", seed, 1.0, 0.0, 0.0, 10.0, 10.0, 0.0, 1.0, 1.0)
            yield "lan/a", selection.Measured(m, float(seed), 1.0, 1)

    monkeypatch.setattr(experiment, "runs_of", runs_of)
    made = {experiment.SHIPPED: tmp_path, "tree": tmp_path}
    found = experiment.measured(made, ["lan"], 1, ONE, tmp_path)
    scores = {name: of["lan/a"][experiment.SCORE] for name, of in found.items()}
    assert scores == {experiment.SHIPPED: 2.0, experiment.NOISE: 5.0, "tree": 2.0}


@pytest.mark.parametrize(("flows", "fair"), [(1, 1.0), (2, 1.0), (2, 0.5)])
def test_each_measure_is_in_its_column(
    flows: int, fair: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = RunMetrics("a", "ndm_tcp", 1, 8.0, 0.0, 0.03, 20.0, 30.0, 0.0, 0.4, 0.9)
    run = ("lan/a", selection.Measured(m, -0.7, fair, flows))
    monkeypatch.setattr(experiment, "runs_of", lambda *_: iter([run]))
    row = experiment.measured({"tree": tmp_path}, ["lan"], 1, ONE, tmp_path)["tree"]["lan/a"]
    alone, beside = fair == 1, fair < 1
    expected = {
        experiment.SCORE: -0.7,
        experiment.GOODPUT: np.log(8.0) if alone else np.nan,
        experiment.RTT: np.log(20.0) if alone else np.nan,
        experiment.LOST: 0.03,
        experiment.SHARE: selection.nearness(0.4, fair) if beside else np.nan,
        experiment.JAIN: 0.9 if flows > 1 and alone else np.nan,
    }
    assert row == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("code", [policies, objective, truth, teaching])
def test_a_fit_is_made_again_when_what_it_fits_changes(
    code: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = checkpoint.Checkpoint({}, TrainConfig(), "0" * 64, 0)
    before = experiment.fit_digest(trained)
    assert before == experiment.fit_digest(replace(trained, config=TrainConfig(seed=2)))
    changed = tmp_path / "changed.py"
    changed.write_text(Path(str(code.__file__)).read_text() + "#\n")
    monkeypatch.setattr(code, "__file__", str(changed))
    assert experiment.fit_digest(trained) != before


def test_both_causes_of_loss_weigh_the_same_in_a_fit(tmp_path: Path) -> None:
    sources = sorted((TRACES / "lab").glob("train-0[0-5]-*--cubic--1"))
    build(sources, tmp_path / "data", quiet=True)
    config = TrainConfig()
    seen = policies.rounds([tmp_path / "data"], config, store.load(tmp_path / "data").sha256)
    known, weight = seen.overflow_weight > 0, seen.overflow_weight
    weights = [weight[known & (seen.overflow == cause)] for cause in (0, 1)]
    assert len(weights[0]) != len(weights[1]) and min(map(len, weights)) > 0
    assert weights[0].sum() == pytest.approx(weights[1].sum(), rel=1e-5)


ROW = dict.fromkeys(experiment.MEASURES, 0.0)


def test_the_page_of_rules_has_a_row_for_each() -> None:
    names = [experiment.SHIPPED, experiment.NOISE, *(f"without {name}" for name in rules.RULES)]
    paths = ("validation/a", "validation/b", "validation/c", "lan/d", "lan/e")
    found = {name: {path: ROW for path in paths} for name in names}
    found["without probe"] = {path: {**ROW, experiment.SCORE: -0.1} for path in paths}
    text = experiment.rule_page(experiment.Part(["validation", "lan"], 3, found))
    assert text.count("| without probe | **-0.100 [-0.100, -0.100]** |") == 1, "two paths on lan"
    assert "`validation` (3 paths), `lan` (2 paths); lab seeds: 3." in text
    rows = 1 + len(rules.RULES)  # lan has none
    assert f"There are {rows * len(experiment.MEASURES)} intervals here" in text
    assert all(f"- {name}: " in text for name in rules.RULES)
    assert f"The shipped network, {sealed_paths.network()}, without a rule" in text


def test_the_page_of_policies_has_a_table_of_jitter_and_one_for_each_suite() -> None:
    names = ["seed-1", "seed-2", "seed-3", *policies.NAMES]
    paths = [f"{suite}/{path}" for suite in ("validation", "lan") for path in "abc"]
    paths += [f"validation/{path}-jitter" for path in "abc"]
    found = {name: {path: ROW for path in paths} for name in names}
    found["tree"] = {path: {**ROW, experiment.SCORE: -("jitter" in path)} for path in paths}
    text = experiment.policy_page(experiment.Part(["validation", "lan"], 1, found), 242)
    assert "networks of 3 training seeds, 242 weights and biases each" in text
    assert text.count("| quadratic | +0.000 [+0.000, +0.000] |") == 4
    tables = dict(re.findall(r"## On (.+?)\n.+?\| tree \| \**([-+.0-9]+)", text, re.DOTALL))
    want = {"all": -1 / 3, "paths with jitter": -1, "`validation`": -0.5, "`lan`": 0}
    assert tables == {name: f"{mean:+.3f}" for name, mean in want.items()}
    rows = 4 * len(policies.NAMES)
    assert f"There are {rows * len(experiment.MEASURES)} intervals here" in text


def test_what_is_wrong_is_said_before_the_hours(tmp_path: Path) -> None:
    words = [str(tmp_path), "--data", str(tmp_path), "-o", str(tmp_path / "out"), "--suites"]
    with pytest.raises(NdmError, match="nosuch"):
        experiment.main([*words, "lan,nosuch"])


# --- populations -----------------------------------------------------------------------------
def test_populations_differ_by_paths_in_pairs_and_by_networks_not_in_pairs() -> None:
    rng = np.random.default_rng(3)
    paths = rng.normal(0, 5, (40, 1))
    many = paths + rng.normal(0, 0.1, (1, 5)) + rng.normal(0, 0.01, (40, 5))
    better = paths + 1 + rng.normal(0, 0.1, (1, 6)) + rng.normal(0, 0.01, (40, 6))
    one = experiment.difference(better, many)
    assert one.low < 1 < one.high and one.significant
    # Paths that differ by 5 say nothing: they are the same. Networks that differ by 0.1 do.
    assert 0.05 < one.high - one.low < 0.5
    alone = experiment.difference(better, many[:, :1])
    assert 0 < alone.high - alone.low < one.high - one.low + 0.2
    missing = better.copy()
    missing[7, 2] = np.nan
    assert experiment.difference(missing, many).mean == pytest.approx(one.mean, abs=0.01)
    assert np.isnan(experiment.difference(better * np.nan, many).mean)


def test_a_table_of_populations_names_each_and_its_size() -> None:
    def of(value: float) -> dict[str, dict[str, float]]:
        row = dict.fromkeys(experiment.MEASURES, value)
        return {"here/a": row, "here/b": row, "here/c": row, "there/d": row}

    names = {"old": [f"old-{n}" for n in range(3)], "new": [f"new-{n}" for n in range(4)]}
    found = {n: of(2.0 if n.startswith("new") else 1.5) for group in names.values() for n in group}
    text = populations.table(found, names, "here")
    assert "`here`, 3 paths, less old (3)" in text
    assert "| new (4) | **+0.500 [+0.500, +0.500]** |" in text


@pytest.mark.parametrize(
    ("folders", "options", "said"),
    [
        (["a"], [], "one population: name another"),
        (["a", "b"], ["--jobs", "0"], "at least 1"),
        (["a", "b"], ["--suites", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_with_populations_are_one_line(
    folders: list[str], options: list[str], said: str, tmp_path: Path
) -> None:
    args = [*(str(tmp_path / name) for name in folders), "-o", str(tmp_path / "out"), *options]
    with pytest.raises(NdmError, match=said):
        populations.main(args)


# --- modules ---------------------------------------------------------------------------------
SHORT = """
seconds = 2
topology = "path"
[link]
rate_bps = {mbps}_000_000
rtt_us = 20_000
queue_packets = 60
"""


def test_a_module_that_shrinks_its_window_is_worth_less(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.need_kernel()
    paths = tmp_path / "paths"
    paths.mkdir()
    for mbps in (8, 9, 10):
        (paths / f"at-{mbps}.toml").write_text(SHORT.format(mbps=mbps))
    lab.change(lab.copy_kmod(tmp_path / "small" / "kmod"), [lab.answers(-65536, 65536)])
    folders = [str(uml_build.KMOD), str(tmp_path / "small" / "kmod")]
    args = ["--suites", str(paths), "-o", str(tmp_path / "out")]
    assert modules.main([*folders, *args]) == 0
    printed = capsys.readouterr().out
    assert "3 paths, less " in printed and "| small (1) | **-" in printed
    assert (tmp_path / "out" / "modules.md").read_text() == printed


@pytest.mark.parametrize(
    ("folders", "options", "said"),
    [
        (["a/kmod"], [], "name another to compare"),
        (["a/kmod", "b"], [], "b: no sources of the module"),
        (["a/kmod", "c/a"], [], "another module is called a, too"),
        (["a/kmod", "c/kmod"], ["--lab-seeds", "0"], "at least 1"),
        (["a/kmod", "c/kmod"], ["--suites", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_with_modules_are_one_line(
    folders: list[str], options: list[str], said: str, tmp_path: Path
) -> None:
    for name in ("a/kmod", "c/kmod", "c/a"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "Kbuild").touch()
    args = [*(str(tmp_path / name) for name in folders), "-o", str(tmp_path / "out"), *options]
    with pytest.raises(NdmError, match=said):
        modules.main(args)
