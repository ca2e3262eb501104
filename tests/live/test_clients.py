# SPDX-License-Identifier: Apache-2.0
"""
The official clients get with forwarded ids what they get without: text, tools, JSON, reasoning.

The ids are those of one conversation, the messages beside them are of another: had the server
rendered anything, the answer would not be the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import anthropic
import openai
import pytest

from lab.models.build import Model
from lab.servers import launches
from lab.servers.server import MODEL_NAME, Server, running
from vllm_reuse_guard.rules.outcome import PARAMETER, PROMPT_TOKEN_IDS
from vllm_reuse_guard.tools.conformance import Profile

RELEASES = ("0.27.0", "0.30.0", "0.31.0", "0.32.0")
TOOL_PARSER = (
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    # A random model would fill its answer with white space where a grammar lets it.
    "--structured-outputs-config",
    json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}),
)
REASONING_PARSER = ("--reasoning-parser", "deepseek_r1")

ASKED = [{"role": "user", "content": "What is the colour of the sea, and who painted it?"}]
OTHER = [{"role": "user", "content": "Count to three."}]
BAD_IDS = [[True], [1.5], "abc", []]

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
LOOK = {"name": "look", "parameters": SCHEMA}
# Made to keep to the schema, unless there is another constraint.
FREE_TOOLS = [{"type": "function", "function": LOOK}]
TOOLS = [{"type": "function", "function": {**LOOK, "strict": True}}]
NAMED = {"type": "function", "function": {"name": "look"}}
CALL = r'<tool_call>\n\{"name": "look", "arguments": \{"colour": "(red|blue)"\}\}\n</tool_call>'
AS_JSON = {"type": "json_schema", "json_schema": {"name": "colour", "schema": SCHEMA}}
FORMAT = {"type": "json_schema", "name": "colour", "schema": SCHEMA}

ANSWERS = {
    "text": {"max_tokens": 12},
    "tool-auto": {
        "max_tokens": 80,
        "tools": FREE_TOOLS,
        "tool_choice": "auto",
        # A random model calls no tool unless it is made to.
        "extra_body": {"structured_outputs": {"regex": CALL}},
    },
    "tool-required": {"max_tokens": 80, "tools": TOOLS, "tool_choice": "required"},
    "tool-named": {"max_tokens": 80, "tools": TOOLS, "tool_choice": NAMED},
    "json": {"max_tokens": 80, "response_format": AS_JSON},
}


@dataclass(frozen=True)
class Heard:
    """What a client makes of an answer."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    prompt: tuple[int, ...]


class Chat:
    """Chat completions by the official client."""

    def __init__(self, server: Server) -> None:
        self._client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)

    def ask(self, messages: Any, *, stream: bool, ids: Any = None, **ask: Any) -> Heard:
        """Send a chat; ids: those to forward, or None."""
        more = {"return_token_ids": True, **ask.pop("extra_body", {})}
        if ids is not None:
            more["kv_transfer_params"] = {PROMPT_TOKEN_IDS: ids}
        answer = self._client.chat.completions.create(
            model=MODEL_NAME,
            messages=messages,
            temperature=0,
            stream=stream,
            extra_body=more,
            **ask,
        )
        return _streamed(answer) if stream else _whole(answer)


def _whole(answer: Any) -> Heard:
    message = answer.choices[0].message
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
    return Heard(
        message.content or "", _reasoning(message), tuple(calls), tuple(answer.prompt_token_ids)
    )


def _streamed(answer: Any) -> Heard:
    text = reasoning = ""
    calls: dict[int, list[str]] = {}
    prompt: list[int] = []
    for chunk in answer:
        prompt = prompt or getattr(chunk, "prompt_token_ids", None) or []
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasoning += _reasoning(choice.delta)
            for call in choice.delta.tool_calls or []:
                heard = calls.setdefault(call.index, ["", ""])
                heard[0] += call.function.name or ""
                heard[1] += call.function.arguments or ""
    return Heard(text, reasoning, tuple((n, a) for n, a in calls.values()), tuple(prompt))


def _reasoning(message: Any) -> str:
    return getattr(message, "reasoning", None) or getattr(message, "reasoning_content", None) or ""


def serve(release: str, *arguments: str) -> Iterator[Server]:
    """A server without a connector that is told to use ids, and more."""
    launch = launches.launch(Profile.POLICY_ALWAYS, release, Model.TINY_QWEN2)
    with running(replace(launch, arguments=(*launch.arguments, *arguments))) as server:
        yield server


@pytest.fixture(scope="module", params=RELEASES)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from serve(request.param, *TOOL_PARSER)


@pytest.fixture(scope="module", params=RELEASES)
def reasoning_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from serve(request.param, *REASONING_PARSER)


@pytest.fixture
def forwarded(server: Server) -> list[int]:
    """The ids of what is asked."""
    return list(Chat(server).ask(ASKED, stream=False, max_tokens=1).prompt)


@pytest.fixture
def anthropic_client(server: Server) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


@pytest.fixture
def openai_client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ANSWERS)
def test_chat(server: Server, kind: str, stream: bool) -> None:
    """
    Text, tool calls of every choice, and JSON by a schema.
    """
    chat, ask = Chat(server), ANSWERS[kind]

    plain = chat.ask(ASKED, stream=stream, **ask)
    reused = chat.ask(OTHER, stream=stream, ids=list(plain.prompt), **ask)

    assert plain == reused
    if kind == "json":
        assert json.loads(reused.text)["colour"] in ("red", "blue")
    elif kind == "text":
        assert reused.text
    else:
        ((name, given),) = reused.calls
        assert name == "look"
        assert json.loads(given)["colour"] in ("red", "blue")


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning(reasoning_server: Server, stream: bool) -> None:
    """
    What the model thinks is told apart from what it says.
    """
    chat = Chat(reasoning_server)

    plain = chat.ask(ASKED, stream=stream, max_tokens=12)
    reused = chat.ask(OTHER, stream=stream, ids=list(plain.prompt), max_tokens=12)

    assert plain == reused
    assert reused.reasoning


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ids", BAD_IDS, ids=repr)
def test_chat_refused(server: Server, ids: Any, stream: bool) -> None:
    """
    The client raises its error for a bad request, also before it reads from a stream.
    """
    with pytest.raises(openai.BadRequestError) as error:
        Chat(server).ask(ASKED, stream=stream, ids=ids, max_tokens=4)

    assert PARAMETER == error.value.param


@pytest.mark.parametrize("form", [{}, {"text": {"format": FORMAT}}], ids=["text", "json"])
@pytest.mark.parametrize("stream", [False, True])
def test_response(
    openai_client: openai.OpenAI, forwarded: list[int], form: Any, stream: bool
) -> None:
    """
    Responses, as text and by a schema.
    """

    def ask(asked: Any, more: Any) -> Any:
        answer = openai_client.responses.create(
            model=MODEL_NAME,
            input=asked,
            temperature=0,
            max_output_tokens=40,
            store=False,
            stream=stream,
            extra_body=more,
            **form,
        )
        if not stream:
            return answer
        *_, last = answer
        assert last.type == "response.completed"
        return last.response

    plain = ask(ASKED, {})
    reused = ask(OTHER, {"kv_transfer_params": {PROMPT_TOKEN_IDS: forwarded}})

    assert plain.output_text == reused.output_text != ""
    assert len(forwarded) == plain.usage.input_tokens == reused.usage.input_tokens


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ids", BAD_IDS, ids=repr)
def test_response_refused(openai_client: openai.OpenAI, ids: Any, stream: bool) -> None:
    """
    The same error as for a chat.
    """
    with pytest.raises(openai.BadRequestError) as error:
        openai_client.responses.create(
            model=MODEL_NAME,
            input=ASKED,
            stream=stream,
            extra_body={"kv_transfer_params": {PROMPT_TOKEN_IDS: ids}},
        )

    assert PARAMETER == error.value.param


@pytest.mark.parametrize("stream", [False, True])
def test_message(anthropic_client: anthropic.Anthropic, forwarded: list[int], stream: bool) -> None:
    """
    Messages, whole and streamed.
    """

    def ask(asked: Any, more: Any) -> Any:
        asks = {
            "model": MODEL_NAME,
            "messages": asked,
            "max_tokens": 12,
            "extra_body": {"temperature": 0, **more},
        }
        if not stream:
            return anthropic_client.messages.create(**asks)
        with anthropic_client.messages.stream(**asks) as answer:
            return answer.get_final_message()

    plain = ask(ASKED, {})
    reused = ask(OTHER, {"kv_transfer_params": {PROMPT_TOKEN_IDS: forwarded}})

    assert plain.content[0].text == reused.content[0].text != ""
    assert len(forwarded) == plain.usage.input_tokens == reused.usage.input_tokens


def test_message_with_a_tool(anthropic_client: anthropic.Anthropic, server: Server) -> None:
    """
    A tool that must be used is used.
    """
    ids = Chat(server).ask(ASKED, stream=False, max_tokens=1, tools=TOOLS).prompt

    def ask(asked: Any, more: Any) -> Any:
        return anthropic_client.messages.create(
            model=MODEL_NAME,
            messages=asked,
            max_tokens=80,
            tools=[{"name": "look", "input_schema": SCHEMA, "strict": True}],
            tool_choice={"type": "tool", "name": "look"},
            extra_body={"temperature": 0, **more},
        )

    plain = ask(ASKED, {})
    reused = ask(OTHER, {"kv_transfer_params": {PROMPT_TOKEN_IDS: list(ids)}})

    assert len(ids) == plain.usage.input_tokens == reused.usage.input_tokens
    (call,) = (block for block in reused.content if block.type == "tool_use")
    (expected,) = (block for block in plain.content if block.type == "tool_use")
    assert (expected.name, expected.input) == (call.name, call.input)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ids", BAD_IDS, ids=repr)
def test_message_refused(anthropic_client: anthropic.Anthropic, ids: Any, stream: bool) -> None:
    """
    The client raises its error for a bad request, on 0.27 too.
    """
    with pytest.raises(anthropic.BadRequestError, match=PARAMETER):
        anthropic_client.messages.create(
            model=MODEL_NAME,
            messages=ASKED,
            max_tokens=4,
            stream=stream,
            extra_body={"kv_transfer_params": {PROMPT_TOKEN_IDS: ids}},
        )
