"""Drills: what happens to sequences when servers and their store fail (go run build.go drill).

cluster.py starts servers with the models of model.py, and what is around them: parts.py has Valkey, Envoy and HAProxy,
slowstore.py a connection to the store that can be slow. clients.py has the clients, which check every answer. The other files
are the drills: functions that return what they found (findings.py). drill.py, next to this folder, runs them.
"""

import sys
from pathlib import Path

# The client that users install is used from the source.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))
