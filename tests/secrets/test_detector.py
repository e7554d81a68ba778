"""Secrets are found in every context in which transcripts have them, and ordinary code has none."""

import base64
import random
import sysconfig
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from segue.secrets import find_secrets, mask_parts, mask_text, mask_value
from segue.secrets.formats import FORMATS
from segue.secrets.kubernetes import find_in_kubernetes_secrets
from segue.secrets.values import is_record_id
from tests.secrets import generated_secrets as generated

STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
MAX_MISSED = 0.01
MAX_FALSE_PER_LINE = 1 / 1000


def report(misses: list[str], total: int, seed: int) -> None:
    """Print every miss, and fail if there are too many."""
    for miss in misses:
        print(miss)
    assert len(misses) <= MAX_MISSED * total, f"{len(misses)} of {total} leaked, seed {seed}"


def check_recall(per_kind: int) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    misses: list[str] = []
    total = 0
    for kind in generated.KINDS:
        for number in range(per_kind):
            name, secret = generated.make(kind, rng)
            context = generated.CONTEXTS[(number + rng.randrange(99)) % len(generated.CONTEXTS)]
            text = context(kind, name, secret, rng)
            split = mask_parts(generated.split(text, rng))
            for form, output in (("whole", mask_text(text)), ("split", "".join(split.texts))):
                total += 1
                if generated.leaks(secret, output):
                    misses.append(f"{kind}, {context.__name__}, {form}: {output!r}")
    report(misses, total, seed)


def test_generated_secrets_are_masked_in_every_context() -> None:
    assert len(generated.KINDS) >= 80
    check_recall(per_kind=5)


@pytest.mark.full
def test_ten_thousand_generated_secrets_are_masked() -> None:
    check_recall(per_kind=120)


def check_ordinary_code(paths: Iterable[Path]) -> None:
    lines = 0
    matches: list[str] = []
    for path in paths:
        text = path.read_text(errors="replace")
        lines += line_count(text)
        matches += [f"{path}: {text[s.start : s.end]!r} ({s.kind})" for s in find_secrets(text)]
    print("\n".join(matches))
    assert lines > 1000
    assert len(matches) <= MAX_FALSE_PER_LINE * lines, f"{len(matches)} in {lines} lines"


def line_count(text: str) -> int:
    """Return how many lines a file has; minified code counts as lines of 100 characters."""
    return max(text.count("\n"), len(text) // 100)


def test_ordinary_code_has_no_secrets() -> None:
    names = ["argparse.py", "ssl.py", "imaplib.py", "tokenize.py", "urllib/request.py", "uuid.py"]
    check_ordinary_code([STANDARD_LIBRARY / name for name in names])


@pytest.mark.full
def test_the_standard_library_has_no_secrets() -> None:
    check_ordinary_code(sorted(STANDARD_LIBRARY.glob("*.py")))


# What installed packages have: Node brings JavaScript, C headers and lists of changes, the
# documentation's packages bring minified scripts, style sheets and pictures in pages.
CODE = ["*.py", "*.js", "*.min.js", "*.h", "*.json", "*.md", "*.css", "*.html", "*.ts"]
MAX_CODE_LINES = 30_000  # of each kind


def random_files(pattern: str, rng: random.Random, max_lines: int) -> Iterator[Path]:
    """Yield random files of installed packages, up to a number of lines."""
    packages = Path(sysconfig.get_paths()["purelib"])
    paths = sorted(path for path in packages.rglob(pattern) if path.is_file())
    rng.shuffle(paths)
    for path in paths:
        max_lines -= line_count(path.read_text(errors="replace"))
        yield path
        if max_lines < 0:
            return


@pytest.mark.full
@pytest.mark.parametrize("pattern", CODE)
def test_installed_packages_have_no_secrets(pattern: str) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    check_ordinary_code(random_files(pattern, random.Random(seed), MAX_CODE_LINES))


def hashed_line(rng: random.Random) -> str:
    """Return a line with random text that is no secret, as lock files, logs and pages have it."""
    sha1, sha256, blob = rng.randbytes(20).hex(), rng.randbytes(32).hex(), rng.randbytes(64)
    encoded = base64.b64encode(blob).decode()
    pixels = base64.b64encode(b"\x89PNG\r\n\x1a\n" + rng.randbytes(600)).decode()
    id = uuid.UUID(int=rng.getrandbits(128), version=4)
    host, name = "https://files.host", f"pkg_{rng.randrange(99)}"
    return rng.choice(
        [
            f"commit {sha1} (HEAD -> main)",
            f"index {sha1[:10]}..{sha256[:10]} 100644",
            f'      "integrity": "sha512-{encoded}",',
            f'{{ url = "{host}/packages/{sha256[:2]}/{sha256[2:4]}/{sha256}/{name}-1.2.whl",',
            f'  hash = "sha256:{sha256}", size = {rng.randrange(10**6)} }},',
            f"{name}==1.{rng.randrange(9)} --hash=sha256:{sha256}",
            f'checksum = "{sha256}"',
            f"github.com/org/{name} v1.2.3 h1:{encoded[:43]}=",
            f"FROM python:3.12@sha256:{sha256}",
            f"      rev: {sha1}  # frozen: v1.2",
            f"- uses: actions/checkout@{sha1} # v4",
            f'<img src="data:image/png;base64,{pixels}">',
            f'{{"id": "{id}", "parent_id": "{uuid.UUID(int=rng.getrandbits(128))}", "n": 1}}',
            f"[{id}] GET /v1/items/{id} 200 in {rng.randrange(999)} ms",
            f'resolved "https://registry.host/{name}/-/{name}-1.0.0.tgz#{sha1}"',
            f"{sha256}  dist/{name}.tar.gz",
            f"E       AssertionError: assert '{sha1[:12]}' == '{sha256[:12]}'",
            f"request id req_{id.hex[:24]} toolu_01{id.hex[:22]} trace={id.hex}",
        ]
    )


def test_hashes_ids_and_pictures_are_no_secrets() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    text = "\n".join(hashed_line(rng) for _ in range(5000))
    matches = [text[max(0, s.start - 40) : s.end] for s in find_secrets(text)]
    print("\n".join(matches))
    assert len(matches) <= MAX_FALSE_PER_LINE * line_count(text), (len(matches), seed)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("curl -u deploy:Zx9-qq-71 https://host", "Zx9-qq-71"),
        ("sshpass -p 'h0rse!battery' ssh host", "h0rse!battery"),
        ("mysql -h db -uroot -pTr0ub4dor shop", "Tr0ub4dor"),
        ("machine host login me password s3cr3t-pw", "s3cr3t-pw"),
        ("Server=db;User Id=sa;Password=Str0ng#Pw;Encrypt=yes", "Str0ng#Pw"),
        ("Authorization: Basic dXNlcjpodW50ZXIyMg==", "dXNlcjpodW50ZXIyMg=="),
        ("{'Authorization': 'Bearer 4f9a8b7c6d5e'}", "4f9a8b7c6d5e"),
        ("Cookie: theme=dark; sid=s%3AhJ8kL2mN4pQ6rS8tU0vW", "s%3AhJ8kL2mN4pQ6rS8tU0vW"),
        ('<add key="ClearTextPassword" value="hal+9ooo_da!sY" />', "hal+9ooo_da!sY"),
        ('[{"name": "DB_PASSWORD", "value": "kangaroo77"}]', "kangaroo77"),
        ("https://api.example.com/v1?api_key=q8Wn3vZx71LmP0c2&page=2", "q8Wn3vZx71LmP0c2"),
        ("https://x-access-token:ghs_16C7e42F292c6912E7710c838347Ae178B4a@github.com/a/b",
         "ghs_16C7e42F292c6912E7710c838347Ae178B4a"),
        ("https://3f1c9a7be2d84c06b5a1f0e9d8c7b6a5@o12.ingest.sentry.io/34",
         "3f1c9a7be2d84c06b5a1f0e9d8c7b6a5"),
        ('{"stdout": "a\\nsshpass -pGB0FP3o2Jqzn ssh x@y\\nb"}', "GB0FP3o2Jqzn"),
        ('{"stdout": "a\\nPGPASSWORD=SiPz9IxK0F psql -h x\\nb"}', "SiPz9IxK0F"),
        ("helm install x --set auth.password=tL1pzG3SwN", "tL1pzG3SwN"),
        ("export SOME_SECRET=ZkxZsYBvO", "ZkxZsYBvO"),
        ("das Passwort lautet adDQ1JAA7t", "adDQ1JAA7t"),
        ("**Password:** `AaYWBk8nxtuk`", "AaYWBk8nxtuk"),
        ("bob:$apr1$wkoRTHy5$vmQUPP5lWtUp.hLNki.NcQ", "vmQUPP5lWtUp"),
        ("seed phrase: abandon ability able about above absent absorb abstract absurd abuse access "
         "accident", "absorb"),
        ("https://api.host/v2/hook/3f1c9a7be2d84c06b5a1f0e9d8c7b6a5",
         "3f1c9a7be2d84c06b5a1f0e9d8c7b6a5"),
        ("auth: { user: 'x', pass: 'Zx9qq71-Lm' }", "Zx9qq71-Lm"),
        ("define('DB_PASSWORD', 'Zx9qq71Lm');", "Zx9qq71Lm"),
        ("requests.get(url, auth=('bob', 'Zx9qq71Lm'))", "Zx9qq71Lm"),
        ("echo Zx9qq71Lm | sudo -S apt update", "Zx9qq71Lm"),
        ("keytool -storepass Zx9qq71Lm -keypass Lm17qq9xZ", "Lm17qq9xZ"),
        ("CREATE USER 'a'@'%' IDENTIFIED BY 'Zx9qq71Lm';", "Zx9qq71Lm"),
        ("[client]\nuser=root\npassword=Zx9qq71Lm\n", "Zx9qq71Lm"),
        ("<password>Zx9qq71Lm</password>", "Zx9qq71Lm"),
        ("      - MYSQL_ROOT_PASSWORD=supersecretpw\n", "supersecretpw"),
        ("ansible_become_pass: letmein123\n", "letmein123"),
        ('variable "db_password" {\n  default = "Zx9qq71Lm"\n}', "Zx9qq71Lm"),
        ("the root password is hunter2", "hunter2"),
        ("Login with bob / Zx9qq71Lm!", "Zx9qq71Lm"),
        ("Passwort: Zx9qq71Lm", "Zx9qq71Lm"),
        ("密码是 Zx9qq71Lm", "Zx9qq71Lm"),
        ("SMTP_PASSWORD='ikou vrho njue ksxd'", "vrho"),
        ("kind: Secret\ndata:\n  user: YWRtaW4=\n  other: aHVudGVyMg==\n", "aHVudGVyMg"),
        ("net user bob Xk29dja1", "Xk29dja1"),
        ("sqlplus app/Xk29d8q", "Xk29d8q"),
        ("host=db user=app password=Onh~h.wL.h-H3B98 sslmode=require", "Onh~h.wL"),
        ("\x1b[32mghp_16C7e42F292c\x1b[0m\x1b[1m6912E7710c838347Ae178B4a\x1b[0m",
         "6912E7710c838347Ae178B4a"),
        ("sudo -u app evil-winrm -i h -u bob -p 'Zx9qq71Lm'", "Zx9qq71Lm"),
        ("twine upload --username ada -p Zx9qq71Lm dist/*", "Zx9qq71Lm"),
        ('subprocess.run(["mysql", "-uroot", "-pTr0ub4dor", "shop"])', "Tr0ub4dor"),
        ('["curl",\n  "-u",\n  "admin:Zx9qq71Lm"]', "Zx9qq71Lm"),
        ('"args": ["tool", "--db-password", "tiger-winter23"]', "tiger-winter23"),
        ("ENV DB_PASSWORD tiger-winter23", "tiger-winter23"),
        ("set -gx DB_PASSWORD tiger-winter23", "tiger-winter23"),
        ("gh secret set DEPLOY --body 'Zx9qq71Lm'", "Zx9qq71Lm"),
        ("const p = process.env.DB_PASSWORD || 'tiger-winter23';", "tiger-winter23"),
        ('const adminPassword string = "Violet1121?"', "Violet1121?"),
        ('password: SecretStr = SecretStr("Zx9qq71Lm")', "Zx9qq71Lm"),
        ("${DB_PASSWORD:-Zx9-qq71Lm!}", "Zx9-qq71Lm"),
        ("java -Dspring.datasource.password=Zx9qq71Lm -jar a.jar", "Zx9qq71Lm"),
        ('"Env": ["DB_PASSWORD=Zx9_qq71Lm", "PATH=/bin"]', "Zx9_qq71Lm"),
        ("--password=CastleGarden1997", "CastleGarden1997"),
        ('{"db_password": {"sensitive": true, "value": "Zx9qq71Lm"}}', "Zx9qq71Lm"),
        ('<input type="password" name="x" value="Zx9qq71Lm">', "Zx9qq71Lm"),
        ('{"stdout": "a\\npassword: >-\\n  Zx9-qq71Lm\\nnext: 1"}', "Zx9-qq71Lm"),
        ("HOME=/root\0DB_PASSWORD=Zx9qq71Lm\0PATH=/bin", "Zx9qq71Lm"),
        ("INSERT INTO u (name, password) VALUES ('bob', 'Zx9_qq71Lm!')", "Zx9_qq71Lm"),
        ("db.host:5432:shop:ada:Zx9qq71Lm", "Zx9qq71Lm"),
        ("ConvertTo-SecureString 'Zx9qq71Lm' -AsPlainText", "Zx9qq71Lm"),
        ("DB_PASSWORD      Zx9-qq71Lm!\nDB_HOST          h", "Zx9-qq71Lm"),
        ("log in as admin with the password Zx9-qq71Lm!", "Zx9-qq71Lm"),
        ("the password for the staging host is Stone7686?", "Stone7686"),
        ("pw: Zx9qq71Lm\n", "Zx9qq71Lm"),
        ("pass: Zx9-qq71Lm! user: bob", "Zx9-qq71Lm"),
        ("My password's Zx9-qq71Lm!", "Zx9-qq71Lm"),
        ("login with password=Xk29vLq8", "Xk29vLq8"),
        ("user password=Xk29vLq8 ;", "Xk29vLq8"),
        (" password=hunter2xyz ; c", "hunter2xyz"),
        ("(log in with user=bob, passwd=Xk29vLq8)", "Xk29vLq8"),
        ("log in with passphrase:Xk29vLq8 now", "Xk29vLq8"),
        ("the client_secret=Xk29vLq8 is", "Xk29vLq8"),
        ("login with password=tiger-winter23 please", "tiger-winter23"),
        ("psexec.py admin:Zx9-qq71Lm!@10.0.0.1", "Zx9-qq71Lm"),
        ("pymysql.connect('h', 'root', 'Zx9-qq71Lm!', 'db')", "Zx9-qq71Lm"),
        ("$ cat /run/secrets/db_password\nZx9-qq71Lm!\n$ ls", "Zx9-qq71Lm"),
        ("DB_PASSWORD ?= Zx9-qq71Lm\n", "Zx9-qq71Lm"),
        ("%prod.db.password=Zx9-qq71Lm\n", "Zx9-qq71Lm"),
        ("SECRET_KEY=django-insecure-vk^#_pg29p!txuhs5rj(6pzo_zk8+m!)b199&^ju)anmox-_b(",
         "199&^ju)anmox"),
        ('variable "snyk_token" {\n  default = "463addaa-68e9-4855-8358-7825b9adc2cc"\n}',
         "463addaa"),
        ("TELEGRAM_API_HASH=e508a9d445c8392d2ac92081c668e2ed", "e508a9d445c8"),
        ("secret recovery phrase is abandon ability able about above absent absorb abstract absurd "
         "abuse access accident", "absorb"),
        ('KEY = ("ghp_16C7e42F292c"\n   "6912E7710c838347Ae178B4a")', "6912E7710c838347Ae178B4a"),
    ],
)  # fmt: skip
def test_context_makes_a_value_a_secret(text: str, secret: str) -> None:
    assert secret not in mask_text(text)


@pytest.mark.parametrize(
    "text",
    [
        'password = os.environ["DB_PASSWORD"]',
        "token = get_token(request, refresh=True)",
        "DATABASE_URL=postgres://postgres:postgres@localhost/app",
        'api_key="your-api-key-here"',
        "export TOKEN=$GITHUB_TOKEN && PASSWORD=${DB_PASSWORD} make",
        "commit 813615f8d3b0a3f5c1e2d4b6a8907f6e5d4c3b2a",
        "keys: [448efd0](https://github.com/npm/npm/commit/448efd0eaa6f97af0889bf47efc543a1ea2f8d7e)",
        'tokens = { url = "https://host/packages/38/05/d33c680c1bcf1c7e130f9cbfc1fc/a-3.tgz" }',
        'integrity "sha512-vY3Jx9N0b1Qm4pZ8tR2wK7cL5nH6fD0gS1aE3uI9oPqXzB=="',
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8kL2mN4pQ6rS8tU0vW1xY3zA5bC7dE9fG1hI3jK5lM me@host",
        "sesn_0199f3a0-7c21-7d4e-8a11-0c5d2e7b9f10 and toolu_01A09q90qw90lq917835lq9Z",
        "password = get_password(user) or default_password",
        "    self.password=other.password",
        'INVALID_PASSWORD = "invalid_password"',
        "the password is sha256-hashed, the password is stored with bcrypt",
        "type Login = { password: string | null; login(user: string): Token }",
        "git clone git@github.com:ada/Tools-V2.git && mail ada:x@example.com",
        "password = form.password\nreturn Response_2xx(form)\n",
        "docker run -u root -p 8080:80 --name web img",
        "sudo -u postgres mkdir -p data1/v2",
        "password = getpass.getpass('Password2: ')",
        "SRP_user_pwd *SRP_VBASE_get1_by_user(SRP_VBASE *vb, char *username);",
        "auth { user = vim.fn.input('User1: ') }",
        "The seed phrase is a list of words that you should write down and keep in a safe place",
        "connect(user=user1, password=password1, timeout=2)",
        "if user: return password=password1",
        "fields: {password:String2, token:t1}",
        "the option password=args.password2 or password=PASSWORD2",
        "auth(password=b64decode(text))",
        "pattern: ^arn:aws:secretsmanager:secret:[A-Za-z0-9/_+=.@-]{1,512}$",
        "def reset_password(self, user_id: int, new_password: str) -> None:",
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert mask_text(text) == text


OPENCODE_ID = "ses_e1bbf1034ffeBux4cLvT6tvMzz"
FILE = "/home/dev/.gemini/tmp/shop-api/chats/df968717-78c6-44a8-afa0-330eab35907a.jsonl"


@pytest.mark.parametrize(
    "text",
    [
        f'<task id="{OPENCODE_ID}" state="completed">',
        f'{{"secret_key":"{OPENCODE_ID}"}}',
        f'{{"key":"{FILE}"}}',
    ],
)
def test_ids_and_files_of_tools_are_no_secrets(text: str) -> None:
    assert mask_text(text) == text


def test_no_key_begins_like_an_id_of_a_tool() -> None:
    random_text = "0123456789abQx7Lm2Vt9Rk4Wp"
    prefixes = [prefix for entry in FORMATS for prefix in entry.prefixes]
    assert [prefix for prefix in prefixes if is_record_id(prefix + random_text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "token=ses_Qx7Lm2Vt9Rk4WpZb3Nc8Hd5Jf6",  # of the same length, but without a time
        "token=ses_e1bbf1034ffeBux4cLvT6tvMzzQx7Lm2Vt9Rk4",
        'key = "/8Qx7Lm2Vt9Rk4WpZb3Nc8Hd5Jf6/Ab1="',
        'key = "/home/dev/ghp_16C7e42F292c6912E7710c838347Ae178B4a.json"',
    ],
)
def test_keys_that_resemble_ids_and_files_are_secrets(text: str) -> None:
    assert mask_text(text) != text


def test_a_mask_is_stable_and_is_not_masked_again() -> None:
    key = "sk-ant-api03-" + "Zq8" * 30 + "a1b2"
    once = mask_text(f"export ANTHROPIC_API_KEY={key}\npassword: {key}")
    assert once.count("sk-ant-…a1b2 [masked]") == 2
    assert mask_text(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "REDIS_PASSWORD='fV8kq2xT-pZ1mB7wL1rE'",
        'gpg_passphrase = "golden-summer-staple-coffee"',
        "[client]\npassword = fV8kq2xT-pZ1mB7wL1rE\n",
        "<password>fV8kq2xT-pZ1mB7wL1rE</password>",
    ],
)
def test_the_mask_of_a_password_is_not_masked_again(text: str) -> None:
    once = mask_text(text)
    assert "[masked]" in once and mask_text(once) == once


def test_names_of_fields_and_options_make_short_values_secret() -> None:
    masked, count = mask_value(
        {"user": "ada", "password": "blue-Fish7", "args": ["psql", "--password", "gr33n-Tea"]}
    )
    assert count == 2
    assert masked["user"] == "ada"
    assert "Fish7" not in str(masked) and "gr33n" not in str(masked)


@pytest.mark.parametrize(
    "value",
    [
        {"env": [{"name": "DB_PASSWORD", "value": "blue-Fish7"}]},
        [{"key": "X-Auth-Token", "value": "463addaa-68e9-4855-8358-7825b9adc2cc", "type": "text"}],
        {"headers": [["X-Api-Key", "e508a9d445c8392d2ac92081c668e2ed"]]},
    ],
)
def test_the_name_next_to_a_value_makes_it_secret(value: object) -> None:
    masked, count = mask_value(value)
    assert count == 1 and "[masked]" in str(masked)


def test_a_name_next_to_an_ordinary_value_changes_nothing() -> None:
    value = {"items": [{"name": "sort_key", "value": "created_at"}, ["key", "value"]]}
    assert mask_value(value) == (value, 0)


@pytest.mark.parametrize("part", ["kind: Secret\ndata: ", "kind: Secret\ndata:\n a: b\n", "data: "])
def test_a_text_with_many_manifests_is_searched_once(part: str) -> None:
    counted = 0

    class CountedText(str):
        def find(self, *arguments: Any) -> int:
            nonlocal counted
            counted += 1
            return super().find(*arguments)

    assert not list(find_in_kubernetes_secrets(CountedText(part * 1000)))
    assert counted <= 2


def test_a_path_with_many_random_parts_is_checked_part_by_part() -> None:
    path = "/".join(["qzxkvjwqzxkvj"] * 80)  # with an odd end, a pattern of all parts never ends
    assert mask_text(f"look at {path}/X9") == f"look at {path}/X9"


def test_a_value_without_secrets_is_returned_as_it_is() -> None:
    value = {"path": "/tmp/a.py", "lines": [1, 2], "text": "print('x')"}
    masked, count = mask_value(value)
    assert masked is value and count == 0


def test_parts_keep_the_text_around_a_split_secret() -> None:
    parts = ["before ghp_16C7e42F29", "2c6912E7710c83", "8347Ae178B4a after"]
    masked = mask_parts(parts)
    assert masked.total == 1
    assert masked.texts == ["before ghp_…8B4a [masked]", "", " after"]


def test_secret_below_ten_thousand_lists_is_masked() -> None:
    value: object = {"password": "hunter2-correct-horse"}
    for _ in range(10_000):
        value = [value]
    masked, count = mask_value(value)
    assert count == 1
    while isinstance(masked, list):
        (masked,) = masked
    assert "hunter2" not in str(masked) and "[masked]" in masked["password"]
