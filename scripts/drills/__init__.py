"""Drills: what happens to sequences when servers and their store fail (go run build.go drill).

parts.py starts Valkey, Envoy and HAProxy, slowstore.py makes the store slow, model.py and load.py have the models and the clients
whose answers say what is wrong. The other files are the drills, each of which returns what it found. drill.py runs them.
"""
