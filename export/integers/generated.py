# SPDX-License-Identifier: GPL-2.0-only
"""The committed files of `kmod/generated`: write them, or check that they are up to date."""

from __future__ import annotations

from pathlib import Path

from ndm_tcp import core, files
from ndm_tcp.datasets.readers import sources
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import contract_c, golden, model_c
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.proof import certificate

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "kmod" / "generated"
STREAM_SOURCE = Path("datasets/traces/reno-03-lossy")
STREAM_ACKS = 1000
"""ACKs of the feature stream compiled into the module."""


def stream_text() -> str:
    """`ndm_stream.h` from the shipped trace.

    Raises:
        NdmError: the trace is missing.
    """
    result = sources.read(ROOT / STREAM_SOURCE)
    acks = max((flow.acks for flow in result.flows), key=len)[:STREAM_ACKS]
    rounds = core.replay(acks)
    return model_c.stream_header(acks, rounds.dense()[rounds.valid], str(STREAM_SOURCE))


def expected(network: IntegerNetwork) -> dict[str, str]:
    """What every generated file says of a network; the model's header last."""
    trace = network.trace
    fixed = len(golden.inputs())
    extra = trace.part(slice(fixed, None))
    headers = {
        "ndm_contract.h": contract_c.contract_header(),
        "ndm_tables.h": contract_c.tables_header(),
        "ndm_model.h": model_c.model_header(network.model, network.proof),
    }
    return {
        "ndm_contract.h": headers["ndm_contract.h"],
        "ndm_tables.h": headers["ndm_tables.h"],
        "ndm_stream.h": stream_text(),
        "ndm_vectors.h": model_c.vectors_header(network.model, golden.for_kernel(trace, extra)),
        "ndm_digests.h": model_c.digests_header(network.model, extra.x, golden.digests(trace)),
        "ndm_model.json": model_c.to_json(network.model),
        certificate.NAME: certificate.to_json(network.proof, network.model.hash(), headers),
        "ndm_model.h": headers["ndm_model.h"],
    }


def write(network: IntegerNetwork, out: Path) -> None:
    """Everything generated that the module builds from; the model's header last."""
    for name, text in expected(network).items():
        files.write_text(out / name, text)


def check(out: Path, network: IntegerNetwork | None = None) -> int:
    """Regenerate in memory and compare.

    Args:
        out: the folder.
        network: that of the folder, if it was read already.

    Returns:
        how many files were compared.

    Raises:
        NdmError: naming the first file that differs, and what to run.
    """
    wanted = expected(network or IntegerNetwork.read(out))
    for name, text in wanted.items():
        path = out / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            raise NdmError(f"{path}: not what its sources generate; run: make generated")
    return len(wanted)
