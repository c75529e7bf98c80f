"""Jobs that are corrected."""


def plus(number):
    return lambda given: [{"id": row["id"], "v": row["v"] + number} for row in given]
