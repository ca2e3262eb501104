# SPDX-License-Identifier: Apache-2.0
"""Add the guard to a vLLM tree and remove it again, byte for byte; needs no running vLLM."""

from __future__ import annotations

import ast
import difflib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import msgspec

from .. import __version__
from ..errors import TreeError
from ..in_tree import FOLDER, LINES, RECORD, Applied, files_of, unguarded
from ..installer import Patch
from ..patches import PATCHES, needed_by
from ..releases import TESTED, is_tested
from . import patch_points

_PACKAGE = Path(__file__).parents[1]
_NOT_COPIED = ("__main__.py", "tools")
"""The parts of this package that never run inside vLLM."""

_RECORD_FILE = f"in_tree/{RECORD}.py"

_VERSION = re.compile(r"""^__version__ = version = ['"]([^'"]+)['"]""", re.MULTILINE)


class State(str, Enum):
    """The state of the in-tree form in a tree."""

    ABSENT = "not applied"
    APPLIED = "applied"
    PARTIAL = "incomplete"


@dataclass(frozen=True)
class Tree:
    """A vLLM tree; vllm: the folder of the package, in a checkout or where it is installed."""

    vllm: Path

    @classmethod
    def at(cls, path: Path | None) -> Tree:
        """
        Find the tree at a path, which is the package or holds it; None: what Python imports.

        Raises TreeError if there is no vLLM.
        """
        if path is None:
            spec = find_spec("vllm")
            if spec is None or not spec.submodule_search_locations:
                raise TreeError("this Python", ("it cannot import vllm; set --tree",))
            return cls(Path(spec.submodule_search_locations[0]))
        for folder in (path / "vllm", path):
            if (folder / "engine" / "arg_utils.py").is_file():
                return cls(folder.resolve())
        raise TreeError(str(path), ("not a vLLM checkout or package",))

    @cached_property
    def version(self) -> str | None:
        """The release, or None in a checkout that was never built."""
        with suppress(OSError):
            found = _VERSION.search((self.vllm / "_version.py").read_text())
            return found and found[1]
        return None

    @property
    def applied(self) -> Applied | None:
        """The record of ``apply`` in this tree; None without one."""
        try:
            module = ast.parse((self.vllm / FOLDER / _RECORD_FILE).read_text())
            said = ast.literal_eval(module.body[-1].value)  # type: ignore[attr-defined]
            return msgspec.convert(said, Applied)
        except (OSError, SyntaxError, ValueError, AttributeError, IndexError):
            return None

    @property
    def is_foreign(self) -> bool:
        """Whether ``vllm/reuse_guard`` exists but was not created by this tool."""
        return (self.vllm / FOLDER).exists() and self.applied is None

    @property
    def state(self) -> State:
        """The state of the in-tree form."""
        guarded = [file for file in self._targets() if self._is_guarded(file)]
        if not guarded and not (self.vllm / FOLDER).exists():
            return State.ABSENT
        return State.PARTIAL if self.lacking else State.APPLIED

    @property
    def lacking(self) -> list[str]:
        """The files that lack the lines of the guard."""
        applied = self.applied
        if applied is None:
            return [f"{FOLDER}/{_RECORD_FILE}"]
        own = self._targets() if applied.version == __version__ else []
        return unguarded(self.vllm, sorted({*applied.originals, *own}))

    def changes(self) -> list[str]:
        """One line for each file that changed since ``apply``; none without a record."""
        applied = self.applied
        if applied is None:
            return []
        copies = {
            str(file.relative_to(self.vllm / FOLDER)): _digest(file.read_bytes())
            for file in (self.vllm / FOLDER).rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        }
        copies.pop(_RECORD_FILE)
        return [
            f"{path} changed after `in-tree apply`"
            for path, digest in applied.originals.items()
            if self._digest_before(path) != digest
        ] + [
            f"{FOLDER}/{path} changed after `in-tree apply`"
            for path in sorted(copies.keys() | applied.copies.keys())
            if copies.get(path) != applied.copies.get(path)
        ]

    def diff(self) -> str:
        """
        Return a patch for ``git apply``, empty if the tree has the guard.

        Raises TreeError if the guard does not fit the tree.
        """
        if self.state is State.APPLIED:
            return ""
        plan = self._plan()
        if self.state is State.PARTIAL:
            raise self._error(
                "the in-tree form is incomplete; run `in-tree apply` or `in-tree revert`"
            )
        new = {f"vllm/{FOLDER}/{path}": data for path, data in plan.package.items()}
        changed = {f"vllm/{path}": data for path, data in plan.originals.items()}
        return "".join(
            [_diff(path, b"", data) for path, data in sorted(new.items())]
            + [_diff(path, data, data + LINES) for path, data in changed.items()]
        )

    def apply(self) -> bool:
        """
        Add the guard, or resume an interrupted run. Returns whether anything changed.

        Raises TreeError, and changes nothing, if the guard does not fit the tree.
        """
        with self._alone():
            plan = self._plan()
            if self.state is State.APPLIED:
                self._clean()
                return False
            self._require_writable(plan.originals)
            self._write_package(plan.package)
            for path, original in plan.originals.items():
                if not self._is_guarded(path):
                    _replace(self.vllm / path, original + LINES)
            return True

    def revert(self) -> bool:
        """
        Remove the guard of any version. Returns whether anything changed.

        Raises TreeError, and changes nothing, if a file changed after ``apply``.
        """
        with self._alone():
            if self.state is State.ABSENT:
                self._clean()
                return False
            self._require_own_folder()
            self._require_unchanged()
            applied = self.applied
            paths = list(applied.originals) if applied else self._targets()
            self._require_writable(paths)
            for path in filter(self._is_guarded, paths):
                file = self.vllm / path
                _replace(file, _without_lines(file.read_bytes()))
            self._remove_package()
            return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # Two at a time would clean up each other's unfinished files.
        folder = os.open(self.vllm, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _require_own_folder(self) -> None:
        if self.is_foreign:
            raise self._error(
                f"vllm/{FOLDER}/ exists but was not created by this tool; move it away"
            )

    def _plan(self) -> _Plan:
        self._require_own_folder()
        faults = [*self._misfits()]
        applied = self.applied
        if applied is not None and applied.version != __version__:
            faults.append(
                f"the tree contains the in-tree form {applied.version}, this is {__version__}; run "
                f"`in-tree revert` first"
            )
        if faults:
            raise self._error(*faults)
        self._require_unchanged()
        originals = {
            path: _without_lines((self.vllm / path).read_bytes()) for path in self._targets()
        }
        return _Plan(originals, _package(originals))

    def _misfits(self) -> Iterator[str]:
        if self.version is not None and not is_tested(self.version):
            yield f"the guard is not tested on vLLM {self.version} (tested: {', '.join(TESTED)})"
        for patch in self._patches():
            for name in patch_points.missing(patch, self.vllm):
                yield f"{name} is missing"
        for path in self._targets():
            if not (self.vllm / path).read_bytes().endswith(b"\n"):
                yield f"{path} does not end with a newline"
            if (self.vllm / path).is_symlink():
                yield f"{path} is a symbolic link, whose target other trees can share"

    def _patches(self) -> tuple[Patch, ...]:
        return PATCHES if self.version is None else needed_by(self.version)

    def _targets(self) -> list[str]:
        paths = files_of(self._patches(), self.vllm)
        return [path for path in paths if (self.vllm / path).is_file()]

    def _is_guarded(self, path: str) -> bool:
        return not unguarded(self.vllm, [path])

    def _require_unchanged(self) -> None:
        if changes := self.changes():
            raise self._error(*changes)

    def _digest_before(self, path: str) -> str | None:
        file = self.vllm / path
        return _digest(_without_lines(file.read_bytes())) if file.is_file() else None

    def _require_writable(self, paths: Iterable[str]) -> None:
        folders = {self.vllm, *((self.vllm / path).parent for path in paths)}
        if any(not os.access(folder, os.W_OK) for folder in folders):
            raise self._error("this user cannot write to it")

    def _write_package(self, package: dict[str, bytes]) -> None:
        # The folder appears whole or not at all.
        self._clean()
        folder = self.vllm / FOLDER
        if folder.exists():
            return
        for path, data in package.items():
            file = self._scratch / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        self._scratch.rename(folder)

    def _remove_package(self) -> None:
        self._clean()
        with suppress(FileNotFoundError):
            (self.vllm / FOLDER).rename(self._scratch)
        self._clean()

    def _clean(self) -> None:
        if self._scratch.exists():
            shutil.rmtree(self._scratch)
        for scratch in map(_scratch, (self.vllm / path for path in self._targets())):
            if scratch.exists():
                scratch.unlink()

    @property
    def _scratch(self) -> Path:
        return self.vllm / f".{FOLDER}.unfinished"

    def _error(self, *faults: str) -> TreeError:
        return TreeError(str(self.vllm), faults)


@dataclass(frozen=True)
class _Plan:
    originals: dict[str, bytes]
    package: dict[str, bytes]


def _package(originals: dict[str, bytes]) -> dict[str, bytes]:
    files = {
        str(file.relative_to(_PACKAGE)): file.read_bytes()
        for file in sorted(_PACKAGE.rglob("*.py"))
        if _runs_in_vllm(file.relative_to(_PACKAGE))
    }
    applied = Applied(
        version=__version__,
        originals={path: _digest(data) for path, data in originals.items()},
        copies={path: _digest(data) for path, data in files.items()},
    )
    return {**files, _RECORD_FILE: _record(applied)}


def _runs_in_vllm(path: Path) -> bool:
    return path.parts[0] not in _NOT_COPIED


def _record(applied: Applied) -> bytes:
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        '"""The record of `in-tree apply`: read at the start, and by `in-tree revert`."""',
        "",
        "APPLIED = {",
    ]
    for name, value in asdict(applied).items():
        if isinstance(value, str):
            lines.append(f'    "{name}": "{value}",')
        else:
            entries = (f'        "{path}": "{digest}",' for path, digest in value.items())
            lines += [f'    "{name}": {{', *entries, "    },"]
    return "\n".join([*lines, "}", ""]).encode()


def _diff(path: str, before: bytes, after: bytes) -> str:
    old, new = (_lines(data) for data in (before, after))
    header = f"diff --git a/{path} b/{path}\n"
    if before:
        hunks = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    else:
        header += "new file mode 100644\n"
        hunks = difflib.unified_diff(old, new, "/dev/null", f"b/{path}")
    return header + "".join(hunks)


def _lines(data: bytes) -> list[str]:
    # Not str.splitlines, for which a form feed ends a line too.
    return [f"{line}\n" for line in data.decode().split("\n")[:-1]]


def _without_lines(data: bytes) -> bytes:
    return data.removesuffix(LINES)


def _replace(file: Path, data: bytes) -> None:
    # In one step, as the same user's and with the same mode: a reader finds the old or the new.
    scratch, before = _scratch(file), file.stat()
    with scratch.open("wb") as output:
        output.write(data)
        output.flush()
        os.fsync(output.fileno())
    with suppress(PermissionError):
        os.chown(scratch, before.st_uid, before.st_gid)
    shutil.copymode(file, scratch)
    scratch.replace(file)


def _scratch(file: Path) -> Path:
    return file.with_name(f".{file.name}.{FOLDER}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
