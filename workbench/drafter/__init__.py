"""The EAGLE-3 draft module and its checkpoints, as SGLang's ``LlamaForCausalLMEagle3`` computes and names them."""
