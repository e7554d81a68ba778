"""The second half of what each official Python client does: what sessions refer to."""

from typing import Any

import anthropic

BEARER = {"type": "static_bearer", "mcp_server_url": "https://a.example/mcp", "token": "S3CRET"}
VARIABLE = {
    "type": "environment_variable",
    "secret_name": "API_KEY",
    "secret_value": "S3CRET",
    "networking": {"type": "limited", "allowed_hosts": ["api.example.com"]},
}
OAUTH = {
    "type": "mcp_oauth",
    "mcp_server_url": "https://b.example/mcp",
    "access_token": "S3CRET",
    "expires_at": "2030-01-01T00:00:00Z",
    "refresh": {
        "client_id": "id",
        "refresh_token": "S3CRET",
        "token_endpoint": "https://b.example/token",
        "token_endpoint_auth": {"type": "client_secret_post", "client_secret": "S3CRET"},
    },
}


def files(strict: Any, agent: Any, environment: Any) -> None:
    """Uploaded, listed, read; mounted into a session and taken away again."""
    files = [
        strict.files.upload(file=(f"{number}.txt", b"x" * number, "text/plain"))
        for number in range(3)
    ]
    assert [session_to_delete.id for session_to_delete in strict.files.list(limit=2)][:3] == [
        session_to_delete.id for session_to_delete in files[::-1]
    ]
    one = files[2]
    assert strict.files.retrieve_metadata(one.id) == one
    assert strict.files.download(one.id).read() == b"xx"
    assert strict.files.delete(files[0].id).type == "file_deleted"
    mounted: Any = {"type": "file", "file_id": one.id, "mount_path": "/data/two"}
    session = strict.sessions.create(
        agent=agent.id, environment_id=environment.id, resources=[mounted]
    )
    (resource,) = session.resources
    assert (resource.type, resource.mount_path) == ("file", "/data/two")
    added = strict.sessions.resources.add(session.id, type="file", file_id=files[1].id)
    listed = [
        session_to_delete.id
        for session_to_delete in strict.sessions.resources.list(session.id, limit=1)
    ]
    assert listed == [resource.id, added.id]
    scoped = {
        session_to_delete.id
        for session_to_delete in strict.files.list(extra_query={"scope_id": session.id})
    }
    assert scoped == {resource.file_id, added.file_id}
    deletion = strict.sessions.resources.delete(added.id, session_id=session.id)
    assert deletion.type == "session_resource_deleted"
    try:
        strict.files.retrieve_metadata(added.file_id)
        raise AssertionError("the copy outlived its mount")
    except anthropic.NotFoundError:
        pass
    repository: Any = {"type": "github_repository", "url": "https://example.com/a/b"}
    other = strict.sessions.create(
        agent=agent.id,
        environment_id=environment.id,
        resources=[{**repository, "authorization_token": "one"}],
    )
    (clone,) = other.resources
    changed = strict.sessions.resources.update(
        clone.id, session_id=other.id, authorization_token="two"
    )
    assert changed.id == clone.id and changed.updated_at > clone.updated_at
    for session_to_delete in (session, other):
        strict.sessions.delete(session_to_delete.id)


def skills(strict: Any, agent: Any, environment: Any) -> None:
    """Uploaded, listed, read back; named by a session's agent."""
    head = b"---\nname: greeting\ndescription: Says ahoy.\n---\n"
    files = [("greeting/SKILL.md", head, "text/markdown"), ("greeting/a.txt", b"a", "text/plain")]
    skill = strict.skills.create(files=files)
    # Older clients have a class of its own for each call's answer.
    assert strict.skills.retrieve(skill.id).model_dump() == skill.model_dump()
    calls = strict.skills.versions
    second = calls.create(skill.id, files=files)
    listed = list(calls.list(skill.id, limit=1))
    assert [each.name for each in listed] == ["greeting", "greeting"]
    assert listed[0].model_dump() == second.model_dump()
    assert skill.id in [each.id for each in strict.skills.list(limit=1, source="custom")]
    if hasattr(calls, "download"):
        assert calls.download(second.id, skill_id=skill.id).read()[:2] == b"PK"
    named: Any = {"type": "custom", "skill_id": skill.id}
    strict.agents.update(agent.id, version=strict.agents.retrieve(agent.id).version, skills=[named])
    session = strict.sessions.create(agent=agent.id, environment_id=environment.id)
    (shown,) = session.agent.skills
    assert (shown.type, shown.skill_id) == ("custom", skill.id)
    pinned = calls.retrieve(shown.version, skill_id=skill.id)
    assert pinned.model_dump() == second.model_dump()
    strict.agents.update(agent.id, version=session.agent.version, skills=[])
    assert calls.delete(second.id, skill_id=skill.id).type == "skill_version_deleted"
    assert strict.skills.delete(skill.id).type == "skill_deleted"


def credentials(strict: Any, seed: bool) -> None:
    """Of every kind that the client knows, by every call on them."""
    vault = strict.vaults.create(display_name="v")
    kinds = [BEARER, OAUTH, *([VARIABLE] if seed else [])]
    calls = strict.vaults.credentials
    for auth in kinds:
        credential = calls.create(vault.id, auth=auth, display_name="c", metadata={"k": "v"})
        assert (credential.auth.type, credential.vault_id) == (auth["type"], vault.id)
        assert "S3CRET" not in credential.model_dump_json()
        changed = calls.update(credential.id, vault_id=vault.id, display_name="d")
        assert calls.retrieve(credential.id, vault_id=vault.id) == changed
    assert len(list(calls.list(vault.id, limit=1))) == len(kinds)
    try:
        calls.create(vault.id, auth=BEARER)
        raise AssertionError("a second credential for one server")
    except anthropic.ConflictError as error:
        assert error.status_code == 409
    assert calls.archive(credential.id, vault_id=vault.id).archived_at is not None
    assert calls.delete(credential.id, vault_id=vault.id).type == "vault_credential_deleted"
    strict.vaults.delete(vault.id)


def memories(strict: Any) -> None:
    """Written, moved, listed as a tree, deleted; with versions, one of them redacted."""
    store = strict.memory_stores.create(name="m")
    calls = strict.memory_stores.memories
    note = calls.create(store.id, path="/notes/a.md", content="one")
    calls.create(store.id, path="/z.md", content="")
    assert calls.retrieve(note.id, memory_store_id=store.id).content == "one"
    guard: Any = {"type": "content_sha256", "content_sha256": note.content_sha256}
    changed = calls.update(
        note.id, memory_store_id=store.id, content="two", path="/b.md", precondition=guard
    )
    assert (changed.id, changed.path) == (note.id, "/b.md")
    try:
        calls.update(note.id, memory_store_id=store.id, content="three", precondition=guard)
        raise AssertionError("a stale memory was changed")
    except anthropic.ConflictError:
        pass
    calls.create(store.id, path="/notes/c.md", content="c")
    listed = [(each.type, each.path) for each in calls.list(store.id, depth=1, limit=1)]
    assert listed == [("memory", "/b.md"), ("memory_prefix", "/notes/"), ("memory", "/z.md")]
    assert calls.delete(note.id, memory_store_id=store.id).type == "memory_deleted"
    versions = strict.memory_stores.memory_versions
    history = list(versions.list(store.id, memory_id=note.id, limit=1))
    assert [each.operation for each in history] == ["deleted", "modified", "created"]
    redacted = versions.redact(history[2].id, memory_store_id=store.id)
    assert redacted.redacted_at is not None and redacted.content is None
    assert versions.retrieve(history[1].id, memory_store_id=store.id).content == "two"
    strict.memory_stores.delete(store.id)
