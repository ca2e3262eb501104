# SPDX-License-Identifier: Apache-2.0
"""
Where the time to first token goes when 125k ids are reused: functions by their share, as text.

    make profiles    # two minutes; writes docs/benchmarks/profile-*.txt

py-spy looks at all processes of a server while one request after the other is answered.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

from lab.servers.server import running

from .first_token import body, conversation, first_token, launch
from .report import FOLDER

SIZE = 125_000
SECONDS = 25
RATE = 200
SHOWN = 12


def main() -> int:
    """Profile plain vLLM and the guard in turn; return the exit status."""
    for name, guarded in (("plain", False), ("guard", True)):
        file = FOLDER / f"profile-{name}.txt"
        file.write_text(_profile(guarded=guarded))
        print(f"{file.name}:\n{file.read_text()}", flush=True)
    return 0


def _profile(*, guarded: bool) -> str:
    with running(launch(guarded=guarded)) as server, tempfile.TemporaryDirectory() as folder:
        client = httpx.Client(base_url=server.url, timeout=900)
        messages, ids = conversation(client, SIZE)
        asked = body(messages, ids)
        for _ in range(3):
            first_token(client, asked)
        stacks = Path(folder) / "stacks"
        command = [
            str(Path(sys.executable).with_name("py-spy")), "record", "--subprocesses", "--format",
            "raw", "--duration", str(SECONDS), "--rate", str(RATE), "--output", str(stacks),
            "--pid", str(server.process.pid),
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=quiet, stderr=quiet) as spy:  # noqa: S603
            asked_for = 0
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                first_token(client, asked)
                asked_for += 1
            spy.wait(60)
        head = f"{asked_for} requests of {len(ids)} ids, one after the other, in {SECONDS} s."
        return f"{head} Milliseconds for each request.\n\n{table(stacks.read_text(), asked_for)}\n"


def table(stacks: str, requests: int) -> str:
    """
    Say in which functions the samples are, process by process.

    stacks: lines of "process;frame;... count", outermost first, as py-spy's raw format has them.
    requests: how many were answered meanwhile.
    Returns lines of the milliseconds per request that a function is the innermost one, and is one
    of those under way. Threads that wait are among them.
    """
    within: Counter[tuple[str, ...]] = Counter()
    innermost: Counter[tuple[str, ...]] = Counter()
    for line in stacks.splitlines():
        path, _, count = line.rpartition(" ")
        # The line number tells pieces of one function apart, which are to be one row.
        frames = [re.sub(r":\d+\)", ")", frame) for frame in path.split(";")]
        # A child stands below its parent.
        first = max(at for at, frame in enumerate(frames) if frame.startswith("process "))
        kind = (re.findall(r"VLLM::\w+", frames[first]) or ["API server"])[0]
        frames = frames[first + 1 :]
        if not frames:
            continue
        innermost[kind, frames[-1]] += int(count)
        for frame in set(frames):
            within[kind, frame] += int(count)
    lines = []
    for kind in dict.fromkeys(kind for kind, _ in within):
        lines += ["", kind, "    self   total  function"]
        rows = sorted(within, key=lambda row: (-innermost[row], -within[row]))
        for row in [row for row in rows if row[0] == kind][:SHOWN]:
            own, all_of_it = (n[row] / RATE / requests * 1000 for n in (innermost, within))
            lines.append(f"{own:8.2f}{all_of_it:8.2f}  {row[1]}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
