# SPDX-License-Identifier: GPL-2.0-only
"""`ndm_model.json` that no export has written: one line, whatever is wrong, and no network."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from ndm_tcp import contract as c
from ndm_tcp import model_json
from ndm_tcp.errors import NdmError
from ndm_tcp.fixedpoint import Layer


def layer(values: dict[str, Any]) -> Layer:
    return Layer(
        np.array(values["weight"], np.int16),
        np.array(values["bias"], np.int32),
        np.array(values["shift"], np.uint8),
        int(values.get("clamped", 0)),
    )


def wide(data: dict[str, Any]) -> None:
    one, two = data["layers"][0], data["layers"][1]
    for name in ("weight", "bias", "shift"):
        one[name] = [one[name][0]] * (c.MAX_WIDTH + 1)
    two["weight"] = [[row[0]] * (c.MAX_WIDTH + 1) for row in two["weight"]]


def of(name: str, value: Any, number: int = 0) -> Any:
    return lambda data: data["layers"][number].update({name: value})


BAD = {
    "notes that are a list": lambda data: data.update(notes=[1]),
    "a note that ends a comment": lambda data: data["notes"].update(run="a */ int x; /* b"),
    "a note of two lines": lambda data: data["notes"].update(run="a\nb"),
    "no layers": lambda data: data.update(layers=[]),
    "layers that are a number": lambda data: data.update(layers=3),
    "the first layer alone": lambda data: data["layers"].__delitem__(slice(1, None)),
    "many layers": lambda data: data["layers"].extend(data["layers"][1:2] * c.MAX_LAYERS),
    "a wide layer": wide,
    "weights in a row": of("weight", [1, 2]),
    "no weights": of("weight", []),
    "uneven rows": of("weight", [[1], [1, 2]]),
    "other inputs": of("weight", [[1] * (c.N_DENSE - 1)] * 8),
    "few biases": of("bias", [0]),
    "a bias that is a number": of("bias", 0),
    "few shifts": of("shift", [12]),
    "a shift of 0": of("shift", [0] * 8),
    "a shift of 40": of("shift", [40] * 8),
    "a shift of 300": of("shift", [300] * 8),
    "clamped below 0": of("clamped", -1),
    "clamped above all": of("clamped", 300),
    "a clamped output": of("clamped", 1, -1),
    "a layer that is a number": lambda data: data.update(layers=[3]),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("hashed", [False, True], ids=["its old hash", "its own hash"])
def test_what_no_export_writes_is_refused(name: str, hashed: bool, tmp_path: Path) -> None:
    data = orjson.loads(model_json.SHIPPED.read_bytes())
    assert len(data["layers"][0]["bias"]) == 8
    BAD[name](data)
    if hashed:
        # Not all of them can have one.
        with contextlib.suppress(ValueError, TypeError, IndexError, OverflowError):
            made = model_json.Model([layer(values) for values in data["layers"]], {})
            data["model"] = made.hash()
    path = tmp_path / model_json.NAME
    path.write_bytes(orjson.dumps(data))
    with pytest.raises(NdmError, match="not a model written by ndm export") as refused:
        model_json.from_json(path)
    assert "\n" not in str(refused.value)
