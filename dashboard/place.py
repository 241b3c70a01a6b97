"""Where the pages find the ledger: how the command that starts them tells them."""

LEDGER = "FAREGATE_DASHBOARD_LEDGER"
"""The environment variable with the ledger's URL; it may hold a password, so it is no argument of a command."""
