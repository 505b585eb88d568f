"""Analysis and reporting workbench for EAGLE-3 speculative decoding on SGLang."""

__version__ = "0.1.0"
