"""`segue skills`: directories uploaded, listed, given another version, and read back."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic

from segue.interfaces.cli.api.errors import Failure
from segue.interfaces.cli.api.skills import uploads
from tests.clients.rest_server import serving
from tests.interfaces.cli.child import Run

HEAD = "---\nname: reviewing\ndescription: How we review.\n---\n"


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    """A skill's directory, with more in it than belongs to the skill."""
    top = tmp_path / "reviewing"
    (top / "scripts" / "__pycache__").mkdir(parents=True)
    (top / ".git").mkdir()
    (top / "SKILL.md").write_text(HEAD + "Be kind.\n")
    (top / "scripts" / "run.py").write_text("print('Grüße')\n")
    (top / "scripts" / "__pycache__" / "run.pyc").write_bytes(b"\0")
    (top / ".git" / "config").write_text("secret")
    return top


def one(run: Run, *words: str) -> Any:
    done = run(*words, "--format", "jsonl")
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def inside(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_life_of_a_skill(run: Run, skill: Path, tmp_path: Path) -> None:
    made = one(run, "skills", "create", "--file", str(skill), "--display-name", "How we review")
    assert (made["type"], made["display_name"]) == ("skill", "How we review")
    id = made["id"]
    assert one(run, "beta:skills", "list") == one(run, "skills", "retrieve", id) == made
    target = tmp_path / "first.zip"
    assert run("skills", "versions", "download", id, "1", "-o", str(target)).returncode == 0
    assert inside(target) == {
        "reviewing/SKILL.md": HEAD + "Be kind.\n",
        "reviewing/scripts/run.py": "print('Grüße')\n",
    }
    (skill / "SKILL.md").write_text(HEAD + "Be quick.\n")
    second = one(run, "skills", "versions", "create", id, "--file", str(skill / "SKILL.md"))
    assert (second["version"], second["skill_id"]) == ("2", id)
    third = one(run, "beta:skills:versions", "create", id, "--file", f"@{target}")
    numbers = run("skills", "versions", "list", id, "--transform", "version", "-r").stdout
    assert numbers == "3\n2\n1\n"
    assert one(run, "skills", "versions", "retrieve", id, "latest") == third
    assert one(run, "skills", "versions", "delete", id, "3")["type"] == "skill_version_deleted"
    latest = ("skills", "versions", "download", id, "--version", "latest")
    assert run(*latest, "--output", str(target)).returncode == 0
    assert inside(target) == {"reviewing/SKILL.md": HEAD + "Be quick.\n"}
    assert one(run, "skills", "delete", id) == {"id": id, "type": "skill_deleted"}
    assert run("skills", "list").stdout == ""


def test_an_official_client_sees_what_was_uploaded_and_the_other_way_round(
    run: Run, skill: Path, tmp_path: Path
) -> None:
    with serving(tmp_path / "data", "--sources", "none") as server:
        there = ("--base-url", server.url, "--api-key", server.key)
        made = one(run, "skills", "create", "--file", str(skill), *there)
        with Anthropic(base_url=server.url, api_key=server.key) as client:
            seen = client.beta.skills.retrieve(made["id"])
            files = [("reviewing/SKILL.md", HEAD.encode())]
            client.beta.skills.versions.create(made["id"], files=files)
            assert seen.display_name == made["display_name"] == "reviewing"
        assert one(run, "skills", "versions", "retrieve", made["id"], "2", *there) == one(
            run, "skills", "versions", "retrieve", made["id"], "latest"
        )


def test_what_is_no_skill_is_refused_in_words(run: Run, skill: Path, tmp_path: Path) -> None:
    none = run("skills", "create")
    assert (none.returncode, none.stdout) == (1, "") and '"file" not set' in none.stderr
    gone = run("skills", "create", "--file", str(tmp_path / "gone"))
    assert (gone.returncode, gone.stderr) == (
        1,
        f"cannot read {tmp_path / 'gone'}: No such file or directory\n",
    )
    (skill / "SKILL.md").unlink()
    without = run("skills", "create", "--file", str(skill))
    assert without.returncode == 1
    assert "must have a SKILL.md" in json.loads(without.stdout)["error"]["message"]
    target = tmp_path / "out.zip"
    missing = run("skills", "versions", "download", "skill_01x", "1", "-o", str(target))
    assert missing.returncode == 1 and not target.exists()


def test_nothing_that_is_elsewhere_is_uploaded(skill: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (skill / "again.md").symlink_to("SKILL.md")  # which stays inside
    named = dict(uploads(str(skill)))
    assert named["reviewing/again.md"] == named["reviewing/SKILL.md"]
    for target in ("../secret", "..", "../gone", str(tmp_path / "secret")):
        (skill / "out").symlink_to(target)
        with pytest.raises(Failure, match=rf"{skill}/out is a link out of the skill's directory"):
            uploads(str(skill))
        (skill / "out").unlink()
    (skill / "round").symlink_to(".")
    with pytest.raises(Failure, match="round is a link to a directory"):
        uploads(str(skill))
    (skill / "round").unlink()
    os.mkfifo(skill / "pipe")
    with pytest.raises(Failure, match="pipe is neither a file nor a directory"):
        uploads(str(skill))
