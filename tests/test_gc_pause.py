"""Pause the garbage collector."""

import gc

import pytest

from segue.gc_pause import gc_paused


@pytest.mark.parametrize("enabled", [True, False])
def test_pause_restores_the_earlier_setting(enabled: bool) -> None:
    originally_enabled = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(KeyError), gc_paused():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if originally_enabled else gc.disable)()
