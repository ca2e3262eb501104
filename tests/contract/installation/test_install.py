# SPDX-License-Identifier: Apache-2.0
"""The patches go in together or not at all, once, and come out without a trace."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

import pytest
import vllm
from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter, ValidationError
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.tokenize.protocol import TokenizeChatRequest, TokenizeRequest

from lab.models.build import Model
from lab.servers.in_process import make_renderer
from vllm_reuse_guard import __version__, installer, plugin, settings
from vllm_reuse_guard.installer import install, misfits
from vllm_reuse_guard.patches import PATCHES

RENDERER = "vllm.renderers.online_renderer"
OVERRIDE = "VLLM_REUSE_GUARD_ALLOW_UNSUPPORTED"


def slots() -> dict[str, Any]:
    """Return what every upstream module and every class that it defines holds, by name."""
    found: dict[str, Any] = {}
    for patch in PATCHES:
        module = sys.modules[patch.target]
        found |= {f"{patch.module}.{name}": value for name, value in vars(module).items()}
        for name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == patch.target:
                found |= {f"{patch.module}.{name}.{k}": v for k, v in vars(value).items()}
    return found


def differences(before: dict[str, Any]) -> set[str]:
    """Return the names of the slots that do not hold the very object of before."""
    after = slots()
    return {
        name
        for name in before.keys() | after.keys()
        if before.get(name, before) is not after.get(name, after)
    }


def with_and_without_patches(look: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what a look at vLLM finds before the patches are in, and while they are."""
    before = look()
    undo = install(PATCHES)
    after = look()
    undo()
    return before, after


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The plugin has not been loaded, and what it installs is taken out after the test."""
    undone = []
    monkeypatch.setattr(plugin, "_registered", False)
    monkeypatch.setattr(installer, "install", lambda p: undone.append(install(p)))
    settings.current.cache_clear()
    yield
    for undo in undone:
        undo()
    settings.current.cache_clear()


def test_every_patch_point_is_there() -> None:
    """
    Every supported release has everything that the patches need.
    """
    assert () == misfits(PATCHES)


def test_undo_restores_the_very_objects() -> None:
    """
    In and out again, every slot of the modules and their classes is what it was.
    """
    before = slots()

    undo = install(PATCHES)
    changed = differences(before)
    undo()

    assert {patch.module for patch in PATCHES} == {
        patch.module for patch in PATCHES for name in changed if name.startswith(patch.module)
    }
    assert set() == differences(before)


def test_failing_patch_takes_the_others_out() -> None:
    """
    If the last patch cannot be applied, the first ones do not stay.
    """
    before = slots()
    broken = replace(PATCHES[-1], name="no.such.patch")

    with pytest.raises(ModuleNotFoundError):
        install([*PATCHES, broken])

    assert set() == differences(before)


@pytest.mark.usefixtures("unregistered")
def test_loading_twice_patches_once() -> None:
    """
    The plugin may be loaded as often as vLLM likes.
    """
    before = slots()

    plugin.register()
    once = differences(before)
    first = slots()
    plugin.register()

    assert once
    assert set() == differences(first)


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("connector", [False, True])
def test_server_says_that_it_is_guarded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, connector: bool
) -> None:
    """
    One line when a server's renderer is made: which guard, where, and by which settings.
    """
    make_renderer(Model.TINY_QWEN2, connector=connector)
    # Only now: the first use of some parts of vLLM sets its log up anew.
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="vllm.reuse_guard"):
        make_renderer(Model.TINY_QWEN2, connector=connector)

    (line,) = {r.getMessage() for r in caplog.records if "reuse-guard" in r.getMessage()}
    assert f"vllm-reuse-guard {__version__} is active in the API server" in line
    assert "prompt_token_ids_policy=connector" in line
    assert f"KV connector: {'NixlConnector' if connector else 'none'}" in line


@pytest.mark.usefixtures("unregistered")
def test_missing_patch_point_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A missing patch point stops the start and changes nothing; the line names it and the override.
    """
    target = RENDERER
    monkeypatch.delattr(sys.modules[target], "_reused_prompt_token_ids")
    before = slots()

    with pytest.raises(SystemExit) as stop:
        plugin.register()

    assert f"{target}._reused_prompt_token_ids is missing" in str(stop.value)
    assert OVERRIDE in str(stop.value)
    assert "\n" not in str(stop.value)
    assert set() == differences(before)


@pytest.mark.usefixtures("unregistered")
def test_override_starts_without_the_guard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Overridden, the server starts with nothing patched and says so.
    """
    monkeypatch.delattr(sys.modules[RENDERER], "_reused_prompt_token_ids")
    monkeypatch.setenv(OVERRIDE, "1")
    before = slots()
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)

    with caplog.at_level(logging.WARNING):
        plugin.register()

    assert set() == differences(before)
    assert "NOT active" in caplog.text


@pytest.mark.usefixtures("unregistered")
@pytest.mark.parametrize("override", [False, True])
def test_unknown_release(monkeypatch: pytest.MonkeyPatch, override: bool) -> None:
    """
    A release that nobody tested stops the start; overridden, its patch points decide.
    """
    monkeypatch.setattr(vllm, "__version__", "0.99.0")
    before = slots()
    if override:
        monkeypatch.setenv(OVERRIDE, "1")
        plugin.register()
        assert differences(before)
    else:
        with pytest.raises(SystemExit, match=r"vLLM 0\.99\.0.*tested on"):
            plugin.register()
        assert set() == differences(before)


@pytest.mark.usefixtures("unregistered")
def test_bad_setting_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A bad value stops the start before anything is patched.
    """
    monkeypatch.setenv("VLLM_REUSE_GUARD_PROMPT_TOKEN_IDS_POLICY", "perhaps")
    before = slots()

    with pytest.raises(SystemExit, match="perhaps"):
        plugin.register()

    assert set() == differences(before)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        {"messages": 5, "kv_transfer_params": {"prompt_token_ids": [1]}},
        {"messages": [5], "kv_transfer_params": {"prompt_token_ids": [1]}},
        {"messages": [], "kv_transfer_params": "prompt_token_ids"},
    ],
    ids=repr,
)
def test_what_is_no_request_fails_as_before(body: Any) -> None:
    """
    A body that validation refuses is refused with the very same words.
    """

    def failure() -> str:
        with pytest.raises(Exception, match=r".") as error:
            ChatCompletionRequest.model_validate(body)
        return f"{type(error.value)} {error.value}"

    before, after = with_and_without_patches(failure)

    assert before == after


@pytest.mark.parametrize("model", [ChatCompletionRequest, ResponsesRequest, TokenizeChatRequest])
def test_openapi_knows_the_models_by_their_names(model: type[BaseModel]) -> None:
    """
    Generators of clients find the same models as before.
    """

    def reference() -> Any:
        app = FastAPI()

        async def endpoint(body: Any) -> None: ...

        endpoint.__annotations__["body"] = model
        app.post("/")(endpoint)
        return app.openapi()["paths"]["/"]["post"]["requestBody"]

    before, after = with_and_without_patches(reference)

    assert before == after


def test_error_of_a_union_names_nothing_of_the_guard() -> None:
    """
    A body that is neither a chat nor a prompt fails with the words of before.
    """

    def failure() -> str:
        with pytest.raises(ValidationError) as error:
            TypeAdapter(TokenizeRequest).validate_python({"model": "m", "messages": 5})
        return str(error.value)

    before, after = with_and_without_patches(failure)

    assert before == after


def test_inherited_name_is_no_patch_point() -> None:
    """
    What a class merely inherits is not its own: a patch of it would act elsewhere too.
    """
    (chat,) = [patch for patch in PATCHES if patch.target == ChatCompletionRequest.__module__]

    (missing,) = misfits([replace(chat, patch_points=("ChatCompletionRequest.model_dump_json",))])

    assert f"{chat.target}.ChatCompletionRequest.model_dump_json" == missing


def test_no_reader_imported_the_function_by_value() -> None:
    """
    Everybody looks the reader up when calling it, so that replacing it is enough.
    """
    name, home = "_reused_prompt_token_ids", RENDERER

    holders = {m.__name__ for m in list(sys.modules.values()) if name in getattr(m, "__dict__", {})}

    assert {home} == holders


def test_vllm_finds_the_plugin_by_its_entry_point() -> None:
    """
    The name that VLLM_PLUGINS must contain, in the group that vLLM reads.
    """
    found = entry_points(group="vllm.general_plugins", name="reuse_guard")

    assert {"vllm_reuse_guard.plugin:register"} == {entry.value for entry in found}


LATE = """
import sys
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform
vllm.platforms.current_platform = CpuPlatform()
from vllm_reuse_guard import plugin
from vllm_reuse_guard.patches import PATCHES
assert not any(patch.target in sys.modules for patch in PATCHES)
plugin.register()
{spoil}
import vllm.renderers.online_renderer as module
print(hasattr(module._reused_prompt_token_ids, "__wrapped__"))
"""
SPOIL = """
(patch,) = [patch for patch in PATCHES if patch.module == "renderers.online_renderer"]
object.__setattr__(patch, "patch_points", ("a_patch_point",))
"""


@pytest.mark.parametrize(("spoil", "status"), [("", 0), (SPOIL, 1)], ids=["fits", "misfits"])
def test_module_that_is_imported_later(spoil: str, status: int) -> None:
    """
    A process that imports the front end after its plugins is guarded too, or ends.
    """
    command = [sys.executable, "-c", LATE.format(spoil=spoil)]

    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert status == ended.returncode, ended.stderr
    assert ("True" in ended.stdout) == (status == 0)
    assert ("a_patch_point is missing" in ended.stderr) == (status == 1)


def test_missing_package_ends_the_process() -> None:
    """
    A package of the guard that is gone is one line and the end, not a server without the guard.
    """
    code = (
        "import sys; sys.modules['wrapt'] = None;"
        "from vllm.plugins import load_general_plugins; load_general_plugins(); print('serves')"
    )
    environment = {**os.environ, "VLLM_PLUGINS": plugin.NAME}

    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )

    assert 1 == ended.returncode, ended.stderr
    assert "serves" not in ended.stdout
    assert "lacks a package that it needs" in ended.stderr.splitlines()[-1]
    assert "wrapt" in ended.stderr.splitlines()[-1]
