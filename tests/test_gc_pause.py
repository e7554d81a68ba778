"""Pausing the garbage collector for a while."""

import gc

import pytest

from segue.gc_pause import gc_paused


@pytest.mark.parametrize("before", [True, False])
def test_collecting_goes_on_as_it_was_before(before: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        with pytest.raises(KeyError), gc_paused():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is before
    finally:
        (gc.enable if was else gc.disable)()
