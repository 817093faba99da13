"""The pure core: facts in, events out. No I/O, no clock, no asyncio, no logging."""
