"""python -m mlxops bench: how fast the operations are on this machine, and how fast others are."""
