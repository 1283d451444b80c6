"""Benchmarks the stateful backend: go run build.go bench

End to end: a real tritonserver, loaded with sequences by a native load generator. Every contender (a backend and what it
needs) serves the same model with the same scheduler in a server of its own. The servers are measured in turns, in
many short rounds, each of which another one begins, and the table shows the medians: on a shared machine single
figures move by a factor of two, while ratios within a round hold. The steadiest figure is the server's CPU time per
request.

  stateful  this backend
  implicit  the same, with states listed as Triton's implicit state, and the batch first
  minimal   Triton's implicit state by a backend in C that does no more than it must: what no backend with it gets below
  nothing   a backend that answers with zeros: what the server itself costs
  floor     the same, which also runs ONNX Runtime, with states in place: what no backend can get below
  python    a model of the Python backend that keeps states in a dict and runs ONNX Runtime
  before    this backend in another version (--before)
  ort       Triton's ONNX Runtime backend with implicit state (--ort-backend)

The last columns are the server's CPU time over that of floor, implicit, minimal and ort, with the same allocator.

Instead, other things can be measured:

  --open     latency at random arrivals, 50 and 80 % of the capacity, over the do-nothing backend plus one run
  --idle     the memory of 1,000 and 10,000 live sequences, of which few are active
  --loading  how long a model of 200 MB takes to load, over a session of ONNX Runtime
  --weights  the memory and throughput of several instances of that model
  --schedulers  what oldest, direct and free cost, their latencies and how fair they are: the table of docs/schedulers.md
  --wrong    what one client who always sends a value that the model refuses costs the others
  --step     the step alone: whole batches through the library's entry points, with a fake Triton, against ONNX Runtime in a
             loop at the same batch
  --micro    the parts of a step

--open, --idle, --loading, --weights and --wrong fail if a target is missed; docs/performance.md has the targets.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import benchclosed
import benchcontenders
import benchidle
import benchload
import benchopen
import benchschedulers
import benchweights
import benchwrong
from benchbuild import BUILD, MODELS, ROOT, build, build_models, link_ort_backend
from benchcontenders import CONTENDERS, Contender
from benchtarget import Target, serve
from benchworkload import WORKLOADS, ModelConfig, Setting, Workload
from gobench import micro, step
from tritonserver import BACKENDS, ServerError, TritonServer, exit_on_sigterm

SMALL = ["accumulate_fp32", "lstm2x512", "kvring"]

# What is measured in each way if the options do not say otherwise.
DEFAULTS = {
    "closed": {"model": SMALL, "contenders": list(CONTENDERS), "sequences": [8, 64, 256], "rounds": 16},
    "open": {"model": SMALL, "contenders": benchopen.DEFAULT, "sequences": [64], "rounds": 6},
    "idle": {"model": benchidle.MODELS, "contenders": benchidle.DEFAULT, "sequences": [64], "rounds": 3},
    "loading": {"rounds": 5},
    "weights": {"sequences": [32], "rounds": 16},
    "schedulers": {"sequences": [64, 1000], "rounds": 5, "seconds": 3},
    "wrong": {"sequences": [32], "rounds": 16},
    "step": {},
    "micro": {},
}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="go run build.go bench"
    )
    add = parser.add_argument
    add("--model", nargs="+", choices=[*WORKLOADS, "all"], metavar="MODEL",
        help=f"models to serve: {', '.join(WORKLOADS)}, or all (default: {', '.join(SMALL)}; "
        f"with --idle {', '.join(benchidle.MODELS)})")  # fmt: skip
    add("--contenders", nargs="+", choices=CONTENDERS, metavar="NAME",
        help=f"backends: {', '.join(CONTENDERS)} (default: all; with --open {', '.join(benchopen.DEFAULT)}; "
        f"with --idle {', '.join(benchidle.DEFAULT)})")  # fmt: skip
    add("--before", type=Path, metavar="FOLDER", help="a backends folder of another version, to be measured too")
    add("--ort-backend", type=Path, metavar="FOLDER",
        help="a folder with libtriton_onnxruntime.so, to be measured too; it is not part of any package of Python")  # fmt: skip
    add("--tcmalloc", nargs="?", const="", metavar="LIBRARY",
        help="measure each contender once more with tcmalloc preloaded: this library, or the one that the linker finds; "
        "Debian and Ubuntu have it in the package libtcmalloc-minimal4")  # fmt: skip
    add("--sequences", nargs="+", type=positive, metavar="N",
        help="concurrent sequences, each with one request in flight (default: 8 64 256; with --open 64; with --schedulers 64 1000; "
        "with --weights and --wrong, which take one number, 32); with --idle requests in flight, one number (default: 64)")  # fmt: skip
    add("--instances", type=positive, default=1, metavar="N", help="instances of each model (default: 1)")
    add("--percent", nargs="+", type=positive, default=benchopen.PERCENT, metavar="P",
        help="arrivals of --open, in percent of the capacity (default: 50 80)")  # fmt: skip
    add(
        "--live",
        nargs="+",
        type=positive,
        default=benchidle.LIVE,
        metavar="N",
        help="live sequences of --idle (default: 1000 10000)",
    )
    add("--rounds", type=positive, metavar="N",
        help="rounds to take the medians of (default: 16; with --open 6, --loading and --schedulers 5, --idle 3)")  # fmt: skip
    add("--starts", type=positive, default=1, metavar="N",
        help="starts of the servers, with the rounds after each: servers of one library differ by up to 20 %% of CPU time with a "
        "tiny model (default: 1; not with the ways below but --schedulers)")  # fmt: skip
    add("--seconds", type=float, metavar="S",
        help="time of one measurement; lstm5x512 takes twice, zipformer97 6 times as long (default: 0.6; with --schedulers 3)")  # fmt: skip
    add("--warmup", type=float, default=0.2, metavar="S", help="load before each measurement (default: 0.2)")
    add("--steps", type=positive, default=100, metavar="N",
        help="requests of a sequence before it ends and a new one starts (default: 100)")  # fmt: skip
    add("--streams", type=positive, default=4, metavar="N", help="gRPC streams for the sequences (default: 4)")
    add("--max-batch", type=positive, default=64, metavar="N", help="max_batch_size of the models (default: 64)")
    add("--json", type=Path, metavar="FILE", help="also write every single result to a file (also with --open and --idle)")
    add("--plot", type=Path, metavar="FILE", help="also draw the medians, as a PNG or SVG file (needs matplotlib)")
    ways = parser.add_mutually_exclusive_group()
    way = partial(ways.add_argument, action="store_const", dest="way")
    way("--open", const="open", help="measure latencies of random arrivals")
    way("--idle", const="idle", help="measure the memory of idle sequences, and some active ones of many")
    way("--loading", const="loading", help="measure how long a large model takes to load")
    way("--weights", const="weights", help="measure the memory and throughput of several instances of a large model")
    way("--schedulers", const="schedulers", help="measure oldest, direct and free")
    way("--wrong", const="wrong", help="measure what a client of wrong values costs the others")
    way("--step", const="step", help="measure the step alone, without a server")
    way("--micro", const="micro", help="measure the parts of a step")
    parser.set_defaults(way="closed")
    options = parser.parse_args()
    for name, value in ({"seconds": 0.6} | DEFAULTS[options.way]).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.model and "all" in options.model:
        options.model = list(WORKLOADS)
    if options.way == "open" and not {"stateful", "nothing"} <= set(options.contenders):
        parser.error("--open needs the contenders stateful and nothing")
    return options


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def chosen(options: argparse.Namespace) -> list[Contender]:
    """The contenders that the options name."""
    contenders = [CONTENDERS[name] for name in options.contenders]
    if options.before:
        contenders.append(benchcontenders.before(options.before))
    if options.ort_backend:
        link_ort_backend(options.ort_backend)
        contenders.append(benchcontenders.ort(options.ort_backend))
    library = "" if options.tcmalloc is None else benchcontenders.find_tcmalloc(options.tcmalloc)
    return contenders + [contender.with_allocator(library) for contender in contenders if library]


def compare(measure, options: argparse.Namespace) -> int:
    """Builds what the chosen contenders and models need, then measures them."""
    contenders = chosen(options)
    build(options.contenders, options.model)
    for name in [name for name in options.model if not WORKLOADS[name].file.exists()]:
        print(f"{name} is left out: there is no such model")  # the builder of models has said why
        options.model.remove(name)
    return measure(contenders, options)


def wrong(options: argparse.Namespace) -> int:
    build(["stateful"], ["tokens"])
    with serve(CONTENDERS["stateful"], Workload("tokens", output="y"), Setting(options.max_batch, options.instances)) as target:
        return benchwrong.measure(target, options)


def schedulers(options: argparse.Namespace) -> int:
    build(["stateful"], ["accumulate_fp32"])
    return benchschedulers.measure(options)


def weights(options: argparse.Namespace) -> int:
    build(["stateful"], [])

    def load(server: TritonServer, config: ModelConfig) -> dict:
        target = Target(CONTENDERS["stateful"], Workload(config.name, output="y"), config, server)
        return target.load(options.sequences[0], options)

    return benchweights.measure(load, BUILD / "weights", options)


def alone(measure) -> int:
    """Measures without a server."""
    build_models([])
    return measure(ROOT, BACKENDS, MODELS)


def main() -> int:
    options = parse_options()
    exit_on_sigterm()
    ways = {
        "closed": lambda: compare(benchclosed.measure, options),
        "open": lambda: compare(benchopen.measure, options),
        "idle": lambda: compare(benchidle.measure, options),
        "loading": lambda: benchload.measure(BUILD / "weights", options),
        "weights": lambda: weights(options),
        "schedulers": lambda: schedulers(options),
        "wrong": lambda: wrong(options),
        "step": lambda: alone(step),
        "micro": lambda: alone(micro),
    }
    try:
        return ways[options.way]()
    except ServerError as failure:
        sys.exit(f"bench: {failure}")


if __name__ == "__main__":
    sys.exit(main())
