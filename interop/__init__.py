"""Other implementations of the format: their set-up, their drivers, and tests of both against Anabranch."""
