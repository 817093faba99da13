"""Writes a random llama model as GGUF: tiny (265 KB, 0.2 s) for answers, large (0.8 GB) for a loading phase to watch.

    python -m tests.real.make_gguf tiny|large OUT.gguf

The same bytes every time. It imports numpy and gguf, 0.2 s, so whoever only wants a path imports tests.real.llama.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np


class Size(NamedTuple):
    """The dimensions that decide how big the file is."""

    embedding: int
    layers: int
    feed_forward: int
    extra_tokens: int


SIZES = {"tiny": Size(64, 2, 128, 0), "large": Size(1024, 24, 4096, 1000)}

HEADS = 4
CONTROL_TOKENS = 3
BYTE_TOKENS = 256
NO_TEXT = CONTROL_TOKENS + BYTE_TOKENS  # the tokens before this one are no text of their own


def write(out: Path, size: Size) -> None:
    """One model file at `out`."""
    writer = gguf.GGUFWriter(out, "llama")
    vocabulary = _add_vocabulary(writer, size)
    _add_shape(writer, size, vocabulary)
    tensors = _Tensors(writer)
    tensors.add_embeddings(vocabulary, size)
    for layer in range(size.layers):
        tensors.add_layer(layer, size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: gguf.GGUFWriter, size: Size, vocabulary: int) -> None:
    writer.add_name("tiny-random")
    writer.add_context_length(2048)
    writer.add_embedding_length(size.embedding)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.feed_forward)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size.embedding // HEADS)
    writer.add_file_type(1)
    writer.add_vocab_size(vocabulary)


def _add_vocabulary(writer: gguf.GGUFWriter, size: Size) -> int:
    tokens = [b"<unk>", b"<s>", b"</s>"]
    tokens += [b"<0x%02X>" % byte for byte in range(BYTE_TOKENS)]
    tokens += ["\u2581".encode()]
    tokens += [bytes([character]) for character in range(33, 127)]
    tokens += [b"tok%d" % number for number in range(size.extra_tokens)]
    text_tokens = len(tokens) - NO_TEXT
    kinds = gguf.TokenType
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * NO_TEXT + [-float(rank) for rank in range(text_tokens)])
    writer.add_token_types(
        [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL] + [kinds.BYTE] * BYTE_TOKENS + [kinds.NORMAL] * text_tokens
    )
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:")
    return len(tokens)


class _Tensors:
    """Adds random matrices, repeating a block of randomness: to draw 400 million numbers would take ten seconds."""

    def __init__(self, writer: gguf.GGUFWriter) -> None:
        self._writer = writer
        block = np.random.default_rng(0).standard_normal(1_048_573, dtype=np.float32) * 0.05
        self._block = block.astype(np.float16)
        self._turn = 0

    def add_embeddings(self, vocabulary: int, size: Size) -> None:
        embeddings = self._matrix(vocabulary, size.embedding)
        output = self._matrix(vocabulary, size.embedding)
        # One feature is constant and tells text from the rest: bytes at random make invalid UTF-8, and llama-server
        # answers that with 500.
        embeddings[:, 0] = 3.0
        output[:, 0] = 1.0
        output[:NO_TEXT, 0] = -1.0
        self._writer.add_tensor("token_embd.weight", embeddings)
        self._writer.add_tensor("output_norm.weight", np.ones(size.embedding, np.float32))
        self._writer.add_tensor("output.weight", output)

    def add_layer(self, layer: int, size: Size) -> None:
        prefix = f"blk.{layer}."
        self._writer.add_tensor(prefix + "attn_norm.weight", np.ones(size.embedding, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            self._writer.add_tensor(f"{prefix}{name}.weight", self._matrix(size.embedding, size.embedding))
        self._writer.add_tensor(prefix + "ffn_norm.weight", np.ones(size.embedding, np.float32))
        self._writer.add_tensor(prefix + "ffn_gate.weight", self._matrix(size.feed_forward, size.embedding))
        self._writer.add_tensor(prefix + "ffn_up.weight", self._matrix(size.feed_forward, size.embedding))
        self._writer.add_tensor(prefix + "ffn_down.weight", self._matrix(size.embedding, size.feed_forward))

    def _matrix(self, rows: int, columns: int) -> np.ndarray[tuple[int, int], np.dtype[np.float16]]:
        self._turn += 7919  # each starts elsewhere in the block, else all layers would be one
        return np.resize(np.roll(self._block, self._turn), (rows, columns))


def main(argv: list[str]) -> int:
    size, out = argv
    write(Path(out), SIZES[size])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
