# SPDX-License-Identifier: Apache-2.0
"""
Check the Kubernetes example without a cluster, for pre-commit.

    python -m lab.checks.manifests

Each object is held against the schema of Kubernetes, strictly, and what an object refers to must
be there: labels, ports, settings, variables, files. Exit status: 0 if nothing is wrong, 1 if not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes_validate import ValidationError, validate

from ..paths import CHECKOUT

FOLDER = CHECKOUT / "deploy" / "kubernetes"
_KUBERNETES = "1.37"
_VARIABLE = re.compile(r"\$\((\w+)\)")


def find_faults(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the objects that a folder's kustomization.yaml names."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    named = [folder / resource for resource in kustomization["resources"]]
    yield from (f"{file}: is not there" for file in named if not file.exists())
    generated = dict(_generated(folder, kustomization))
    objects = [
        found for file in named if file.is_file() for found in yaml.safe_load_all(file.read_text())
    ]
    for found in objects:
        faults = [*_against_schema(found), *_references(found, objects, generated)]
        yield from (f"{found['kind']} {found['metadata']['name']}: {fault}" for fault in faults)


def _generated(folder: Path, kustomization: Any) -> Iterator[tuple[str, set[str]]]:
    # The keys of each ConfigMap that is made from files of variables.
    for generator in kustomization["configMapGenerator"]:
        lines = "\n".join((folder / file).read_text() for file in generator["envs"])
        yield generator["name"], set(re.findall(r"^(\w+)=", lines, re.MULTILINE))


def _against_schema(found: Any) -> Iterator[str]:
    try:
        validate(found, _KUBERNETES, strict=True)
    except ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"


def _references(found: Any, objects: list[Any], generated: dict[str, set[str]]) -> Iterator[str]:
    pods = [other["spec"]["template"] for other in objects if other["kind"] == "Deployment"]
    match found:
        case {"kind": "Deployment", "spec": {"selector": selector, "template": pod}}:
            if not _selects(selector["matchLabels"], pod):
                yield "its selector is not among the labels of its pods"
            for container in pod["spec"]["containers"]:
                yield from _of_container(container, generated)
        case {"kind": "Service", "spec": {"selector": selector, "ports": ports}}:
            yield from _of_service(ports, [pod for pod in pods if _selects(selector, pod)])


def _selects(selector: dict[str, str], pod: Any) -> bool:
    return selector.items() <= pod["metadata"]["labels"].items()


def _of_service(ports: Iterable[Any], pods: list[Any]) -> Iterator[str]:
    if len(pods) != 1:
        yield f"its selector selects the pods of {len(pods)} Deployments"
    for pod in pods:
        there = {port["name"] for one in pod["spec"]["containers"] for port in one["ports"]}
        wanted = {port["targetPort"] for port in ports}
        yield from (f"its pods have no port {name}" for name in sorted(wanted - there))


def _of_container(container: Any, generated: dict[str, set[str]]) -> Iterator[str]:
    variables = {variable["name"]: variable for variable in container.get("env", ())}
    used = set(_VARIABLE.findall(" ".join(container["args"])))
    yield from (f"$({name}) is no variable of it" for name in sorted(used - variables.keys()))
    for name, variable in variables.items():
        match variable:
            case {"valueFrom": {"configMapKeyRef": {"name": source, "key": key}}}:
                if key not in generated.get(source, ()):
                    yield f"{name} is from {key} of {source}, which is not made"
    there = {port["name"] for port in container["ports"]}
    for name, probe in container.items():
        if name.endswith("Probe") and probe["httpGet"]["port"] not in there:
            yield f"the port of its {name} is not among its ports"


def main() -> int:
    """Check the example; print what is wrong and return the exit status."""
    faults = list(find_faults(FOLDER))
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
