"""The best configuration in few GPU minutes: predict from what is measured, measure where the best may lie, decide.

``state`` reads run folders, ``acceptance`` and ``cycle`` predict, ``race`` judges, ``plan`` chooses the next server
start, ``outcome`` ranks, ``drive`` is the command. Everything but ``drive`` is a function of what is measured so far,
so that a search that was broken off goes on by itself.
"""
