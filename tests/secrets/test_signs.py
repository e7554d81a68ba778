"""A text without signs of a secret is not searched; every text with a secret has a sign."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.secrets import find_secrets
from segue.secrets.assignments import SIGNS as WORDS
from segue.secrets.detector import _find, may_have_secrets
from segue.secrets.formats import _INFIXES, FORMATS, Format
from segue.secrets.options import _ALL as PROGRAMS
from segue.secrets.private_keys import SIGNS as PRIVATE_KEYS
from segue.secrets.urls import SIGNS as URLS
from tests.secrets import generated_secrets as generated

# Parts of texts that are close to secrets: pieces of formats, names, operators and breaks.
PREFIXES = sorted({prefix for entry in FORMATS for prefix in entry.prefixes})
NAMES = [*WORDS, *URLS, *PRIVATE_KEYS, *PROGRAMS, "PGPASSWORD", "mot de passe ", "api_key"]
JOINTS = [
    " ",
    ": ",
    "=",
    "\n",
    "\\n",
    '"',
    "'",
    "|",
    " is ",
    " -p",
    " --user ",
    "/",
    "+ ",
    "x",
    ".",
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
VALUES = st.text(LETTERS, max_size=40) | st.text(
    LETTERS + LETTERS.upper() + "0123456789-_+/=.~%$:@!é", max_size=40
)
PARTS = st.one_of(
    st.sampled_from(PREFIXES), st.sampled_from(NAMES), st.sampled_from(JOINTS), VALUES
)


def check(text: str) -> bool:
    """Compare the search of a text with one that ignores the signs; return whether it has any."""
    secrets = _find(text, 0)
    assert find_secrets(text) == secrets
    return bool(secrets)


@settings(max_examples=300)
@given(st.lists(PARTS, max_size=12).map("".join))
def test_a_text_without_signs_has_no_secrets(text: str) -> None:
    check(text)


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: f"{entry.kind}-{entry.prefixes[0]}")
def test_keys_of_every_format_have_a_sign(entry: Format) -> None:
    @settings(max_examples=4)
    @given(st.data())
    def check_keys(data: st.DataObject) -> None:
        prefix = data.draw(st.sampled_from(entry.prefixes))
        key = re.compile(f"{re.escape(prefix)}(?:{entry.rest})", re.ASCII)
        text = data.draw(st.from_regex(key, fullmatch=True))
        check(f"use {text} now")
        gap = data.draw(st.sampled_from(["\n", "\n  ", '" "', "' +\n '"]))
        check(f"use {gap.join(text[i : i + 12] for i in range(0, len(text), 12))} now")

    check_keys()


@settings(max_examples=50)
@given(st.data())
def test_keys_with_a_known_middle_have_a_sign(data: st.DataObject) -> None:
    _, infix, before, after, _ = data.draw(st.sampled_from(_INFIXES))
    key = re.compile(f"(?:{before}){re.escape(infix)}(?:{after})", re.ASCII)
    check(f"use {data.draw(st.from_regex(key, fullmatch=True))}")


@settings(max_examples=100)
@given(st.data())
def test_passwords_of_every_program_have_a_sign(data: st.DataObject) -> None:
    program, option = data.draw(st.sampled_from(sorted(PROGRAMS.items())))
    pattern = re.compile(option.replace(r"(?<=[ \t])", ""), re.ASCII)
    check(f"{program} {data.draw(st.from_regex(pattern, fullmatch=True))}Zx9qq71Lm")


@pytest.mark.parametrize(
    "text",
    [
        "curl --user bob:Zx9qq71aaB host",
        "rabbitmqctl add_user bob Zx9qq71aaB",
        "mysql (-pZx9qq71aaB)",
        "пароль: Zx9qq71aaB — и всё",
        "first\nsk-ant-abcd\n  EFGHIJK\n  LMNOPQRST\n  UVWX12345\nlast",
    ],
)
def test_short_texts_with_secrets_have_a_sign(text: str) -> None:
    assert check(text)


def test_generated_secrets_have_a_sign() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for kind in generated.KINDS:
        name, secret = generated.make(kind, rng)
        for context in generated.CONTEXTS:
            check(context(kind, name, secret, rng))


@pytest.mark.parametrize(
    "text",
    [
        "Fix the login-free retry loop",
        "The parser reads one line after the other, and stops at the first error.",
        "Das Modul liest jede Zeile – auch leere – genau einmal…",
        "It does three things:\n\n1. reads 'all' lines\n2. says \"done\"\n3. ends\n",
        "abcdefghijklmnopqrstuvwxyz is a long word",
    ],
)
def test_ordinary_sentences_are_not_searched(text: str) -> None:
    assert may_have_secrets(text) == ("login" in text)
