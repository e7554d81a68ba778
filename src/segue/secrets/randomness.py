"""Tell random text from words, names and paths."""

from __future__ import annotations

import re

# Pairs of letters that are common in English and in names of code: nine of ten pairs in such text.
# Of random letters, three of ten pairs are among them.
_COMMON = (
    "abacadagaiakalamanaparasatauavaybabebiblbobucacccechcickclcocrctcudadddedidodsdueaecedeeefeg"
    "eielemenepeqeresetevewexeyfafefffifofrfugeghgigngrgsguhahehihohtiaibicidieifigiliminioipiris"
    "itivizkelaldlelilllolsltlulymambmemimompmsmunancndnenfngninnnonsntnunvobocodoiolomonoooporos"
    "otouovowpapephpiplpoppprpsptpupyqurarcrdrergrirkrmrnrorrrsrtrurysascseshsisospssstsutatcteth"
    "titotptrtstttutwtyuaubucueuiulumunupurusutvaveviwawewhwiwoxcxixpxtypysze"
)
_PAIRS = {_COMMON[i : i + 2] for i in range(0, len(_COMMON), 2)}
# A pair is ordinary in one letter case, or if a word begins with a capital letter.
_ORDINARY = _PAIRS | {pair.upper() for pair in _PAIRS} | {pair.title() for pair in _PAIRS}
_HEX = re.compile(r"(?:0x)?[0-9a-f]+|(?:0x)?[0-9A-F]+")
_SEPARATORS = re.compile(r"[^A-Za-z0-9]+")
_MIN_DISTINCT = 7  # characters; a placeholder such as xxxx-1234 has fewer

_PLACEHOLDERS = ("xxxx", "XXXX", "abcdefg", "ABCDEFG", "0123456", "1234567")


def ordinary_share(text: str) -> float:
    """Return how many of the adjacent pairs of letters and digits look like words, from 0 to 1.

    Pairs of digits count as ordinary, because years and versions are. Random text of letters and
    digits has about 0.2, names of code have 0.7 and more.
    """
    ordinary = count = 0
    for word in _SEPARATORS.split(text):
        for i in range(len(word) - 1):
            pair = word[i : i + 2]
            count += 1
            ordinary += pair in _ORDINARY or pair.isdigit()
    return ordinary / count if count else 1.0


def is_hex(text: str) -> bool:
    """Return whether the text is one hexadecimal number of one letter case."""
    return _HEX.fullmatch(text) is not None


def is_varied(text: str) -> bool:
    """Return whether a text has enough different characters to be a key."""
    return len(set(text)) >= _MIN_DISTINCT and not any(part in text for part in _PLACEHOLDERS)


def has_letter_and_digit(text: str) -> bool:
    """Return whether a text has both letters and digits."""
    has_letter = has_digit = False
    for character in text:
        has_letter = has_letter or character.isalpha()
        has_digit = has_digit or character.isdigit()
    return has_letter and has_digit


def looks_random(text: str, max_ordinary: float = 0.52) -> bool:
    """Return whether a text of 12 characters or more looks like a generated key."""
    if not is_varied(text):
        return False
    if is_hex(text):
        return has_letter_and_digit(text)
    if not has_letter_and_digit(text) and not _has_mixed_case(text):
        return False
    # Names are made of several words; a generated key has long parts.
    parts = [part for part in _SEPARATORS.split(text) if part]
    if len(text) / len(parts) < 5:
        return False
    return ordinary_share(text) < max_ordinary


def _has_mixed_case(text: str) -> bool:
    return text != text.lower() and text != text.upper()
