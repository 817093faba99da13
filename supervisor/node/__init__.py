"""The program that travels to the node. Standard library only, Python 3.8 syntax, imports nothing of `supervisor`.

It is sent at each connect, imported from memory, and nothing of it is installed there. What it says is facts; what
they mean is decided on the operator's side.
"""
