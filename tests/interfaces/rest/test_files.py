"""Files: what is uploaded comes back, whole or not at all."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from segue.hub.resources.files import PART_BYTES
from segue.interfaces.rest.handlers import files
from segue.model import clock
from tests.interfaces.rest.api import Api, open_api


async def uploaded(
    api: Api, data: bytes = b"hello", name: str = "a.txt", mime: str = "text/plain", **fields: Any
) -> dict[str, Any]:
    answer = await api.raw("POST", "/v1/files", files={"file": (name, data, mime)}, data=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_what_is_uploaded_comes_back(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        data = bytes(range(256)) * (PART_BYTES // 128) + b"end"  # two parts and a bit
        made = await uploaded(api, data, "dir/r\u00e9sum\u00e9.bin", "application/x-thing")
        assert (made["type"], made["filename"]) == ("file", "r\u00e9sum\u00e9.bin")
        assert (made["mime_type"], made["size_bytes"]) == ("application/x-thing", len(data))
        assert (made["scope"], made["expires_at"], made["downloadable"]) == (None, None, True)
        path = f"/v1/files/{made['id']}"
        assert await api.ok("GET", path) == made
        answer = await api.raw("GET", f"{path}/content")
        assert answer.content == data
        assert answer.headers["content-type"] == "application/x-thing"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert await api.ok("DELETE", path) == {"type": "file_deleted", "id": made["id"]}
        for gone in (path, f"{path}/content"):
            await api.fails(404, "GET", gone)
        await api.fails(404, "DELETE", path)
        assert _parts(tmp_path) == 0


def _parts(directory: Path) -> int:
    with sqlite3.connect(directory / "segue.db") as database:
        (count,) = database.execute("SELECT count(*) FROM parts").fetchone()
    database.close()
    return int(count)


async def test_an_empty_file_and_one_without_a_name_are_files_too(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        made = await uploaded(api, b"", "..", "application/pdf")
        assert (made["filename"], made["size_bytes"]) == ("unnamed.pdf", 0)
        assert (await api.raw("GET", f"/v1/files/{made['id']}/content")).content == b""


async def test_files_are_paged_in_the_new_way_and_in_the_old(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        made = [(await uploaded(api, name=f"{number}"))["id"] for number in range(5)][::-1]
        first = await api.ok("GET", "/v1/files", limit=2)
        assert [each["id"] for each in first["data"]] == made[:2]
        second = await api.ok("GET", "/v1/files", limit=2, page=first["next_page"])
        assert [each["id"] for each in second["data"]] == made[2:4]
        assert (first["has_more"], first["first_id"], first["last_id"]) == (True, *made[:2])
        older = await api.ok("GET", "/v1/files", limit=3, after_id=made[1])
        assert [each["id"] for each in older["data"]] == made[2:]
        assert (older["has_more"], older["next_page"]) == (False, None)
        newer = await api.ok("GET", "/v1/files", limit=2, before_id=made[3])
        assert [each["id"] for each in newer["data"]] == made[1:3]
        assert newer["has_more"]
        some = await api.ok("GET", "/v1/files", **{"ids[]": [made[3], "file_x", made[0]]})
        assert [each["id"] for each in some["data"]] == [made[3], made[0]]
        await api.fails(400, "GET", "/v1/files", limit=2, **{"ids[]": made[0]})
        await api.fails(404, "GET", "/v1/files", after_id="file_x")
        assert (await api.ok("GET", "/v1/files", scope_id="sesn_x"))["data"] == []


async def test_a_file_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_api(tmp_path) as api:
        made = await uploaded(api, expires_in_seconds="3600")
        assert made["expires_at"] > made["created_at"]
        later = clock.now() + 3601 * clock.SECOND
        monkeypatch.setattr(clock, "now", lambda: later)
        path = f"/v1/files/{made['id']}"
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
async def test_a_form_that_is_none_is_refused(tmp_path: Path, body: bytes, kind: str) -> None:
    kind = "multipart/form-data; boundary=x" if kind == "MP" else kind
    async with open_api(tmp_path) as api:
        headers = {"content-type": kind}
        status, answer = await api.call("POST", "/v1/files", content=body, headers=headers)
        assert status == 400, answer
        assert (await api.ok("GET", "/v1/files"))["data"] == []


@pytest.mark.parametrize("seconds", ["0", "3599", "7776001", "x", "-1", "9" * 50])
async def test_an_expiry_out_of_range_is_refused(tmp_path: Path, seconds: str) -> None:
    async with open_api(tmp_path) as api:
        upload = {"file": ("a", b"x", "text/plain")}
        options = {"files": upload, "data": {"expires_in_seconds": seconds}}
        status, answer = await api.call("POST", "/v1/files", **options)
        assert (status, "expires_in_seconds" in answer["error"]["message"]) == (400, True)
        assert _parts(tmp_path) == 0


async def test_a_file_that_is_too_large_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILE", 1000)
    async with open_api(tmp_path) as api:
        upload = {"file": ("a", b"x" * 100_000, "text/plain")}
        status, answer = await api.call("POST", "/v1/files", files=upload)
        assert (status, answer["error"]["type"]) == (413, "request_too_large")
        assert (await api.ok("GET", "/v1/files"))["data"] == []


async def test_an_upload_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:

        async def broken() -> AsyncIterator[bytes]:
            yield b"x" * (PART_BYTES + 1)
            raise ConnectionError("the client is gone")

        with pytest.raises(ConnectionError):
            await api.hub.files.store("local", broken(), {"filename": "f"})
        assert _parts(tmp_path) == 0
