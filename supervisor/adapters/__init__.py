"""Adapters do the I/O: SSH, local processes, HTTP. They decide nothing about phases."""
