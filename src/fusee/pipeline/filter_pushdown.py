"""Filters of queries reach the source, each those of its own scan.

Spark 4.1 to 4.3.0 keep what a filter left of a source in Python (its tasks and how they are read) with the table, not
with the scan. So whoever counts `orders.where("queueId = 0")` and then `orders` counts queue 0 twice, and in a union of
two filters of one table, or between two queries of one view, one takes the place of the other. (Later ones keep it
with the scan.)

Hence filters are pushed only where a rule of the optimizer gives each scan a table of its own, before filters are
pushed: `TABLE_PER_SCAN`, Java that the compiler inside Spark compiles in the driver. It also has every query see the
ends of queues as they are then; without it, a table that is used again is read as far as the first time.

In sessions that this does not reach (a server of Spark Connect, or a Spark that has no such fields) nothing is pushed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from fusee.pipeline.driver_java import load_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

SETTING: Final = "spark.sql.python.filterPushdown.enabled"
_RULE: Final = "org.fusee.spark.TablePerScan"

TABLE_PER_SCAN: Final = """
package org.fusee.spark;

import java.lang.reflect.Field;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

public class TablePerScan extends Rule {
    public TreeNode apply(TreeNode plan) {
        return plan.transform(new OwnTable());
    }

    public static class Maker extends AbstractFunction1 {
        public Maker() {
            new OwnTable();  // fails here, once, where Spark has not what it needs
        }

        public Object apply(Object session) {
            return new TablePerScan();
        }
    }

    public static class OwnTable extends AbstractPartialFunction {
        private final Field source;
        private final Field created;

        public OwnTable() {
            try {
                this.source = PythonTable.class.getDeclaredField("ds");
                this.created = PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
            } catch (NoSuchFieldException error) {
                throw new IllegalStateException(error);
            }
            this.source.setAccessible(true);
            this.created.setAccessible(true);
        }

        public boolean isDefinedAt(Object node) {
            if (!(node instanceof DataSourceV2Relation)) {
                return false;
            }
            Object table = ((DataSourceV2Relation) node).productElement(0);
            return table.getClass() == PythonTable.class && isOurs(((PythonTable) table).name());
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            if (!this.isDefinedAt(node)) {
                return otherwise.apply(node);
            }
            DataSourceV2Relation relation = (DataSourceV2Relation) node;
            Object[] parts = new Object[relation.productArity()];
            for (int i = 0; i < parts.length; i++) {
                parts[i] = relation.productElement(i);
            }
            PythonTable table = (PythonTable) parts[0];
            PythonDataSourceV2 own = new PythonDataSourceV2();
            own.setShortName(table.name());
            try {
                this.created.set(own, this.created.get(this.source.get(table)));
            } catch (IllegalAccessException error) {
                throw new IllegalStateException(error);
            }
            parts[0] = new TableOfScan(own, table.name(), table.schema());
            return relation.makeCopy(parts);
        }

        private static boolean isOurs(String name) {
            return name.equals("fusee") || name.equals("rocketmq");
        }
    }

    public static class TableOfScan extends PythonTable {
        public TableOfScan(PythonDataSourceV2 source, String name, StructType schema) {
            super(source, name, schema);
        }
    }
}
"""


def push_filters(spark: SparkSession) -> bool:
    """Have filters reach the source in this session, if it says nothing else about that; whether they may.

    A second call changes nothing.
    """
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return False  # of Spark Connect: its optimizer is elsewhere, and py4j need not be here
    from py4j.protocol import Py4JError

    try:
        _install(spark, session)
    except (Py4JError, TypeError) as error:  # py4j raises TypeError for a class that is not there
        _log.warning("filters do not reach topics, because this Spark is not known: %s", error)
        return False
    if spark.conf.get(SETTING, None) is None:
        spark.conf.set(SETTING, "true")
    return True


def _install(spark: SparkSession, session: Any) -> None:
    extensions = session.extensions()
    rules = extensions.buildOptimizerRules(session)
    if any(rules.apply(number).getClass().getName() == _RULE for number in range(rules.size())):
        return
    extensions.injectOptimizerRule(load_class(spark, TABLE_PER_SCAN, f"{_RULE}$Maker").newInstance())
