"""Training and judging drafters: corpora of a target's answers, the training loop, accept length without a server."""
