"""Settings of all tests."""

from hypothesis import settings

# A shared machine may stall any one example; what a test must not do is hang, and pytest-timeout sees to that.
settings.register_profile("workbench", deadline=None)
settings.load_profile("workbench")
