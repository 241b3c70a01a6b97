"""Tokens and money: pure arithmetic that imports nothing of ours."""
