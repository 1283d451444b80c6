"""The models of the smoke test: those of the example models that sum up, whose answers accumulate.py knows."""

MODELS = ["accumulate_fp32", "accumulate_int32", "mixed_io_bool_int8", "mixed_io_int32_fp16"]
