"""Formats of the endpoints: what a request says and what an answer cost, read from bytes; pure."""
