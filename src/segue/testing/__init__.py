"""For those who write a store of their own: the suite that ours pass. Needs pytest.

from segue.testing import StoreContract

class TestMyStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path):
        async def open():
            return await MyStore.open(tmp_path / "store")
        return open
"""

import pytest

# Before the import, so that a failed assertion in there says what was compared.
pytest.register_assert_rewrite("segue.testing.store_contract")

from .store_contract import OpenStore, StoreContract  # noqa: E402

__all__ = ["OpenStore", "StoreContract"]
