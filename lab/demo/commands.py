# SPDX-License-Identifier: Apache-2.0
"""Commands to copy: the way of a request through the pair, by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from ..servers.pair import TO_PREFILL, Pair
from ..servers.server import MODEL_NAME, Server
from .question import QUESTION

_CHAT = {"model": MODEL_NAME, "messages": [{"role": "user", "content": QUESTION}]}
_TO_DECODE = {**_CHAT, "max_tokens": 24, "temperature": 0, "return_token_ids": True}
_ADD_HANDOVER = """
import json, sys
body, told = json.loads(sys.argv[1]), json.load(open("prefill.json"))
ids = {"prompt_token_ids": told["prompt_token_ids"]}
print(json.dumps({**body, "kv_transfer_params": {**told["kv_transfer_params"], **ids}}))
"""


def commands(pair: Pair) -> Iterator[tuple[str, str]]:
    """Return what to try, each as a remark and a command for a POSIX shell."""
    to_prefill = {
        **_CHAT,
        "max_tokens": 1,
        "return_token_ids": True,
        "kv_transfer_params": TO_PREFILL,
    }
    bad = {**_CHAT, "stream": True, "kv_transfer_params": {"prompt_token_ids": [1, True, 2]}}
    yield (
        "prefill reads the question, and says where its KV blocks are",
        f"{_curl(pair.prefill, _json(to_prefill))} > prefill.json",
    )
    body = f"python3 -c {shlex.quote(_ADD_HANDOVER)} {_json(_TO_DECODE)}"
    yield (
        "decode answers, with the KV blocks and the ids; once, then prefill lets go of the blocks",
        f"{body} |\n  {_curl(pair.decode, '@-')}",
    )
    yield "a bad request: 400 before a stream opens", _curl(pair.decode, _json(bad), "-i")


def _curl(server: Server, data: str, *options: str) -> str:
    parts = ["curl", "-s", *options, f"{server.url}/v1/chat/completions"]
    header = "-H 'Content-Type: application/json'"
    return f"{shlex.join(parts)} {header} \\\n  -d {data}"


def _json(body: dict[str, Any]) -> str:
    return shlex.quote(json.dumps(body))
