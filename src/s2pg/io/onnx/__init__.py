"""Functions of JAX as ONNX files; of other packages this needs `onnx` alone."""

from s2pg.io.onnx.convert import convert

__all__ = ["convert"]
