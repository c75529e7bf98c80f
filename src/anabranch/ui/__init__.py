"""The local web page, ``anabranch ui``, and the static report, ``anabranch report``.

Needs the extra ``ui``. It reads through the public Python interface, as a person's own program would.
"""
