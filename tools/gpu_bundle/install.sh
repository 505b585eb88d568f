#!/usr/bin/env bash
# On the GPU node: install.sh PIECES_DIR SITE_DIR MODEL_DIR
# Joins the pieces of kit.tar.xz and model.gguf, unpacks the first into SITE_DIR (put it on PYTHONPATH) and writes the
# second as MODEL_DIR/model.gguf.
set -euo pipefail
pieces=$1 site=$2 model=$3
mkdir -p "$site" "$model"
cat "$pieces"/kit.tar.xz.* | tar xJ -C "$site"
cat "$pieces"/model.gguf.* > "$model/model.gguf"
echo "export PYTHONPATH=$site:\$PWD HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1   # then: python3 -m workbench doctor"
