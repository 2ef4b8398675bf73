# SPDX-License-Identifier: GPL-2.0-only
"""Which hash covers what."""

from __future__ import annotations

import pytest

from ndm_tcp import contract


@pytest.mark.parametrize("name", sorted(contract.constants()))
def test_rounds_and_real_weights_outlive_the_arithmetic_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, interface = contract.canonical(), contract.canonical(contract.ARITHMETIC)
    monkeypatch.setattr(contract, name, contract.constants()[name] + 1)
    assert contract.canonical() != whole
    same = contract.canonical(contract.ARITHMETIC) == interface
    assert same == (name in contract.ARITHMETIC)


def test_the_arithmetic_is_constants() -> None:
    assert set(contract.constants()) > contract.ARITHMETIC
    assert contract.HASH != contract.INTERFACE_HASH
