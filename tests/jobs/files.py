"""Job files as text."""

CLEAN = """
import anabranch


@anabranch.job("clean", sources={"raw": "db.raw"}, sink="db.orders", trigger="5 seconds")
def clean(raw):
    return raw.where("v % 2 = 0")
"""


def write(folder, text, name="jobs_of_test.py"):
    """A job file; without `import anabranch` it gets one."""
    path = folder / name
    path.write_text(text if "import anabranch" in text else f"import anabranch\n{text}")
    return path
