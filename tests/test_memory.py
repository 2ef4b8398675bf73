# SPDX-License-Identifier: GPL-2.0-only
"""The network's memory: one state in C, PyTorch and ONNX, the integers of older networks."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import orjson
import pytest
import torch
from onnx import helper
from torch import nn

from ndm_tcp import contract as c
from ndm_tcp import core, fixedpoint, model_json
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import sources
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.export import convert
from ndm_tcp.export.integers import generated, golden, model_c
from ndm_tcp.export.onnx import memory as onnx_memory
from ndm_tcp.export.onnx import reader, writer
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training import derived
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.loop import Trainer
from ndm_tcp.training.model import Memory, Policy

from .conftest import ROOT, TRACES
from .remembering import exported, some

ONE = 1 << (c.Q_INPUT + c.MEAN_BITS)
Rows = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def flows() -> list[Rows]:
    """[rounds, inputs] Q12 of real flows, valid rounds alone, and of one that fills the box."""
    found = []
    for name in ("reno-03-lossy", "bbr-06-lossy-jitter"):
        for flow in sources.read(TRACES / name).flows:
            rounds = core.replay(flow.acks)
            found.append(rounds.x[rounds.valid])
    lo, hi = np.array([(i.lo_q, i.hi_q) for i in c.INPUTS]).T
    rng = np.random.default_rng(3)
    wild = rng.integers(lo, hi, size=(2000, c.N_INPUTS), endpoint=True)
    wild[::7] = np.where(rng.random((len(wild[::7]), c.N_INPUTS)) < 0.5, lo, hi)
    return [*found, wild.astype(np.int16)]


def alone(x: Rows) -> Rows:
    return core.remember(x, np.arange(len(x)) == 0, np.ones(len(x), bool))


# --- C -------------------------------------------------------------------------------------------


def test_the_contract_measures_ten_and_remembers_eight() -> None:
    assert (c.N_INPUTS, c.N_MEANS, c.N_DENSE) == (10, 8, 18)
    assert c.DENSE == c.INPUTS + c.MEANS and [i.of for i in c.MEANS] == list(c.MEMORY.of)
    for mean in c.MEANS:
        of = next(i for i in c.INPUTS if i.name == mean.of)
        assert (mean.lo, mean.hi) == (of.lo, of.hi), "a mean stays in its input's range"


def test_the_memory_is_in_no_hash_of_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """So another memory costs a training run, and no recording."""
    measured, network, whole = (c._hash(f()) for f in (c.measured, c.interface, c.canonical))
    assert (measured, network, whole) == (c.DATA_HASH, c.INTERFACE_HASH, c.HASH)
    monkeypatch.setattr(c, "MEMORY", c.Memory(of=c.MEMORY.of, shift=5, bits=2))
    monkeypatch.setattr(c, "MEAN_SHIFT", 5)
    monkeypatch.setattr(c, "N_DENSE", c.N_DENSE + 1)
    assert c._hash(c.measured()) == measured
    assert c._hash(c.interface()) != network and c._hash(c.canonical()) != whole
    monkeypatch.setattr(c, "FLOOR_HALF_ROUNDS", 5)
    assert c._hash(c.measured()) != measured


def test_flows_do_not_mix_and_blind_rounds_are_not_seen(flows: list[Rows]) -> None:
    together = np.concatenate(flows)
    begins = np.zeros(len(together), dtype=bool)
    begins[np.cumsum([0, *map(len, flows[:-1])])] = True
    dense = core.remember(together, begins, np.ones(len(together), bool))
    assert np.array_equal(dense, np.concatenate([alone(x) for x in flows]))
    valid = np.arange(len(together)) % 5 != 0
    dense = core.remember(together, np.arange(len(together)) == 0, valid)
    assert not dense[~valid].any()
    assert np.array_equal(dense[valid], alone(together[valid]))


def test_a_state_carries_a_flow_over_a_cut(flows: list[Rows]) -> None:
    x, state = flows[-1], np.zeros(c.N_MEANS, dtype=np.uint16)
    never, all_valid = np.zeros(500, bool), np.ones(500, bool)
    parts = [core.remember(x[at : at + 500], never, all_valid, state) for at in range(0, 2000, 500)]
    assert np.array_equal(np.concatenate(parts), alone(x))
    with pytest.raises(NdmError, match="remember: inputs"):
        core.remember(x[:, :9], never, all_valid)


def test_a_dataset_is_remembered_as_its_flows_are(dataset: Path) -> None:
    table = store.load(dataset).rounds
    dense = derived.dense(table)
    columns = np.stack([table[i.name].to_numpy() for i in c.INPUTS], axis=1)
    assert np.array_equal(dense[:, : c.N_INPUTS], columns)
    flow = np.array(table["flow_id"].to_pylist())
    valid = table["valid"].to_numpy()
    for name in dict.fromkeys(flow.tolist()):
        rows = (flow == name) & valid
        assert np.array_equal(dense[rows], alone(columns[rows]))


# --- PyTorch and ONNX ----------------------------------------------------------------------------


def states(x: Rows) -> Rows:
    """[rounds, means] uint16: the state in C after each round."""
    state, found = np.zeros(c.N_MEANS, dtype=np.uint16), []
    for row in x:
        core.remember(row[None], np.zeros(1, bool), np.ones(1, bool), state)
        found.append(state.copy())
    return np.array(found)


def test_pytorch_steps_as_the_c_does(flows: list[Rows]) -> None:
    memory = Memory()
    for x in flows:
        state, dense = torch.zeros(1, c.N_MEANS), alone(x)
        for row, want, after in zip(x, dense, states(x), strict=True):
            real = torch.from_numpy(row[None].astype(np.float32) / 4096)
            found, state = memory(real, state)
            assert (found.numpy()[0] * 4096 == want).all()
            assert (state.numpy()[0] * ONE == after).all()


def test_onnxruntime_stepped_over_a_flow_equals_the_c(flows: list[Rows], tmp_path: Path) -> None:
    """The state bit for bit; the outputs as far as the certified error and float32 allow."""
    layers = model_c.from_json(generated.GENERATED / "ndm_model.json").layers
    torch.manual_seed(1)
    policy = Policy([layer.n_out for layer in layers[:-1]])
    with torch.no_grad():
        real = [(w, b) for w, b in _real(layers)]
        for linear, (weight, bias) in zip(policy.layers, real, strict=True):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
    writer.write(policy, tmp_path / "m.onnx", {})
    session = onnxruntime.InferenceSession(
        (tmp_path / "m.onnx").read_bytes(), providers=["CPUExecutionProvider"]
    )
    assert [i.shape[1] for i in session.get_inputs()] == [c.N_INPUTS, c.N_MEANS]
    for x in flows:
        dense, after = alone(x), states(x)
        want, _ = core.infer(layers, dense)
        state = np.zeros((1, c.N_MEANS), np.float32)
        for number, row in enumerate(x):
            feed = {"x": row[None].astype(np.float32) / 4096, "state": state}
            outputs, state = session.run(["outputs", "next_state"], feed)
            assert (state[0] * ONE == after[number]).all()
            error = np.abs(outputs[0] - want[number] / 65536)
            assert error[0] < 0.002 and error[1] < 0.01, number


def _real(layers: list[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    from ndm_tcp.model_json import real_weights

    return [
        (torch.from_numpy(w.astype(np.float32)), torch.from_numpy(b.astype(np.float32)))
        for w, b in real_weights(layers)
    ]


def test_every_golden_vector_has_a_state_that_leads_to_it() -> None:
    dense = (golden.inputs() / 4096).astype(np.float32)
    x, state = onnx_memory.before(dense)
    found, following = onnx_memory.step(x, state)
    assert np.array_equal(found, dense) and (state > 0).all()
    again, then = Memory().double()(*(torch.from_numpy(a).double() for a in (x, state)))
    assert np.array_equal(again.numpy(), dense) and np.array_equal(then.numpy(), following)


def test_a_policy_that_torch_writes_is_carried(tmp_path: Path) -> None:
    """The memory is known by what it computes, whatever nodes a framework makes of it."""
    torch.manual_seed(2)
    policy, path = Policy((8, 4)), tmp_path / "m.onnx"
    path.write_bytes(exported(nn.Sequential(*_modules(policy))))
    graph = reader.read(path, "make it")
    assert (graph.inputs, graph.state) == ("x", "state") and len(graph.layers) == 3
    for layer, (weight, _) in zip(graph.layers, policy.linear_layers(), strict=True):
        assert np.array_equal(layer.weight, weight.numpy())
    assert writer.compare(graph, path, some(20_000)) < 1e-5


def _modules(policy: Policy) -> list[nn.Module]:
    *hidden, last = policy.layers
    return [m for layer in hidden for m in (layer, nn.Tanh())] + [last]


class Other(Memory):
    """Memories that are not the contract's."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dense, following = super().forward(x, state)
        if self.kind == "longer":
            following = state + (following - state) / 2
        elif self.kind == "one mean":
            following = torch.cat([following[:, :1] * 0 + 2.5, following[:, 1:]], 1)
        elif self.kind == "rounded":
            dense = torch.cat([x, following[:, :] - 2], 1)
        elif self.kind == "an input's highest":
            following = following - (x[:, self.of] == 2) / 16384
        elif self.kind == "a state's lowest":
            following = following + (state * 16384 == 16384) / 16384
        return dense, following


@pytest.mark.parametrize(
    "kind", ["longer", "one mean", "rounded", "an input's highest", "a state's lowest"]
)
def test_another_memory_is_refused(kind: str, tmp_path: Path) -> None:
    """Also one whose means differ in less than an input's step."""
    path = tmp_path / "m.onnx"
    path.write_bytes(exported(nn.Sequential(*_modules(Policy((4,)))), Other(kind)))
    with pytest.raises(NdmError) as error:
        reader.read(path, "make it")
    said = str(error.value)
    assert "\n" not in said and str(path) in said
    assert (
        "no output is the next state" in said
        or "read the state without the contract's memory" in said
    )


def test_a_network_may_do_without_memory(tmp_path: Path) -> None:
    path, weight = tmp_path / "m.onnx", np.ones((2, c.N_INPUTS), np.float32)
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    shapes = [("x", ["n", c.N_INPUTS]), ("y", ["n", 2])]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes)
    made = helper.make_graph([node], "g", [x], [y], [onnx.numpy_helper.from_array(weight, "w")])
    onnx.save(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    graph = reader.read(path, "make it")
    assert graph.state == "" and not graph.layers[0].weight[:, c.N_INPUTS :].any()
    assert writer.compare(graph, path, some(100)) < 1e-5


def test_an_old_file_is_refused_with_the_command_that_puts_the_memory_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the contract of then, or none, as other makers' files; what it says works."""
    torch.manual_seed(5)
    policy = Policy((6,))
    layers = [writer.Dense(w.numpy(), b.numpy()) for w, b in policy.linear_layers()]
    for named in (True, False):
        path, new = tmp_path / f"old{named}.onnx", tmp_path / f"new{named}.onnx"
        writer.write_layers(
            layers, path, {"ndm_contract": onnx_memory.BEFORE_MEMORY}, remembers=False
        )
        if not named:
            model = onnx.load(path)
            del model.metadata_props[:]
            onnx.save(model, path)
        assert run_command(["export", str(path), "-o", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        command = f"ndm convert {path} -o NEW.onnx"
        assert said.endswith(f"run: {command}\n") and said.count("\n") == 1
        words = command.replace("NEW.onnx", str(new)).split()[1:]
        assert run_command(words) == 0
        graph = reader.read(new, "make it")
        assert graph.contract == (c.INTERFACE_HASH if named else None)
        for layer, want in zip(graph.layers, layers, strict=True):
            assert np.array_equal(layer.weight, want.weight)
        assert writer.compare(graph, new, some(1000)) < 1e-5
        with pytest.raises(NdmError, match=r"a network with a memory needs none|made for contract"):
            onnx_memory.put_before(new, tmp_path / "twice.onnx")
    with pytest.raises(NdmError, match="no such file"):
        onnx_memory.put_before(tmp_path / "none.onnx", new)


def test_an_old_checkpoint_is_refused_with_a_command_that_works(
    run: Path, tmp_path: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one that would read it again."""
    for name in (ckpt.MODEL, ckpt.PROGRESS):
        saved = ckpt.load(run / name)
        with monkeypatch.context() as then:
            then.setattr(c, "INTERFACE_HASH", onnx_memory.BEFORE_MEMORY)
            ckpt.save(tmp_path / name, saved)
    says = r"made for contract 9682b82887b1b138.*run: ndm train --data DIR -o NEW_RUN$"
    with pytest.raises(NdmError, match=says):
        ckpt.load_policy(tmp_path)
    with pytest.raises(NdmError, match=says):
        Trainer([dataset], tmp_path, TrainConfig(objective="awbc", epochs=2))


def test_an_old_model_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    shipped = model_c.from_json(generated.GENERATED / "ndm_model.json")
    data = orjson.loads((generated.GENERATED / "ndm_model.json").read_bytes())
    data |= {"contract": model_json.BEFORE_MEMORY}
    data |= {"model": shipped.hash(model_json.BEFORE_MEMORY)}
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_bytes(orjson.dumps(data))
    command = f"ndm convert {old} -o NEW.json"
    with pytest.raises(NdmError, match=f"run: {command}$"):
        model_c.from_json(old)
    assert run_command(command.replace("NEW.json", str(new)).split()[1:]) == 0
    assert model_c.from_json(new).hash() == shipped.hash()
    with pytest.raises(NdmError, match="made for contract"):
        convert.main(argparse.Namespace(file=new, out=tmp_path / "twice.json"))
    data["layers"][0]["bias"][0] += 1
    old.write_bytes(orjson.dumps(data))
    with pytest.raises(NdmError, match="do not match its hash"):
        convert.main(argparse.Namespace(file=old, out=tmp_path / "no.json"))


# --- before and after ----------------------------------------------------------------------------

# SHA-256 of what commit ad6cc70 computed, whose features held the means.
STREAM_BEFORE = "58276ed6c2528ccdfcf50bf9003c9f95a3dea48ae495823a50de58ea41b1f659"
SHIPPED_BEFORE = "c78c180e756c4e01e74b8fb4e37ec843245c7981753ede198b88289f897487ed"
"""weights, biases and shifts"""
OUTPUTS_BEFORE = "e78a42c68cf3f987026c0182ea27355f2203d2f6e8f9e4d97618d7de1cb0f34f"
"""of the network with those: a flow's inputs, golden inputs, every layer"""


def _digest(*arrays: Rows) -> str:
    whole = b"".join(np.ascontiguousarray(a, "<i8").tobytes() for a in arrays)
    return hashlib.sha256(whole).hexdigest()


def _former_acks(name: str) -> Rows:
    """ACKs of reno-03-lossy and bbr-06-lossy-jitter as they were replayed then, up to 955ffeb8."""
    with np.load(ROOT / "tests/reference/acks_of_the_former_replay.npz") as stored:
        return np.ascontiguousarray(stored[name])


def test_the_stream_gives_the_integers_of_before_the_memory_was_a_layer() -> None:
    """Features and memory over the ACKs that the module checks itself with."""
    rounds = core.replay(_former_acks("stream"))
    assert _digest(rounds.dense()[rounds.valid]) == STREAM_BEFORE


def test_a_network_gives_the_integers_of_before() -> None:
    """The one that was shipped then."""
    layers = model_c.from_json(ROOT / "tests/reference/network_0f608a68685b8d9b.json").layers
    weights = _digest(*(a.ravel() for x in layers for a in (x.weight, x.bias, x.shift)))
    assert weights == SHIPPED_BEFORE
    rounds = core.replay(_former_acks("flow"))
    dense = np.concatenate([rounds.dense()[rounds.valid], golden.inputs()[::16]])
    out, pre = core.infer(layers, dense)
    assert np.array_equal(out, fixedpoint.forward(layers, dense.astype(np.int64)).outputs)
    assert _digest(dense, out, pre) == OUTPUTS_BEFORE
