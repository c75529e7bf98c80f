"""Values that are computed when first asked for."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from anabranch.lazy import lazy


@dataclass(frozen=True)
class Tree:
    child: "Tree | None" = None

    @lazy
    def depth(self):
        """How deep it is."""
        if self.child is None:
            return 1
        with ThreadPoolExecutor(1) as pool:
            return 1 + pool.submit(lambda: self.child.depth).result(timeout=10)


def test_it_is_computed_once():
    calls = []

    class Once:
        @lazy
        def value(self):
            calls.append(1)
            return object()

    one = Once()
    assert one.value is one.value
    assert calls == [1]


def test_asking_for_it_in_another_thread_while_it_is_computed_does_not_hang():
    assert Tree(Tree(Tree())).depth == 3


def test_it_says_what_it_is():
    assert Tree.depth.__doc__ == "How deep it is."
