"""How the committed campaigns in data/recorded were made, one module each."""
