"""What all tests share."""

from hypothesis import settings

# No test asserts a time: an example may take as long as a busy machine needs.
settings.register_profile("skdpadmm", deadline=None)
settings.load_profile("skdpadmm")
