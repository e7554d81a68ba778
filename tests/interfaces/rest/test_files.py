"""Upload, list, download and delete files."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from segue.hub.resources.files import PART_BYTES
from segue.interfaces.rest.handlers import files
from segue.model import clock
from segue.model.principal import LOCAL
from tests.interfaces.rest.api import Api, open_api


async def upload_file(
    api: Api, data: bytes = b"hello", name: str = "a.txt", mime: str = "text/plain", **fields: Any
) -> dict[str, Any]:
    response = await api.raw("POST", "/v1/files", files={"file": (name, data, mime)}, data=fields)
    assert response.status_code == 200, response.text
    return response.json()


async def test_uploaded_file_can_be_downloaded(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        data = bytes(range(256)) * (PART_BYTES // 128) + b"end"  # three parts
        file = await upload_file(api, data, "dir/r\u00e9sum\u00e9.bin", "application/x-thing")
        assert (file["type"], file["filename"]) == ("file", "r\u00e9sum\u00e9.bin")
        assert (file["mime_type"], file["size_bytes"]) == ("application/x-thing", len(data))
        assert (file["scope"], file["expires_at"], file["downloadable"]) == (None, None, True)
        path = f"/v1/files/{file['id']}"
        assert await api.ok("GET", path) == file
        response = await api.raw("GET", f"{path}/content")
        assert response.content == data
        assert response.headers["content-type"] == "application/x-thing"
        assert response.headers["content-disposition"].startswith("attachment")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert await api.ok("DELETE", path) == {"type": "file_deleted", "id": file["id"]}
        for deleted in (path, f"{path}/content"):
            await api.fails(404, "GET", deleted)
        await api.fails(404, "DELETE", path)
        assert _parts(tmp_path) == 0


def _parts(directory: Path) -> int:
    with sqlite3.connect(directory / "segue.db") as database:
        (count,) = database.execute("SELECT count(*) FROM parts").fetchone()
    database.close()
    return int(count)


async def test_empty_and_unnamed_files_can_be_uploaded(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = await upload_file(api, b"", "..", "application/pdf")
        assert (file["filename"], file["size_bytes"]) == ("unnamed.pdf", 0)
        assert (await api.raw("GET", f"/v1/files/{file['id']}/content")).content == b""


async def test_percent_signs_in_file_names_stay_as_they_are(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for name in ("a%22b.txt", "100%.txt", "%2e%0A"):
            assert (await upload_file(api, name=name))["filename"] == name


async def test_files_can_be_paged_by_token_and_by_id(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = [(await upload_file(api, name=f"{number}"))["id"] for number in range(5)][::-1]
        first = await api.ok("GET", "/v1/files", limit=2)
        assert [item["id"] for item in first["data"]] == file[:2]
        second = await api.ok("GET", "/v1/files", limit=2, page=first["next_page"])
        assert [item["id"] for item in second["data"]] == file[2:4]
        assert (first["has_more"], first["first_id"], first["last_id"]) == (True, *file[:2])
        older = await api.ok("GET", "/v1/files", limit=3, after_id=file[1])
        assert [item["id"] for item in older["data"]] == file[2:]
        assert (older["has_more"], older["next_page"]) == (False, None)
        newer = await api.ok("GET", "/v1/files", limit=2, before_id=file[3])
        assert [item["id"] for item in newer["data"]] == file[1:3]
        assert newer["has_more"]
        some = await api.ok("GET", "/v1/files", **{"ids[]": [file[3], "file_x", file[0]]})
        assert [item["id"] for item in some["data"]] == [file[3], file[0]]
        await api.fails(400, "GET", "/v1/files", limit=2, **{"ids[]": file[0]})
        await api.fails(404, "GET", "/v1/files", after_id="file_x")
        assert (await api.ok("GET", "/v1/files", scope_id="sesn_x"))["data"] == []


async def test_expired_file_cannot_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api:
        file = await upload_file(api, expires_in_seconds="3600")
        assert file["expires_at"] > file["created_at"]
        later = clock.now() + 3601 * clock.SECOND
        monkeypatch.setattr(clock, "now", lambda: later)
        path = f"/v1/files/{file['id']}"
        for _ in range(2):
            assert "expired" in await api.fails(404, "GET", f"{path}/content")
        assert not (await api.ok("GET", path))["downloadable"]
        assert _parts(tmp_path) == 0


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "multipart/form-data; boundary=x"),
        (b"--x\r\nno header", "multipart/form-data; boundary=x"),
        (b"--x--\r\n", "multipart/form-data"),
        (b"{}", "application/json"),
        (b"file=text", "application/x-www-form-urlencoded"),
        (b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nv\r\n--x--\r\n', "MP"),
    ],
)
async def test_invalid_form_is_refused(tmp_path: Path, body: bytes, kind: str) -> None:
    kind = "multipart/form-data; boundary=x" if kind == "MP" else kind
    async with open_api(tmp_path) as api:
        headers = {"content-type": kind}
        status, response = await api.call("POST", "/v1/files", content=body, headers=headers)
        assert status == 400, response
        assert (await api.ok("GET", "/v1/files"))["data"] == []


@pytest.mark.parametrize("seconds", ["0", "3599", "7776001", "x", "-1", "9" * 50])
async def test_expiry_out_of_range_is_refused(tmp_path: Path, seconds: str) -> None:
    async with open_api(tmp_path) as api:
        upload = {"file": ("a", b"x", "text/plain")}
        options = {"files": upload, "data": {"expires_in_seconds": seconds}}
        status, response = await api.call("POST", "/v1/files", **options)
        assert (status, "expires_in_seconds" in response["error"]["message"]) == (400, True)
        assert _parts(tmp_path) == 0


async def test_too_large_upload_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 1000)
    async with open_api(tmp_path) as api:
        upload = {"file": ("a", b"x" * 100_000, "text/plain")}
        status, response = await api.call("POST", "/v1/files", files=upload)
        assert (status, response["error"]["type"]) == (413, "request_too_large")
        assert (await api.ok("GET", "/v1/files"))["data"] == []


async def test_interrupted_upload_stores_nothing(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:

        async def broken() -> AsyncIterator[bytes]:
            yield b"x" * (PART_BYTES + 1)
            raise ConnectionError("the client is gone")

        with pytest.raises(ConnectionError):
            await api.hub.files.store(LOCAL, broken(), {"filename": "f"})
        assert _parts(tmp_path) == 0
