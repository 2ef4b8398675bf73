# SPDX-License-Identifier: GPL-2.0-only
"""Which hash covers what."""

from __future__ import annotations

import pytest

from ndm_tcp import contract


@pytest.mark.parametrize("name", sorted(contract.constants()))
def test_rounds_and_real_weights_outlive_the_arithmetic_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds outlive the network's own constants too; its memory is in the interface by itself."""
    whole, interface, measured = contract.canonical(), contract.interface(), contract.measured()
    monkeypatch.setattr(contract, name, contract.constants()[name] + 1)
    assert contract.canonical() != whole
    of_network = name in contract.ARITHMETIC | contract.NETWORK
    assert (contract.interface() == interface) == of_network
    assert (contract.measured() == measured) == of_network


def test_no_number_of_the_contract_is_left_out() -> None:
    numbers = {name for name, value in vars(contract).items() if type(value) is int}
    assert numbers == set(contract.CONSTANTS)


def test_the_arithmetic_is_constants() -> None:
    assert set(contract.constants()) > contract.ARITHMETIC
    assert len({contract.HASH, contract.INTERFACE_HASH, contract.DATA_HASH}) == 3
