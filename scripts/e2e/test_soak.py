"""A short soak: clients that do as they please never see another sequence's state (scripts/soak.py)."""

import soak
from conftest import Folder


def test_soak(serve):
    """Half a minute of go run build.go soak: every answer is right, or an error that the client's account allows."""
    models = {model.name: Folder(model.config(), soak.ledger(model.tape)) for model in soak.MODELS}
    server = serve(models, options=soak.OPTIONS)
    soak.build()
    assert soak.soak(server, ["-duration=25s", "-steps=200000", "-breaks=8s"]) == 0
    assert server.stop() in soak.EXIT_CODES
