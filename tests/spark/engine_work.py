"""Work for `test_engine`, in a module because tasks find it by its name."""

from anabranch.errors import CommitConflictError


def square(number):
    return number * number


def refuse_three(number):
    if number == 3:
        raise CommitConflictError("three is taken", conflicts=("three",), hint="take four.")
    return number


def divide(number):
    return 1 // number
