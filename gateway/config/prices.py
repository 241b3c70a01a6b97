"""Reads `[[prices]]`: what the built-in book lacks or a contract changes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gateway.config.model import Provider
from gateway.config.table import Table
from pricing.money import PicoUsd
from routers.policy import Deployment

if TYPE_CHECKING:
    from pricing.sheet import PriceBook


def read_prices(
    top: Table,
    deployments: Mapping[str, Deployment],
    providers: Mapping[str, Provider],
    ceilings: Mapping[str, PicoUsd | None],
) -> "dict[str, PriceBook]":
    """By deployment: its own price where the file gives one, else its provider's book."""
    top.get("prices")
    return {}
