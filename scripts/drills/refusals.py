"""Mistakes of configurations, requests and what is in the store: each is said, and none harms a sequence."""

from collections.abc import Callable

from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from tritonserver import ServerError

from .cluster import Cluster
from .findings import Finding
from .model import Model, hashed, request
from .parts import newest

STORE = {"state_store": "env"}
PASSWORD = "right"


def configuration(name: str, **parameters: str) -> Model:
    return Model(name, parameters=parameters)


# Models that must not load, with what the error says.
REFUSED = [
    (configuration("scheme", state_store="ftp://somewhere"), "state_store"),
    (configuration("port", state_store="valkey://127.0.0.1:99999/0"), "state_store"),
    (configuration("password", state_store="valkey://:secret@127.0.0.1/0"), "password"),
    (configuration("folder", state_store="file:/dev/null/states"), "state_store"),
    (configuration("when", **STORE, checkpoint="sometimes"), "checkpoint"),
    (configuration("rate", **STORE, checkpoint_rate="much"), "checkpoint_rate"),
    (configuration("precision", **STORE, checkpoint_precision="fp16"), "checkpoint_precision"),
]
GOOD = configuration("good", **STORE, checkpoint="sync")
UNREACHABLE = configuration("unreachable", state_store="valkey://127.0.0.1:1/0", checkpoint="steps=2")

# Parameters of requests that must be refused, with what the error says. The sequence goes on after each.
WRONG_PARAMETERS: list[tuple[dict, str]] = [
    ({"stateful_stepp": 1}, "stateful_step"),
    ({"stateful_step": "soon"}, "stateful_step"),
    ({"stateful_step": -5}, "stateful_step"),
    ({"stateful_step": 0}, "expected step 2"),
    ({"stateful_step": 9}, "expected step 2"),
    ({"stateful_save": "perhaps"}, "stateful_save"),
    ({"stateful_resume": "try"}, "START"),
    ({"stateful_drop": 7}, "stateful_drop"),
]


def refusals() -> list[Finding]:
    models = [*(model for model, _ in REFUSED), GOOD, UNREACHABLE]
    password = {"STATEFUL_STORE_PASSWORD": PASSWORD}
    with Cluster(models, proxy=None, explicit=True, loaded=[], valkey=["--requirepass", PASSWORD]) as cluster:
        wrong, right = cluster.servers
        found = [refused("wrong password", lambda: wrong.load(GOOD.name), "state_store")]
        wrong.kill()
        right.kill()
        right.env |= password
        right.start()
        right.load(GOOD.name)
        found += [refused(f"load with {shown(model)}", lambda: right.load(model.name), text) for model, text in REFUSED]
        right.load(UNREACHABLE.name)  # a store that is away is no reason not to serve
        with InferenceServerClient(right.grpc_url) as client:
            found += [*requests(client), without_a_store(client), damaged(client, cluster)]
    return found


def shown(model: Model) -> str:
    return ", ".join(f"{name}={value}" for name, value in model.parameters.items())


def requests(client: InferenceServerClient) -> list[Finding]:
    """Wrong parameters between the steps of one sequence, which does not notice."""
    found, hash = [], 0
    for step in range(2):
        hash = hashed(hash, step)
        infer(client, 7, step, start=step == 0)
    for parameters, text in WRONG_PARAMETERS:
        what = f"request with {next(iter(parameters.items()))}"
        found.append(refused(what, lambda: infer(client, 7, 5, **parameters), text))
    state = infer(client, 7, 2)
    right = state == (7, 3, hashed(hash, 2))
    return [*found, Finding("the sequence after these requests", "as before" if right else f"{state}", "as before", right)]


def without_a_store(client: InferenceServerClient) -> Finding:
    """Requests are served while the store cannot be reached, and resuming is an error rather than a new sequence."""
    answers = [infer(client, 8, step, model=UNREACHABLE.name, start=step == 0)[1] for step in range(6)]
    said = refused("", lambda: infer(client, 9, 1, model=UNREACHABLE.name, start=True, stateful_resume="try"), "")
    good = answers == [1, 2, 3, 4, 5, 6] and said.good
    return Finding("with a store that cannot be reached", "served" if good else f"{answers} {said.found}", "served", good)


def damaged(client: InferenceServerClient, cluster: Cluster) -> Finding:
    """A value with one wrong byte is never a state."""
    infer(client, 11, 1, start=True, stateful_key="damaged")
    key = f"tritonstateful:{GOOD.name}/1:@damaged"
    with cluster.store.client(password=PASSWORD) as store:
        _, _, name = newest(store, key)
        value = bytearray(store.get(name))
        value[-1] ^= 1
        store.set(name, bytes(value), keepttl=True)
    resume = lambda: infer(client, 12, 1, start=True, stateful_key="damaged", stateful_resume="require")
    return refused("resuming a damaged value", resume, "no state of it is saved")


def infer(
    client: InferenceServerClient, number: int, value: int, *, model: str = GOOD.name, start: bool = False, **parameters
) -> tuple[int, int, int]:  # fmt: skip
    """The name, the steps and the hash that the state has."""
    tensor = InferInput("X", [1, 2], "INT64").set_data_from_numpy(request(number, value)["X"])
    result = client.infer(model, [tensor], sequence_id=number, sequence_start=start, parameters=parameters, client_timeout=10)
    least, _, count, hash = (int(each) for each in result.as_numpy("Y")[0])
    return least, count, hash


def refused(what: str, act: Callable[[], object], text: str) -> Finding:
    """It must fail, and say this text."""
    try:
        act()
    except (ServerError, InferenceServerException) as error:
        said = str(error)
        return Finding(what, "refused" if text in said else said, f"an error with {text!r}", text in said)
    return Finding(what, "accepted", f"an error with {text!r}", False)
