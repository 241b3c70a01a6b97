"""Decides: pure functions over facts, a policy and the state of the world, passed in."""
