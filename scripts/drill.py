"""What happens to sequences when servers and their store fail: go run build.go drill

Two real tritonservers with one Valkey, behind Envoy with the configuration of docs/deploy, under load. Every model's state
says whose it is, how many steps it has, and of which values they are made, so every answer is checked. The drills are in
scripts/drills; each is a row of --only.
"""

import argparse
import sys
from functools import partial

from drills.cost import cost, flush
from drills.findings import table
from drills.killing import kill
from drills.refusals import refusals
from drills.rolling import rolling
from drills.stale import stale
from drills.storefaults import store_faults
from tritonserver import exit_on_sigterm


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="go run build.go drill"
    )
    add, default = parser.add_argument, "(default: %(default)s)"
    add("--minutes", type=float, default=10, metavar="N", help=f"how long servers are killed {default}")
    add("--every", type=float, default=5, metavar="S", help=f"seconds between two kills {default}")
    add("--sequences", type=int, default=200, metavar="N", help=f"clients, one sequence after the other each {default}")
    add(
        "--rounds",
        type=int,
        default=8,
        metavar="N",
        help=f"comparisons of CPU costs; of each fault of the store four times as many {default}",
    )
    add("--seconds", type=float, default=4, metavar="S", help=f"length of each measurement {default}")
    add("--seed", type=int, default=1, metavar="N", help=f"random seed {default}")
    add("--only", metavar="NAME,...", help="only these drills: kill, stale, rolling, store, cost, flush, refusals")
    options = parser.parse_args()
    drills = {
        "kill": partial(kill, options.minutes, options.sequences, options.every, options.seed),
        "stale": stale,
        "rolling": partial(rolling, options.sequences, 4, options.every),
        "store": partial(store_faults, 4 * options.rounds),
        "cost": partial(cost, options.rounds, options.seconds),
        "flush": partial(flush, 10_000),
        "refusals": refusals,
    }
    chosen = options.only.split(",") if options.only else list(drills)
    if unknown := set(chosen) - set(drills):
        parser.error(f"--only: no drill is named {', '.join(sorted(unknown))}: there are {', '.join(drills)}")
    exit_on_sigterm()
    good = table([(name, drills[name]) for name in chosen])
    print("PASSED" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
