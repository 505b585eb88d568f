"""The embedded engine: EAGLE-3 speculative decoding in plain PyTorch behind SGLang's flags, log lines and endpoints.

``python -m workbench.reference --model-path ...`` starts it. One request runs at a time, greedily.
"""
