"""How a worker finds the worker that has a connection."""

from contextlib import closing
from pathlib import Path

from segue.server.peers import WorkerPeers


def test_worker_forwards_nothing_to_itself(tmp_path: Path) -> None:
    peers = WorkerPeers(tmp_path, 1)
    with closing(peers.listen()) as sock:
        port = sock.getsockname()[1]
        (tmp_path / "2").write_text(str(port))  # worker 2 had this port before it ended
        (tmp_path / "3").write_text("1")
        assert peers.owner_port("2-connection") is None
        assert peers.owner_port("3-connection") == 1
