"""Find keys without a format of their own: long random text, near a word that says what it is."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator
from functools import cache

from segue.secrets.randomness import has_letter_and_digit, is_hex, is_varied, looks_random
from segue.secrets.values import is_record_id

MIN_RUN_CHARS = 16
MIN_FREE_CHARS = 28  # of random text that is a key whatever is around it
MAX_FREE_CHARS = 200  # longer random text is data: a picture, a certificate
MAX_ENCODED_CHARS = 100_000
_CHARACTERS_BEFORE = 100
_CHARACTERS_AFTER = 50
_UUID_CHARS = 36
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# A run of base64 that continues on the next lines, as `base64` and `openssl` print it.
_WRAPPED = re.compile(r"(?:(?:\\r)?\\n|\r?\n)[ \t]*[+>|-]?[ \t]*[A-Za-z0-9+/]{4,}={0,2}")
# Words near a random text that make it a secret.
_SECRET_WORDS = re.compile(
    r"passw|pwd|secret|token|\bkeys?\b|[a-z_-]keys?\b|api[ _-]?key|api[ ._-]?hash|credential"
    r"|\bo?auth|bearer|cookie|login|\bsid\b|private|licen[cs]e|webhook|signature|\bsig\b|\bcreds?\b"
    r"|\.env\b|\bpat\b"
    r"|heroku|datadog|twilio|cloudflare|fastly|okta|auth0|mailgun|algolia|mistral|cohere"
    r"|postmark|snyk|codecov|circleci|travis|zendesk|asana|bitbucket|confluent|azure|alibaba"
    r"|dropbox|facebook|flickr|freshbooks|coinbase|kraken|kucoin|bittrex|etsy|finnhub|gitter"
    r"|intercom|jfrog|artifactory|launchdarkly|linkedin|looker|mattermost|messagebird|netlify"
    r"|nytimes|plaid|rapidapi|sendbird|sentry|shodan|spotify|square|sumo|twitch|twitter|typeform"
    r"|vercel|yandex|zapier|deepseek|dashscope|moonshot|minimax|zhipu|bigmodel|baichuan|elevenlabs"
    r"|assemblyai|deepgram|stability|paypal|adyen|new[ _-]?relic|rollbar|bugsnag|honeycomb|mixpanel"
    r"|amplitude|segment|pagerduty|opsgenie|railway|supabase|upstash|algolia|mapbox|giphy|trello"
    r"|account|openweather|etherscan|alchemy|infura|steam|riot|discord|wandb|weights"
)
# What makes random text public: hashes, certificates, public keys, and ids of models' answers.
_PUBLIC_BEFORE = re.compile(
    r"(?:sha(?:1|256|384|512)[-:=_ ]|md5[-:=_ ]|h1:|base64,|ssh-(?:rsa|dss|ed25519) |ssh-\S+ "
    r"|integrity\W{1,4}|checksum\W{1,4}|digest\W{1,4}|(?<!api[ ._-])\bhash\W{1,4}|etag\W{1,4}"
    r"|commit\W{1,3}|nonce\W{1,4}|fingerprint\W{1,4})\S{0,8}$",
    re.IGNORECASE,
)
_PUBLIC_START = re.compile(
    r"(?:sha(?:1|256|384|512)[-_]|AAAA[BCE][23]|toolu_|msg_|call_|req_|chatcmpl-|resp_|rs_|fc_|run_"
    r"|thread_|file-|file_|sesn_|evt_|asst_|gen-|ws_|cus_|sub_|prod_|price_|evnt_|agent_|vrfy_"
    r"|[a-z]{2,9}_01[A-Za-z0-9]{22}$|batch_|org-|proj_|user-|iVBOR|R0lGOD|/9j/)"
)
_WORD_OR_HASH = re.compile(r"[a-z_-]+|[a-z0-9_-]{1,15}|[0-9a-f]+(?:-[0-9a-f]+)*")
_ADDRESS_START = re.compile(r"\w{1,20}://[^\s\"'`<>]{0,200}$")
_SHAPES = {
    "discord": r"[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{5,7}\.[A-Za-z0-9_-]{26,45}",
    "mailgun": r"[a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{8}",
    "zhipu": r"[a-f0-9]{32}\.(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{16}",
    "ollama": r"[a-f0-9]{32}\.(?=[a-z]*[A-Z0-9])[A-Za-z0-9_-]{24}",
    "twitter": r"\d{15,20}-(?=\d*[A-Za-z])[A-Za-z0-9]{30,45}",
    "maxmind": r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk",
}


# What a key of any format consists of. Its longest part has MIN_RUN_CHARS of these, and is no word
# in lower case.
_KEY = "[A-Za-z0-9_+/.~=%$-]"
_LOWER = re.compile("[a-z]+")
_BASE64 = re.compile("[A-Za-z0-9+/_-]{12}")  # the beginning


@cache
def _shapes() -> re.Pattern[str]:
    """Return the pattern of keys that are recognised by their whole text."""
    return re.compile("|".join(f"(?P<{kind}>{shape})" for kind, shape in _SHAPES.items()))


@cache
def _words() -> re.Pattern[str]:
    """Return the pattern of a text without keys. It reads each word once."""
    word = f"(?:{_KEY}{{1,{MIN_RUN_CHARS - 1}}}+|[a-z]++)(?!{_KEY})"
    return re.compile(rf"[^{_KEY[1:]}*+(?:{word}[^{_KEY[1:]}*+)*+")


def has_keys(text: str) -> bool:
    """Return whether a text has a word that may be a key or a part of one."""
    return _words().fullmatch(text) is None


@cache
def _run() -> re.Pattern[str]:
    """Return the pattern of the next run, with the short words before it. It reads each once."""
    run, other = "[A-Za-z0-9_+/.~-]", "[^A-Za-z0-9_+/.~-]"
    return re.compile(
        rf"{other}*+(?:{run}{{1,{MIN_RUN_CHARS - 1}}}+{other}++)*+"
        rf"({run}{{{MIN_RUN_CHARS},}}+={{0,3}})"
    )


def find_runs(
    text: str, lower: str, find_inside: Callable[[str], bool], *, decoded: bool
) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of random text that is a key, and of encoded secrets.

    `find_inside` says whether a decoded text has a secret. `decoded` says that this text was
    decoded itself: then a lone hexadecimal number or UUID is a secret too.
    """
    position = end = 0
    while match := _run().match(text, end):
        start, end = match.span(1)
        if start < position or _LOWER.fullmatch(text, start, end):
            continue
        start = _skip_escape(text, start)
        encoded = _encoded_end(text, start, end, find_inside)
        if encoded is not None:
            yield *encoded, "encoded"
            position = encoded[1]
            continue
        for kind, part_start, part_end in _parts(text, start, end):
            verdict = kind or _judge(text, lower, part_start, part_end, decoded=decoded)
            if verdict == "fal":
                part_start -= _UUID_CHARS + 1
            if verdict:
                yield part_start, part_end, verdict


def _skip_escape(text: str, start: int) -> int:
    """Return the start without the letter of an escape: the `n` of `\\n`."""
    if start and text[start - 1] == "\\" and text[start] in "nrtbf":
        return start + 1
    return start


def _parts(text: str, start: int, end: int) -> Iterator[tuple[str | None, int, int]]:
    """Yield the parts of a run that can be keys: the run, or the values in paths and queries."""
    while start < end and text[start] in "+-./~_=":
        start += 1
    while end > start and text[end - 1] in "./~-":
        end -= 1
    run = text[start:end]
    if shape := _shapes().fullmatch(run):
        yield shape.lastgroup, start, end
        return
    if "." in run or "~" in run:
        # Dots separate file names, hosts and attributes.
        offset = start
        for part in re.split(r"[.~]", run):
            if len(part) >= MIN_RUN_CHARS:
                yield None, offset, offset + len(part)
            offset += len(part) + 1
        return
    if "=" in run.rstrip("="):
        cut = run.rstrip("=").rindex("=") + 1
        start, run = start + cut, run[cut:]
    if len(run) >= MIN_RUN_CHARS:
        yield None, start, end


def _judge(text: str, lower: str, start: int, end: int, *, decoded: bool) -> str | None:
    run = text[start:end]
    bare = run.rstrip("=")
    if is_record_id(run):
        return None
    if (not has_letter_and_digit(bare) and len(bare) < MIN_FREE_CHARS) or _PUBLIC_START.match(run):
        return None
    before = text[max(0, start - 24) : start]
    if _PUBLIC_BEFORE.search(before):
        return None
    is_uuid = _UUID.fullmatch(run) is not None
    if is_uuid or is_hex(bare):
        if not is_varied(bare) or not has_letter_and_digit(bare):
            return None
        if decoded and len(text) - len(run) <= 4:
            return "random-key"
        if (
            len(bare) == 32
            and text[start - 1 : start] == ":"
            and _UUID.match(text, max(0, start - _UUID_CHARS - 1))
        ):
            return "fal"  # the id of a key, and its secret
        long_enough = is_uuid or len(bare) >= 24
        return "random-key" if long_enough and _has_context(text, lower, start, end) else None
    if run.count("/") > max(4, len(run) // 14) or not looks_random(bare):
        return None
    if _is_hash_path(run):
        address = _ADDRESS_START.search(lower, max(0, start - 220), start)
        path = lower[start if address is None else address.start() : end]
        return "random-key" if "/hook" in path or _SECRET_WORDS.search(path) else None
    if MIN_FREE_CHARS <= len(bare) <= MAX_FREE_CHARS and _is_free_key(text, bare, start, end):
        return "random-key"
    if decoded and len(text) - len(run) <= 4:
        return "random-key"
    return "random-key" if _has_context(text, lower, start, end) else None


def _is_hash_path(run: str) -> bool:
    """Return whether a run is a path of words and hashes, as of a commit or of a package's file."""
    # One pattern for the whole path would try each part in several ways, in all combinations.
    parts = run.split("/")
    return len(parts) >= 3 and all(map(_WORD_OR_HASH.fullmatch, parts))


def _is_free_key(text: str, run: str, start: int, end: int) -> bool:
    """Return whether random text is a key without any context."""
    if not has_letter_and_digit(run) or not looks_random(run, 0.42):
        return False
    classes = any(c.islower() for c in run) + any(c.isupper() for c in run) + 1
    if classes < 2 or sum(c in "_-+/" for c in run) > len(run) / 8 + 1:
        return False
    return not _is_block_line(text, start, end)


def _is_block_line(text: str, start: int, end: int) -> bool:
    """Return whether a run is one line of a block of base64, such as a certificate."""
    line_end = text.find("\n", end, end + 8)
    if line_end >= 0 and _WRAPPED.match(text, line_end):
        following = _WRAPPED.match(text, line_end)
        assert following is not None
        if len(following[0].strip()) >= 40:
            return True
    line_start = text.rfind("\n", max(0, start - 8), start)
    if line_start > 0:
        previous = text[max(0, line_start - 64) : line_start].rsplit("\n", 1)[-1].strip()
        return len(previous) >= 40 and " " not in previous and looks_random(previous)
    return False


def _has_context(text: str, lower: str, start: int, end: int) -> bool:
    """Return whether a word near a text says that it is a secret."""
    line_start = text.rfind("\n", max(0, start - _CHARACTERS_BEFORE), start) + 1
    if line_start and not any(c.isalnum() for c in text[line_start:start]):
        # The text begins its line: the line before it may introduce it.
        line_start = text.rfind("\n", max(0, line_start - _CHARACTERS_BEFORE), line_start - 1) + 1
    before = lower[max(line_start, start - _CHARACTERS_BEFORE) : start]
    line_end = text.find("\n", end, end + _CHARACTERS_AFTER)
    after = lower[end : line_end if line_end >= 0 else end + _CHARACTERS_AFTER]
    return _SECRET_WORDS.search(before) is not None or _SECRET_WORDS.search(after) is not None


def _encoded_end(
    text: str, start: int, end: int, find_inside: Callable[[str], bool]
) -> tuple[int, int] | None:
    """Return where an encoded text with a secret begins and ends; None if there is none."""
    for first in _encoded_starts(text, start, end):
        if not _BASE64.match(text, first) or not _begins_with_text(text[first : first + 16]):
            continue
        last = end
        while last - first < MAX_ENCODED_CHARS and (more := _WRAPPED.match(text, last)):
            last = more.end()
        decoded = _decode(text[first:last])
        if decoded is None and last != end:
            last = end
            decoded = _decode(text[first:last])
        if decoded is not None and find_inside(decoded):
            return first, last
    return None


def _encoded_starts(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where base64 may begin in a run: at its start, after a mark of a diff, in a path."""
    yield start
    if start < end and text[start] in "+-/_.~":
        yield start + 1
    for separator in "/.":
        if (position := text.rfind(separator, start + 1, end - MIN_RUN_CHARS)) >= 0:
            yield position + 1


def _begins_with_text(encoded: str) -> bool:
    """Return whether the first bytes of base64 are printable text."""
    data = _to_bytes(encoded[: len(encoded) // 4 * 4])
    return data is not None and len(data) >= 9 and _is_text(data)


def _to_bytes(encoded: str) -> bytes | None:
    standard = encoded.replace("-", "+").replace("_", "/")
    try:
        return binascii.a2b_base64(standard + "=" * (-len(standard) % 4))
    except (binascii.Error, ValueError):
        return None


def _is_text(data: bytes) -> bool:
    return all(32 <= byte < 127 or byte in (9, 10, 13) for byte in data)


def _decode(encoded: str) -> str | None:
    """Return the text in base64; None if it has none."""
    compact = re.sub(r"\\[rn]|[\s>|]|(?<=\n)[+-]", "", encoded).rstrip("=").rstrip(".~")
    data = _to_bytes(compact if len(compact) % 4 != 1 else compact[:-1])
    if data is None:
        return None
    text = data.decode("utf-8", "replace")
    strange = sum(not character.isprintable() and character not in "\t\r\n" for character in text)
    return text if strange <= len(text) // 20 else None
