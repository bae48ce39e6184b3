"""A cluster of real processes on this machine: start it, look at it, break it, stop it."""

from fusee.cluster.errors import ClusterError as ClusterError
from fusee.cluster.local import LocalCluster as LocalCluster
from fusee.cluster.plan import Node as Node
from fusee.cluster.plan import Shape as Shape
