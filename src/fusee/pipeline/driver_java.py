"""Classes of our own in the driver's virtual machine, from Java text: Spark brings a compiler, so there is no jar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load_class(spark: SparkSession, text: str, name: str) -> Any:
    """Compile this text, and the class of this name in it.

    Raises Py4JError when it does not compile, TypeError when this Spark has no such compiler.
    """
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(text)
    return compiler.getClassLoader().loadClass(name)
