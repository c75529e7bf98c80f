"""Lives through worlds of many seeds: ``python -m tests.simulation --seeds 0:1000 --scene clocks``.

Prints how many steps there were, or, of the first seed that went wrong, what happened; ``--trace calls`` tells every
storage call of it. A seed is the same each time with PYTHONHASHSEED=0 and POLARS_MAX_THREADS=1, which are set here.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
import traceback
from itertools import product

FIXED = {"PYTHONHASHSEED": "0", "POLARS_MAX_THREADS": "1"}


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:100")
    parser.add_argument("--scene", default="main", help="one or several, separated by commas")
    parser.add_argument("--trace", choices=["acts", "calls", "none"], default="acts")
    parser.add_argument("--known", default="", help="defects that are not looked for")
    parser.add_argument("--without", default="", help="name of a mend to take out")
    parser.add_argument(
        "--go-on", action="store_true", help="count what goes wrong instead of stopping at the first"
    )
    parser.add_argument("--digest", action="store_true", help="print a digest of all that happened")
    given = parser.parse_args(arguments)
    if any(os.environ.get(key) != value for key, value in FIXED.items()):
        command = [sys.executable, "-m", "tests.simulation", *(arguments or sys.argv[1:])]
        return subprocess.run(command, env={**os.environ, **FIXED}, check=False).returncode
    return live(given)


def live(given):
    from anabranch.lineage import remembered
    from tests.simulation.mutations import MUTATIONS
    from tests.simulation.pools import do_without
    from tests.simulation.process import Known, Violation
    from tests.simulation.world import World
    from tests.simulation.worlds import SCENES

    do_without()
    if given.without:
        MUTATIONS[given.without].patch()
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last or int(first) + 1))
    scenes = given.scene.split(",")
    begin, steps, wrong, known, digest = time.monotonic(), 0, {}, 0, hashlib.sha256()
    trace = None if given.trace == "none" else given.trace
    for scene, seed in product(scenes, seeds):
        world = None
        try:
            remembered.forget()  # a world knows nothing of the one before it
            world = World(seed, SCENES[scene](), keep_trace=trace, known=given.known.split(","))
            world.play()
        except Known:
            known += 1
        except Exception as error:
            if not given.go_on:
                print(f"seed {seed} of {scene}: {error}", *(world.told if world else ()), sep="\n")
                if not isinstance(error, Violation):
                    traceback.print_exception(error)
                return 1
            wrong[f"{scene} {seed}"] = f"{type(error).__name__}: {error}"
        if world is not None:
            steps += world.steps
            digest.update("\n".join(world.told).encode())
    if given.digest:
        print(digest.hexdigest())
    taken = time.monotonic() - begin
    count = len(scenes) * len(seeds)
    print(
        f"{count} seeds, {steps} steps, {known} known, {len(wrong)} wrong; {taken:.1f} s, "
        f"{taken / count * 1000:.0f} ms a seed"
    )
    for seed, error in [*wrong.items()][:60]:
        print(seed, error[:230])
    return 1 if wrong else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(
        code
    )  # where Python takes itself down, native threads sometimes abort it, though nothing was wrong
