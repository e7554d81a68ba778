"""`segue skills`: upload, list, update and download skills."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from segue.interfaces.cli.api.errors import ApiFailure
from segue.interfaces.cli.api.uploads import read_uploads
from tests.clients.rest_server import serving
from tests.interfaces.cli.child import Run

HEAD = "---\nname: reviewing\ndescription: How we review.\n---\n"


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    """A skill's directory, with files that are not part of the skill."""
    root = tmp_path / "reviewing"
    (root / "scripts" / "__pycache__").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "SKILL.md").write_text(HEAD + "Be kind.\n")
    (root / "scripts" / "run.py").write_text("print('Grüße')\n")
    (root / "scripts" / "__pycache__" / "run.pyc").write_bytes(b"\0")
    (root / ".git" / "config").write_text("secret")
    return root


def run_json(run: Run, *words: str) -> Any:
    done = run(*words, "--format", "jsonl")
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def read_zip(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_skill_versions_are_created_downloaded_and_deleted(
    run: Run, skill: Path, tmp_path: Path
) -> None:
    created = run_json(
        run, "skills", "create", "--file", str(skill), "--display-name", "How we review"
    )
    assert (created["type"], created["display_name"]) == ("skill", "How we review")
    id = created["id"]
    assert (
        run_json(run, "beta:skills", "list") == run_json(run, "skills", "retrieve", id) == created
    )
    target = tmp_path / "first.zip"
    assert run("skills", "versions", "download", id, "1", "-o", str(target)).returncode == 0
    assert read_zip(target) == {
        "reviewing/SKILL.md": HEAD + "Be kind.\n",
        "reviewing/scripts/run.py": "print('Grüße')\n",
    }
    (skill / "SKILL.md").write_text(HEAD + "Be quick.\n")
    second = run_json(run, "skills", "versions", "create", id, "--file", str(skill / "SKILL.md"))
    assert (second["version"], second["skill_id"]) == ("2", id)
    third = run_json(run, "beta:skills:versions", "create", id, "--file", f"@{target}")
    numbers = run("skills", "versions", "list", id, "--transform", "version", "-r").stdout
    assert numbers == "3\n2\n1\n"
    assert run_json(run, "skills", "versions", "retrieve", id, "latest") == third
    assert run_json(run, "skills", "versions", "delete", id, "3")["type"] == "skill_version_deleted"
    latest = ("skills", "versions", "download", id, "--version", "latest")
    assert run(*latest, "--output", str(target)).returncode == 0
    assert read_zip(target) == {"reviewing/SKILL.md": HEAD + "Be quick.\n"}
    assert run_json(run, "skills", "delete", id) == {"id": id, "type": "skill_deleted"}
    assert run("skills", "list").stdout == ""


def test_official_client_and_command_see_each_others_uploads(
    run: Run, skill: Path, tmp_path: Path
) -> None:
    from anthropic import Anthropic

    with serving(tmp_path / "data", "--sources", "none") as server:
        server_options = ("--base-url", server.url, "--api-key", server.key)
        created = run_json(run, "skills", "create", "--file", str(skill), *server_options)
        with Anthropic(base_url=server.url, api_key=server.key) as client:
            seen = client.beta.skills.retrieve(created["id"])
            files = [("reviewing/SKILL.md", HEAD.encode())]
            client.beta.skills.versions.create(created["id"], files=files)
            assert seen.display_name == created["display_name"] == "reviewing"
        assert run_json(
            run, "skills", "versions", "retrieve", created["id"], "2", *server_options
        ) == run_json(run, "skills", "versions", "retrieve", created["id"], "latest")


def test_upload_errors_name_the_file(run: Run, skill: Path, tmp_path: Path) -> None:
    none = run("skills", "create")
    assert (none.returncode, none.stdout) == (1, "") and '"file" not set' in none.stderr
    missing_file = run("skills", "create", "--file", str(tmp_path / "gone"))
    assert (missing_file.returncode, missing_file.stderr) == (
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


def test_files_outside_the_directory_are_not_uploaded(skill: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (skill / "again.md").symlink_to("SKILL.md")  # inside of the directory
    uploads = dict(read_uploads(str(skill)))
    assert uploads["reviewing/again.md"] == uploads["reviewing/SKILL.md"]
    for target in ("../secret", "..", "../gone", str(tmp_path / "secret")):
        (skill / "out").symlink_to(target)
        with pytest.raises(
            ApiFailure, match=rf"{skill}/out is a link out of the skill's directory"
        ):
            read_uploads(str(skill))
        (skill / "out").unlink()
    (skill / "round").symlink_to(".")
    with pytest.raises(ApiFailure, match="round is a link to a directory"):
        read_uploads(str(skill))
    (skill / "round").unlink()
    os.mkfifo(skill / "pipe")
    with pytest.raises(ApiFailure, match="pipe is neither a file nor a directory"):
        read_uploads(str(skill))
