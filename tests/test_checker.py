# SPDX-License-Identifier: GPL-2.0-only
"""The certificate as a file: what the independent checker accepts and refuses."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.errors import NdmError
from ndm_tcp.export.check import CHECKER, run_checker
from ndm_tcp.export.checker import bounds
from ndm_tcp.export.integers import generated, model_c
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.proof import certificate, enclosure, law, properties
from ndm_tcp.export.proof.relaxation import Bounder
from ndm_tcp.export.report.card import claims_text
from ndm_tcp.fixedpoint import Layer

from .conftest import ROOT
from .test_certificate import GENERATED, WIDTH, Data, network


@pytest.fixture(scope="module")
def layers() -> list[Layer]:
    """The shipped network."""
    return model_c.from_json(GENERATED / "ndm_model.json").layers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the generated files."""
    shutil.copytree(GENERATED, tmp_path / "generated")
    return tmp_path / "generated"


# --- the file --------------------------------------------------------------------------------


def test_the_certificate_is_the_same_every_time(layers: list[Layer]) -> None:
    texts = {name: (GENERATED / name).read_text() for name in certificate.HEADERS}
    model = model_c.from_json(GENERATED / "ndm_model.json").hash()
    proof = certificate.prove(layers)
    assert certificate.to_json(proof, model, texts) == (GENERATED / certificate.NAME).read_text()


@pytest.mark.parametrize("seed", [66, 247, 340])
def test_no_bound_is_below_the_checkers_own(seed: int) -> None:
    """Networks near this one have lines that are nearly equal; the checker takes the other."""
    layers = model_c.from_json(ROOT / "tests/reference/network_cfb61817d90dd9d9.json").layers
    rng = np.random.default_rng(seed)

    def near(weight: fixedpoint.IntArray) -> fixedpoint.IntArray:
        moved = weight * (1 + 0.1 * rng.standard_normal(weight.shape))
        return np.clip(np.round(moved), -(2**15), 2**15 - 1).astype(weight.dtype)

    others = [replace(layer, weight=near(layer.weight)) for layer in layers]
    rows = [
        [
            (w.tolist(), int(b), int(s), False)
            for w, b, s in zip(x.weight, x.bias, x.shift, strict=True)
        ]
        for x in others
    ]
    own = bounds.Relaxation(rows, bounds.Tanh([int(v) for v in fixedpoint.tanh_table()]))
    below = 0
    for prop in properties.PROPERTIES:
        found = properties.decide(others, prop, (prop.sign * 2**30, []))  # refuted: one box
        epsilon = Bounder(others, prop.output, prop.sign).epsilon
        checked = own.worst(found.tree, prop.box(), prop.output, prop.sign, epsilon)
        assert checked <= prop.sign * found.bound, prop.name
        below += checked == prop.sign * found.bound
    assert below == 1  # the one that the export takes from the checker


def test_the_shipped_bounds_are_a_tenth_of_a_percent_of_the_range() -> None:
    data = json.loads((GENERATED / certificate.NAME).read_text())
    for o, claim in zip(c.OUTPUTS, data["outputs"], strict=True):
        assert claim["bound"] / 2 ** data["unit_bits"] < 0.001 * (o.hi - o.lo)


def test_the_checker_shares_no_code() -> None:
    for path in CHECKER.parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            local = {p.stem for p in CHECKER.parent.glob("*.py")}
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names | local, (path.name, name)


def test_the_checker_accepts_what_is_shipped(layers: list[Layer]) -> None:
    said = run_checker(GENERATED)
    assert f"{sum(layer.n_out for layer in layers)} rows" in said
    assert f"{len(law.CLAIMS)} claims about the control law, whose text is beside" in said


def test_the_checker_refuses_another_law_beside(folder: Path) -> None:
    assert "whose text is not beside" in run_checker(folder)
    for name in law.HEADERS:
        shutil.copy(GENERATED.parent / name, folder.parent / name)
    assert "whose text is beside" in run_checker(folder)
    change(folder.parent / "ndm_control.h", "NDM_PROBE_ROUNDS", "NDM_ROUNDS")
    refused(folder, "ndm_control.h: not the control law that was certified")


def test_the_shipped_card_says_what_is_proved(layers: list[Layer]) -> None:
    card = (generated.ROOT / "docs" / "MODEL_CARD.md").read_text()
    assert claims_text(certificate.prove(layers)) in card
    docs = (generated.ROOT / "docs" / "export.md").read_text()
    for name in [claim.name for claim in law.CLAIMS]:
        assert f"| `{name}`" in docs, name


@pytest.mark.parametrize(
    ("hidden", "scale"),
    [((16, 16), 1.0), ((12,), 3.0), ((6, 6, 6), 1.0), ((16, 16), 8.0), ((4,), 30.0), ((), 1.0)],
)
def test_the_checker_accepts_other_networks(
    folder: Path, hidden: tuple[int, ...], scale: float, few_boxes: None
) -> None:
    layers = network(4, scale, hidden)
    model = model_c.Model(layers, {"network": "a test"})
    generated.write(IntegerNetwork(model), folder)
    assert model.hash() in run_checker(folder)


def refused(folder: Path, what: str) -> None:
    """One line, exit status 1, and the right reason."""
    done = subprocess.run(
        [sys.executable, str(CHECKER), str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.count("\n") == 1 and re.search(what, done.stderr), done.stderr


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("name", certificate.HEADERS)
def test_a_touched_header_is_refused(folder: Path, name: str) -> None:
    change(folder / name, "\n#endif", "\n\n#endif")
    refused(folder, f"{name}: not the text that was certified")


def forge(folder: Path, name: str, old: str, new: str) -> None:
    """Change a header and the hash of it, as someone would who wants to pass."""
    change(folder / name, old, new)
    data = json.loads((folder / certificate.NAME).read_text())
    data["headers"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / certificate.NAME).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("name", "old", "new", "what"),
    [
        (
            "ndm_model.h",
            f"ndm_weight0[{WIDTH // 2} * {c.N_DENSE}] = {{\n",
            f"ndm_weight0[{WIDTH // 2} * {c.N_DENSE}] = {{\nNDM_PAIR(7, 7),",
            f"{WIDTH // 2 * c.N_DENSE + 1} entries",
        ),
        ("ndm_model.h", ".weight = ndm_weight0", ".weight = ndm_weight1", "out of order"),
        ("ndm_model.h", ".n_layers = 3", ".n_layers = 2", "number of layers"),
        ("ndm_model.h", "#endif", "int x;\n#endif", "unexpected text 'int x;"),
        ("ndm_tables.h", "0, 128, 256", "0, 128, 286", "slope|table|activation|attain"),
        ("ndm_tables.h", "0, 128, 256", "0, 128, 127", "tanh not monotone"),
        ("ndm_contract.h", "[-1, 1] */\n\tNDM_IN_RTT", "[-1, 2] */\n\tNDM_IN_RTT", "the box"),
        ("ndm_contract.h", "Q_PRE\t16", "Q_PRE\t15", "Q formats"),
        ("ndm_contract.h", "CWND_GAIN_HI\t(65536)", "CWND_GAIN_HI\t(6553)", "clamp"),
    ],
)
def test_a_forged_header_is_refused(folder: Path, name: str, old: str, new: str, what: str) -> None:
    forge(folder, name, old, new)
    refused(folder, what)


def forge_weights(folder: Path, pattern: str, new: Callable[[re.Match[str]], str]) -> None:
    """Change what the pattern finds first in the model."""
    found = re.search(pattern, (folder / "ndm_model.h").read_text())
    assert found
    forge(folder, "ndm_model.h", found[0], new(found))


def test_weights_in_another_order_are_refused(folder: Path) -> None:
    """C walks through the pairs by the layer's shape, whatever the array says of its own."""

    def flat(found: re.Match[str]) -> str:
        pairs = np.array(re.findall(r"\((-?\d+), (-?\d+)\)", found[3]))
        rows = pairs.reshape(int(found[1]), int(found[2]), 2).transpose(0, 2, 1)
        other = "".join(f"NDM_PAIR({a}, {b}), " for a, b in rows.reshape(-1, 2))
        return f"ndm_weight0[{len(pairs)} * 1] = {{{other}}};"

    forge_weights(folder, r"(?s)ndm_weight0\[(\d+) \* (\d+)\] = \{(.*?)\};", flat)
    refused(folder, "integers do not match")


def test_octal_numbers_are_refused(folder: Path) -> None:
    forge_weights(folder, r"NDM_PAIR\((-?)([1-7]{2,})\b", lambda m: f"NDM_PAIR({m[1]}0{m[2]}")
    refused(folder, "no decimal number")


def test_a_forged_weight_is_refused(folder: Path) -> None:
    first = r"(ndm_weight1\[.*?\] = \{\s*NDM_PAIR\()(-?\d+)"
    forge_weights(folder, first, lambda m: f"{m[1]}{int(m[2]) ^ 1}")
    refused(folder, "integers do not match")


def row(data: Data) -> Data:
    result: Data = data["layers"][0][2]
    return result


TAMPERING: list[tuple[str, Callable[[Data], object], str]] = [
    ("model", lambda d: d.update(model="0" * 16), "model's hash"),
    ("format", lambda d: d.update(format="other"), "another format"),
    ("row missing", lambda d: d["layers"][1].pop(), "another number of rows"),
    ("accumulator", lambda d: row(d)["accumulator"].__setitem__(1, 5), "accumulator"),
    ("partial", lambda d: row(d)["partial"].__setitem__(0, 0), "partial sums"),
    ("pre", lambda d: row(d)["pre"].__setitem__(0, 0), "pre-activation"),
    ("activation", lambda d: row(d)["activation"].__setitem__(0, 0), "activation"),
    ("slope", lambda d: row(d)["slope"].__setitem__(1, 2**39), "slope"),
    ("table", lambda d: row(d)["table"].__setitem__(1, 2**20), "table"),
    ("witness", lambda d: row(d)["witness"][0].__setitem__(0, 7), "witness does not attain"),
    ("far witness", lambda d: row(d)["witness"][0].__setitem__(0, 5000), "outside the box"),
    ("attained", lambda d: row(d)["attained"].__setitem__(0, 1), "witness does not attain"),
    ("error", lambda d: d["outputs"][1].update(error=[-1, 1], bound=1), "error is not proved"),
    ("bound", lambda d: d["outputs"][1].update(bound=1), "bound of an error"),
    ("clamps", lambda d: d["outputs"][1].update(clamps="other"), "clamp"),
    ("factor", lambda d: d.update(window_factor=[65536, 65536]), "window_factor"),
    ("cut", lambda d: d.update(loss_cut=[0, 1]), "loss_cut"),
    ("verdict", lambda d: d["properties"][2].update(verdict="other"), "other, found"),
    ("limit", lambda d: d["properties"][2].update(limit=9999), "another statement"),
    ("part", lambda d: d["properties"][2]["box"].__setitem__(2, [0, 0]), "another statement"),
    ("tight", lambda d: d["properties"][0].update(bound=9000), "is not proved"),
    ("tree", lambda d: d["properties"][0]["tree"].pop(), "does not cover"),
    ("longer", lambda d: d["properties"][0]["tree"].append(-1), "goes on after its end"),
    ("no tree", lambda d: d["properties"][0].update(tree=[]), "does not cover"),
    ("example", lambda d: d["properties"][2].update(attained=1), "does not attain"),
    ("dropped", lambda d: d["properties"].pop(2), "the list"),
    ("contained", lambda d: d["properties"][2].update(contained_by=[]), "other claims"),
    ("claim", lambda d: d["law"]["claims"].pop(), "another list of claims"),
    ("claim twice", lambda d: d["law"]["claims"].append(d["law"]["claims"][0]), "there twice"),
    ("cases", lambda d: d["law"]["claims"][3].update(cases=1), "not what tests/law.c"),
    ("no proof", lambda d: d["law"]["claims"][3].update(verdict="unknown"), "not what tests"),
    ("no law", lambda d: d.pop("law"), "refused"),
    ("law of nothing", lambda d: d["law"].update(headers={}), "another set of headers"),
    ("type", lambda d: row(d).update(pre="no"), "refused"),
]


@pytest.mark.parametrize(
    ("tamper", "what"), [t[1:] for t in TAMPERING], ids=[t[0] for t in TAMPERING]
)
def test_a_tampered_certificate_is_refused(
    folder: Path, tamper: Callable[[Data], object], what: str
) -> None:
    path = folder / certificate.NAME
    data = json.loads(path.read_text())
    tamper(data)
    path.write_text(json.dumps(data))
    refused(folder, what)


def test_a_missing_or_damaged_certificate_is_one_line(folder: Path) -> None:
    (folder / certificate.NAME).write_text("{")
    refused(folder, "refused: ")
    (folder / certificate.NAME).unlink()
    refused(folder, "No such file")
    with pytest.raises(NdmError, match=r"refused: .*; run: ndm export RUN"):
        run_checker(folder)


def test_what_the_checker_encloses_lies_within_the_proofs() -> None:
    """Else a network whose ranges end in such a step is exported and then refused."""
    own = bounds.Tanh([int(value) for value in fixedpoint.tanh_table()]).error
    for step, (claimed, (low, high)) in enumerate(
        zip(enclosure.segment_errors(), own, strict=True)
    ):
        assert claimed[0] <= low * enclosure.UNIT and high * enclosure.UNIT <= claimed[1], step
