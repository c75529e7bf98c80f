"""Tries two works in all orders that can make a difference: ``python -m tests.interleaving --works append,create_branch``."""

import argparse
import time
from itertools import product

from tests.interleaving.pairs import tried
from tests.interleaving.works import ALL
from tests.simulation.pools import do_without


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--works", default=",".join(ALL), help="the one that stands still first")
    parser.add_argument("--others", default=",".join(ALL), help="the one that goes on meanwhile")
    parser.add_argument("--most", type=int, help="most orders of a pair")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    do_without()
    for one, other in product(given.works.split(","), given.others.split(",")):
        begin = time.monotonic()
        number, wrong = tried(one, other, given.most, given.seed)
        print(
            f"{one} {other}: {number} orders, {len(wrong)} wrong; {time.monotonic() - begin:.1f} s",
            flush=True,
        )
        for order, what in wrong[:3]:
            print("   ", order, what[:1500], flush=True)


if __name__ == "__main__":
    main()
