# SPDX-License-Identifier: Apache-2.0
"""Write a model for llama.cpp whose weights are random numbers: `llama_model.py FILE WIDTH LAYERS SEED`.

Its vocabulary are the 256 bytes, so that it takes any text, and answers with nonsense; the same for the same seed.
"""

from __future__ import annotations

import sys
from typing import Any

import gguf
import numpy

HEADS = 8
TOKENS = [b"<unk>", b"<s>", b"</s>", *(f"<0x{number:02X}>".encode() for number in range(256))]
TYPES = [
    gguf.TokenType.UNKNOWN,
    *[gguf.TokenType.CONTROL] * 2,
    *[gguf.TokenType.BYTE] * 256,
]


def main(file: str, width: int, layers: int, seed: int) -> None:
    random = numpy.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Any:
        return random.standard_normal((rows, columns), numpy.float32) / numpy.float32(columns**0.5)

    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(4 * width)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_token_types(TYPES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    norm = numpy.ones(width, numpy.float32)
    writer.add_tensor("token_embd.weight", matrix(len(TOKENS), width))
    writer.add_tensor("output.weight", matrix(len(TOKENS), width))
    writer.add_tensor("output_norm.weight", norm)
    for number in range(layers):
        block = f"blk.{number}"
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}.{name}.weight", norm)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{block}.{name}.weight", matrix(width, width))
        for name in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"{block}.{name}.weight", matrix(4 * width, width))
        writer.add_tensor(f"{block}.ffn_down.weight", matrix(width, 4 * width))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
