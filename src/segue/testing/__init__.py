"""Contract suites for authors of stores and sources. They need pytest.

from segue.testing import StoreContract

class TestMyStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path):
        async def open():
            return await MyStore.open(tmp_path / "store")
        return open

docs/sources.md shows the same for `SourceContract`.
"""

import pytest

# Before the imports, so that a failed assertion shows the compared values.
pytest.register_assert_rewrite("segue.testing.store_contract", "segue.testing.source_contract")

from .source_contract import SourceContract, ToolSessions  # noqa: E402
from .store_contract import OpenStore, StoreContract  # noqa: E402

__all__ = ["OpenStore", "SourceContract", "StoreContract", "ToolSessions"]
