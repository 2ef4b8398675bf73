# SPDX-License-Identifier: GPL-2.0-only
"""Results of an export, as `export.json` keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ndm_tcp.export.integers import speed
from ndm_tcp.export.integers.sensitivity import LayerCost


@dataclass(frozen=True)
class Report:
    """Results of an export; all errors in units of the output."""

    model: str
    network: str
    onnx_sha256: str
    parameters: int
    weight_bytes: int
    vectors: int
    compared: str
    """the network that onnxruntime was compared with"""
    onnx_vs_torch: float
    """largest difference"""
    bound: tuple[float, ...]
    """per output, on |fixed - real arithmetic with the same weights|, whole box"""
    observed: tuple[float, ...]
    """per output, the same on the golden vectors"""
    rms: tuple[float, ...]
    drift: tuple[float, ...]
    """per output, |integer network - float32 PyTorch| on the golden vectors"""
    vectors_sha256: str
    held_out: str
    """judgement by rounds that it never saw"""
    metrics: dict[str, float] = field(default_factory=dict)
    """of held-out paths, by name"""
    fine_tuning: str | None = None
    """its effect on |fixed - float| on inputs that it did not learn from"""
    layers: tuple[LayerCost, ...] = ()
    claims: dict[str, str] = field(default_factory=dict)
    """name and verdict of every property of the network"""
    law: dict[str, str] = field(default_factory=dict)
    """the same of the claims about its control law, which hold for any network"""
    cost: speed.Speed | None = None
    """of an inference, if it was measured"""
    no_cost: str = ""
    """why it was not"""
