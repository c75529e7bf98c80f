"""What holds for all tests."""

from hypothesis import settings

# Nothing is right or wrong because of how fast a busy machine was.
settings.register_profile("anabranch", deadline=None)
settings.load_profile("anabranch")
