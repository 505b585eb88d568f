"""What is done, by name, for `walk`.

``prepare(root)`` makes a project, ``meanwhile(folder)`` is around the whole walk. ``act(root)`` is done with a failure
somewhere in it; ``read(root)`` and ``go_on(root)`` must then find all that was whole before, and nothing that only
seems to be.
"""
