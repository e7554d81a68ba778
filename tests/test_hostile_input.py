"""Inputs that made a parser slow or fill the memory are handled within limits.

Each case runs in a process of its own with a limit of CPU time and memory. A parser that is slow
again is killed there, and its case fails.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CPU_SECONDS = 8
MEMORY_BYTES = 1 << 30
LIMITS = f"""
import resource
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
from tests.server import hostile_texts
"""
RENDER = "from segue.render.text.markdown import code, markdown\n"
SKILL = """
import asyncio, io, sys, zipfile
from pathlib import Path
from segue.hub import Hub
from segue.hub.resources import skills
from segue.model.errors import InvalidInput
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore

async def upload(files):
    async with Hub(MemoryStore(), Path(sys.argv[1])) as hub:
        await hub.skills.create(LOCAL, files, None)

def refuse(files, reason):
    try:
        asyncio.run(upload(files))
    except InvalidInput as error:
        assert reason in error.message, error.message
    else:
        raise AssertionError("it was accepted")

HEADER = "---\\nname: s\\ndescription: d\\n"
"""
CASES = {
    "highlighted code": RENDER
    + "html = str(code(hostile_texts.CSHARP, 'csharp'))\nassert 'a\\na\\n' in html",
    "a code fence in a message": RENDER
    + """
html = str(markdown("*So*\\n```csharp\\n" + hostile_texts.CSHARP + "```\\n"))
assert "<em>So</em>" in html and "<code>a\\na\\n" in html
assert str(markdown("```python\\nx = 1\\n```")).count("k-") > 2
""",
    "Markdown": RENDER
    + """
for name in ("tables", "references", "strikethrough"):
    html = str(markdown(hostile_texts.MARKDOWN[name]))
    assert html and len(html) < 4_000_000, name
""",
    "diffs": """
from segue.render.text.diffs import compare_texts
for _ in range(10):
    assert not compare_texts(hostile_texts.OLD_LINES, hostile_texts.NEW_LINES).complete
lines = [f"line {number % 700}" for number in range(100_000)]
changed = [*lines[:50_000], "new", *lines[50_001:]]
diff = compare_texts("\\n".join(lines), "\\n".join(changed))
assert (diff.added, diff.removed, diff.complete, len(diff.lines)) == (1, 1, True, 8)
""",
    "patches for ACP clients": """
from segue.interfaces.acp.versions.encode_v2 import encode_diff
from segue.model.content import Diff
old, new = "a\\n" * 50_000, "a\\nb\\n" * 99
(diff,) = encode_diff(Diff(path="/f", old=old, new=new))
patch = diff.patch.text
assert patch.count("\\n-a") == 50_000 and patch.count("\\n+b") == 99
""",
    "accents in a text": """
from segue.model import search_text
assert len(search_text.tokens("word " + hostile_texts.ACCENTS)) < 200
assert search_text.text_has_term(search_text.terms("word")[0], hostile_texts.ACCENTS + " word")
assert len(search_text.tokens(hostile_texts.EXPANDING * 3)) < 200_000
assert search_text.tokens("cafe\\u0301") == search_text.tokens("caf\\u00e9")
""",
    "a long phrase": """
from segue.model import search_text
[phrase] = search_text.terms(hostile_texts.PHRASE)
assert len(phrase.tokens) > 500
for text in (hostile_texts.LONG_WORDS, "\\u00e9 " + hostile_texts.LONG_WORDS):
    assert not search_text.text_has_term(phrase, text)
    assert search_text.text_has_term(phrase, text + " b")
    assert search_text.count_occurrences(phrase, text + " b") == 1
""",
    "aliases in the header of a skill": SKILL
    + """
bomb = "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\\n" if n else "a0: &a0 {x: 1}\\n"
    for n in range(9)
)
assert len(bomb) < 735
refuse({"s/SKILL.md": f"{HEADER}{bomb}---\\n".encode()}, "aliases")
values = "".join(f"b{n}: &b{n} [{','.join([f'*b{n - 1}'] * 9)}]\\n" for n in range(1, 9))
refuse({"s/SKILL.md": f"{HEADER}b0: &b0 [x]\\n{values}---\\n".encode()}, "aliases")
""",
    "a deeply nested header of a skill": SKILL
    + """
refuse({"s/SKILL.md": f"{HEADER}x: {'[' * 12_000}\\n---\\n".encode()}, "header")
refuse({"s/SKILL.md": f"{HEADER}x: {'[' * 1_000_000}\\n---\\n".encode()}, "header")
""",
    "archives of skills": SKILL
    + """
main = f"{HEADER}---\\n".encode()
def archive(compression, *files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for path, data in (("s/SKILL.md", main), *files):
            file.writestr(path, data)
    return {"s.zip": out.getvalue()}
large = bytes(40 * 1024 * 1024)
refuse(archive(zipfile.ZIP_DEFLATED, ("s/a", large)), "at most")
refuse(archive(zipfile.ZIP_LZMA, ("s/a", b"x")), "deflate")
refuse(archive(zipfile.ZIP_BZIP2, ("s/a", b"x")), "deflate")
skills.CHECK_CPU_SECONDS = 0.5
deep = [(f"s/{'a/' * 30_000}{number}", b"") for number in range(200)]
refuse(archive(zipfile.ZIP_STORED, *deep), "files")
""",
}


@pytest.mark.parametrize("name", CASES)
def test_hostile_input_takes_little_time_and_memory(name: str, tmp_path: Path) -> None:
    program = subprocess.run(
        [sys.executable, "-c", LIMITS + CASES[name], tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert program.returncode == 0, program.stderr[-2000:]
