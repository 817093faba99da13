"""The simulated engine: a program that behaves as SGLang, vLLM or llama.cpp do, for the tests and the demonstration.

It is run by path with any Python from 3.8 on (`python -I simulated_engine.py sglang --port 30000 …`), has no model and
no GPU, and says so in its first line. It must not import anything of the product: a test that shares code with what
it tests proves nothing. Its parts stand in simulated/ beside it; this file only finds them, whatever the current
folder is and although `-I` keeps this folder off sys.path.
"""

from __future__ import annotations

import os
import sys
import types

if not __package__:
    # Run by path there is no package around us: make an empty one with this folder, and no other, on its path.
    _around = types.ModuleType("simulated_engine_around")
    _around.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules[_around.__name__] = _around
    __package__ = _around.__name__
    if sys.path and sys.path[0] == _around.__path__[0]:
        del sys.path[0]  # without -I: nothing here may shadow a module of the standard library

from .simulated.life import main

if __name__ == "__main__":
    if sys.argv[1:2] == ["left-over"]:
        from .simulated import left_over

        left_over.main(sys.argv[2:])
    else:
        main(sys.argv[1:])
