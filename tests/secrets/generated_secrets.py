"""Make random secrets of many kinds, and texts that contain them.

The formats are written down here a second time, from what vendors document, so that a mistake in
the detector's table is not repeated.
"""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable

UPPER_DIGITS = string.ascii_uppercase + string.digits
LOWER_DIGITS = string.ascii_lowercase + string.digits
ALNUM = string.ascii_letters + string.digits
URL_SAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
HEX = "0123456789abcdef"

Make = Callable[[random.Random], str]


def chars(alphabet: str, count: int) -> Make:
    """Return a maker of random text."""
    return lambda rng: "".join(rng.choices(alphabet, k=count))


def text(*parts: str | Make) -> Make:
    """Return a maker that joins fixed and random parts."""
    return lambda rng: "".join(part if isinstance(part, str) else part(rng) for part in parts)


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _jwt(rng: random.Random) -> str:
    def encode(value: object) -> str:
        raw = json.dumps(value, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    claims = {"sub": str(rng.randrange(10**10)), "name": "Ada", "iat": rng.randrange(2 * 10**9)}
    return f"{encode({'alg': 'HS256', 'typ': 'JWT'})}.{encode(claims)}.{chars(URL_SAFE, 43)(rng)}"


def _pem(label: str, lines: int) -> Make:
    def make(rng: random.Random) -> str:
        body = "\n".join(chars(BASE64, 64)(rng) for _ in range(lines))
        return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----"

    return make


def _password(rng: random.Random) -> str:
    alphabet = ALNUM + "!#%*+-_^"
    while True:
        value = "".join(rng.choices(alphabet, k=rng.randrange(12, 25)))
        ends = value[0].isalnum() and value[-1].isalnum()
        if ends and any(c.isdigit() for c in value) and any(c.isalpha() for c in value):
            return value


def _url_password(rng: random.Random) -> str:
    return chars(ALNUM, rng.randrange(10, 25))(rng) + str(rng.randrange(10))


DIGITS = chars(string.digits, 12)
NAME = chars(UPPER_DIGITS, 8)

# Kinds that are recognised wherever they are.
DISTINCT: dict[str, Make] = {
    "aws access key id": text("AKIA", chars("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)),
    "aws temporary key id": text("ASIA", chars("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)),
    "aws secret access key": chars(BASE64, 40),
    "anthropic": text("sk-ant-api03-", chars(URL_SAFE, 93), "AA"),
    "anthropic oauth": text("sk-ant-oat01-", chars(URL_SAFE, 93), "AA"),
    "openai legacy": text("sk-", chars(ALNUM, 20), "T3BlbkFJ", chars(ALNUM, 20)),
    "openai project": text("sk-proj-", chars(URL_SAFE, 74), "T3BlbkFJ", chars(URL_SAFE, 74)),
    "openai service": text("sk-svcacct-", chars(URL_SAFE, 58), "T3BlbkFJ", chars(URL_SAFE, 58)),
    "openrouter": text("sk-or-v1-", chars(HEX, 64)),
    "deepseek": text("sk-", chars(HEX, 32)),
    "google api key": text("AIza", chars(URL_SAFE, 35)),
    "google oauth secret": text("GOCSPX-", chars(URL_SAFE, 28)),
    "google access token": text("ya29.", chars(URL_SAFE, 120)),
    "xai": text("xai-", chars(ALNUM, 80)),
    "groq": text("gsk_", chars(ALNUM, 52)),
    "perplexity": text("pplx-", chars(ALNUM, 48)),
    "huggingface": text("hf_", chars(string.ascii_letters, 34)),
    "replicate": text("r8_", chars(ALNUM, 37)),
    "github personal": text("ghp_", chars(ALNUM, 36)),
    "github oauth": text("gho_", chars(ALNUM, 36)),
    "github server": text("ghs_", chars(ALNUM, 36)),
    "github fine-grained": text("github_pat_", chars(ALNUM, 22), "_", chars(ALNUM, 59)),
    "gitlab": text("glpat-", chars(URL_SAFE, 20)),
    "slack bot": text("xoxb-", DIGITS, "-", DIGITS, "-", chars(ALNUM, 24)),
    "slack user": text("xoxp-", DIGITS, "-", DIGITS, "-", DIGITS, "-", chars(HEX, 32)),
    "slack webhook": text(
        "https://hooks.slack.com/services/T", NAME, "/B", NAME, "/", chars(ALNUM, 24)
    ),
    "stripe live": text("sk_live_", chars(ALNUM, 24)),
    "stripe restricted": text("rk_live_", chars(ALNUM, 99)),
    "twilio key": text("SK", chars(HEX, 32)),
    "sendgrid": text("SG.", chars(URL_SAFE, 22), ".", chars(URL_SAFE, 43)),
    "mailgun": text("key-", chars(HEX, 32)),
    "mailchimp": text(chars(HEX, 32), "-us", chars("123456789", 1)),
    "npm": text("npm_", chars(ALNUM, 36)),
    "pypi": text("pypi-AgEIcHlwaS5vcmc", chars(URL_SAFE, 150)),
    "telegram": text(chars("123456789", 10), ":AA", chars(URL_SAFE, 33)),
    "discord bot": text("M", chars(ALNUM, 23), ".", chars(URL_SAFE, 6), ".", chars(URL_SAFE, 38)),
    "shopify": text("shpat_", chars(HEX, 32)),
    "square": text("sq0csp-", chars(URL_SAFE, 43)),
    "new relic": text("NRAK-", chars(UPPER_DIGITS, 27)),
    "sentry": text("sntryu_", chars(HEX, 64)),
    "heroku": text("HRKU-AA", chars(URL_SAFE, 58)),
    "digitalocean": text("dop_v1_", chars(HEX, 64)),
    "linear": text("lin_api_", chars(ALNUM, 40)),
    "notion": text("ntn_", chars(string.digits, 11), chars(ALNUM, 35)),
    "figma": text("figd_", chars(URL_SAFE, 40)),
    "atlassian": text("ATATT3xFfGF0", chars(URL_SAFE, 170), "=", chars(UPPER_DIGITS, 8)),
    "vault": text("hvs.", chars(URL_SAFE, 95)),
    "doppler": text("dp.pt.", chars(ALNUM, 43)),
    "databricks": text("dapi", chars(HEX, 32)),
    "dynatrace": text("dt0c01.", chars(UPPER_DIGITS, 24), ".", chars(UPPER_DIGITS, 64)),
    "docker": text("dckr_pat_", chars(URL_SAFE, 27)),
    "postman": text("PMAK-", chars(HEX, 24), "-", chars(HEX, 34)),
    "airtable": text("pat", chars(ALNUM, 14), ".", chars(HEX, 64)),
    "grafana": text("glsa_", chars(ALNUM, 32), "_", chars(HEX, 8)),
    "azure client secret": text(
        chars(ALNUM, 3), chars(string.digits, 1), "Q~", chars(ALNUM + "_~.", 33), chars(ALNUM, 1)
    ),
    "azure storage key": text(chars(BASE64, 86), "=="),
    "terraform cloud": text(chars(ALNUM, 14), ".atlasv1.", chars(URL_SAFE, 67)),
    "mistral": chars(ALNUM, 32),
    "cohere": chars(ALNUM, 40),
    "jwt": _jwt,
    "rsa private key": _pem("RSA PRIVATE KEY", 12),
    "openssh private key": _pem("OPENSSH PRIVATE KEY", 6),
    "pgp private key": _pem("PGP PRIVATE KEY BLOCK", 8),
    "age": text("AGE-SECRET-KEY-1", chars("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    "trello": text("ATTA", chars(HEX, 72)),
    "zhipu": text(chars(HEX, 32), ".", chars(ALNUM, 15), "7"),
    "fal": text(_uuid, ":", chars(HEX, 32)),
    "e2b": text("e2b_", chars(HEX, 40)),
    "neon password": text("npg_", chars(ALNUM, 12)),
    "feishu webhook": text("https://open.feishu.cn/open-apis/bot/v2/hook/", _uuid),
    "ifttt webhook": text("https://maker.ifttt.com/trigger/go/with/key/", chars(URL_SAFE, 43)),
    "postgres url": text("postgresql://app:", _url_password, "@db.internal:5432/app"),
    "mysql url": text("mysql://root:", _url_password, "@10.0.0.5/shop"),
    "mongodb url": text("mongodb+srv://svc:", _url_password, "@cluster0.mongodb.net/x"),
    "redis url": text("redis://:", _url_password, "@cache:6379/0"),
    "amqp url": text("amqps://user:", _url_password, "@mq.internal/vhost"),
}

# Kinds that are hexadecimal numbers, UUIDs or short passwords: a name or a word says what they are.
NAMED: dict[str, tuple[str, Make]] = {
    "twilio auth token": ("TWILIO_AUTH_TOKEN", chars(HEX, 32)),
    "datadog api key": ("DD_API_KEY", chars(HEX, 32)),
    "datadog app key": ("DATADOG_APP_KEY", chars(HEX, 40)),
    "cloudflare token": ("CLOUDFLARE_API_TOKEN", chars(URL_SAFE, 40)),
    "cloudflare global key": ("CLOUDFLARE_API_KEY", chars(HEX, 37)),
    "fastly": ("FASTLY_API_TOKEN", chars(URL_SAFE, 32)),
    "okta": ("OKTA_API_TOKEN", text("00", chars(URL_SAFE, 40))),
    "auth0": ("AUTH0_CLIENT_SECRET", chars(URL_SAFE, 64)),
    "heroku uuid": ("HEROKU_API_KEY", _uuid),
    "postmark": ("POSTMARK_SERVER_TOKEN", _uuid),
    "algolia": ("ALGOLIA_ADMIN_KEY", chars(HEX, 32)),
    "paypal secret": ("PAYPAL_CLIENT_SECRET", chars(URL_SAFE, 80)),
    "django secret": ("SECRET_KEY", chars(LOWER_DIGITS + "!@#$%^&*(-_=+)", 50)),
    "generic api key": ("SERVICE_API_KEY", chars(ALNUM, 24)),
    "webhook signing secret": ("WEBHOOK_SECRET", chars(HEX, 48)),
    "database password": ("DB_PASSWORD", _password),
    "session cookie": ("SESSION_SECRET", chars(ALNUM, 26)),
    "snowflake password": ("SNOWFLAKE_PASSWORD", _password),
}


def make(kind: str, rng: random.Random) -> tuple[str, str]:
    """Return the name of a setting and a new secret of this kind."""
    if kind in DISTINCT:
        return kind.upper().replace(" ", "_"), DISTINCT[kind](rng)
    name, maker = NAMED[kind]
    return name, maker(rng)


KINDS = [*DISTINCT, *NAMED]


def in_prose(kind: str, name: str, secret: str, rng: random.Random) -> str:
    if kind in NAMED:
        word = "password" if "PASSWORD" in name else "key"
        return f"I rotated it: the {word} for staging is {secret} and it works, please retry."
    return rng.choice(
        [
            f"Please use {secret} for now, I will rotate it later.",
            f"It printed {secret}. What is wrong?",
            f"Hier ist er: „{secret}“ – danke!",
            f"({secret})",
        ]
    )


def in_json(kind: str, name: str, secret: str, rng: random.Random) -> str:
    return json.dumps(
        {"a": 1, "env": {name: secret, "DEBUG": "1"}, "ok": True}, indent=rng.choice([None, 2])
    )


def in_nested_json(kind: str, name: str, secret: str, rng: random.Random) -> str:
    inner = json.dumps({"stdout": f"x\n{name}={secret}\ny", "code": 0})
    return json.dumps({"result": inner})


def in_diff(kind: str, name: str, secret: str, rng: random.Random) -> str:
    lines = "\n".join("+" + line for line in f'{name} = "{secret}"'.split("\n"))
    head = "--- a/settings.py\n+++ b/settings.py\n@@ -1,2 +1,2 @@\n import os\n"
    return f"{head}-{name} = None\n{lines}\n"


def in_command(kind: str, name: str, secret: str, rng: random.Random) -> str:
    return rng.choice(
        [
            f"export {name}='{secret}' && make deploy",
            f"{name}='{secret}' ./run.sh --verbose",
            f"curl -s -H 'X-Api-Key: {secret}' https://api.example.com/v1/items",
            f'docker run -e {name}="{secret}" --rm app',
        ]
    )


def in_env_file(kind: str, name: str, secret: str, rng: random.Random) -> str:
    value = f'"{secret}"' if "\n" in secret or "#" in secret else secret
    return f"# settings\nDEBUG=1\n{name}={value}\nPORT=8000\n"


def in_base64(kind: str, name: str, secret: str, rng: random.Random) -> str:
    encoded = base64.b64encode(secret.encode()).decode()
    return rng.choice(
        [f"echo {encoded} | base64 -d", f"data:\n  value: {encoded}\n", f'{{"blob": "{encoded}"}}']
    )


def in_yaml(kind: str, name: str, secret: str, rng: random.Random) -> str:
    return f"services:\n  web:\n    environment:\n      {name}: {json.dumps(secret)}\n"


def _on_one_line(secret: str) -> str:
    return secret.replace("\n", "\\n")


def in_settings_file(kind: str, name: str, secret: str, rng: random.Random) -> str:
    name, secret = name.lower(), _on_one_line(secret)
    return rng.choice(
        [
            f"[default]\n{name} = {secret}\nregion = eu-1\n",
            f"server.port=80\napp.{name.replace('_', '.')}={secret}\nserver.name=a\n",
            f"<settings>\n  <{name}>{secret}</{name}>\n</settings>",
            f"| Name | Value |\n|---|---|\n| {name.upper()} | {secret} |\n",
        ]
    )


def in_found_lines(kind: str, name: str, secret: str, rng: random.Random) -> str:
    secret = _on_one_line(secret)
    return rng.choice(
        [
            f"./deploy/.env:3:{name}={secret}\n./deploy/.env:4:PORT=80\n",
            f"     1\tDEBUG=1\n     2\t{name}={secret}\n     3\tPORT=80\n",
            f"\x1b[35m.env\x1b[0m:\x1b[32m3\x1b[0m:{name}=\x1b[1m{secret}\x1b[0m\n",
        ]
    )


def in_kubernetes(kind: str, name: str, secret: str, rng: random.Random) -> str:
    encoded = base64.b64encode(secret.encode()).decode()
    head = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: app\n"
    return f"{head}type: Opaque\ndata:\n  {name.lower()}: {encoded}\n"


CONTEXTS = [
    *[in_prose, in_json, in_nested_json, in_diff, in_command, in_env_file, in_base64, in_yaml],
    *[in_settings_file, in_found_lines, in_kubernetes],
]


def split(text: str, rng: random.Random) -> list[str]:
    """Return the text in chunks, as a stream delivers it."""
    cuts = sorted(rng.sample(range(1, len(text)), k=min(len(text) - 1, rng.randrange(3, 12))))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def leaks(secret: str, output: str) -> bool:
    """Return whether an output has the secret: as it is, escaped, encoded, or most of it."""
    if "://" in secret and "@" in secret:
        secret = secret.split("://", 1)[1].split("@", 1)[0].split(":", 1)[1]
    if secret.startswith("https://"):
        secret = secret.rsplit("/", 1)[1]
    if "PRIVATE KEY" in secret:
        return any(line in output for line in secret.split("\n")[1:-1])
    forms = [secret, json.dumps(secret)[1:-1], base64.b64encode(secret.encode()).decode()]
    # A part of a secret is a leak, too.
    core = secret[len(secret) // 4 : -len(secret) // 4 or None]
    return any(form in output for form in forms) or (len(core) >= 8 and core in output)
