"""A module of the user's, with a constant, a function and data that is computed."""

LIMIT = 10
LATER = {number * 3: str(number * 104723) for number in range(3)}


def plain(i):
    return i + 1
