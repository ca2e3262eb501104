# SPDX-License-Identifier: Apache-2.0
"""The course of the demo: the model, the pair, then the question or leaving the pair up."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import httpx
from openai import OpenAIError

from ..models.build import Model, ModelBuildError, build
from ..paths import MODELS, RELEASES
from ..servers import launches
from ..servers.pair import Pair, starting_pair
from ..servers.server import NIXL, Launch, Server, ServerError, wait_until_healthy
from . import question
from .commands import commands
from .screen import Screen

_ERROR = re.compile(
    r"^(?:\([^)]*\) )?(?:ERROR \S+ \S+ \[\S+\] )?([\w.]*(?:Error|Exception): .+)", re.MULTILINE
)
"""The last line of a traceback in vLLM's log, behind the process and the time if it has them."""

_ACTIVE = re.compile(r"^(?!\((?!APIServer)).*\bvllm-reuse-guard (\S+) is active", re.MULTILINE)
"""What the guard says at the start of the process that answers requests, and in no other."""


class DemoError(Exception):
    """The demo cannot run; the message says why in one line."""


@dataclass(frozen=True)
class Plan:
    """What to start: a vLLM release, and the ports of prefill and decode, None for free ones."""

    release: str
    ports: tuple[int | None, int | None]

    def launches(self, model: Path) -> Iterator[Launch]:
        """Say how to start prefill, then decode."""
        arguments = (*launches.arguments(self.release), *NIXL)
        for name, port in zip(("prefill", "decode"), self.ports, strict=True):
            yield Launch(name, self.release, model, arguments, port=port, kv_cache=1024)


def run(plan: Plan, *, serve: bool) -> int:
    """Start the pair and show it, or leave it running; return the exit status."""
    screen = Screen()
    try:
        check(plan)
        with screen.waiting("getting SmolLM2-135M-Instruct ready"):
            model = build(Model.SMOLLM2, MODELS)
        with running_pair(plan, model, screen) as pair:
            return leave_running(pair, screen) if serve else show(pair, screen)
    except (DemoError, ServerError, ModelBuildError, OSError) as error:
        print(f"error: {_for_eyes(str(error))}", file=sys.stderr)
        return 2


def check(plan: Plan) -> None:
    """Raise DemoError if vLLM or the guard is not there."""
    if not (RELEASES / plan.release).is_dir():
        raise DemoError(f"vLLM {plan.release} is not unpacked: `make lab` does that")
    if not entry_points(group="vllm.general_plugins", name="reuse_guard"):
        raise DemoError("the guard is not installed in this Python: `make lab` does that")


def guard_version(server: Server) -> str:
    """Return the version of the guard that a server says is active; raises DemoError if none."""
    active = _ACTIVE.search(server.log_text())
    if active is None:
        raise DemoError(f"{server.launch.name} runs without the guard: is VLLM_PLUGINS set?")
    return active[1]


@contextmanager
def running_pair(plan: Plan, model: Path, screen: Screen) -> Iterator[Pair]:
    """
    Start both instances at the same time and wait for them; stop both at the end.

    Raises ServerError for a port in use, DemoError for an instance that does not come up or
    comes up without the guard.
    """
    with starting_pair(*plan.launches(model)) as pair, _quiet_end(screen):
        servers = (pair.prefill, pair.decode)
        with screen.waiting(f"starting prefill and decode, vLLM {plan.release}"):
            # Importing takes seconds, which the instances need in any case.
            from . import requests  # noqa: F401

            for server in servers:
                _wait_for(server)
        for server in servers:
            version, log = guard_version(server), _for_eyes(str(server.log))
            screen.say(f"{server.launch.name:8}{server.url}  guard {version}, log: {log}")
        yield pair


def show(pair: Pair, screen: Screen) -> int:
    """Ask the question, then send the bad requests; return the exit status."""
    from . import requests

    screen.title("One question through the pair, with the OpenAI client")
    answered = _holds(lambda: question.show(pair, screen), screen)
    screen.title("Bad requests to decode")
    refused = _holds(lambda: requests.show(pair.decode, screen), screen)
    held = answered and refused
    words = "All checks passed." if held else "Some checks failed."
    screen.say(f"\n{words}", style="bold green" if held else "bold red")
    return 0 if held else 1


def leave_running(pair: Pair, screen: Screen) -> int:
    """Say what to try and wait for a signal; return 1 if an instance ends on its own."""
    screen.title("The pair is up until Ctrl-C. To try, in another shell:")
    for remark, command in commands(pair):
        screen.say(f"\n# {remark}", style="bold")
        screen.say(command)
    while True:
        for server in (pair.prefill, pair.decode):
            if server.process.poll() is not None:
                screen.say(f"\n{server.launch.name} ended: {_why(server)}", style="bold red")
                return 1
        time.sleep(0.5)


def _holds(part: Callable[[], bool], screen: Screen) -> bool:
    try:
        return part()
    except (OpenAIError, httpx.HTTPError) as error:
        screen.say(f"no answer: {type(error).__name__}: {error}", style="bold red")
        return False


def _wait_for(server: Server) -> None:
    try:
        wait_until_healthy(server)
    except ServerError as error:
        raise DemoError(f"{error}: {_why(server)}") from None


def _why(server: Server) -> str:
    # The first error is the cause; those after it say that there was one.
    text = server.log_text()
    first = _ERROR.search(text)
    words = first[1] if first else (text.strip() or "it printed nothing").splitlines()[-1]
    return _for_eyes(f"{words} (log: {server.log})")


@contextmanager
def _quiet_end(screen: Screen) -> Iterator[None]:
    """Let nothing interrupt what is done after this: it could leave a process behind."""
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        screen.say("stopping prefill and decode")


def _for_eyes(text: str) -> str:
    """Shorten paths: those in the current folder are relative, others begin at ~."""
    return text.replace(f"{Path.cwd()}/", "").replace(f"{Path.home()}/", "~/")
