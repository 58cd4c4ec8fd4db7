# SPDX-License-Identifier: Apache-2.0
"""Continue a text with a model, by the likeliest token each time: `llama_tokens.py MODEL TEXT COUNT`.

All layers are on the cGPUs of `LLAMA_ARG_RPC`, as llama.cpp's own programs have them with `-ngl 99`; without this
variable, on this machine's CPU. It prints a line of JSON with the tokens; ggml tells on the standard error which
device has what.
"""

# ruff: noqa: T201 - printing is what it is for, and llama.cpp's own functions are private names there

from __future__ import annotations

import json
import os
import sys

from llama_cpp_py_sync.llama import Llama


def main(file: str, text: str, count: int) -> int:
    servers = os.environ.get("LLAMA_ARG_RPC")
    where = {"rpc_servers": servers.split(","), "n_gpu_layers": 99} if servers else {}
    try:
        model = Llama(file, n_ctx=256, n_threads=1, verbose=True, **where)
    except RuntimeError as error:
        print(json.dumps({"error": str(error)}))
        return 1
    size = model._lib.llama_vocab_n_tokens(model._vocab)
    tokens, past = model.tokenize(text), 0
    found: list[int] = []
    while len(found) < count:
        past = model._eval_tokens(tokens, past)
        likely = model._ffi.unpack(model._lib.llama_get_logits_ith(model._ctx, -1), size)
        tokens = [max(range(size), key=likely.__getitem__)]
        found += tokens
    print(json.dumps({"tokens": found}), flush=True)
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.stdout.flush()
    os._exit(status)  # without an end of ggml that waits for servers
