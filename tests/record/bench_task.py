"""The two-turn coding task of Session-Bench v1, in our words, with a scripted model.

In the first turn the agent inspects a program and sees its check fail. In the second turn the user
corrects the requirement, and the agent changes the file and runs the check again.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from segue.hub import Hub
from segue.hub.sync import export_file
from segue.model.errors import InvalidInput, SegueError
from segue.model.event import BODIES, ConfigChanged
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
from tests.agents.conftest import ModelSetup
from tests.agents.provider import Provider, Say, Script, Think, Use

from . import scorer

MODEL = "anthropic:claude-sonnet-4-6"
MARKER = "=== source ==="
CANARIES = ("SB_RESPONSE_R1_café_🙂", "SB_RESPONSE_R2_Δ")
RUN_CANARY = "SB_RUN_0001"
PROMPTS = (
    "R1: checkout(items) adds unit_price * quantity of each item, and 5 for delivery. Run check.py "
    "with `inspect`, then with `baseline`. Change nothing yet. Explain the result. The canary is "
    f"{RUN_CANARY}. End with exactly {CANARIES[0]}",
    "R2 replaces only the delivery of R1: it is free from a subtotal of 50. Change only "
    "checkout.py. Run check.py with `final`, and explain what you changed. The canary is "
    f"{RUN_CANARY}. End with exactly {CANARIES[1]}",
)
BEFORE = '''def checkout(items):
    """Return the total of an order, in euros, with delivery."""
    subtotal = sum(item["unit_price"] for item in items)
    return subtotal + 5
'''
OLD = """    subtotal = sum(item["unit_price"] for item in items)
    return subtotal + 5
"""
NEW = """    subtotal = sum(item["unit_price"] * item["quantity"] for item in items)
    return subtotal if subtotal >= 50 else subtotal + 5
"""
AFTER = BEFORE.replace(OLD, NEW)
CHECK = f'''"""Print what a phase finds, append it to ledger.jsonl, and exit with its code."""
import json, secrets, sys
from checkout import checkout

phase, nonce = sys.argv[1], secrets.token_hex(8)
lines, code = [f"SB_HELPER_{{phase.upper()}}_{{nonce}}"], 0
if phase == "inspect":
    lines += ["{MARKER}", open("checkout.py").read() + "{MARKER}"]
else:
    cases = [([(10, 2)], 25), ([(25, 2)], 55 if phase == "baseline" else 50)]
    for items, expected in cases:
        total = checkout([{{"unit_price": price, "quantity": count}} for price, count in items])
        lines.append(f"{{items}}: expected {{expected}}, got {{total}}")
        code = code or int(total != expected)
output = "\\n".join(lines)
with open("ledger.jsonl", "a") as ledger:
    ledger.write(json.dumps({{"phase": phase, "exit_code": code, "output": output}}) + "\\n")
print(output)
sys.exit(code)
'''


def command(phase: str) -> str:
    return f"python3 check.py {phase} --run-canary {RUN_CANARY}"


def scripts(run: int) -> tuple[list[Script], list[str]]:
    """Return the model's responses in one of three runs, and the text that ends each turn."""
    answers = [
        f"The check fails, because the sum ignores quantities (run {run}).\n{CANARIES[0]}",
        f"Quantities count, and delivery is free from 50; the check passes (run {run}).\n"
        f"{CANARIES[1]}",
    ]
    change = Use("edit", {"file_path": "checkout.py", "old_string": OLD, "new_string": NEW})
    if run == 2:
        change = Use("write", {"file_path": "checkout.py", "content": AFTER})
    first = Use("bash", {"command": command("inspect")})
    return [
        [Say("I look at the program first."), first] if run < 3 else [Think("Look first."), first],
        [Use("bash", {"command": command("baseline")})],
        [Say(answers[0])],
        [Say("Now I change the file."), change] if run == 3 else [change],
        [Use("bash", {"command": command("final")})],
        [Say(answers[1])],
    ], answers


async def run_task(directory: Path, run: int) -> tuple[Path, Path, dict[str, Any]]:
    """Run the task; return a copy of the store, the export file, and what the observer saw."""
    root, project = directory / f"data-{run}", directory / f"project-{run}" / "fixture_project"
    root.mkdir(parents=True)
    project.mkdir(parents=True)
    (project / "checkout.py").write_text(BEFORE)
    (project / "check.py").write_text(CHECK)
    responses, answers = scripts(run)
    provider = Provider(*responses)
    provider.cache_usage = {"cache_read_input_tokens": run, "cache_creation_input_tokens": 0}
    hub = Hub(SQLiteStore.open(root / "segue.db"), root)
    async with ModelSetup(hub, provider, project) as setup:
        session = await setup.session(origin="cli")
        mode = ConfigChanged(mode="bypassPermissions")
        await hub.editor.configure(LOCAL, session.id, mode)
        for prompt in PROMPTS:
            await setup.run_prompt(prompt, session)
        export = directory / f"session-{run}.jsonl"
        export.write_bytes(
            b"".join([line async for line in hub.exchange.export(LOCAL, session.id)])
        )
    assert (project / "checkout.py").read_text() == AFTER
    copy = directory / f"copy-{run}"
    shutil.copytree(root, copy)
    observer = observe(project, answers, responses)
    observer["receipts"] = receipts(root, copy, export)
    return copy / "segue.db", export, observer


def observe(project: Path, answers: list[str], responses: list[Script]) -> dict[str, Any]:
    """Return what happened, from the task, the model and the helper's ledger."""
    ledger = [json.loads(line) for line in (project / "ledger.jsonl").read_text().splitlines()]
    outputs = {command(entry["phase"]): entry for entry in ledger}
    edited = {"exit_code": 0, "output": "checkout.py"}
    uses = [
        (turn, step)
        for number, script in enumerate(responses)
        for turn in [int(number > 2)]
        for step in script  # type: ignore[union-attr]
        if isinstance(step, Use)
    ]
    actions = []
    for turn, use in uses:
        seen = outputs.get(use.input.get("command"), edited)
        fields = {"exit_code": seen["exit_code"], "output": seen["output"]}
        actions.append({"name": use.name, "input": use.input, "turn": turn, **fields})
    docs = Path(__file__).parent.parent.parent / "docs"
    hashes = [sha256(text.encode()).hexdigest() for text in (BEFORE, AFTER)]
    return {
        "prompts": list(PROMPTS),
        "responses": answers,
        "actions": actions,
        "change": {"path": "checkout.py", "before_sha256": hashes[0], "after_sha256": hashes[1]},
        "model": MODEL,
        "marker": MARKER,
        "document": (docs / "format.md").read_text(),
        "documented_types": list(BODIES),
    }


def receipts(root: Path, copy: Path, export: Path) -> dict[str, bool]:
    """Return the metrics that are about copies of the files and about other versions."""
    names = sorted(path.name for path in root.iterdir() if path.is_file())
    database = copy / "segue.db"
    digest = scorer.decode(root / "segue.db").digest()
    moved = root.with_name(f"{root.name}-moved")
    root.rename(moved)  # a decoder that opened the original would fail
    try:
        isolated = subprocess.run(
            [sys.executable, "-I", "-S", scorer.__file__, str(database)],
            capture_output=True,
            text=True,
            check=False,
            env={},
        )
    finally:
        moved.rename(root)
    return {
        "portable.complete_root": all(
            (root / name).read_bytes() == (copy / name).read_bytes() for name in names
        ),
        "portable.companions": [name for name in names if name.startswith("segue.db-")] == [],
        "portable.isolated_decode": isolated.stdout.strip() == digest,
        "portable.canonical_equality": digest
        == scorer.decode(database).digest()
        == scorer.decode(export).digest(),
        "broad.honest_version_signal": _refuses_other_versions(copy, export),
        "broad.stable_root_location": "segue.db" in names,
    }


def _refuses_other_versions(copy: Path, export: Path) -> bool:
    """Return whether segue refuses a newer store, a newer file and a file that was cut off."""
    newer = copy.with_name(f"{copy.name}-newer.db")
    shutil.copy(copy / "segue.db", newer)
    with closing(sqlite3.connect(newer)) as database:
        database.execute("PRAGMA user_version = 9999")
        database.execute("UPDATE meta SET value = 9999 WHERE name = 'compat'")
        database.commit()
    try:
        SQLiteStore.open(newer)
        return False
    except SegueError:
        pass
    lines = export.read_bytes().splitlines()
    newer_file = [lines[0].replace(b'"version":3', b'"version":99', 1), *lines[1:]]
    refused = 0
    for damaged in (newer_file, lines[:-1]):
        try:
            _, events = export_file.read(damaged)
            list(events)
        except InvalidInput:
            refused += 1
    return refused == 2
