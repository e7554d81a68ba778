"""Find the values of Kubernetes secrets, which are base64 of any text."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from functools import cache

_MAX_MANIFEST_CHARS = 100_000


@cache
def _kind() -> re.Pattern[str]:
    return re.compile(r"kind(?:\\*[\"'])?:[ \t]{0,4}(?:\\*[\"'])?Secret(?![\w-])")


@cache
def _data() -> re.Pattern[str]:
    return re.compile(r"(?<![\w-])data(?:\\*[\"'])?:\s{0,4}(?P<object>\{)?")


@cache
def _entry() -> re.Pattern[str]:
    """Return the pattern of one value in the data of a secret."""
    return re.compile(
        r"(?:[\s,+>|-]|\\n){0,60}(?:\d{1,6}[→\t]\s{0,20})?"
        r"(?:\\*[\"'])?[\w.-]{1,200}(?:\\*[\"'])?:[ \t]{0,4}"
        r"(?:\\*[\"'])?(?P<value>[A-Za-z0-9+/]{4,}={0,2})(?=\\|[\"'\s,}]|\Z)(?:\\*[\"'])?"
    )


def find_in_kubernetes_secrets(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of the values in manifests of Kubernetes secrets."""
    searched = 0  # a text is searched once, also if it has many manifests
    for kind in _kind().finditer(text):
        if kind.start() < searched:
            continue
        start = max(text.rfind("\n---", searched, kind.start()), kind.start() - _MAX_MANIFEST_CHARS)
        end = text.find("\n---", kind.end(), kind.end() + _MAX_MANIFEST_CHARS)
        end = end if end >= 0 else min(len(text), kind.end() + _MAX_MANIFEST_CHARS)
        while data := _data().search(text, max(start, searched), end):
            searched = data.end()
            while entry := _entry().match(text, searched):
                if entry["value"] != "true" and _is_base64(entry["value"]):  # `immutable: true`
                    yield *entry.span("value"), "kubernetes-secret"
                searched = entry.end()
        searched = max(searched, end)


def _is_base64(value: str) -> bool:
    try:
        return len(binascii.a2b_base64(value, strict_mode=True)) >= 3
    except binascii.Error:
        return False
