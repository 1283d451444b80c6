"""Model configurations of tests: what matters in a test is said there, the rest here."""

import re

from tritonserver import ROOT

CPU = "instance_group [{ kind: KIND_CPU }]"


def oldest(batch: int = 3, more: str = "", *, candidates: int = 32, delay: int = 20_000) -> str:
    """The oldest scheduler. It waits for batches of that size, at most delay microseconds; 0 is for no batching."""
    wait = f"preferred_batch_size: [{batch}] max_queue_delay_microseconds: {delay}" if batch else ""
    return (
        "sequence_batching { max_sequence_idle_microseconds: 60000000 "
        f"oldest {{ max_candidate_sequences: {candidates} {wait} }} {more} }}"
    )


def direct(more: str = "", *, delay: int = 20_000, utilization: float = 1, idle: int = 60_000_000) -> str:
    """The direct scheduler. It waits until that share of the sequences has a request, at most delay microseconds."""
    return (
        f"sequence_batching {{ max_sequence_idle_microseconds: {idle} "
        f"direct {{ max_queue_delay_microseconds: {delay} minimum_slot_utilization: {utilization} }} {more} }}"
    )


def free(batch: int = 3, *, sequences: int = 32, delay: int = 20_000, idle: int = 60_000, more: str = "") -> str:
    """The dynamic batcher, under which sequences are free. It waits for batches as oldest does; more goes into it."""
    wait = f"preferred_batch_size: [{batch}] max_queue_delay_microseconds: {delay}" if batch else ""
    return "\n".join(
        (
            f"dynamic_batching {{ {wait} {more} }}",
            parameter("sequences", "free"),
            parameter("max_sequences", str(sequences)),
            parameter("sequence_idle_ms", str(idle)),
        )
    )


def parameter(key: str, value: str) -> str:
    """A parameter of a config.pbtxt."""
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def io(name: str, datatype: str, *dims: int, more: str = "") -> str:
    """An input or output. Without dims it is one element, which the model has no axis for."""
    shape = f"dims: [{', '.join(map(str, dims))}]" if dims else "dims: [1] reshape: { shape: [] }"
    return f'{{ name: "{name}" data_type: TYPE_{datatype} {shape} {more} }}'


def config(
    inputs: list[str],
    outputs: list[str],
    scheduler: str | None = None,
    *,
    batch: int = 8,
    group: str = CPU,
    **parameters: str,
) -> str:
    """A config.pbtxt. The scheduler is oldest() unless another one, or none by "", is given."""
    lines = [
        'backend: "stateful"',
        f"max_batch_size: {batch}",
        f"input [{', '.join(inputs)}]",
        f"output [{', '.join(outputs)}]",
        oldest() if scheduler is None else scheduler,
        group,
        *(parameter(key, value) for key, value in parameters.items()),
    ]
    return "\n".join(lines) + "\n"


OLDEST = re.compile(
    r"sequence_batching \{ max_sequence_idle_microseconds: (\d+) oldest \{ max_candidate_sequences: (\d+) ([^}]*)\}"
)
RATIO = re.compile(r'parameters \{ key: "max_candidate_sequence_use_ratio" value \{ string_value: "([\d.]+)" \} \}')
CONTROL = re.compile(
    r'\{ name: "(\w+)" control \[\{ kind: CONTROL_SEQUENCE_(\w+) (?:\w+_false_true: \[ ?(\w+), ?(\w+) ?\]|data_type: \w+) \}\] \}'
)
WORDS = {"START": "start", "END": "end", "READY": "ready", "CORRID": "correlation_id"}


def under(text: str, scheduler: str) -> str:
    """A configuration with another scheduler in the place of oldest(): "oldest", "direct" or "free". One that has another
    one stays, and so does one for free that lists states as Triton has them, because nothing else means the same."""
    found = OLDEST.search(text)
    if scheduler == "oldest" or not found or scheduler == "free" and "state [" in text:
        return text
    idle, candidates, wait = found.groups()
    if scheduler == "direct":
        delay = re.search(r"max_queue_delay_microseconds: \d+", wait)
        text = RATIO.sub("", text)  # there is a slot for each batch slot
        return text.replace(found[0], f"{found[0].partition('oldest')[0]}direct {{ {delay[0] if delay else ''} }}")
    rest, end = text[found.end() :], 0
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(rest[end], 0)
        end += 1
    ratio = float((RATIO.search(text) or ["", "0.9"])[1])
    given = {"sequences": "free", "max_sequences": str(int(int(candidates) * ratio)), "sequence_idle_ms": str(int(idle) // 1000)}
    controls = [f"{name} = {'not_' * (false == 'true')}{WORDS[kind]}" for name, kind, false, _true in CONTROL.findall(rest[:end])]
    derived = re.search(r'key: "derived_inputs" value \{ string_value: "([^"]*)', text)
    text = text[: found.start()] + f"dynamic_batching {{ {wait} }}" + rest[end:]
    if controls and derived:
        text = text.replace(derived[1], "; ".join([derived[1], *controls]))
    elif controls:
        given["derived_inputs"] = "; ".join(controls)
    return text + "\n".join(parameter(key, value) for key, value in given.items()) + "\n"


BLOCK = re.compile(r"(?:<!-- model: (\S+) -->\s+)?```[a-z]*\n(backend: \"stateful\".*?)```", re.DOTALL)


def blocks(page: str) -> list[tuple[str | None, str]]:
    """The configurations of a page of the documentation, each with the name of its model."""
    return BLOCK.findall((ROOT / page).read_text())
