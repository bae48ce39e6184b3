from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from fusee.errors import ConfigError
from fusee.pipeline.schema import COLUMNS, KAFKA_COLUMNS, arrow_schema, columns_of


@pytest.mark.parametrize("form", [COLUMNS, KAFKA_COLUMNS])
def test_arrow_schema_is_what_spark_makes_of_its_own(form: tuple[object, ...]) -> None:
    names = [column.name for column in columns_of(kafka_compatible=form is KAFKA_COLUMNS)]
    schema = arrow_schema(names)
    assert to_arrow_schema(from_arrow_schema(schema), timezone="UTC").equals(schema)


def test_types_in_words_are_the_types_of_arrow() -> None:
    for column in (*COLUMNS, *KAFKA_COLUMNS):
        spark_type = from_arrow_schema(pa.schema([(column.name, column.arrow_type)]))
        assert isinstance(spark_type, StructType)
        assert spark_type[column.name].dataType.simpleString() == column.spark_type.replace(" ", "")


def test_columns_come_in_the_order_asked_for() -> None:
    assert arrow_schema(["body", "topic"]).names == ["body", "topic"]


def test_unknown_column_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="no such column: bodi; there are .*body"):
        arrow_schema(["bodi"])


def test_properties_can_be_left_out() -> None:
    assert "properties" not in [column.name for column in columns_of(properties=False)]
    assert "headers" not in [column.name for column in columns_of(kafka_compatible=True, properties=False)]
