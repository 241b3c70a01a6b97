"""The finance pages: they read the ledger and nothing else."""
