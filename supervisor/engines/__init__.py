"""Engines as data: one TOML an engine, and the loader. No engine's name stands in code."""
