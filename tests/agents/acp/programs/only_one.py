"""segue's own agent, limited to version 1 of the protocol: `only_one.py DATA_DIR`."""

import subprocess
import sys
import threading

agent = subprocess.Popen(
    [sys.executable, "-m", "segue", "acp", "--data-dir", sys.argv[1]],
    stdin=subprocess.PIPE,
    stdout=sys.stdout,
)


def pump() -> None:
    for line in sys.stdin.buffer:
        agent.stdin.write(line.replace(b'"protocolVersion":2', b'"protocolVersion":1'))
        agent.stdin.flush()
    agent.stdin.close()


threading.Thread(target=pump, daemon=True).start()
sys.exit(agent.wait())
