"""Write what a release publishes next to its files: a list of its components, and hashes.

`python -m tests.bill_of_materials DIRECTORY` in the test environment, after a build into DIRECTORY.
The list is CycloneDX 1.6: the packages that the tests of the release ran with, as in
constraints.txt, with their licenses and dependencies. The same build gives the same files.
"""

import hashlib
import json
import sys
import uuid
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_package import resolved

HASHES = "SHA256SUMS"


def write(directory: Path) -> list[Path]:
    """Write the list of components and the hashes of all files into a directory."""
    built = sorted([*directory.glob("*.whl"), *directory.glob("*.tar.gz")])
    if not built:
        raise SystemExit(f"{directory} has no wheel and no source distribution; build them first")
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built}
    own = distribution("segue")
    bill = directory / f"segue-{own.version}.cdx.json"
    bill.write_text(json.dumps(components(own, hashes), indent=2, ensure_ascii=False) + "\n")
    hashes[bill.name] = hashlib.sha256(bill.read_bytes()).hexdigest()
    sums = directory / HASHES
    sums.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(hashes.items())))
    return [bill, sums]


def components(own: Distribution, hashes: dict[str, str]) -> dict[str, Any]:
    """Return segue with all its extras as a CycloneDX document."""
    distributions = resolved(frozenset(["all"]))
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(sorted(hashes.items())))
    files = [
        {
            "type": "distribution",
            "url": name,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for name, digest in sorted(hashes.items())
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                **_component("segue", own),
                "type": "application",
                "externalReferences": files,
            }
        },
        "components": [_component(name, distributions[name]) for name in sorted(distributions)],
        "dependencies": [
            {"ref": _purl(name, found), "dependsOn": _dependencies(found, distributions)}
            for name, found in sorted({"segue": own, **distributions}.items())
        ],
    }


def _component(name: str, found: Distribution) -> dict[str, Any]:
    purl = _purl(name, found)
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": found.version,
        "purl": purl,
    }
    if expression := found.metadata.get("License-Expression"):
        component["licenses"] = [{"expression": expression}]
    elif license := _license(found):
        component["licenses"] = [{"license": {"name": license}}]
    return component


def _license(found: Distribution) -> str:
    """Return the license of a package that has no expression: from its classifiers, or a name."""
    prefix = "License :: "
    classifiers = found.metadata.get_all("Classifier") or []
    names = [text.rsplit(" :: ", 1)[-1] for text in classifiers if text.startswith(prefix)]
    return ", ".join(names) or str(found.metadata.get("License") or "").split("\n")[0]


def _purl(name: str, found: Distribution) -> str:
    return f"pkg:pypi/{name}@{found.version}"


def _dependencies(found: Distribution, distributions: dict[str, Distribution]) -> list[str]:
    names = {canonicalize_name(Requirement(line).name) for line in found.requires or ()}
    return [_purl(name, distributions[name]) for name in sorted(names & distributions.keys())]


if __name__ == "__main__":
    for path in write(Path(sys.argv[1])):
        print(path)
