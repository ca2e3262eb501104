# SPDX-License-Identifier: Apache-2.0
"""
Show a real prefill and decode pair, joined by NIXL, with the guard in both.

    python -m lab.demo            ask a question, then send bad requests
    python -m lab.demo --serve    start the pair, say what to try, leave it running until Ctrl-C

Exit status: 0 if all checks passed, 1 if one failed, 2 if the demo could not run, 130 or 143 if it
was stopped.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from vllm_reuse_guard.releases import TESTED

from ..env.environment import WITHOUT_CPU_BUILD

RUNNABLE = tuple(release for release in TESTED if release not in WITHOUT_CPU_BUILD)
"""The releases whose engine runs without a GPU, oldest first."""

SERVE_PORTS = (8100, 8200)
"""Where prefill and decode listen with --serve, unless the command line says otherwise."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo as the command line says; return the exit status."""
    options = parse(arguments)
    stop_on_signals()
    # The libraries' own bars would cross the demo's.
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        # Not at the top: an import that fails is one line here, and --help is quick.
        from .run import Plan, run
    except ImportError as error:
        print(
            f"error: {error.name or error} is missing in this Python: use `make demo`, "
            "which builds the environment",
            file=sys.stderr,
        )
        return 2
    ports = options.port_prefill, options.port_decode
    return run(Plan(options.release, ports), serve=options.serve)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; ends the process with status 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--serve", action="store_true", help="leave the pair running until Ctrl-C")
    parser.add_argument("--release", choices=RUNNABLE, default=RUNNABLE[-1], help="of vLLM")
    for role, usual in zip(("prefill", "decode"), SERVE_PORTS, strict=True):
        words = f"a free one; with --serve {usual}"
        parser.add_argument(f"--port-{role}", type=port, metavar="PORT", help=f"default: {words}")
    options = parser.parse_args(arguments)
    if options.serve:
        options.port_prefill = options.port_prefill or SERVE_PORTS[0]
        options.port_decode = options.port_decode or SERVE_PORTS[1]
    if options.port_prefill and options.port_prefill == options.port_decode:
        parser.error(f"prefill and decode cannot share port {options.port_prefill}")
    return options


def port(text: str) -> int:
    """Return a port number; raises argparse.ArgumentTypeError if the text is none."""
    if text.isdecimal() and 0 < int(text) < 1 << 16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a port")


def stop_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and a closed terminal end the process, servers first."""
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, _stop)


def _stop(number: int, frame: object) -> NoReturn:
    # As an exception, so that what was started is ended.
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
