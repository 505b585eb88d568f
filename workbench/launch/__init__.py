"""Starting servers.

argv        the command line and the environment of a start of a campaign
process     serve: a server for the time of a block; attach: one that somebody else runs
guard, watchdog, ready, state    how that is done: who ends it, when it is ready, what earlier ones left behind
failure     why a server did not start or died
places      GPUs and ports that no two runs share
gpu, telemetry    what the GPUs say meanwhile
redaction   secrets kept out of what is written
"""
