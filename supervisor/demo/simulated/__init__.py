"""The parts of the simulated engine. Standard library only, Python 3.8, nothing of the product; see life.py first."""
